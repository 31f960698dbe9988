//! Why a copy failed, said so that either side can say it: in full where it happened, as a refusal to the other.

use std::io;
use std::time::Duration;

use lfn_core::transfer::blocks::LayoutError;
use lfn_core::transfer::digest::Digest;
use lfn_core::transfer::intake::IntakeError;
use lfn_core::units::{Bytes, show_duration};
use lfn_core::wire::copy::HeaderError;
use lfn_core::wire::{Refusal, RefusalCode};

use crate::session::SessionError;

/// Why a copy did not end with the file whole at its destination.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// The session did not come about, was lost, or the other side refused.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// Nothing of that name, or a directory on the way to it is missing.
    #[error("{path}: no such file or directory")]
    NotFound {
        /// As typed.
        path: String,
    },
    /// Outside the served root, or a name that is none.
    #[error("{path}: {why}")]
    Forbidden {
        /// As the client gave it.
        path: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The server was started without `--root`.
    #[error("this server serves no files")]
    NoRoot,
    /// A directory, a device, a pipe …: only regular files are copied.
    #[error("{path} is a {kind}, not a regular file")]
    NotRegular {
        /// As typed.
        path: String,
        /// What it is.
        kind: &'static str,
    },
    /// Copying bytes without a name into a directory.
    #[error("{path} is a directory: say which name the bytes shall have in it")]
    Nameless {
        /// As typed.
        path: String,
    },
    /// The destination is there already.
    #[error("{path} exists already")]
    Exists {
        /// As typed.
        path: String,
    },
    /// Another copy holds the partial file.
    #[error("another copy to {path} is under way")]
    Busy {
        /// As typed.
        path: String,
    },
    /// The destination's file system has less room than the file needs.
    #[error("no room for {path}: {needed} needed, {available} available")]
    NoSpace {
        /// As typed.
        path: String,
        /// Length of the file.
        needed: Bytes,
        /// What an ordinary user may still use there.
        available: Bytes,
    },
    /// Any other error of a file system: permission, quota, a read error …
    #[error("cannot {doing} {path}: {source}")]
    File {
        /// "open", "read", "write" …
        doing: &'static str,
        /// As typed.
        path: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// Somebody wrote to the source meanwhile: what was sent is neither the old file nor the new one.
    #[error("{path} changed while it was copied")]
    SourceChanged {
        /// As typed.
        path: String,
    },
    /// A data stream broke, or could not be set up.
    #[error("data stream {stream}: {source}")]
    Stream {
        /// Its number.
        stream: u16,
        /// What the kernel or TLS said.
        source: io::Error,
    },
    /// The kernel does not know the congestion control, or does not let this user have it.
    #[error("congestion control '{name}' cannot be had: {source}")]
    Congestion {
        /// As typed.
        name: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The peer sends what is no block header.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// The peer sends a block that was not announced, twice, or corrupt.
    #[error(transparent)]
    Intake(#[from] IntakeError),
    /// A file or block size that cannot be.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// None, or more than the server allows a session.
    #[error("{streams} streams asked for, the server allows 1 to {most}")]
    Streams {
        /// As asked.
        streams: u16,
        /// As allowed.
        most: u16,
    },
    /// More memory than the server gives to one session.
    #[error("{streams} streams with blocks of {block} are more than the server's {most} of memory")]
    Memory {
        /// As asked.
        streams: u16,
        /// As asked.
        block: Bytes,
        /// As allowed.
        most: Bytes,
    },
    /// The sender said it was done, and it was not.
    #[error("the sender closed its streams with blocks missing")]
    Incomplete,
    /// Every block was right by itself, the whole is not: one side computed wrongly.
    #[error("digest {received} received, {sent} sent")]
    Digest {
        /// The sender's.
        sent: Digest,
        /// The receiver's.
        received: Digest,
    },
    /// The connections live, but nothing moves.
    #[error("the copy stalled: no byte moved for {}", show_duration(*.0))]
    Stalled(Duration),
    /// SIGINT, or the server was stopped.
    #[error("interrupted")]
    Interrupted,
}

impl TransferError {
    /// The code that stands for it in a refusal.
    pub fn code(&self) -> RefusalCode {
        match self {
            TransferError::Session(error) => Refusal::from(error).code,
            TransferError::NotFound { .. } => RefusalCode::NotFound,
            TransferError::Forbidden { .. } | TransferError::NoRoot | TransferError::NotRegular { .. } => {
                RefusalCode::Forbidden
            }
            TransferError::Exists { .. } | TransferError::Busy { .. } | TransferError::Nameless { .. } => {
                RefusalCode::Exists
            }
            TransferError::NoSpace { .. } => RefusalCode::NoSpace,
            TransferError::File { .. } | TransferError::Stream { .. } | TransferError::SourceChanged { .. } => {
                RefusalCode::Io
            }
            TransferError::Intake(IntakeError::Corrupt(_)) | TransferError::Digest { .. } => RefusalCode::Corrupt,
            TransferError::Header(_) | TransferError::Intake(_) | TransferError::Incomplete => RefusalCode::BadMessage,
            TransferError::Layout(_)
            | TransferError::Streams { .. }
            | TransferError::Memory { .. }
            | TransferError::Congestion { .. } => RefusalCode::Limit,
            TransferError::Stalled(_) => RefusalCode::Timeout,
            TransferError::Interrupted => RefusalCode::Stopped,
        }
    }

    /// What the user can do about it, if there is something.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            TransferError::Session(error) => return error.hint(),
            TransferError::NotFound { .. } => "see how it is spelt; directories on the way to a file are not made",
            TransferError::Nameless { .. } => "name the file: DIRECTORY/NAME",
            TransferError::File { source, .. } => match source.kind() {
                io::ErrorKind::PermissionDenied => "see who may read and write there, or give another path",
                io::ErrorKind::ReadOnlyFilesystem => "give a path on a file system that is not read-only",
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    "make room there, or give another destination"
                }
                _ => "see that the file system there is well, and give a path on it",
            },
            TransferError::Stream { .. } => "see whether the server still runs and the path still carries traffic",
            TransferError::NoRoot => "start it with a directory to serve: lfn serve --root DIR",
            TransferError::NotRegular { kind: "directory", .. } => "name one file in it",
            TransferError::NotRegular { .. } => "for memory at either end use random:SIZE, zero:SIZE and null:",
            TransferError::Exists { .. } => "replace it with --force, or give another name",
            TransferError::Busy { .. } => "wait for it, or give another name",
            TransferError::NoSpace { .. } => "make room there, or give another destination",
            TransferError::SourceChanged { .. } => "copy it again when nobody writes to it",
            TransferError::Congestion { .. } => "see sysctl net.ipv4.tcp_allowed_congestion_control on that host",
            TransferError::Streams { .. } => "use fewer --streams",
            TransferError::Memory { .. } => "use fewer --streams or a smaller --block",
            TransferError::Intake(IntakeError::Corrupt(_)) | TransferError::Digest { .. } => {
                "copy it again; if it happens again, suspect the memory of a host"
            }
            TransferError::Forbidden { .. } => "give a path relative to the served directory, without ..",
            _ => return None,
        };
        Some(hint.to_owned())
    }
}

impl From<&TransferError> for Refusal {
    fn from(error: &TransferError) -> Refusal {
        Refusal { code: error.code(), message: error.to_string(), hint: error.hint() }
    }
}

/// What the server's log and the client are told.
impl From<TransferError> for SessionError {
    fn from(error: TransferError) -> SessionError {
        match error {
            TransferError::Session(error) => error,
            other => SessionError::Refused(Refusal::from(&other)),
        }
    }
}
