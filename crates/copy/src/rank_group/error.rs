//! Reasons why the ranks of a copy do not fit together.

use std::time::Duration;

use lfn_base::units::{Bytes, show_duration};
use lfn_session::SessionError;
use lfn_session::wire::copy::ranks::{MAX_JOB_LENGTH, MAX_RANKS};
use lfn_session::wire::{Refusal, RefusalCode};

use crate::TransferError;

/// Maximum memory of the blocks that two or more ranks hold parts of.
pub(super) const MAX_BORDER_MEMORY: Bytes = Bytes(256 << 20);

/// Reason why a rank, or a whole group, is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RankError {
    #[error("rank {rank} of {ranks}: ranks count from 0, so the highest is {}", .ranks.saturating_sub(1))]
    OutOfRange { rank: u16, ranks: u16 },
    #[error("{0} ranks: at least 1 and at most {MAX_RANKS} can copy together")]
    Count(u16),
    #[error("the name of the job has {0} bytes, at most {MAX_JOB_LENGTH} are allowed")]
    JobName(usize),
    #[error("rank {rank} is one of {ranks}, but the ranks before it are {known}")]
    OtherCount { rank: u16, ranks: u16, known: u16 },
    #[error("rank {rank} belongs to the job {}, but the job {} is writing to this destination", name(.job), name(.known))]
    OtherJob { rank: u16, job: Option<String>, known: Option<String> },
    #[error("rank {rank} was started with another {what} than the ranks before it: {own} instead of {known}")]
    OtherOption { rank: u16, what: String, own: String, known: String },
    #[error("rank {rank} is connected already, from {address}")]
    Duplicate { rank: u16, address: String },
    #[error("rank {rank} sends {name} with {own}, but rank {other} sends it with {known}")]
    OtherSize { rank: u16, name: String, own: Bytes, other: u16, known: Bytes },
    #[error("rank {rank} has another version of {name} than rank {other}: modified at {own} instead of {known}")]
    OtherTime { rank: u16, name: String, own: String, other: u16, known: String },
    #[error("rank {rank} lists {name} as another kind of entry than rank {other}")]
    OtherKind { rank: u16, name: String, other: u16 },
    #[error("rank {rank} sends {name}, but rank {other} sends {known}, and the destination is one file")]
    OtherName { rank: u16, name: String, other: u16, known: String },
    #[error("rank {rank} lists {name}, which the list of all ranks did not contain")]
    LateEntry { rank: u16, name: String },
    #[error("rank {rank} uses --offset, so it must send exactly one file")]
    PieceOfTree { rank: u16 },
    #[error("rank {rank} has {own}, but rank {other} has {known}: either all ranks use --offset or none")]
    MixedPieces { rank: u16, own: &'static str, other: u16, known: &'static str },
    #[error("the pieces of rank {rank} ({start} to {end}) and rank {other} ({other_start} to {other_end}) overlap")]
    Overlap { rank: u16, start: u64, end: u64, other: u16, other_start: u64, other_end: u64 },
    #[error("no rank has the bytes from {from} to {to}: the next piece is that of rank {rank}")]
    Gap { from: u64, to: u64, rank: u16 },
    #[error("the list of all ranks together has too many entries that wait, at most {0} are possible")]
    TooManyWaiting(usize),
    #[error("rank {rank} of {ranks} {}", absence(*.was_there, *.waited))]
    Missing { rank: u16, ranks: u16, was_there: bool, waited: Duration },
    #[error(
        "the pieces of {ranks} ranks may share blocks of {block}, which needs more than {} of memory",
        MAX_BORDER_MEMORY
    )]
    TooManyBorders { ranks: u16, block: Bytes },
    #[error("rank {rank}, which plans the copy, is lost: the others connect again")]
    LostLead { rank: u16 },
    #[error("copies of several ranks cannot use {0}")]
    Unsupported(&'static str),
}

fn name(job: &Option<String>) -> &str {
    job.as_deref().unwrap_or("without a name")
}

fn absence(was_there: bool, waited: Duration) -> String {
    // Whole seconds, or milliseconds of a short time.
    let rounded = if waited.as_secs() > 0 { waited.as_secs() * 1000 } else { waited.as_millis() as u64 };
    let waited = show_duration(Duration::from_millis(rounded));
    let what = if was_there { "was lost and did not return" } else { "did not come" };
    format!("{what} for {waited}, and no other rank has its data")
}

impl RankError {
    /// Returns whether the other ranks can continue without this rank.
    pub(super) fn concerns_one_rank(&self) -> bool {
        matches!(self, RankError::LateEntry { .. } | RankError::PieceOfTree { .. } | RankError::TooManyWaiting(_))
    }

    fn hint(&self) -> Option<&'static str> {
        Some(match self {
            RankError::OutOfRange { .. } => "--rank 3/8 is the fourth of eight",
            RankError::OtherCount { .. } => "give every rank the same number of ranks",
            RankError::OtherJob { .. } => "wait for the other job, or use another destination",
            RankError::OtherOption { .. } => "give every rank the same options",
            RankError::Duplicate { .. } => "give each rank another number",
            RankError::OtherSize { .. } | RankError::OtherTime { .. } | RankError::OtherKind { .. } => {
                "every rank must have the same data, or a part of it with --offset"
            }
            RankError::OtherName { .. } => {
                "to copy one file per rank, give a directory as destination (DIRECTORY/); for parts of one file use --offset"
            }
            RankError::MixedPieces { .. } => "the offset of the first part is --offset 0",
            RankError::Overlap { .. } | RankError::Gap { .. } => "each --offset must be the end of the part before it",
            RankError::TooManyBorders { .. } => "use a smaller --block-size, or an offset that is a multiple of it",
            RankError::Missing { .. } => {
                "start the rank again with the same command: the copy resumes; --patience waits longer"
            }
            RankError::Count(_)
            | RankError::JobName(_)
            | RankError::LateEntry { .. }
            | RankError::PieceOfTree { .. }
            | RankError::TooManyWaiting(_)
            | RankError::LostLead { .. }
            | RankError::Unsupported(_) => return None,
        })
    }
}

impl From<RankError> for TransferError {
    fn from(error: RankError) -> TransferError {
        SessionError::Refused(error.into()).into()
    }
}

impl From<RankError> for Refusal {
    fn from(error: RankError) -> Refusal {
        let code = match error {
            RankError::Missing { .. } => RefusalCode::MissingRank,
            RankError::LostLead { .. } => RefusalCode::LostLead,
            _ => RefusalCode::Limit,
        };
        let refusal = Refusal::new(code, error.to_string());
        match error.hint() {
            Some(hint) => refusal.hint(hint),
            None => refusal,
        }
    }
}
