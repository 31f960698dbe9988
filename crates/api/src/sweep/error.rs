//! Reasons why a sweep is refused or ends without its goal.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use lfn_base::units::{duration_argument, show_duration};
use lfn_campaign::design::DesignError;
use lfn_campaign::document::SweepDocument;
use lfn_campaign::schedule::BudgetTooShort;
use lfn_campaign::state::StateError;

use crate::error_kind::ErrorKind;
use crate::test::{TestOptionsError, TestVerbError};

/// Reasons why a sweep did not reach its goal.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    #[error(transparent)]
    Design(#[from] DesignError),
    /// The settings of a point are not valid for a test.
    #[error("{point}: {source}")]
    Point { point: String, source: TestOptionsError },
    #[error("one direction at a time: use --direction forward,reverse")]
    Directions,
    #[error("the budget is too short for one run of each point: {} are needed", show_duration(rounded_up(.0.needed)))]
    Budget(BudgetTooShort),
    #[error("{}: {source}", .file.display())]
    State { file: PathBuf, source: StateFileError },
    /// The first run failed.
    #[error(transparent)]
    Test(#[from] TestVerbError),
    /// The server did not come back.
    #[error("no run finished for {}: {source}", show_duration(rounded_up(*.waited)))]
    ServerLost { waited: Duration, source: TestVerbError },
    #[error("every point failed: {0}")]
    AllFailed(TestVerbError),
    #[error("the random number generator of the system: {0}")]
    Random(io::Error),
}

/// Reasons why the state file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateFileError {
    #[error("{0}")]
    Io(io::Error),
    #[error("not a file")]
    NotAFile,
    #[error("longer than 256 MiB")]
    TooLong,
    #[error("the file was removed while the sweep used it")]
    Removed,
    #[error("another sweep uses this file")]
    Locked,
    #[error(transparent)]
    Contents(StateError),
}

/// A sweep that did not reach its goal: the error, and the result so far.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct SweepFailure {
    pub error: Box<SweepError>,
    /// Result of the finished runs; `None` if the sweep did not start.
    pub document: Option<Box<SweepDocument>>,
}

impl SweepError {
    /// Returns one action that may fix the error, if there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            SweepError::Design(error) => Some(error.hint()),
            SweepError::Point { source, .. } => source.hint().or(Some("change the values of this point".to_owned())),
            SweepError::Directions => Some("--direction forward,reverse".to_owned()),
            SweepError::Budget(BudgetTooShort { needed }) => {
                Some(format!("--budget {}", duration_argument(rounded_up(*needed))))
            }
            SweepError::State { source, .. } => Some(
                match source {
                    StateFileError::Contents(StateError::Newer(_)) => {
                        "use the newer version of lfn, or another file: --state sweep-2.ndjson"
                    }
                    StateFileError::Locked => {
                        "wait until the other sweep ends, or use another file: --state sweep-2.ndjson"
                    }
                    StateFileError::Io(error) if error.kind() == io::ErrorKind::StorageFull => {
                        "free space on the disk of this file, then run the same command: the sweep resumes"
                    }
                    StateFileError::Io(_) => {
                        "use a file in a directory that you can write to: --state /var/tmp/sweep.ndjson"
                    }
                    StateFileError::Contents(StateError::OtherSweep(_)) => {
                        "use another file: --state sweep-2.ndjson; the command of the other sweep resumes this file"
                    }
                    StateFileError::Removed => "store the result: --report sweep.json",
                    StateFileError::NotAFile | StateFileError::TooLong | StateFileError::Contents(_) => {
                        "use another file: --state sweep-2.ndjson"
                    }
                }
                .to_owned(),
            ),
            SweepError::Test(error) | SweepError::AllFailed(error) => error.hint(),
            SweepError::ServerLost { .. } => {
                Some("start the server, then run the same command: the sweep resumes".to_owned())
            }
            SweepError::Random(_) => None,
        }
    }

    /// Returns the kind of the error, which decides the exit code of a command.
    pub fn kind(&self) -> ErrorKind {
        match self {
            SweepError::Design(_) | SweepError::Directions | SweepError::Budget(_) => ErrorKind::Usage,
            SweepError::Point { source, .. } => source.kind(),
            SweepError::Test(error) => error.kind(),
            SweepError::ServerLost { .. } => ErrorKind::Incomplete,
            SweepError::State { source: StateFileError::Io(error), .. }
                if error.kind() == io::ErrorKind::StorageFull =>
            {
                ErrorKind::Incomplete
            }
            SweepError::State { .. } | SweepError::AllFailed(_) | SweepError::Random(_) => ErrorKind::Failed,
        }
    }
}

/// Returns the time in whole seconds, rounded up.
fn rounded_up(time: Duration) -> Duration {
    Duration::from_secs(time.as_secs() + u64::from(time.subsec_nanos() > 0))
}
