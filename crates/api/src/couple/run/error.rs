//! Reasons why a run ends early.

use std::path::PathBuf;
use std::{fmt, io};

use lfn_couple::channel::ChannelError;
use lfn_couple::netcdf::NetcdfError;

use super::model_end::ModelEnd;
use crate::error_kind::ErrorKind;
use crate::serve::ServeStartError;

/// Reason why a run ends before its last step.
#[derive(Debug, thiserror::Error)]
pub enum CoupleRunError {
    #[error(transparent)]
    Channel(#[from] ChannelError),
    #[error(transparent)]
    Serve(#[from] ServeStartError),
    #[error("{}: {source}", .file.display())]
    Field { file: PathBuf, source: NetcdfError },
    #[error("{} is not a file of a variable that {component} puts", .file.display())]
    ForeignFile { file: PathBuf, component: String, known: String },
    #[error("cannot write {}: {source}", .path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot read {}: {source}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("another run uses the directory {}", .directory.display())]
    InUse { directory: PathBuf },
    #[error("cannot start {command}: {source}")]
    Start { command: String, source: io::Error },
    #[error("{command} {end} {phase} {step}")]
    ModelEnded { command: String, end: ModelEnd, phase: ModelPhase, step: u64, is_resumable: bool },
    #[error("{command} ended without {}", .file.display())]
    NotWritten { command: String, file: PathBuf },
    #[error("interrupted")]
    Interrupted,
}

/// Part of a step in which a model ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelPhase {
    /// The step before was computed, and the files of the step were not written.
    BeforeFiles,
    /// The files of the step were written, or the model was started for this step.
    Step,
}

impl fmt::Display for ModelPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ModelPhase::BeforeFiles => "before it wrote the files of step",
            ModelPhase::Step => "in step",
        })
    }
}

impl CoupleRunError {
    /// Returns one action that may fix the error, if there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            CoupleRunError::Channel(error) => error.hint(),
            CoupleRunError::Serve(error) => error.hint(),
            CoupleRunError::Field { source, .. } => source.hint(),
            CoupleRunError::ForeignFile { known, .. } => {
                Some(format!("write only the variables of the coupling file: {known}"))
            }
            CoupleRunError::Start { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                Some("give the path of the program after --".to_owned())
            }
            CoupleRunError::ModelEnded { is_resumable: true, .. } => {
                Some("the partner waits: run the same command with --resume".to_owned())
            }
            CoupleRunError::InUse { .. } => {
                Some("wait for the end of the other run, or use another --directory".to_owned())
            }
            CoupleRunError::NotWritten { file, .. } => {
                Some(format!("the command must write {} and exit with 0", file.display()))
            }
            _ => None,
        }
    }

    /// Returns the kind of the error, which decides the exit code of a command.
    pub fn kind(&self) -> ErrorKind {
        match self {
            CoupleRunError::Interrupted | CoupleRunError::Channel(ChannelError::Interrupted) => ErrorKind::Interrupted,
            CoupleRunError::Channel(ChannelError::NoSuchComponent { .. }) => ErrorKind::Usage,
            CoupleRunError::Channel(error) if error.is_resumable() => ErrorKind::Incomplete,
            CoupleRunError::ModelEnded { is_resumable: true, .. } => ErrorKind::Incomplete,
            CoupleRunError::Serve(error) => error.kind(),
            _ => ErrorKind::Failed,
        }
    }

    /// Reports whether the partner shall wait for this component instead of ending its run.
    pub(super) fn keeps_partner(&self) -> bool {
        matches!(self, CoupleRunError::ModelEnded { is_resumable: true, .. })
    }

    /// Returns the reason for the partner, without the paths of this host.
    pub(super) fn reason(&self) -> String {
        match self {
            CoupleRunError::Field { source, .. } => source.to_string(),
            CoupleRunError::ForeignFile { file, component, .. } => {
                let name = file.file_name().unwrap_or_default();
                format!("{} is not a file of a variable that {component} puts", name.display())
            }
            CoupleRunError::ModelEnded { end, phase, step, .. } => format!("the model {end} {phase} {step}"),
            CoupleRunError::NotWritten { file, .. } => {
                format!("the model ended without {}", file.file_name().unwrap_or_default().display())
            }
            CoupleRunError::Write { .. } | CoupleRunError::Read { .. } => "the files cannot be exchanged".to_owned(),
            CoupleRunError::Start { .. } => "the model cannot be started".to_owned(),
            other => other.to_string(),
        }
    }
}
