//! An entry in the receiver's hands, from the list to its end: listed, looked at, compared, wanted, done.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use lfn_core::transfer::blocks::Layout;
use lfn_core::transfer::digest::Digest;
use lfn_core::transfer::entry::{Entry, Name};
use lfn_core::transfer::intake::Intake;
use lfn_core::units::Bytes;
use lfn_core::wire::copy::Failure;

use super::super::TransferError;
use super::partial::Partial;
use super::quota::Own;

/// Most that may be remembered of single blocks in all files that are under way ([`Intake::held`]): 25 MiB. Streams
/// leave gaps between their blocks as wide as what is under way on them, which are some thousands.
const MOST_HELD: usize = 1 << 18;

/// How much is remembered of single blocks in all files.
pub(super) type Held = Arc<AtomicUsize>;

/// What the table holds of an entry.
#[derive(Debug)]
pub(super) enum Slot {
    /// Not looked at.
    Listed(Box<Entry>),
    /// Somebody looks at it.
    Looking,
    /// Its digest is computed, and the sender's is waited for.
    Comparing {
        entry: Box<Entry>,
        ours: Option<Option<Digest>>,
        theirs: Option<Digest>,
    },
    Wanted(Arc<Item>),
}

/// A file that is wanted.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) number: u32,
    pub(super) entry: Entry,
    pub(super) layout: Layout,
    /// What is there gives way.
    pub(super) replace: bool,
    /// Of the server's quota of bytes.
    pub(super) set_aside: Own,
    pub(super) state: Mutex<State>,
}

/// How far a wanted file is.
#[derive(Debug)]
pub(super) struct State {
    pub(super) intake: Intake,
    /// Of a file of several blocks, once one of them is there.
    pub(super) partial: Option<Arc<Partial>>,
    /// The sender's digest of a file of several blocks.
    pub(super) sent: Option<Digest>,
    /// The partial file was begun by an earlier session of this copy.
    pub(super) ours: bool,
    /// Nothing more is done to it: it waits for its name, or failed.
    pub(super) over: bool,
    /// Its part of what is remembered of all files.
    held: usize,
    all: Held,
}

impl State {
    /// Adds what is remembered of this file to what is of all; an error if that is too much.
    pub(super) fn account(&mut self) -> Result<(), TransferError> {
        let held = self.intake.held();
        let before = std::mem::replace(&mut self.held, held);
        let all = self.all.fetch_add(held, Ordering::Relaxed) + held - before;
        self.all.fetch_sub(before, Ordering::Relaxed);
        if all > MOST_HELD && held > before { Err(TransferError::Scattered) } else { Ok(()) }
    }
}

impl Drop for State {
    fn drop(&mut self) {
        self.all.fetch_sub(self.held, Ordering::Relaxed);
    }
}

impl Item {
    pub(super) fn new(number: u32, entry: Entry, layout: Layout, replace: bool, all: Held) -> Self {
        let intake = Intake::new(layout);
        let state = State { intake, partial: None, sent: None, ours: false, over: false, held: 0, all };
        Item { number, entry, layout, replace, set_aside: Own::default(), state: Mutex::new(state) }
    }
}

/// An entry to be looked at.
#[derive(Debug)]
pub(super) struct Next {
    pub(super) number: u32,
    pub(super) entry: Entry,
    /// Of a file that was compared with what stands in its place.
    pub(super) compared: Option<Compared>,
    /// It is looked at for the first time.
    pub(super) first: bool,
}

/// What a comparison of digests came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Compared {
    pub(super) equal: bool,
    /// Of the file here.
    pub(super) digest: Option<Digest>,
}

/// What became of an entry.
#[derive(Debug)]
pub(super) enum Done {
    File {
        digest: Digest,
        kept: Bytes,
        bytes: Bytes,
    },
    /// A file that would be written.
    Planned(Bytes),
    Directory,
    Link,
    /// Length of the file, if it is one.
    Skipped(Bytes),
    /// A file of that length that an earlier session of this copy wrote.
    Earlier(Bytes),
    /// Here.
    Failed(TransferError),
    /// It would have been in a directory that failed, which was told.
    Below,
    /// At the sender, who knows.
    Unsent(Failure),
}

/// What a hard link leads to.
#[derive(Debug)]
pub(super) enum Leads {
    There(Name, Entry),
    /// The file by itself: a newer one stays where its first name is.
    Left(Entry),
    Later,
    Gone,
}
