//! One side of a copy, as its conversation sees it: what it has to say, what it makes of what it hears, and whether it is
//! through. Sender and receiver differ in nothing else for [`super::talk`].

use lfn_core::transfer::digest::Digest;
use lfn_core::transfer::keep::LeftOut;
pub use lfn_core::transfer::limit::Extent;
use lfn_core::units::Bytes;
use lfn_core::wire::copy::{Failure, Progress, Tally};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::TransferError;
use super::flow::Flow;
use crate::session::DataStream;

/// A sender or a receiver. Every method but [`Side::run`] returns at once: files are touched on threads of its own.
pub(crate) trait Side: Send + Sync {
    /// Its messages.
    type Says: Serialize;
    /// The other side's.
    type Hears: DeserializeOwned;
    /// Whether it is the one that sends.
    const SENDS: bool;

    /// Its sign of life.
    fn alive(progress: Progress) -> Self::Says;

    /// How far the other side is, where it says so.
    fn progress_in(message: &Self::Hears) -> Option<Progress>;

    /// Whether it is more than a sign of life.
    fn advances(message: &Self::Hears) -> bool;

    /// What its streams share.
    fn flow(&self) -> &Flow;

    /// How much is listed so far.
    fn listed(&self) -> Extent;

    /// What there is to say now; asked every few milliseconds, and mostly nothing.
    fn words(&self) -> Vec<Self::Says>;

    /// Takes a message. An error ends the copy.
    fn heard(&self, message: Self::Hears) -> Result<(), TransferError>;

    /// Works on a data stream, on the caller's thread, until there is no more for it to do.
    fn run(&self, stream: DataStream);

    /// Whether data streams have something to do still, now or later.
    fn wants_streams(&self) -> bool;

    /// Whether something should be moving; false while the receiver makes room or syncs, where a stall is no fault.
    fn moving(&self) -> bool;

    /// How it ended, once it has: everything is settled and both sides know it.
    fn ended(&self) -> Option<Ended>;
}

/// What is known of a copy at its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ended {
    /// What became of the entries.
    pub(crate) tally: Tally,
    /// Of the file, if it was one file.
    pub(crate) digest: Option<Digest>,
    /// Where it stands, as far as this side may know.
    pub(crate) path: Option<String>,
    /// Length of all files that were to be copied.
    pub(crate) bytes: Bytes,
    /// What failed on either side, the first of them.
    pub(crate) failures: Vec<Failure>,
    /// What the sender did not list.
    pub(crate) left_out: LeftOut,
}
