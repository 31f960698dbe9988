//! Exit codes, and the one format of a failure: one line with the error, one line with a hint.

use std::fmt;
use std::io::{self, Write as _};

use lfn_api::ErrorKind;
use lfn_api::copy::CopyError;
use lfn_api::copy::places::CopyPlaceError;
use lfn_api::couple::CoupleError;
use lfn_api::couple::run::CoupleRunError;
use lfn_api::doctor::{DoctorError, EvidenceError};
use lfn_api::dry_run::DryRunError;
use lfn_api::emulate::EmulateRequestError;
use lfn_api::error_text::error_chain;
pub use lfn_api::error_text::without_error_number;
use lfn_api::hosts::HostError;
use lfn_api::mesh::{ImportError, LogError, MeshError};
use lfn_api::serve::ServeStartError;
use lfn_api::show::ShowError;
use lfn_api::ssh::SshError;
use lfn_api::stamp::StampVerbError;
use lfn_api::sweep::SweepError;
use lfn_api::test::TestVerbError;
use lfn_api::trace::TraceError;
use lfn_session::identity::IdentityError;

use crate::print::{self, sanitize::one_line};

/// Result of a run, as the shell sees it (exit code).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Ok,
    /// The command failed. No incomplete file has a final name.
    Failed,
    /// The command line is not valid. clap uses the same code.
    Usage,
    /// The command is incomplete. The same command resumes.
    Incomplete,
    /// The command finished, but the result is not reliable: the emulation was not accurate, or wrong bytes arrived.
    Unreliable,
    Interrupted,
    /// Exit code of the command that lfn ran.
    Command(u8),
}

impl Exit {
    /// Returns the exit code that the help documents.
    pub fn code(self) -> u8 {
        match self {
            Exit::Ok => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::Incomplete => 3,
            Exit::Unreliable => 4,
            Exit::Interrupted => 130,
            Exit::Command(code) => code,
        }
    }

    /// Ends the process without exit handlers. The handler of `aws-lc` aborts the process, rarely, if a thread still
    /// uses TLS (`doc/decisions/016-one-crypto-library.md`).
    pub fn end_process(self) -> ! {
        // Each printer flushes and reports its own errors, so that only a closed pipe can fail here.
        let _ = print::raw_text().flush();
        lfn_sys::process::exit_immediately(self.code().into())
    }
}

/// A failed command: its error, its hint and its exit code.
#[derive(Debug)]
pub struct Failure {
    exit: Exit,
    error: anyhow::Error,
    hint: Option<String>,
}

impl Failure {
    /// Creates a failure at run time (exit code 1).
    pub fn new(error: impl Into<anyhow::Error>) -> Self {
        let error = error.into();
        let (exit, hint) = explain(&error);
        Failure { exit, error, hint }
    }

    /// Creates a failure at run time from a text.
    pub fn msg(text: impl fmt::Display) -> Self {
        Failure::new(anyhow::anyhow!("{text}"))
    }

    /// Creates a failure of usage (exit code 2).
    pub fn usage(text: impl fmt::Display) -> Self {
        Failure { exit: Exit::Usage, ..Failure::msg(text) }
    }

    /// Sets the exit code.
    pub fn with_exit(mut self, exit: Exit) -> Self {
        self.exit = exit;
        self
    }

    /// Sets the hint: one action, as a command if possible.
    pub fn hint(mut self, hint: impl fmt::Display) -> Self {
        self.hint = Some(hint.to_string());
        self
    }

    /// Replaces the hint by the result of `complete`, if there is one.
    pub fn complete_hint(&mut self, complete: impl FnOnce(&str) -> Option<String>) {
        if let Some(complete) = self.hint.as_deref().and_then(complete) {
            self.hint = Some(complete);
        }
    }

    /// Adds a detail behind the error.
    pub fn add_detail(&mut self, detail: impl fmt::Display) {
        self.error = anyhow::anyhow!("{} ({detail})", error_chain(self.error.as_ref()));
    }

    /// Returns the exit code of the command.
    pub fn exit(&self) -> Exit {
        self.exit
    }

    /// Returns the error line and the hint line as they are printed.
    pub fn lines(&self) -> (String, Option<String>) {
        let text = error_chain(self.error.as_ref());
        let text = print::without_error_numbers(&text);
        if self.stdout_error_kind() == Some(io::ErrorKind::StorageFull) {
            let hint = "redirect the output to a disk with free space: > FILE";
            return (format!("standard output: {}", one_line(&text)), Some(hint.to_owned()));
        }
        (one_line(&text).into_owned(), self.hint.as_deref().map(|hint| one_line(hint).into_owned()))
    }

    /// Prints the failure on standard error: one line for the error, one for the hint.
    pub fn print(&self) {
        let (line, hint) = self.lines();
        print::error(format_args!("lfn: {line}\n"));
        if let Some(hint) = hint {
            print::message(format_args!("hint: {hint}\n"));
        }
    }

    /// Prints the failure and returns its exit code. A closed pipe on standard output counts as success.
    pub fn report(self) -> Exit {
        if self.is_closed_stdout() && self.exit == Exit::Failed {
            return Exit::Ok;
        }
        self.print();
        self.exit
    }

    /// Reports whether the reader closed standard output. Printing fails with a bare I/O error. An error with a cause
    /// comes from elsewhere: a broken connection ends with the same kind of error, and is a failure.
    pub fn is_closed_stdout(&self) -> bool {
        self.stdout_error_kind() == Some(io::ErrorKind::BrokenPipe)
    }

    fn stdout_error_kind(&self) -> Option<io::ErrorKind> {
        let plain = self.error.downcast_ref::<io::Error>().map(io::Error::kind);
        let json = self.error.downcast_ref::<serde_json::Error>().and_then(serde_json::Error::io_error_kind);
        plain.or(json)
    }
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Failure::new(error)
    }
}

/// Returns the exit code and the hint of an error of the library.
fn explain(error: &anyhow::Error) -> (Exit, Option<String>) {
    macro_rules! find {
        ($($known:ty),*) => {
            $(if let Some(error) = error.downcast_ref::<$known>() {
                return (error.kind().into(), error.hint());
            })*
        };
    }
    find!(
        HostError,
        SshError,
        CopyPlaceError,
        CopyError,
        CoupleError,
        ShowError,
        EmulateRequestError,
        DryRunError,
        ServeStartError,
        StampVerbError,
        SweepError,
        TestVerbError,
        DoctorError,
        EvidenceError,
        MeshError,
        LogError,
        ImportError,
        CoupleRunError,
        TraceError
    );
    (Exit::Failed, error.downcast_ref::<IdentityError>().and_then(IdentityError::hint))
}

impl From<ErrorKind> for Exit {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Failed => Exit::Failed,
            ErrorKind::Usage => Exit::Usage,
            ErrorKind::Incomplete => Exit::Incomplete,
            ErrorKind::Interrupted => Exit::Interrupted,
        }
    }
}

#[cfg(test)]
mod tests {
    use lfn_session::SessionError;

    use super::*;

    #[test]
    fn only_closed_stdout_counts_as_success() {
        let broken = || io::Error::from(io::ErrorKind::BrokenPipe);
        assert!(Failure::new(broken()).is_closed_stdout());
        assert!(Failure::new(serde_json::Error::io(broken())).is_closed_stdout());
        assert!(!Failure::new(SessionError::Io { peer: "the server", source: broken() }).is_closed_stdout());
        let full = Failure::new(io::Error::from(io::ErrorKind::StorageFull));
        assert!(!full.is_closed_stdout());
        let (line, hint) = full.lines();
        assert!(line.starts_with("standard output: ") && hint.is_some(), "{line}");
        assert!(!Failure::msg("no space").lines().0.contains("standard output"));
    }
}
