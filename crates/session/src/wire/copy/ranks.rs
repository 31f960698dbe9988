//! Ranks: several hosts that send or receive one copy together.
//!
//! Each rank has its own session. Its request names its number and the number of ranks, and the server joins the
//! sessions of one copy. Ranks that send list their entries as every sender does, but send only blocks that the server
//! assigns to them ([`ReceiverMessage::Assign`]).
//!
//! The server appoints one of the receiving ranks as the lead ([`SenderMessage::Appointed`]). The lead is the receiver of an
//! ordinary copy. The others write blocks of large files into the files of the lead, on a file system that all of them
//! share, and report each stored block.
//!
//! [`ReceiverMessage::Assign`]: super::ReceiverMessage::Assign
//! [`SenderMessage::Appointed`]: super::SenderMessage::Appointed

use std::time::Duration;

use lfn_base::units::{BitRate, Bytes};
use serde::{Deserialize, Serialize};

use super::progress::ListedTotals;

/// Maximum number of ranks of one copy.
pub const MAX_RANKS: u16 = 1024;

/// Maximum length of the name of a job, in bytes.
pub const MAX_JOB_LENGTH: usize = 256;

/// The request of one rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankRequest {
    /// Number of the rank, from 0.
    pub rank: u16,
    /// Number of ranks, at least 1.
    pub ranks: u16,
    /// Name of the job at its launcher. The ranks of two jobs are never joined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    #[serde(default)]
    pub assignment: BlockAssignment,
    /// Place of the first byte of this rank's file in the complete file. `None` if the rank has complete files.
    #[serde(default, rename = "offset_bytes", skip_serializing_if = "Option::is_none")]
    pub offset: Option<Bytes>,
    /// Time that the server waits for an absent rank.
    #[serde(rename = "patience_seconds", with = "lfn_base::path::seconds")]
    pub patience: Duration,
}

/// The rule by which ranks get blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockAssignment {
    /// The next block goes to the rank that is ready for it.
    #[default]
    OnDemand,
    /// Rank r of n gets the blocks r, r + n, r + 2n, and so on.
    Staggered,
}

/// State of a rank as the server sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RankState {
    /// The rank has not connected yet.
    Absent,
    /// The rank is connected.
    Connected,
    /// The rank was connected, and its connection is lost.
    Lost,
}

/// Figures of one rank at the server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct RankStatus {
    /// Number of the rank, from 0.
    pub rank: u16,
    pub state: RankState,
    /// Address of the rank's host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Payload of the rank's data streams.
    pub bytes: Bytes,
    /// Data streams that are open now.
    pub streams: u16,
    /// Number of times that the rank connected again.
    pub reconnects: u32,
    /// Goodput over the last second; at the end of the copy, over the whole time.
    #[serde(rename = "goodput_bits_per_second")]
    pub goodput: BitRate,
}

/// Figures of all ranks together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RankFigures {
    /// In the order of the ranks.
    pub ranks: Vec<RankStatus>,
    /// Time since blocks were first assigned.
    #[serde(rename = "seconds", with = "lfn_base::path::seconds")]
    pub time: Duration,
    /// Totals of the common list.
    pub totals: ListedTotals,
}

impl RankFigures {
    /// Returns the payload of all ranks.
    pub fn bytes(&self) -> Bytes {
        Bytes(self.ranks.iter().fold(0, |sum, rank| sum.saturating_add(rank.bytes.0)))
    }

    /// Returns the goodput of all ranks.
    pub fn goodput(&self) -> BitRate {
        BitRate(self.ranks.iter().fold(0, |sum, rank| sum.saturating_add(rank.goodput.0)))
    }

    /// Returns the ranks that are not connected.
    pub fn absent(&self) -> impl Iterator<Item = &RankStatus> {
        self.ranks.iter().filter(|rank| rank.state != RankState::Connected)
    }
}
