//! Progress of a copy: the totals of its list, and the reason if nothing moves.

use lfn_base::units::Bytes;
use serde::{Deserialize, Serialize};

/// Totals of the entries that are listed so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedTotals {
    /// Length of all files.
    pub bytes: Bytes,
    /// Bytes that need not be sent: up to date, received by an earlier copy, in a hole, or of a failed file.
    #[serde(default)]
    pub not_needed: Bytes,
    /// Files, directories and links.
    pub entries: u64,
    /// Entries that are copied, up to date, or failed.
    pub finished: u64,
    /// The list is complete.
    pub complete: bool,
}

/// Current activity of one side's streams: the number of streams in each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamActivity {
    /// Reading the source or writing the destination.
    pub disk: u32,
    pub hash: u32,
    /// Writing to or reading from the network.
    pub network: u32,
}

/// Reason why nothing moves although both sides are connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StallCause {
    /// The sender waits for a read.
    SourceDisk,
    /// The receiver waits for a write.
    DestinationDisk,
    /// The sender sends, but nothing arrives.
    Network,
    /// Neither side is active: one of them waits for a message that does not arrive.
    Deadlock,
}

/// Returns why nothing moves, from the activity of both sides.
pub fn stall_cause(sender: &StreamActivity, receiver: &StreamActivity) -> StallCause {
    // If the receiver's disk hangs, the network fills up. If the sender's disk hangs, the network is empty.
    match (sender, receiver) {
        (_, StreamActivity { disk: 1.., .. }) => StallCause::DestinationDisk,
        (StreamActivity { disk: 1.., network: 0, .. }, _) => StallCause::SourceDisk,
        (StreamActivity { network: 1.., .. }, _) => StallCause::Network,
        _ => StallCause::Deadlock,
    }
}
