//! Saved names of servers.
//!
//! The names are stored in `hosts.toml` in the user's configuration directory (mode 0600, since the file holds tokens).

use std::collections::BTreeMap;
use std::path::PathBuf;

use etcetera::BaseStrategy;
use lfn_core::session::Ticket;
use lfn_net::session::identity::{self};
use serde::{Deserialize, Serialize};

use crate::emulator_env;
pub use crate::host_error::HostError;

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
        if name == emulator_env::FAR {
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

    fn path() -> Result<PathBuf, HostError> {
        let strategy = etcetera::choose_base_strategy().map_err(|_| HostError::NoHomeDirectory)?;
        Ok(strategy.config_dir().join("lfn/hosts.toml"))
    }
}
