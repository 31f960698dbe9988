//! Outcome of a run: the exits of the commands and the reports.

use std::fmt;

use lfn_sys::process;
use serde::{Deserialize, Serialize};

use super::accuracy::AccuracyReport;
use super::error::EmulateError;
use super::watch::{CourseSample, LogSummary};

/// Result of an emulation run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunOutcome {
    /// Exit of CMD; `None` if no command ran on the near side.
    pub near: Option<CommandExit>,
    /// `None` if there was no far command, or if the emulator stopped it at the end of the run.
    pub far: Option<CommandExit>,
    /// Reason why forwarding stopped early.
    pub link_failure: Option<String>,
    pub accuracy_report: AccuracyReport,
    /// Present if a log was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<LogSummary>,
    /// Throughput, queue and drops over time; absent unless pictures were requested (`--plot`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub course: Vec<CourseSample>,
}

/// Exit of a command: an exit status or a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CommandExit {
    /// The command ended with this status.
    Exited(i32),
    /// A signal with this number ended the command.
    Killed(i32),
}

impl fmt::Display for CommandExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CommandExit::Exited(status) => write!(f, "exited with status {status}"),
            CommandExit::Killed(signal) => write!(f, "was killed by signal {signal}"),
        }
    }
}

impl From<process::ProcessExit> for CommandExit {
    fn from(ending: process::ProcessExit) -> Self {
        match ending {
            process::ProcessExit::Exited(status) => CommandExit::Exited(status),
            process::ProcessExit::Killed(signal) => CommandExit::Killed(signal),
        }
    }
}

/// Report of the child process at its end.
pub(super) type RunResult = Result<RunOutcome, EmulateError>;
