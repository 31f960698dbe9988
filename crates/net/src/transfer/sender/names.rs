//! Files that have several names, where they are to stay one file at the receiver.
//!
//! Which of them the receiver still remembers is reckoned in [`Linked`]; a file that could not be sent is forgotten, and its
//! next name is a file of its own. One that has the inode of another by now is no name of that: inodes are used again once a
//! file is gone, and trees change while they are listed.

use std::collections::HashMap;

use lfn_core::transfer::linked::Linked;

use super::origin::Facts;
use crate::transfer::place::Inode;

/// By what a file is known under another name: device and inode, and that nothing was changed, neither its content nor its
/// names (`st_ctime`). In a tree whose files all have one time, another file may come to its inode with its length.
pub(super) type Identity = (Inode, Facts, (i64, i64));

/// What was listed of them.
#[derive(Debug)]
pub(super) struct Names {
    kept: bool,
    recent: Linked,
    numbers: HashMap<Identity, u32>,
    files: HashMap<u32, Identity>,
}

impl Names {
    /// None yet; nor ever, unless that is `kept`.
    pub(super) fn new(kept: bool) -> Self {
        Names { kept, recent: Linked::default(), numbers: HashMap::new(), files: HashMap::new() }
    }

    /// Whether another name was listed: its number.
    pub(super) fn earlier(&self, file: Identity) -> Option<u32> {
        self.numbers.get(&file).copied()
    }

    /// Remembers the first name of a file.
    pub(super) fn note(&mut self, number: u32, name: usize, file: Identity) {
        for old in self.recent.push(number, name) {
            if let Some(file) = self.files.remove(&old) {
                self.numbers.remove(&file);
            }
        }
        self.numbers.insert(file, number);
        self.files.insert(number, file);
    }

    /// Whether names are noted at all.
    pub(super) fn are_kept(&self) -> bool {
        self.kept
    }

    /// A file that is not there at the receiver.
    pub(super) fn forget(&mut self, number: u32) {
        if let Some(file) = self.files.remove(&number) {
            self.numbers.remove(&file);
        }
    }
}
