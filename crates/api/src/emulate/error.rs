//! Reasons why an emulation has no result.

use std::io;
use std::path::PathBuf;

use lfn_base::units::Bytes;
use lfn_emulate::EmulateError;
use lfn_link::settings::SettingsError;

use crate::error_kind::ErrorKind;

/// Reasons why an emulation has no result.
#[derive(Debug, thiserror::Error)]
pub enum EmulateRequestError {
    #[error("{0}")]
    Settings(SettingsError),
    #[error("the command is missing")]
    NoCommand,
    #[error("--far-root {}: no such directory", .0.display())]
    NoFarRoot(PathBuf),
    #[error("the far side has no directory: neither /mnt nor /media exists")]
    NoMountPoint,
    #[error("no random seed: {0}")]
    NoSeed(getrandom::Error),
    #[error(transparent)]
    Emulate(#[from] EmulateError),
    #[error("cannot write the packet log: {0}")]
    Log(String),
    #[error("cannot start {}: {source}", .program.display())]
    StartHelper { program: PathBuf, source: io::Error },
    /// The caller stopped the emulation before its command started.
    #[error("stopped before the command started")]
    Stopped,
    /// The helper cannot read a request of this length.
    #[error("the request is too long: {length} (maximum {maximum})")]
    RequestTooLong { length: Bytes, maximum: Bytes },
    /// The helper failed, or it ended without a result.
    #[error("{}: {reason}", .program.display())]
    Helper { program: PathBuf, reason: String },
    #[error("cannot exchange messages with the helper: {0}")]
    Exchange(#[from] io::Error),
}

impl EmulateRequestError {
    /// Returns one action that may fix the error, if there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            EmulateRequestError::NoMountPoint => Some("use --far-root DIR".to_owned()),
            EmulateRequestError::Emulate(EmulateError::Namespaces(cause)) => Some(cause.remedy().to_string()),
            EmulateRequestError::Settings(error) => Some(error.hint().to_string()),
            EmulateRequestError::RequestTooLong { .. } => {
                Some("write the command to a script and run the script".to_owned())
            }
            EmulateRequestError::StartHelper { .. } => Some("install lfn, or give the path of the program".to_owned()),
            _ => None,
        }
    }

    /// Returns the kind of the error, which decides the exit code of a command.
    pub fn kind(&self) -> ErrorKind {
        match self {
            EmulateRequestError::Settings(_)
            | EmulateRequestError::NoCommand
            | EmulateRequestError::NoFarRoot(_)
            | EmulateRequestError::RequestTooLong { .. }
            | EmulateRequestError::Emulate(EmulateError::Link(_) | EmulateError::Paths(_)) => ErrorKind::Usage,
            EmulateRequestError::Stopped => ErrorKind::Interrupted,
            _ => ErrorKind::Failed,
        }
    }
}
