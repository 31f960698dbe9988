//! Reasons why a copy did not start or did not finish.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use lfn_base::units::BitRate;
use lfn_copy::TransferError;
use lfn_queue::QueueError;
use lfn_session::SessionError;

use super::ends::error_line;
use super::places::CopyPlaceError;
use super::stripes::StripeError;
use crate::error_kind::ErrorKind;
use crate::hosts::HostError;
use crate::ssh::SshError;

/// Reasons why a copy did not start or did not finish.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    #[error(transparent)]
    Place(#[from] CopyPlaceError),
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Ssh(#[from] SshError),
    #[error("--rate {rate} is too low; minimum {minimum}")]
    RateTooLow { rate: BitRate, minimum: BitRate },
    /// The kernel has no pacing rate for Multipath TCP.
    #[error("--rate does not limit Multipath TCP")]
    MptcpRate,
    #[error(transparent)]
    Stripe(#[from] StripeError),
    #[error("{0}")]
    BlockSize(String),
    /// The limit of open files of this process is too low.
    #[error("the copy needs {needed} open files, the limit is {limit}")]
    OpenFiles {
        needed: u64,
        limit: u64,
        /// A command, or a flag with a value that the limit allows.
        hint: String,
    },
    #[error("this host cannot reach itself at {address}: {source}")]
    Loopback { address: String, source: io::Error },
    #[error(transparent)]
    Session(SessionError),
    #[error("{0} cannot be used by several ranks")]
    RankOption(&'static str),
    #[error("ranks copy between this host and one server, and these places are others")]
    RankDirection,
    #[error("--offset is the place of one file, but this copy has several sources")]
    RankPieces,
    #[error("--offset is the place of a part that this rank has, but a download writes into one complete file")]
    RankPieceOfDownload,
    #[error(transparent)]
    Queue(#[from] QueueError),
    #[error("{0} cannot be used with --queue")]
    QueueOption(&'static str),
    #[error("a queue copies local files to one server")]
    QueueDirection,
    #[error("{0} cannot be a source of a queue: give files and directories")]
    QueueGenerated(String),
    /// Only one of two entries with the same name could be copied.
    #[error("the sources {0} and {1} may have the same names at the destination")]
    QueueSources(String, String),
    #[error("interrupted")]
    Interrupted,
    /// The line names remote paths as typed, with their host.
    #[error("{line}")]
    Transfer { line: String, error: TransferError },
}

impl CopyError {
    /// Converts an error of the transfer; `places` are the sources and the destination as typed.
    pub fn from_transfer(error: TransferError, places: &[OsString]) -> Self {
        match error {
            TransferError::Interrupted => CopyError::Interrupted,
            TransferError::Session(error) if !matches!(error, SessionError::Refused(_)) => CopyError::Session(error),
            error => CopyError::Transfer { line: error_line(&error, places), error },
        }
    }

    /// Returns one action that may fix the error, if there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            CopyError::Place(error) => error.hint(),
            CopyError::Host(error) => error.hint(),
            CopyError::Ssh(error) => error.hint(),
            CopyError::MptcpRate => Some("omit --rate, or use --transport tcp".to_owned()),
            CopyError::Stripe(error) => error.hint(),
            CopyError::RateTooLow { .. } => Some("--rate 10gbit".to_owned()),
            CopyError::RankOption(_) => Some("omit it, or copy from one host".to_owned()),
            CopyError::RankDirection => Some("name one server: far1:PATH".to_owned()),
            CopyError::RankPieceOfDownload => Some("omit it: the server assigns the blocks".to_owned()),
            CopyError::RankPieces => Some("give one file, and the destination".to_owned()),
            CopyError::Queue(error) => error.hint(),
            CopyError::QueueOption("--hard-links") => Some("omit it; instead of -a use -l -p -o -X -A -S".to_owned()),
            CopyError::QueueOption(option) => Some(format!("omit {option}, or omit --queue")),
            CopyError::QueueDirection => Some("run lfn copy --queue on the hosts that have the files".to_owned()),
            CopyError::QueueGenerated(_) => Some("write the data to a file first".to_owned()),
            CopyError::QueueSources(..) => Some("use a queue for each source".to_owned()),
            CopyError::BlockSize(_) => Some("--block-size 1MiB".to_owned()),
            CopyError::OpenFiles { hint, .. } => Some(hint.clone()),
            CopyError::Loopback { .. } => Some("enable the loopback interface: ip link set lo up".to_owned()),
            CopyError::Session(error) => error.hint(),
            CopyError::Interrupted => None,
            CopyError::Transfer { error: TransferError::Session(SessionError::Refused(refusal)), .. } => {
                refusal.hint.clone()
            }
            CopyError::Transfer { error, .. } => source_hint(error).or_else(|| error.hint()),
        }
    }

    /// Returns the kind of the error, which decides the exit code of a command.
    pub fn kind(&self) -> ErrorKind {
        match self {
            CopyError::Place(error) => error.kind(),
            CopyError::Host(error) => error.kind(),
            CopyError::Ssh(error) => error.kind(),
            CopyError::MptcpRate => ErrorKind::Usage,
            CopyError::Stripe(error) => error.kind(),
            CopyError::Queue(QueueError::Interrupted) => ErrorKind::Interrupted,
            CopyError::Queue(QueueError::OtherCopy { .. }) => ErrorKind::Usage,
            CopyError::Queue(QueueError::Away { .. } | QueueError::Replaced { .. }) => ErrorKind::Incomplete,
            CopyError::Queue(_) => ErrorKind::Failed,
            CopyError::RateTooLow { .. }
            | CopyError::QueueOption(_)
            | CopyError::QueueDirection
            | CopyError::QueueGenerated(_)
            | CopyError::QueueSources(..)
            | CopyError::BlockSize(_)
            | CopyError::RankOption(_)
            | CopyError::RankDirection
            | CopyError::RankPieceOfDownload
            | CopyError::RankPieces => ErrorKind::Usage,
            CopyError::Interrupted => ErrorKind::Interrupted,
            CopyError::Transfer { error: TransferError::MultipleSourcesWithNames { .. }, .. } => ErrorKind::Usage,
            CopyError::Transfer { error, .. } if error.is_resumable() => ErrorKind::Incomplete,
            CopyError::Transfer { .. }
            | CopyError::Session(_)
            | CopyError::Loopback { .. }
            | CopyError::OpenFiles { .. } => ErrorKind::Failed,
        }
    }
}

/// Returns a command that lists the directory where a missing local source should be.
fn source_hint(error: &TransferError) -> Option<String> {
    let TransferError::SourceNotFound { path } = error else { return None };
    let existing = Path::new(path).ancestors().skip(1).find(|above| above.is_dir());
    let directory =
        existing.filter(|above| !above.as_os_str().is_empty()).map_or(".".into(), |above| above.display().to_string());
    let is_plain = directory.chars().all(|c| c.is_alphanumeric() || "/._-+,".contains(c));
    is_plain.then(|| format!("check the spelling: ls {directory}"))
}
