//! Why a copy failed, said so that either side can say it: in full where it happened, as a refusal to the other.
//!
//! It is long because it is one enum: each variant stands here with its words, its code and its hint, and none lacks one.

use std::io;
use std::time::Duration;

use lfn_core::admission::Denied;
use lfn_core::transfer::blocks::LayoutError;
use lfn_core::transfer::digest::Digest;
use lfn_core::transfer::entry::EntryError;
use lfn_core::transfer::intake::IntakeError;
use lfn_core::transfer::schedule::DeckError;
use lfn_core::transfer::verdict::Obstacle;
use lfn_core::units::{Bytes, show_duration};
use lfn_core::wire::copy::HeaderError;
use lfn_core::wire::third::CarriedEnd;
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
    /// A symbolic link that was named, and what it leads to is not there.
    #[error("{path} is a symbolic link that leads nowhere")]
    LeadsNowhere {
        /// As typed.
        path: String,
    },
    /// A pattern that stands for nothing.
    #[error("nothing matches {pattern}")]
    NoMatch {
        /// As typed.
        pattern: String,
    },
    /// A pattern that stands for too much.
    #[error("{pattern} matches more than {most} names")]
    Matches {
        /// As typed.
        pattern: String,
        /// As allowed.
        most: usize,
    },
    /// A pattern that takes too much to expand.
    #[error("{pattern}: {why}")]
    Unexpanded {
        /// As typed.
        pattern: String,
        /// Too much of what.
        why: &'static str,
    },
    /// More patterns and names than a request holds.
    #[error("patterns and names of {bytes} B are more than the {most} B that can be asked of a far end")]
    Request {
        /// As they would be sent.
        bytes: usize,
        /// What there is room for.
        most: usize,
    },
    /// Names are below one directory.
    #[error("names from a list are below one directory, {sources} sources are given")]
    Sources {
        /// How many.
        sources: usize,
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
    /// Something at one end of a copy between two others.
    #[error("{end}: {source}")]
    End {
        /// Which one.
        end: &'static str,
        /// What it was.
        source: Box<TransferError>,
    },
    /// The receiver of a copy between two others is at an address of this host alone.
    #[error("the destination is reached at {address}, which leads there from this host and not from the source")]
    NotFromThere {
        /// Of loopback: an address of this host's own, or a tunnel.
        address: std::net::SocketAddr,
    },
    /// What one end of a copy between two others says of it.
    #[error("{end} says: {what}")]
    Relayed {
        /// Which one.
        end: CarriedEnd,
        /// In its words.
        what: String,
        /// What may be done about it.
        hint: Option<String>,
        /// The same command goes on where it stopped.
        resumable: bool,
    },
    /// What the ticket or the server is not for.
    #[error("this ticket is not for {0}")]
    NotAllowed(&'static str),
    /// A data stream in the clear without what would authenticate its block headers.
    #[error("the copy has data streams in the clear, and no secret to seal their block headers with")]
    Unsealed,
    /// A directory, a device, a pipe …: only regular files are copied.
    #[error("{path} is a {kind}, not a regular file")]
    NotRegular {
        /// As typed.
        path: String,
        /// What it is.
        kind: &'static str,
    },
    /// The destination is there already.
    #[error("{path} exists already")]
    Exists {
        /// As typed.
        path: String,
    },
    /// One place is source and destination.
    #[error("{path}: source and destination are the same")]
    Same {
        /// As typed.
        path: String,
    },
    /// A source is in a directory that the copy would clear of what other sources do not have.
    #[error("{path} is below the destination, where --delete would delete it")]
    WouldDelete {
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
    /// The server's quota of bytes leaves less than the file needs.
    #[error("{path}: {denied}")]
    Quota {
        /// As typed.
        path: String,
        /// Whose quota, and what it leaves.
        denied: Denied,
    },
    /// Any other error of a file system: permission, a quota of the file system, a read error …
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
    /// A source whose bytes are made while it is read: how many are to come is not known.
    #[error("{path} is listed as empty, and is not")]
    Lengthless {
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
    /// The sender does not keep to the order of the conversation.
    #[error("the sender {0}")]
    Sender(&'static str),
    /// The sender lists what nobody asked it for.
    #[error("the sender lists {name}{what}, which was not asked for")]
    Unasked {
        /// As it is listed.
        name: String,
        /// As what, if that is the matter.
        what: &'static str,
    },
    /// Nor does the receiver.
    #[error("the receiver {0}")]
    Receiver(&'static str),
    /// What stands at the destination is not to be replaced.
    #[error("{path}: {obstacle}")]
    InTheWay {
        /// As the destination is called.
        path: String,
        /// What it is.
        obstacle: Obstacle,
    },
    /// The peer sends a block that was not announced, twice, or corrupt.
    #[error(transparent)]
    Intake(#[from] IntakeError),
    /// The receiver speaks of what was not listed.
    #[error(transparent)]
    Deck(#[from] DeckError),
    /// No list can hold it.
    #[error("{path}: {error}")]
    Unlisted {
        /// As typed.
        path: String,
        /// What is wrong with it.
        error: EntryError,
    },
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
    /// Every block was right by itself, and those of an earlier copy were of another source, which nothing told.
    #[error("not what an earlier copy had begun, though as long and as old; what that left of it is gone")]
    KeptOfAnother,
    /// The sender leaves more gaps between its blocks than streams do.
    #[error("its blocks come too scattered: more is to be remembered of them than fits")]
    Scattered,
    /// Both sides are there, but nothing moves.
    #[error("the copy stalled: nothing moved for {}, {what}", show_duration(*.after))]
    Stalled {
        /// For how long.
        after: Duration,
        /// Who waits for what.
        what: &'static str,
    },
    /// Every new data stream breaks too.
    #[error("{times} data streams in a row broke before anything arrived; the last one: {source}")]
    Fruitless {
        /// How many.
        times: u32,
        /// What became of the last one.
        source: Box<TransferError>,
    },
    /// A data stream broke at the other end, which says why.
    #[error("{0}")]
    FarStream(String),
    /// The session was lost, and there was no other within the time that the caller waits.
    #[error("the connection was lost{}: {source}", sought(*.after))]
    Lost {
        /// Since anything moved; zero if no other was sought.
        after: Duration,
        /// Why the last attempt failed.
        source: Box<TransferError>,
    },
    /// SIGINT, or the server was stopped.
    #[error("interrupted")]
    Interrupted,
}

/// Names were given of what is in a source that is a file.
pub(crate) const NO_DIRECTORY: &str = "is no directory that names could be below";

/// For how long there was no other connection.
fn sought(after: Duration) -> String {
    if after.is_zero() { String::new() } else { format!(", and there was no other for {}", show_duration(after)) }
}

impl TransferError {
    /// The code that stands for it in a refusal.
    pub fn code(&self) -> RefusalCode {
        match self {
            TransferError::Session(error) => Refusal::from(error).code,
            TransferError::End { source, .. } => source.code(),
            TransferError::Relayed { .. } | TransferError::NotFromThere { .. } => RefusalCode::Other,
            TransferError::NotFound { .. } | TransferError::LeadsNowhere { .. } | TransferError::NoMatch { .. } => {
                RefusalCode::NotFound
            }
            TransferError::Forbidden { .. }
            | TransferError::NoRoot
            | TransferError::NotAllowed(_)
            | TransferError::Same { .. }
            | TransferError::WouldDelete { .. }
            | TransferError::NotRegular { .. } => RefusalCode::Forbidden,
            TransferError::Exists { .. } | TransferError::InTheWay { .. } | TransferError::Busy { .. } => {
                RefusalCode::Exists
            }
            TransferError::NoSpace { .. } => RefusalCode::NoSpace,
            TransferError::Quota { .. } => RefusalCode::Quota,
            TransferError::File { .. }
            | TransferError::Stream { .. }
            | TransferError::SourceChanged { .. }
            | TransferError::Lengthless { .. } => RefusalCode::Io,
            TransferError::Intake(IntakeError::Corrupt(_))
            | TransferError::Digest { .. }
            | TransferError::KeptOfAnother => RefusalCode::Corrupt,
            TransferError::Header(HeaderError::Seal(_)) => RefusalCode::Corrupt,
            TransferError::Header(_)
            | TransferError::Unsealed
            | TransferError::Intake(_)
            | TransferError::Sender(_)
            | TransferError::Unasked { .. }
            | TransferError::Receiver(_)
            | TransferError::Deck(_)
            | TransferError::Scattered
            | TransferError::Incomplete => RefusalCode::BadMessage,
            TransferError::Layout(_)
            | TransferError::Unlisted { .. }
            | TransferError::Streams { .. }
            | TransferError::Memory { .. }
            | TransferError::Matches { .. }
            | TransferError::Unexpanded { .. }
            | TransferError::Request { .. }
            | TransferError::Sources { .. }
            | TransferError::Congestion { .. } => RefusalCode::Limit,
            TransferError::Stalled { .. } => RefusalCode::Timeout,
            TransferError::FarStream(_) => RefusalCode::Io,
            TransferError::Fruitless { source, .. } | TransferError::Lost { source, .. } => source.code(),
            TransferError::Interrupted => RefusalCode::Stopped,
        }
    }

    /// Whether it is of one data stream, which others can stand in for: it broke, or what it carried was changed on the way.
    /// Whatever else comes inside TLS, or sealed, nobody but the peer can have written.
    pub(crate) fn is_of_stream(&self) -> bool {
        matches!(self, TransferError::Stream { .. } | TransferError::Header(HeaderError::Seal(_)))
    }

    /// Whether the server has no place now, and nobody waits for one any more.
    pub(crate) fn is_of_a_queue(&self) -> bool {
        match self {
            TransferError::Session(SessionError::Full(_) | SessionError::Waited { .. }) => true,
            TransferError::Session(SessionError::Refused(refusal)) => refusal.code == RefusalCode::Full,
            TransferError::End { source, .. } => source.is_of_a_queue(),
            _ => false,
        }
    }

    /// Whether the server lets nobody in any more.
    pub(crate) fn is_of_a_stop(&self) -> bool {
        match self {
            TransferError::Session(SessionError::Refused(refusal)) => refusal.code == RefusalCode::Stopped,
            TransferError::End { source, .. } => source.is_of_a_stop(),
            _ => false,
        }
    }

    /// Whether only this connection, or this run of the server, came to its end: another session of the same copy may go on
    /// from there.
    pub(crate) fn may_be_tried_again(&self) -> bool {
        let error = match self {
            TransferError::Session(error) => error,
            TransferError::End { source, .. } => return source.may_be_tried_again(),
            _ => return matches!(self, TransferError::Stream { .. }),
        };
        match error {
            SessionError::UnknownHost { .. }
            | SessionError::Unreachable { .. }
            | SessionError::From { .. }
            | SessionError::Tls { .. }
            | SessionError::Closed { .. }
            | SessionError::Timeout { .. }
            | SessionError::Full(_)
            | SessionError::Waited { .. } => true,
            SessionError::Io { peer, .. } => *peer != "the kernel",
            SessionError::Refused(refusal) => {
                matches!(refusal.code, RefusalCode::Stopped | RefusalCode::Full | RefusalCode::Timeout)
            }
            SessionError::WrongFingerprint { .. } | SessionError::NoDatagrams { .. } | SessionError::Frame(_) => false,
        }
    }

    /// Whether the copy can go on from where it is by the same command.
    pub fn is_resumable(&self) -> bool {
        match self {
            TransferError::Lost { .. } | TransferError::Stalled { .. } | TransferError::Fruitless { .. } => true,
            TransferError::Relayed { resumable, .. } => *resumable,
            // What came is kept, and later there is more of it.
            TransferError::Session(SessionError::Refused(refusal)) => refusal.code == RefusalCode::Quota,
            // A connection that was there: both ends keep what came.
            TransferError::End { source, .. } => {
                let TransferError::Session(error) = source.as_ref() else { return source.is_resumable() };
                matches!(error, SessionError::Closed { .. } | SessionError::Timeout { .. } | SessionError::Io { .. })
                    || source.is_resumable()
            }
            _ => false,
        }
    }

    /// What happened, to stand behind the name of the entry it happened to.
    pub(crate) fn of_entry(&self) -> String {
        match self {
            TransferError::NotFound { .. } => "no such file or directory".into(),
            TransferError::LeadsNowhere { .. } => "is a symbolic link that leads nowhere".into(),
            TransferError::Lengthless { .. } => "is listed as empty, and is not".into(),
            TransferError::Forbidden { why, .. } => (*why).into(),
            TransferError::NotRegular { kind, .. } => format!("is a {kind}, not a regular file"),
            TransferError::Exists { .. } => "exists already".into(),
            TransferError::InTheWay { obstacle, .. } => obstacle.to_string(),
            TransferError::Busy { .. } => "another copy to it is under way".into(),
            TransferError::NoSpace { needed, available, .. } => {
                format!("no room for it: {needed} needed, {available} available")
            }
            TransferError::Quota { denied, .. } => denied.to_string(),
            TransferError::File { doing, source, .. } => format!("cannot {doing} it: {source}"),
            TransferError::SourceChanged { .. } => "changed while it was copied".into(),
            other => other.to_string(),
        }
    }

    /// Whether the destination has no more room for the file, by its disk or by a quota: later it may.
    pub fn is_full(&self) -> bool {
        match self {
            TransferError::NoSpace { .. } | TransferError::Quota { .. } => true,
            TransferError::File { source, .. } => {
                matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
            }
            _ => false,
        }
    }

    /// What the user can do about it, if there is something.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            TransferError::Session(error) => return error.hint(),
            TransferError::End { source, .. } => return source.hint(),
            TransferError::Quota { denied, .. } => return Some(denied.hint()),
            TransferError::NotFromThere { .. } => {
                "copy by way of this host, or open a port of the destination to the source (--ssh-ports, over ssh)"
            }
            TransferError::Relayed { hint, .. } => return hint.clone(),
            TransferError::NotFound { .. } => "see how it is spelt; directories on the way to a file are not made",
            TransferError::LeadsNowhere { .. } => "with --links (-l) it is copied as a link",
            TransferError::Lengthless { .. } => {
                "its bytes are made while it is read, as in /proc: cat FILE > COPY, and copy that"
            }
            TransferError::NoMatch { .. } => "a directory matches by itself: `lfn copy NAME: .` copies everything",
            TransferError::Matches { .. } | TransferError::Unexpanded { .. } => {
                "copy the directory, with --include and --exclude"
            }
            TransferError::Request { .. } => "use fewer or shorter ones, or copy in several parts",
            TransferError::Sources { .. } => "give the one directory that the names are below",
            TransferError::File { source, .. } => match source.kind() {
                io::ErrorKind::PermissionDenied => "see who may read and write there, or give another path",
                io::ErrorKind::ReadOnlyFilesystem => "give a path on a file system that is not read-only",
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    "make room there, or give another destination"
                }
                io::ErrorKind::NotADirectory => "a part of that path is a file, and no directory: give another path",
                io::ErrorKind::InvalidFilename => {
                    "a name there is longer than its file system takes (255 bytes on most): give a shorter one"
                }
                _ => "see that the file system there is well, and give a path on it",
            },
            TransferError::Stalled { .. } => "see to that, and run the same command again: it goes on from there",
            TransferError::Lost { .. } | TransferError::Fruitless { .. } => {
                "see whether the server runs and the path carries traffic; the same command then goes on from there"
            }
            TransferError::Stream { .. } => "see whether the server still runs and the path still carries traffic",
            TransferError::NotAllowed(_) => "ask whoever runs the server for a ticket that is",
            TransferError::Header(HeaderError::Seal(_)) => {
                "copy it again, without --clear-data if somebody meddles with the path"
            }
            TransferError::NoRoot => "start it with a directory to serve: lfn serve --root DIR",
            TransferError::NotRegular { kind: "directory", .. } => "name one file in it",
            TransferError::NotRegular { .. } => "for memory at either end use random:SIZE, zero:SIZE and null:",
            TransferError::Exists { .. } => "replace it with --force, or give another name",
            TransferError::Same { .. } => "give another destination",
            TransferError::WouldDelete { .. } => {
                "copy without --delete, or to a directory that does not hold the source"
            }
            TransferError::Unasked { .. } => {
                "see who runs the sender, and that it is no other version: nothing of that name was taken"
            }
            TransferError::Busy { .. } => "wait for it, or give another name",
            TransferError::NoSpace { .. } => "make room there, or give another destination",
            TransferError::SourceChanged { .. } => "copy it again when nobody writes to it",
            TransferError::KeptOfAnother => "the same command copies it from its start",
            TransferError::Congestion { .. } => "see sysctl net.ipv4.tcp_allowed_congestion_control on that host",
            TransferError::Streams { .. } => "use fewer --streams",
            TransferError::Memory { .. } => "use fewer --streams or a smaller --block",
            TransferError::Intake(IntakeError::Corrupt(_)) | TransferError::Digest { .. } => {
                "copy it again; if it happens again, suspect the memory of a host"
            }
            TransferError::Forbidden { why: NO_DIRECTORY, .. } => "give the one directory that the names are below",
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

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    fn of(errno: Errno) -> TransferError {
        TransferError::File { doing: "write", path: "a".into(), source: errno.into() }
    }

    #[test]
    fn a_quota_is_a_full_disk_and_what_one_file_meets_is_not() {
        for errno in [Errno::NOSPC, Errno::DQUOT] {
            assert!(of(errno).is_full(), "{errno}");
            assert!(of(errno).hint().is_some_and(|hint| hint.starts_with("make room there")), "{errno}");
        }
        // Other files may be spared: they are tried.
        let of_one_file = [
            (Errno::IO, "well"),
            (Errno::NAMETOOLONG, "shorter"),
            (Errno::NOTDIR, "no directory"),
            (Errno::FBIG, "well"),
            (Errno::ROFS, "not read-only"),
            (Errno::ACCESS, "who may read and write"),
            (Errno::PERM, "who may read and write"),
        ];
        for (errno, cure) in of_one_file {
            let error = of(errno);
            assert!(!error.is_full(), "{errno}");
            assert!(error.hint().is_some_and(|hint| hint.contains(cure)), "{errno}: {:?}", error.hint());
        }
        for errno in [Errno::NOSPC, Errno::DQUOT, Errno::IO, Errno::NAMETOOLONG, Errno::FBIG, Errno::ROFS] {
            let (error, said) = (of(errno), io::Error::from(errno).to_string());
            assert_eq!(error.of_entry(), format!("cannot write it: {said}"));
            // The other end is told, and neither gives it up as lost nor goes on as if it were the path's fault.
            assert_eq!(
                (error.code(), error.is_resumable(), error.may_be_tried_again()),
                (RefusalCode::Io, false, false)
            );
            assert!(!error.is_of_stream());
        }
    }
}
