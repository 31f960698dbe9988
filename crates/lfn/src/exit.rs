//! Exit codes, and the one format of a failure: one line with the error, one line with a hint.

use std::fmt;
use std::io;
use std::process::ExitCode;

use lfn_api::ErrorKind;
use lfn_api::copy::CopyError;
use lfn_api::copy::places::CopyPlaceError;
use lfn_api::dry_run::DryRunError;
use lfn_api::emulate::EmulateRequestError;
use lfn_api::hosts::HostError;
use lfn_api::serve::ServeStartError;
use lfn_api::show::ShowError;
use lfn_api::ssh::SshError;
use lfn_net::session::SessionError;
use lfn_net::session::identity::IdentityError;

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

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
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
        self.error = anyhow::anyhow!("{} ({detail})", error_chain(&self.error));
    }

    /// Returns the exit code of the command.
    pub fn exit_code(&self) -> u8 {
        self.exit.code()
    }

    /// Returns the error line and the hint line as they are printed.
    pub fn lines(&self) -> (String, Option<String>) {
        let text = error_chain(&self.error);
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
    pub fn report(self) -> ExitCode {
        if self.is_closed_stdout() && self.exit == Exit::Failed {
            return Exit::Ok.into();
        }
        self.print();
        self.exit.into()
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
    find!(HostError, SshError, CopyPlaceError, CopyError, ShowError, EmulateRequestError, DryRunError, ServeStartError);
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

/// Converts an error of a session into a failure with the hint of the error.
pub fn session_failure(error: SessionError) -> Failure {
    let hint = error.hint();
    hint.into_iter().fold(Failure::new(error), Failure::hint)
}

/// Removes ` (os error 13)`, which Rust adds to the text of a system error.
pub fn without_error_number(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |joined, part| match part.split_once(')') {
        Some((number, rest)) if number.chars().all(|c| c.is_ascii_digit()) => joined + rest,
        _ => format!("{joined} (os error {part}"),
    })
}

/// Joins the error and its causes. Skips a cause that the text before already contains.
fn error_chain(error: &anyhow::Error) -> String {
    error.chain().map(|cause| without_error_number(&cause.to_string())).fold(
        String::new(),
        |joined, cause| match joined.as_str() {
            "" => cause,
            before if before.ends_with(&cause) => joined,
            _ => format!("{joined}: {cause}"),
        },
    )
}

#[cfg(test)]
mod tests {
    use lfn_net::session::SessionError;

    use super::*;

    #[test]
    fn error_chain_skips_repeated_causes() {
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        let error = SessionError::Unreachable { address: "far:1".into(), source: refused() };
        assert_eq!(
            error_chain(&anyhow::Error::new(error)),
            "cannot reach far:1: Connection refused"
                .replace("Connection refused", &without_error_number(&refused().to_string()))
        );
        let unsaid = anyhow::Error::new(refused()).context("no answer");
        assert_eq!(error_chain(&unsaid), format!("no answer: {}", without_error_number(&refused().to_string())));
    }

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
