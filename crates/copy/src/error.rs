//! Errors of a copy: full text at the end where the error happens, and a refusal for the other end.
//!
//! The file is long because it is one enum with the text, the code and the hint of each variant. [`cause`] has the
//! causes within a variant.

mod cause;

use std::io;
use std::time::Duration;

use lfn_base::units::{Bytes, show_duration};
use lfn_session::SessionError;
use lfn_session::limits::Denial;
use lfn_session::wire::copy::blocks::LayoutError;
use lfn_session::wire::copy::digest::Digest;
use lfn_session::wire::copy::entry::EntryError;
use lfn_session::wire::copy::overwrite::Conflict;
use lfn_session::wire::copy::{CopyEnd, HeaderError};
use lfn_session::wire::{Refusal, RefusalCode};
use rustix::io::Errno;

use crate::proto::file_assembly::AssemblyError;
use crate::proto::schedule::ScheduleError;

pub use cause::{DeniedAction, ExpansionLimit, FileKind, ForbiddenReason, SenderViolation, Stall, UnrequestedKind};

/// Reason why a copy failed.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// The session failed, was lost, or was refused by the other side.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The file or one of its parent directories is missing.
    #[error("{path}: no such file or directory")]
    NotFound { path: String },
    /// The destination of a rank is not on the file system of the other ranks.
    #[error("{path}: this host does not see the partial file of the lead rank")]
    NotShared { path: String },
    /// The source, or one of its parent directories, is missing.
    #[error("{path}: no such file or directory")]
    SourceNotFound { path: String },
    /// A source is a symbolic link with a missing target.
    #[error("{path} is a symbolic link to a missing file")]
    DanglingLink { path: String },
    #[error("no file matches {pattern}")]
    NoMatch { pattern: String },
    #[error("{pattern} matches more than {max} names")]
    TooManyMatches { pattern: String, max: usize },
    /// The expansion of a pattern exceeds a limit.
    #[error("{pattern}: {limit}")]
    ExpansionLimit { pattern: String, limit: ExpansionLimit },
    #[error("the patterns and names need {bytes} B, but a request holds at most {max} B")]
    RequestTooLarge { bytes: usize, max: usize },
    #[error("a list of names needs exactly one source directory, but {sources} sources are given")]
    MultipleSourcesWithNames { sources: usize },
    /// The path is outside the served root, or not permitted for another reason.
    #[error("{path}: {reason}")]
    Forbidden { path: String, reason: ForbiddenReason },
    /// The server runs without `--root`.
    #[error("this server serves no files")]
    NoRoot,
    /// An error at one end of a third-party copy.
    #[error("{end}: {source}")]
    End { end: CopyEnd, source: Box<TransferError> },
    /// The destination of a third-party copy has a loopback address: this host's own address, or a tunnel.
    #[error(
        "cannot copy directly: {address} is a loopback address, so the source host cannot reach the destination at it"
    )]
    LoopbackDestination { address: std::net::SocketAddr },
    /// An error that one end of a third-party copy reports.
    #[error("{end}: {message}")]
    RemoteFailure { end: CopyEnd, message: String, hint: Option<String>, resumable: bool },
    #[error("this ticket does not allow {0}")]
    NotAllowed(DeniedAction),
    #[error("the copy has unencrypted data streams, but no secret to authenticate their block headers")]
    MissingStreamSecret,
    #[error("{path} is a {kind}, not a regular file")]
    NotRegular { path: String, kind: FileKind },
    #[error("{path} already exists")]
    Exists { path: String },
    #[error("{path}: source and destination are the same")]
    SameFile { path: String },
    /// The destination is inside the source of a copy with `--delete`.
    #[error("{path} contains the destination: a directory cannot be copied into itself")]
    IntoItself { path: String },
    /// A source is below the destination directory of a copy with `--delete`.
    #[error("{path} is below the destination, where the copy would delete it")]
    WouldDelete { path: String },
    /// The top directory of the copy has no name any more.
    #[error("the destination {path} was removed during the copy")]
    DestinationRemoved { path: String },
    /// Another process wrote to the partial file, which was discarded.
    #[error("{path}: another program changed its partial file during the copy")]
    PartialFileChanged { path: String },
    /// The storage does not have this ability.
    #[error("{path}: this storage cannot {what}")]
    Unsupported { path: String, what: &'static str },
    /// Another copy has locked the partial file.
    #[error("another copy to {path} is running")]
    Locked { path: String },
    #[error("cannot write {path}: disk full ({needed} needed, {available} free)")]
    NoSpace { path: String, needed: Bytes, available: Bytes },
    #[error("{path}: {denied}")]
    Quota { path: String, denied: Denial },
    /// Any other file system error: permission, file system quota, read error, and so on.
    #[error("cannot {doing} {path}: {}", system_error_text(.source))]
    File { doing: &'static str, path: String, source: io::Error },
    /// The sent data is neither the old nor the new content.
    #[error("{path} changed during the copy")]
    SourceChanged { path: String },
    /// The kernel generates the content when it is read.
    #[error("{path}: size is reported as 0 but reading returns data (a /proc or /sys file?)")]
    UnknownLength { path: String },
    #[error("data stream {stream}: {}", system_error_text(.source))]
    Stream { stream: u16, source: io::Error },
    /// The kernel does not have the congestion control, or does not permit it for this user.
    #[error("cannot use congestion control '{name}': {}", system_error_text(.source))]
    Congestion { name: String, source: io::Error },
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// The sender violates the protocol.
    #[error("the sender {0}")]
    SenderViolation(SenderViolation),
    #[error("the sender lists {name}{kind}, which was not requested")]
    Unrequested { name: String, kind: UnrequestedKind },
    /// An existing object at the destination may not be replaced.
    #[error("{path}: {obstacle}")]
    Conflict { path: String, obstacle: Conflict },
    /// The peer sends a block that is unknown, duplicate or corrupt.
    #[error(transparent)]
    Assembly(#[from] AssemblyError),
    /// The receiver refers to an unknown entry or block.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// The source cannot be listed.
    #[error("{path}: {error}")]
    InvalidEntry { path: String, error: EntryError },
    #[error(transparent)]
    Layout(#[from] LayoutError),
    #[error("{streams} streams requested, but the server allows 1 to {max}")]
    Streams { streams: u16, max: u16 },
    #[error("{streams} streams with blocks of {block} exceed the server's memory limit of {max} per session")]
    Memory { streams: u16, block: Bytes, max: Bytes },
    /// The limit of open files of the server's process is too low.
    #[error("the server needs {needed} open files, the limit is {limit}")]
    ServerOpenFiles { needed: u64, limit: u64, max_streams: u16 },
    /// No path of the copy leads to the server.
    #[error("no stripe reaches the server: {}", .0.join("; "))]
    NoStripe(Vec<String>),
    #[error("the sender closed its streams, but blocks are missing")]
    Incomplete,
    /// Every block was right, but the complete file is not: one side computed wrongly.
    #[error("digest mismatch: {received} received, {sent} sent")]
    Digest { sent: Digest, received: Digest },
    /// Every new block was right, but the blocks of an earlier copy came from another file.
    #[error("the source was replaced by a different file of the same size and time; the partial copy was discarded")]
    SourceReplaced,
    /// The gaps between received blocks exceed the memory limit.
    #[error("the sender sent too many non-contiguous blocks of this file")]
    TooManyGaps,
    /// Both sides are connected, but nothing moves.
    #[error("the copy stalled: nothing moved for {}, {stall}", show_duration(*.after))]
    Stalled { after: Duration, stall: Stall },
    #[error("{times} data streams broke in succession without progress; the last one: {source}")]
    RepeatedStreamFailures { times: u32, source: Box<TransferError> },
    /// The other end reports why a data stream broke.
    #[error("{0}")]
    PeerStreamError(String),
    /// The connection was lost and not restored within the retry time.
    #[error("the connection was lost{}: {source}", retry_text(*.after))]
    Lost { after: Duration, source: Box<TransferError> },
    /// SIGINT, or the server is stopping.
    #[error("interrupted")]
    Interrupted,
}

/// Reports whether the process, or the whole host, has too many open files.
pub(crate) fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

/// Returns the text of a system error without its number, which Rust adds: ` (os error 13)`.
pub fn system_error_text(error: &io::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" (os error ") {
        Some((text, _)) if error.raw_os_error().is_some() => text.to_owned(),
        _ => text,
    }
}

/// Returns a cause with its hint, for the line of an entry, which has no hint of its own.
fn with_hint(cause: &impl std::fmt::Display, hint: Option<&str>) -> String {
    hint.map_or_else(|| cause.to_string(), |hint| format!("{cause}: {hint}"))
}

/// Describes for how long reconnecting failed.
fn retry_text(after: Duration) -> String {
    if after.is_zero() { String::new() } else { format!(", and reconnecting failed for {}", show_duration(after)) }
}

/// Reason of an entry whose partial file another copy has locked.
pub const LOCKED_REASON: &str = "another copy to it is running";

impl TransferError {
    /// Returns the code for a refusal.
    pub fn code(&self) -> RefusalCode {
        match self {
            TransferError::Session(error) => Refusal::from(error).code,
            TransferError::End { source, .. } => source.code(),
            TransferError::RemoteFailure { .. } | TransferError::LoopbackDestination { .. } => RefusalCode::Other,
            TransferError::NotFound { .. }
            | TransferError::NotShared { .. }
            | TransferError::SourceNotFound { .. }
            | TransferError::DanglingLink { .. }
            | TransferError::NoMatch { .. } => RefusalCode::NotFound,
            TransferError::Forbidden { .. }
            | TransferError::NoRoot
            | TransferError::NotAllowed(_)
            | TransferError::SameFile { .. }
            | TransferError::WouldDelete { .. }
            | TransferError::Unsupported { .. }
            | TransferError::IntoItself { .. }
            | TransferError::NotRegular { .. } => RefusalCode::Forbidden,
            TransferError::Exists { .. } | TransferError::Conflict { .. } | TransferError::Locked { .. } => {
                RefusalCode::Exists
            }
            TransferError::NoSpace { .. } => RefusalCode::NoSpace,
            TransferError::Quota { .. } => RefusalCode::Quota,
            TransferError::File { .. }
            | TransferError::Stream { .. }
            | TransferError::SourceChanged { .. }
            | TransferError::DestinationRemoved { .. }
            | TransferError::PartialFileChanged { .. }
            | TransferError::UnknownLength { .. } => RefusalCode::Io,
            TransferError::Assembly(AssemblyError::Corrupt(_))
            | TransferError::Digest { .. }
            | TransferError::SourceReplaced => RefusalCode::Corrupt,
            TransferError::Header(HeaderError::Seal(_)) => RefusalCode::Corrupt,
            TransferError::Header(_)
            | TransferError::MissingStreamSecret
            | TransferError::Assembly(_)
            | TransferError::SenderViolation(_)
            | TransferError::Unrequested { .. }
            | TransferError::Schedule(_)
            | TransferError::TooManyGaps
            | TransferError::Incomplete => RefusalCode::BadMessage,
            TransferError::Layout(_)
            | TransferError::InvalidEntry { .. }
            | TransferError::Streams { .. }
            | TransferError::Memory { .. }
            | TransferError::ServerOpenFiles { .. }
            | TransferError::TooManyMatches { .. }
            | TransferError::ExpansionLimit { .. }
            | TransferError::RequestTooLarge { .. }
            | TransferError::MultipleSourcesWithNames { .. }
            | TransferError::Congestion { .. } => RefusalCode::Limit,
            TransferError::NoStripe(_) => RefusalCode::Io,
            TransferError::Stalled { .. } => RefusalCode::Timeout,
            TransferError::PeerStreamError(_) => RefusalCode::Io,
            TransferError::RepeatedStreamFailures { source, .. } | TransferError::Lost { source, .. } => source.code(),
            TransferError::Interrupted => RefusalCode::Stopped,
        }
    }

    /// Reports whether only one data stream failed, which another stream can replace: it broke, or its data was
    /// modified on the path. Everything else inside TLS, or with a valid authentication code, comes from the peer
    /// itself.
    pub(crate) fn is_stream_error(&self) -> bool {
        match self {
            // Another stream needs a descriptor too.
            TransferError::Stream { source, .. } => !is_out_of_descriptors(source),
            error => matches!(error, TransferError::Header(HeaderError::Seal(_))),
        }
    }

    /// Reports whether the server is full and the session no longer waits in its queue.
    pub(crate) fn is_queue_refusal(&self) -> bool {
        match self {
            TransferError::Session(SessionError::ServerFull(_) | SessionError::QueueTimeout { .. }) => true,
            TransferError::Session(SessionError::Refused(refusal)) => refusal.code == RefusalCode::Full,
            TransferError::End { source, .. } => source.is_queue_refusal(),
            _ => false,
        }
    }

    /// Reports whether the server is stopping.
    pub(crate) fn is_server_stopping(&self) -> bool {
        match self {
            TransferError::Session(SessionError::Refused(refusal)) => refusal.code == RefusalCode::Stopped,
            TransferError::End { source, .. } => source.is_server_stopping(),
            _ => false,
        }
    }

    /// Reports whether a single source cannot be read on this host.
    pub fn is_of_source_file(&self) -> bool {
        matches!(
            self,
            TransferError::SourceNotFound { .. }
                | TransferError::SourceChanged { .. }
                | TransferError::UnknownLength { .. }
                | TransferError::NotRegular { .. }
                | TransferError::File { .. }
        )
    }

    /// Reports whether the server ended the session: it stops, or another session resumed the copy.
    pub fn was_stopped(&self) -> bool {
        match self {
            TransferError::Lost { source, .. } => source.was_stopped(),
            error => error.is_server_stopping(),
        }
    }

    /// Reports whether only this connection, or this run of the server, ended: another session of the same copy may
    /// resume.
    pub fn is_retryable(&self) -> bool {
        let error = match self {
            TransferError::Session(error) => error,
            TransferError::End { source, .. } => return source.is_retryable(),
            TransferError::Stream { source, .. } => return !is_out_of_descriptors(source),
            TransferError::NoStripe(_) => return true,
            _ => return false,
        };
        match error {
            SessionError::Unreachable { source, .. } | SessionError::Bind { source, .. }
                if is_out_of_descriptors(source) =>
            {
                false
            }
            SessionError::Io { source, .. } | SessionError::UnknownHost { source, .. }
                if is_out_of_descriptors(source) =>
            {
                false
            }
            SessionError::UnknownHost { .. }
            | SessionError::Unreachable { .. }
            | SessionError::Bind { .. }
            | SessionError::Tls { .. }
            | SessionError::Closed { .. }
            | SessionError::Timeout { .. }
            | SessionError::ServerFull(_)
            | SessionError::QueueTimeout { .. } => true,
            SessionError::Io { peer, .. } => *peer != "the kernel",
            SessionError::Refused(refusal) => matches!(
                refusal.code,
                RefusalCode::Stopped | RefusalCode::Full | RefusalCode::Timeout | RefusalCode::LostLead
            ),
            SessionError::WrongFingerprint { .. } | SessionError::NoDatagrams { .. } | SessionError::Frame(_) => false,
        }
    }

    /// Reports whether the same command resumes the copy.
    pub fn is_resumable(&self) -> bool {
        match self {
            TransferError::Lost { .. }
            | TransferError::Stalled { .. }
            | TransferError::RepeatedStreamFailures { .. } => true,
            TransferError::RemoteFailure { resumable, .. } => *resumable,
            // The received data stays, and the quota is restored later.
            TransferError::Session(SessionError::Refused(refusal)) => {
                matches!(refusal.code, RefusalCode::Quota | RefusalCode::MissingRank | RefusalCode::LostLead)
            }
            // The connection existed before: both ends keep the received data.
            TransferError::End { source, .. } => {
                let TransferError::Session(error) = source.as_ref() else { return source.is_resumable() };
                matches!(error, SessionError::Closed { .. } | SessionError::Timeout { .. } | SessionError::Io { .. })
                    || source.is_resumable()
            }
            _ => false,
        }
    }

    /// Returns the text that follows the name of the failed entry.
    pub(crate) fn entry_message(&self) -> String {
        match self {
            TransferError::NotFound { .. } | TransferError::SourceNotFound { .. } => "no such file or directory".into(),
            TransferError::DanglingLink { .. } => "is a symbolic link to a missing file".into(),
            TransferError::UnknownLength { .. } => {
                "size is reported as 0 but reading returns data (a /proc or /sys file?)".into()
            }
            TransferError::Forbidden { reason, .. } => with_hint(reason, reason.hint()),
            TransferError::NotRegular { kind, .. } => format!("is a {kind}, not a regular file"),
            TransferError::Exists { .. } => "already exists".into(),
            TransferError::Conflict { obstacle, .. } => with_hint(obstacle, obstacle.hint()),
            TransferError::Locked { .. } => LOCKED_REASON.into(),
            TransferError::NoSpace { needed, available, .. } => {
                format!("disk full ({needed} needed, {available} free)")
            }
            TransferError::Quota { denied, .. } => denied.to_string(),
            TransferError::File { doing, source, .. } => format!("cannot {doing} it: {}", system_error_text(source)),
            TransferError::SourceChanged { .. } => "changed during the copy".into(),
            TransferError::PartialFileChanged { .. } => {
                "another program changed its partial file during the copy".into()
            }
            TransferError::Unsupported { what, .. } => format!("this storage cannot {what}"),
            other => other.to_string(),
        }
    }

    /// Reports whether a full disk or a quota prevented the copy, which may change later.
    pub fn is_out_of_space(&self) -> bool {
        match self {
            TransferError::NoSpace { .. } | TransferError::Quota { .. } => true,
            TransferError::File { source, .. } => {
                matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
            }
            _ => false,
        }
    }

    /// Returns the action for the user, if there is one.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            TransferError::Session(error) => return error.hint(),
            TransferError::End { source, .. } => return source.hint(),
            TransferError::Quota { denied, .. } => return Some(denied.hint()),
            TransferError::LoopbackDestination { .. } => {
                "copy through this host, or make a port of the destination reachable from the source (over ssh: --ssh-ports)"
            }
            TransferError::RemoteFailure { hint, .. } => return hint.clone(),
            TransferError::NotFound { .. } => "check the spelling; missing parent directories are not created",
            TransferError::NotShared { .. } => {
                "all ranks of a download need one destination: give a directory of a file system that all their hosts share"
            }
            TransferError::SourceNotFound { .. } => "check the spelling of the source",
            TransferError::DanglingLink { .. } => "use --links (-l) to copy it as a link",
            TransferError::UnknownLength { .. } => "run `cat FILE > COPY` and copy the result",
            TransferError::NoMatch { .. } => "to copy a complete directory, give its name without a pattern",
            TransferError::TooManyMatches { .. } | TransferError::ExpansionLimit { .. } => {
                "copy the directory, and select files with --include and --exclude"
            }
            TransferError::RequestTooLarge { .. } => "use fewer or shorter patterns and names, or several copies",
            TransferError::MultipleSourcesWithNames { .. } => {
                "give exactly one source directory, which contains the names"
            }
            TransferError::ServerOpenFiles { max_streams: streams @ 1.., .. } => {
                return Some(format!("--streams {streams}"));
            }
            TransferError::ServerOpenFiles { needed, .. } => {
                return Some(format!("start the server with a higher limit: ulimit -n {needed}"));
            }
            TransferError::File { source, .. } | TransferError::Stream { source, .. }
                if is_out_of_descriptors(source) =>
            {
                "raise the limit of open files on that host, for example: ulimit -n 4096"
            }
            TransferError::File { source, .. } => match source.kind() {
                io::ErrorKind::PermissionDenied => "check the permissions, or use another path",
                io::ErrorKind::ReadOnlyFilesystem => "use a path on a file system that is not read-only",
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    "free disk space at the destination, then run the same command again"
                }
                io::ErrorKind::NotADirectory => "a parent in this path is a file, not a directory: use another path",
                io::ErrorKind::InvalidFilename => {
                    "a name is longer than the file system allows (usually 255 bytes): use a shorter name"
                }
                _ => "check the file system, or use another path",
            },
            TransferError::Stalled { stall, .. } => stall.hint(),
            TransferError::Conflict { obstacle, .. } => obstacle.hint()?,
            TransferError::Forbidden { reason, .. } => reason.hint()?,
            TransferError::Lost { .. } | TransferError::RepeatedStreamFailures { .. } => {
                "check that the server is running and the path works, then run the same command again: it resumes"
            }
            TransferError::Stream { .. } => "check that the server is running and the path works",
            TransferError::NotAllowed(action) => action.hint(),
            TransferError::Header(HeaderError::Seal(_)) => {
                "run the command again without --clear-data: the data was modified on the path"
            }
            TransferError::NoRoot => "start the server with a directory: lfn serve --root DIR",
            TransferError::NotRegular { kind, .. } => kind.hint()?,
            TransferError::Exists { .. } => "use --force to replace it, or use another name",
            TransferError::SameFile { .. } => "use another destination",
            TransferError::IntoItself { .. } => {
                "omit --delete, or exclude the destination directory: --exclude PATTERN"
            }
            TransferError::WouldDelete { .. } => "omit --delete, or use a destination that does not contain the source",
            TransferError::Unrequested { .. } => {
                "do not trust this sender unless you know that its version differs; no file of this name was written"
            }
            TransferError::Locked { .. } => "wait until it ends, or use another name",
            TransferError::NoSpace { .. } => "free disk space at the destination, then run the same command again",
            TransferError::SourceChanged { .. } => "copy it again when no program writes to it",
            TransferError::DestinationRemoved { .. } => "run the same command again: it creates the destination",
            TransferError::PartialFileChanged { .. } => {
                "stop the program that writes to it, then run the same command again"
            }
            TransferError::SourceReplaced => "run the same command again: it copies this file from the start",
            TransferError::Congestion { .. } => "check `sysctl net.ipv4.tcp_allowed_congestion_control` on that host",
            TransferError::NoStripe(_) => "check each stripe with `ping -I LOCAL REMOTE`, and the server's firewall",
            TransferError::Streams { .. } => "reduce --streams",
            TransferError::Memory { .. } => "reduce --streams or --block-size",
            TransferError::Assembly(AssemblyError::Corrupt(_)) | TransferError::Digest { .. } => {
                "run the command again; if the error returns, test the memory of both hosts"
            }
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

/// Converts the error for the server's log and the client.
impl From<TransferError> for SessionError {
    fn from(error: TransferError) -> SessionError {
        match error {
            TransferError::Session(error) => error,
            other => SessionError::Refused(Refusal::from(&other)),
        }
    }
}

#[cfg(test)]
mod tests;
