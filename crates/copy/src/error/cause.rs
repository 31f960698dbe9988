//! Causes of copy errors. Each cause has its text and the hint that fits.

use lfn_session::wire::copy::progress::StallCause;
use rustix::fs::FileType;

/// Reason why an entry may not be read or written at its path. The text follows the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ForbiddenReason {
    /// `..`, an absolute path or a symbolic link.
    #[error("leads out of the served directory")]
    OutsideRoot,
    /// Names are given for a source that is a file.
    #[error("is not a directory, so it cannot contain the listed names")]
    SourceNotDirectory,
    #[error("the last component is not a file name")]
    NotFileName,
    /// A copy does not follow links below its destination.
    #[error("its path contains a symbolic link")]
    LinkInPath,
    #[error("its path contains a file that is not a directory")]
    FileInPath,
    #[error("the name is reserved for incomplete files")]
    ReservedName,
    /// A directory holds entries that the copy must not delete.
    #[error("the directory in its place is not empty: it holds excluded files, or partial files of another copy")]
    DirectoryNotEmpty,
    #[error("an entry that an earlier copy moved away is still there")]
    ReplacedEntryRemains,
    /// The streams write too many large files at once.
    #[error("too many files of several blocks are open at once")]
    TooManyPartials,
    #[error("another file has replaced its partial file")]
    PartialReplaced,
    #[error("its partial file was removed during the copy")]
    PartialRemoved,
    #[error("its partial file has a second name")]
    PartialHasTwoNames,
    #[error("its partial file is a {0}, not a regular file")]
    PartialNotRegular(FileKind),
    #[error("the names and attributes of unfinished directories exceed 32 MiB")]
    TooManyDirectories,
    /// Sources that overlap, and have different files of one name.
    #[error("another source of this copy has the same name and came first")]
    SameNameInEarlierSource,
    #[error("another source of this copy has written it")]
    WrittenByOtherSource,
    /// Some names may be those of an earlier source.
    #[error("the sources have too many names to compare")]
    TooManySourceNames,
    #[error("the target of the hard link does not exist")]
    LinkTargetMissing,
    #[error("another file has replaced the target of the hard link")]
    LinkTargetReplaced,
    #[error("the target of the hard link is newer at the destination")]
    LinkTargetNewer,
    /// `--delete` compares the names of one source.
    #[error("comes from several sources, so nothing is deleted")]
    DeletionFromSeveralSources,
    #[error("there are too many names to compare, so nothing is deleted")]
    TooManyNamesToDelete,
    /// Another process renames directories of the tree that is deleted.
    #[error("cannot be deleted: a directory in it was moved meanwhile")]
    MovedWhileDeleting,
}

impl ForbiddenReason {
    /// Returns the action for the user, if there is one.
    pub fn hint(self) -> Option<&'static str> {
        match self {
            ForbiddenReason::OutsideRoot => Some("give a path relative to the served directory, without .."),
            ForbiddenReason::SourceNotDirectory => Some("give exactly one source directory, which contains the names"),
            ForbiddenReason::NotFileName => Some("add the name of the file to the destination"),
            ForbiddenReason::LinkInPath => Some("replace the link by a directory"),
            ForbiddenReason::FileInPath => Some("move the file away, or use another destination"),
            ForbiddenReason::DirectoryNotEmpty => Some("move the directory away"),
            ForbiddenReason::ReplacedEntryRemains => Some("`lfn copy --clean` lists it"),
            ForbiddenReason::TooManyPartials => Some("reduce --streams"),
            ForbiddenReason::PartialReplaced
            | ForbiddenReason::PartialRemoved
            | ForbiddenReason::LinkTargetReplaced => {
                Some("copy it again when no other program writes to the destination")
            }
            ForbiddenReason::PartialHasTwoNames => Some("remove one of the two"),
            ForbiddenReason::PartialNotRegular(_) => Some("move this entry away"),
            ForbiddenReason::TooManyDirectories => Some("copy the directories one after the other"),
            ForbiddenReason::SameNameInEarlierSource | ForbiddenReason::WrittenByOtherSource => {
                Some("copy the sources to different destinations")
            }
            ForbiddenReason::TooManySourceNames => Some("copy them one after the other"),
            ForbiddenReason::LinkTargetMissing => Some("run the same command again"),
            ForbiddenReason::LinkTargetNewer => Some("copy without --hard-links"),
            ForbiddenReason::DeletionFromSeveralSources => Some("copy one source at a time, or omit --delete"),
            ForbiddenReason::TooManyNamesToDelete => Some("copy smaller directories, or omit --delete"),
            ForbiddenReason::MovedWhileDeleting => Some("run the same command again"),
            ForbiddenReason::ReservedName => None,
        }
    }
}

/// Kind of a file that is not a regular file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    Directory,
    SymbolicLink,
    Pipe,
    Socket,
    /// A character or block device.
    Device,
    Unknown,
}

impl FileKind {
    /// Returns the kind, or `None` for a regular file.
    pub(crate) fn of_irregular(kind: FileType) -> Option<FileKind> {
        match kind {
            FileType::RegularFile => None,
            FileType::Directory => Some(FileKind::Directory),
            FileType::Symlink => Some(FileKind::SymbolicLink),
            FileType::Fifo => Some(FileKind::Pipe),
            FileType::Socket => Some(FileKind::Socket),
            FileType::CharacterDevice | FileType::BlockDevice => Some(FileKind::Device),
            FileType::Unknown => Some(FileKind::Unknown),
        }
    }

    /// Returns the word for a message.
    pub(crate) fn word(self) -> &'static str {
        match self {
            FileKind::Directory => "directory",
            FileKind::SymbolicLink => "symbolic link",
            FileKind::Pipe => "pipe",
            FileKind::Socket => "socket",
            FileKind::Device => "device",
            FileKind::Unknown => "object of unknown kind",
        }
    }

    /// Returns the action for a user who copies such a file.
    pub(super) fn hint(self) -> Option<&'static str> {
        match self {
            FileKind::Directory => Some("give the name of one file in it"),
            FileKind::Device => Some("to copy without disks, use random:SIZE, zero:SIZE and null:"),
            FileKind::Pipe => Some("run `cat PIPE > FILE` and copy the result"),
            FileKind::SymbolicLink | FileKind::Socket | FileKind::Unknown => None,
        }
    }
}

impl std::fmt::Display for FileKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.word())
    }
}

/// Limit that the expansion of a pattern exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ExpansionLimit {
    #[error("the matching paths exceed 8 MiB in total")]
    Bytes,
    #[error("the search for matching paths took too long")]
    Time,
}

/// Action that the rights of a ticket exclude.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DeniedAction {
    #[error("uploads")]
    Upload,
    #[error("downloads")]
    Download,
    /// The next actions would show or change existing files to a write-only client.
    #[error("dry runs")]
    DryRun,
    #[error("deletions")]
    Delete,
    #[error("manifests")]
    Manifest,
    #[error("reports about existing files")]
    ReportUnchanged,
    #[error("measurements of a path below the served root")]
    MeasuredPath,
}

impl DeniedAction {
    pub(super) fn hint(self) -> &'static str {
        match self {
            DeniedAction::Upload => "ask the administrator of the server for a ticket with the right 'write'",
            DeniedAction::Download => "ask the administrator of the server for a ticket with the right 'read'",
            DeniedAction::DryRun => "omit --dry-run",
            DeniedAction::Delete => "omit --delete",
            DeniedAction::Manifest => "omit --manifest",
            DeniedAction::ReportUnchanged => "use -v instead of -vv",
            DeniedAction::MeasuredPath => "measure the root itself: --disk HOST:",
        }
    }
}

/// Entry that the receiver did not request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnrequestedKind {
    /// The name is not among the requested names.
    Name,
    SymbolicLink,
    HardLink,
}

impl std::fmt::Display for UnrequestedKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            UnrequestedKind::Name => "",
            UnrequestedKind::SymbolicLink => " as a symbolic link",
            UnrequestedKind::HardLink => " as a hard link",
        })
    }
}

/// Violation of the protocol by the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SenderViolation {
    #[error("uses another block hash than agreed")]
    BlockHash,
    #[error("sends holes that were not requested")]
    UnrequestedHole,
    #[error("continues a list after marking it as complete")]
    ListAfterEnd,
    #[error("skips entries of its list")]
    ListGap,
    #[error("lists more entries than can be numbered")]
    TooManyEntries,
    #[error("lists more pending entries than allowed")]
    TooManyPendingEntries,
    #[error("lists more pending names and attributes than allowed")]
    TooManyPendingBytes,
    #[error("marks an incomplete list as complete")]
    IncompleteList,
    #[error("reports more lost blocks than can have been in flight")]
    TooManyLostBlocks,
    #[error("reports more stored blocks than the ranks can have received")]
    TooManyStoredBlocks,
    #[error("sends a message for ranks that is not valid now")]
    UnexpectedRankMessage,
    #[error("sends more messages about entries than they can need")]
    TooManyMessages,
}

/// Cause of a stall, as the client sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stall {
    pub cause: StallCause,
    /// The client is the sender.
    pub is_upload: bool,
}

impl Stall {
    /// Reports whether the host of the client has the disk or the side of the cause.
    fn is_near(self) -> bool {
        match self.cause {
            StallCause::SourceDisk => self.is_upload,
            StallCause::DestinationDisk | StallCause::Deadlock => !self.is_upload,
            StallCause::Network => false,
        }
    }

    pub(super) fn hint(self) -> &'static str {
        match self.cause {
            StallCause::SourceDisk | StallCause::DestinationDisk => {
                "check this disk, then run the same command again: it resumes"
            }
            StallCause::Network => "check the network path, then run the same command again: it resumes",
            StallCause::Deadlock => "run the same command again: it resumes",
        }
    }
}

impl std::fmt::Display for Stall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.cause, self.is_near()) {
            (StallCause::SourceDisk | StallCause::DestinationDisk, true) => {
                f.write_str("the near disk does not respond")
            }
            (StallCause::SourceDisk | StallCause::DestinationDisk, false) => {
                f.write_str("the far disk does not respond")
            }
            (StallCause::Network, _) => {
                f.write_str("the network does not deliver data although the control connection works")
            }
            (StallCause::Deadlock, is_near) => {
                let receiver = if is_near { "the receiver on this host" } else { "the far receiver" };
                write!(
                    f,
                    "deadlock: {receiver} waits for blocks that the sender believes it sent (this is a bug in lfn)"
                )
            }
        }
    }
}
