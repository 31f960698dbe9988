//! Errors of finding a server by its name.

use std::io;
use std::path::PathBuf;

use lfn_core::session::TicketError;
use lfn_net::session::SessionError;
use lfn_net::session::identity::IdentityError;

use crate::ErrorKind;

/// Reasons why a name or a ticket does not lead to a server.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    #[error("{place}: {source}")]
    OpenTicketFile { place: String, source: io::Error },
    #[error("{place}: {source}")]
    ReadTicket { place: String, source: io::Error },
    #[error("{place} contains no ticket: all lines are blank")]
    NoTicket { place: String },
    /// The text may be another secret, so the error does not quote it.
    #[error("{place}, line {line}: not a ticket")]
    NotATicket { place: String, line: usize },
    #[error("{0}")]
    InvalidTicket(TicketError),
    #[error("{0}")]
    InvalidAddress(TicketError),
    #[error("unknown host '{name}': no ticket is saved under that name")]
    UnknownName { name: String, host: String },
    #[error("--insecure: '{0}' is not on loopback")]
    InsecureOnNetwork(String),
    #[error("this process is on the far side itself")]
    OnFarSide,
    #[error("the far side runs your --far-command instead of `lfn serve`")]
    FarRunsCommand,
    #[error("'far' exists only inside `lfn emulate`, and this user runs none in this network namespace")]
    NoEmulation,
    #[error("{}: {reason}", .path.display())]
    DamagedFile { path: PathBuf, reason: String },
    #[error("cannot write the saved names: {0}")]
    Unwritable(String),
    #[error("the ticket saved as '{name}': {source}")]
    DamagedTicket { name: String, source: TicketError },
    #[error("'{0}' is not a valid name for a host")]
    InvalidName(String),
    #[error("'far' is reserved for the far side of an emulated path")]
    ReservedName,
    #[error("cannot find hosts.toml: no home directory")]
    NoHomeDirectory,
    #[error("the environment variable {variable}: {source}")]
    BadTicketVariable { variable: &'static str, source: TicketError },
    #[error("the environment variable {variable} is not a path: {source}")]
    BadPathVariable { variable: &'static str, source: serde_json::Error },
    #[error("standard input: {0}")]
    StandardInput(io::Error),
    #[error("interrupted")]
    Interrupted,
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    Session(#[from] SessionError),
}

const TICKET_HINT: &str = "the first line must be the complete ticket printed by `lfn serve`";

impl HostError {
    /// Returns one action that may fix the error, if there is one.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            HostError::OpenTicketFile { .. } => "@FILE is a file that contains the ticket printed by `lfn serve`",
            HostError::ReadTicket { .. } => "give the ticket printed by `lfn serve`",
            HostError::NoTicket { .. } | HostError::NotATicket { .. } => TICKET_HINT,
            HostError::InvalidTicket(_) => "paste the complete ticket, in quotes",
            HostError::UnknownName { host, .. } => {
                return Some(format!(
                    "run `lfn serve` on that host and save the ticket it prints: lfn hosts add {host} TICKET"
                ));
            }
            HostError::InsecureOnNetwork(_) => {
                "use the ticket that `lfn serve` prints on that host, or add --insecure-anywhere on a network that you trust"
            }
            HostError::OnFarSide => "run the command on the near side, where `lfn emulate` started your command",
            HostError::FarRunsCommand => {
                "run `lfn emulate` without --far-command, or save the ticket under another name: lfn hosts add NAME TICKET"
            }
            HostError::NoEmulation => "lfn emulate --rtt 539ms --rate 135mbit -- lfn test far",
            HostError::DamagedFile { .. } => {
                "correct the file, or delete it and save the tickets again with `lfn hosts add`"
            }
            HostError::InvalidName(_) => "use at most 64 letters, digits, dots, dashes and underscores",
            HostError::ReservedName => "use another name",
            HostError::NoHomeDirectory => "set HOME",
            HostError::BadPathVariable { variable, .. } => {
                return Some(format!("only `lfn emulate` sets this variable; run: unset {variable}"));
            }
            HostError::Identity(error) => return error.hint(),
            HostError::Session(error) => return error.hint(),
            HostError::InvalidAddress(_)
            | HostError::Unwritable(_)
            | HostError::DamagedTicket { .. }
            | HostError::BadTicketVariable { .. }
            | HostError::StandardInput(_)
            | HostError::Interrupted => return None,
        };
        Some(hint.to_owned())
    }

    /// Returns the kind of the error, which decides the exit code of a command.
    pub fn kind(&self) -> ErrorKind {
        match self {
            HostError::NoTicket { .. }
            | HostError::NotATicket { .. }
            | HostError::InvalidTicket(_)
            | HostError::InvalidAddress(_)
            | HostError::InsecureOnNetwork(_)
            | HostError::InvalidName(_)
            | HostError::ReservedName => ErrorKind::Usage,
            HostError::Interrupted => ErrorKind::Interrupted,
            _ => ErrorKind::Failed,
        }
    }
}
