//! Files that have several names, where they are to stay one file at the receiver.
//!
//! Which of them the receiver still remembers is reckoned in [`Linked`]; a file that could not be sent is forgotten, and its
//! next name is a file of its own.

use std::collections::HashMap;

use lfn_core::transfer::linked::Linked;

use crate::transfer::place::Inode;

/// What was listed of them.
#[derive(Debug)]
pub(super) struct Names {
    kept: bool,
    recent: Linked,
    numbers: HashMap<Inode, u32>,
    inodes: HashMap<u32, Inode>,
}

impl Names {
    /// None yet; nor ever, unless that is `kept`.
    pub(super) fn new(kept: bool) -> Self {
        Names { kept, recent: Linked::default(), numbers: HashMap::new(), inodes: HashMap::new() }
    }

    /// Whether another name was listed: its number.
    pub(super) fn earlier(&self, inode: Inode) -> Option<u32> {
        self.numbers.get(&inode).copied()
    }

    /// Remembers the first name of a file.
    pub(super) fn note(&mut self, number: u32, name: usize, inode: Inode) {
        for old in self.recent.push(number, name) {
            if let Some(inode) = self.inodes.remove(&old) {
                self.numbers.remove(&inode);
            }
        }
        self.numbers.insert(inode, number);
        self.inodes.insert(number, inode);
    }

    /// Whether names are noted at all.
    pub(super) fn are_kept(&self) -> bool {
        self.kept
    }

    /// A file that is not there at the receiver.
    pub(super) fn forget(&mut self, number: u32) {
        if let Some(inode) = self.inodes.remove(&number) {
            self.numbers.remove(&inode);
        }
    }
}
