//! Exit codes, and the one shape in which a command fails: a line that says what, a hint that says what to do.

use std::fmt;
use std::io;
use std::process::ExitCode;

use lfn_net::session::identity::IdentityError;

use crate::print::{self, plain::one_line};

/// How a run ended, as the shell sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Ok,
    /// Failed; nothing half-done was left under a final name.
    Failed,
    /// The command line cannot be meant (also what clap exits with).
    Usage,
    /// Incomplete, but the same command goes on from there.
    Incomplete,
    /// Done, but not to be trusted: the emulation was not faithful.
    Untrusted,
    /// Interrupted by SIGINT.
    Interrupted,
    /// The exit status of a command that was run, passed on.
    Of(u8),
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

impl Exit {
    /// The number documented in the help.
    pub fn code(self) -> u8 {
        match self {
            Exit::Ok => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::Incomplete => 3,
            Exit::Untrusted => 4,
            Exit::Interrupted => 130,
            Exit::Of(code) => code,
        }
    }
}

/// A command that failed: the line, the hint and the exit code.
#[derive(Debug)]
pub struct Failure {
    exit: Exit,
    error: anyhow::Error,
    hint: Option<String>,
}

impl Failure {
    /// A failure at run time (exit code 1).
    pub fn new(error: impl Into<anyhow::Error>) -> Self {
        let error = error.into();
        let hint = error.downcast_ref::<IdentityError>().and_then(IdentityError::hint);
        Failure { exit: Exit::Failed, error, hint }
    }

    /// A failure at run time, from text.
    pub fn msg(text: impl fmt::Display) -> Self {
        Failure::new(anyhow::anyhow!("{text}"))
    }

    /// What was typed cannot be meant (exit code 2).
    pub fn usage(text: impl fmt::Display) -> Self {
        Failure { exit: Exit::Usage, ..Failure::msg(text) }
    }

    /// Sets another exit code.
    pub fn with_exit(mut self, exit: Exit) -> Self {
        self.exit = exit;
        self
    }

    /// Says what to do about it: best a command to run.
    pub fn hint(mut self, hint: impl fmt::Display) -> Self {
        self.hint = Some(hint.to_string());
        self
    }

    /// The line and the hint, as they will be printed.
    pub fn words(&self) -> (String, Option<String>) {
        let text = line(&self.error);
        if self.of_stdout() == Some(io::ErrorKind::StorageFull) {
            let hint = "send it where there is room: > FILE on another disk";
            return (format!("standard output: {}", one_line(&text)), Some(hint.to_owned()));
        }
        (one_line(&text).into_owned(), self.hint.as_deref().map(|hint| one_line(hint).into_owned()))
    }

    /// Prints the failure on stderr, one line each for error and hint.
    pub fn tell(&self) {
        let (line, hint) = self.words();
        print::talk(format_args!("lfn: {line}\n"));
        if let Some(hint) = hint {
            print::talk(format_args!("hint: {hint}\n"));
        }
    }

    /// Ends the program with it; a closed pipe on stdout is no failure at all.
    pub fn report(self) -> ExitCode {
        if self.is_closed_stdout() && self.exit == Exit::Failed {
            return Exit::Ok.into();
        }
        self.tell();
        self.exit.into()
    }

    /// Printing fails with the bare error. One that has a cause to tell is of something else: a connection that breaks
    /// ends in the same kind, and is a failure.
    fn is_closed_stdout(&self) -> bool {
        self.of_stdout() == Some(io::ErrorKind::BrokenPipe)
    }

    fn of_stdout(&self) -> Option<io::ErrorKind> {
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

/// The error and its causes, each that the one before has not said already.
fn line(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |said, cause| match said.as_str() {
        "" => cause,
        before if before.ends_with(&cause) => said,
        _ => format!("{said}: {cause}"),
    })
}

#[cfg(test)]
mod tests {
    use lfn_net::session::SessionError;

    use super::*;

    #[test]
    fn a_cause_is_said_once() {
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        let error = SessionError::Unreachable { address: "far:1".into(), source: refused() };
        assert_eq!(line(&anyhow::Error::new(error)), format!("cannot reach far:1: {}", refused()));
        let unsaid = anyhow::Error::new(refused()).context("no answer");
        assert_eq!(line(&unsaid), format!("no answer: {}", refused()));
    }

    #[test]
    fn only_a_closed_stdout_is_success() {
        let broken = || io::Error::from(io::ErrorKind::BrokenPipe);
        assert!(Failure::new(broken()).is_closed_stdout());
        assert!(Failure::new(serde_json::Error::io(broken())).is_closed_stdout());
        assert!(!Failure::new(SessionError::Io { peer: "the server", source: broken() }).is_closed_stdout());
        let full = Failure::new(io::Error::from(io::ErrorKind::StorageFull));
        assert!(!full.is_closed_stdout());
        let (line, hint) = full.words();
        assert!(line.starts_with("standard output: ") && hint.is_some(), "{line}");
        assert!(!Failure::msg("no space").words().0.contains("standard output"));
    }
}
