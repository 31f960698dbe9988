//! Saved names of servers, and the errors of names and tickets.
//!
//! The names are stored in `hosts.toml` in the user's configuration directory (mode 0600, since the file holds tokens).

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use etcetera::BaseStrategy;
use lfn_session::identity::{self, IdentityError};
use lfn_session::{SessionError, Ticket, TicketError};
use serde::{Deserialize, Serialize};

use crate::error_kind::ErrorKind;

/// Name of the far side of an emulated path.
pub const FAR: &str = "far";

/// Tickets saved by `lfn hosts add`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SavedHosts {
    hosts: BTreeMap<String, SavedHost>,
}

#[derive(Debug, Serialize, Deserialize)]
struct SavedHost {
    ticket: String,
}

impl SavedHosts {
    /// Reads the saved tickets. A missing file counts as empty.
    pub fn load() -> Result<Self, HostError> {
        let path = Self::path()?;
        let Some(text) = identity::read_secret(&path)? else { return Ok(SavedHosts::default()) };
        toml::from_str(&text).map_err(|error| HostError::DamagedFile { path, reason: error.message().to_owned() })
    }

    /// Returns the ticket saved under `name`.
    pub fn get(&self, name: &str) -> Result<Option<Ticket>, HostError> {
        let Some(saved) = self.hosts.get(name) else { return Ok(None) };
        saved.ticket.parse().map(Some).map_err(|source| HostError::DamagedTicket { name: name.to_owned(), source })
    }

    /// Reports whether a ticket is saved under `name`, also a damaged one.
    pub fn contains(&self, name: &str) -> bool {
        self.hosts.contains_key(name)
    }

    /// Returns names and tickets, ordered by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.hosts.iter().map(|(name, saved)| (name.as_str(), saved.ticket.as_str()))
    }

    /// Saves a ticket. Returns whether the name is new.
    pub fn add(&mut self, name: &str, ticket: &Ticket) -> Result<bool, HostError> {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        if name.is_empty() || name.len() > 64 || !name.chars().all(fits) || name.starts_with('-') {
            return Err(HostError::InvalidName(name.to_owned()));
        }
        if name == FAR {
            return Err(HostError::ReservedName);
        }
        let saved = SavedHost { ticket: ticket.to_string() };
        Ok(self.hosts.insert(name.to_owned(), saved).is_none())
    }

    /// Deletes a name. Returns whether the name existed.
    pub fn remove(&mut self, name: &str) -> bool {
        self.hosts.remove(name).is_some()
    }

    /// Writes the file with mode 0600.
    pub fn save(&self) -> Result<(), HostError> {
        let text = toml::to_string(self).map_err(|error| HostError::Unwritable(error.to_string()))?;
        Ok(identity::write_secret(&Self::path()?, &text)?)
    }

    /// Returns the path of the file.
    pub(crate) fn path() -> Result<PathBuf, HostError> {
        let strategy = etcetera::choose_base_strategy().map_err(|_| HostError::NoHomeDirectory)?;
        Ok(strategy.config_dir().join("lfn/hosts.toml"))
    }
}

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

const TICKET_HINT: &str = "the first line must be the complete ticket, as `lfn serve` or `lfn mesh ticket` prints it";

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
