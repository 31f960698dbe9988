//! Environment variables that `lfn emulate` sets for the commands on its path: the path's figures and the far side's
//! ticket.
//!
//! Only processes of the same user can read the environment, so the ticket does not appear in `ps`. A process in an
//! attached network namespace does not inherit the variables, and asks the emulation for them.

use std::collections::BTreeMap;
use std::env;
use std::net::Ipv4Addr;

use lfn_base::path::PathProfile;
use lfn_emulate::control;
use lfn_session::Ticket;

use crate::hosts::{FAR, HostError};

const EMULATED: &str = "LFN_EMULATED";
const PATH: &str = "LFN_PATH";
const RETURN_PATH: &str = "LFN_RETURN_PATH";
const SIDE: &str = "LFN_SIDE";
const FAR_TICKET: &str = "LFN_FAR_TICKET";
const FAR_ADDRESS: &str = "LFN_FAR";

/// Variables of the emulated path that this process runs on.
#[derive(Debug, Clone, Default)]
pub struct EmulatorEnvironment {
    variables: BTreeMap<String, String>,
}

/// Reports whether `lfn emulate` started this process, or a program that started it.
pub fn is_inside() -> bool {
    env::var_os(EMULATED).is_some_and(|value| value == "1")
}

impl EmulatorEnvironment {
    /// Reads the variables from the environment, or from the emulation that is attached to this network namespace if
    /// `hosts` name the far side. An attached namespace may have other networks, where the figures of the emulated path
    /// do not apply.
    pub fn read<S: AsRef<str>>(hosts: impl IntoIterator<Item = S>) -> Self {
        let from_environment = |names: &[&str]| -> BTreeMap<String, String> {
            names.iter().filter_map(|name| Some(((*name).to_owned(), env::var(name).ok()?))).collect()
        };
        if is_inside() {
            return Self { variables: from_environment(&[PATH, RETURN_PATH, SIDE, FAR_TICKET, FAR_ADDRESS]) };
        }
        let mut variables =
            attached(&hosts.into_iter().map(|host| host_part(host.as_ref()).to_owned()).collect::<Vec<_>>());
        // A program may pass on the ticket without the other variables.
        variables.extend(from_environment(&[FAR_TICKET, FAR_ADDRESS]));
        Self { variables }
    }

    /// Returns the side of the emulated path that this process is on: `near` or `far`.
    pub fn side(&self) -> Option<&str> {
        self.variables.get(SIDE).map(String::as_str)
    }

    /// Returns the figures of the path from near to far, if this process runs on an emulated path.
    pub fn path(&self) -> Result<Option<PathProfile>, HostError> {
        self.profile(PATH)
    }

    /// Returns the figures of the path from far to near. A path without figures of its own for this direction has the
    /// same in both.
    pub fn return_path(&self) -> Result<Option<PathProfile>, HostError> {
        Ok(self.profile(RETURN_PATH)?.or(self.path()?))
    }

    /// Returns the ticket of the far side if `name` is `far` or the far side's address.
    pub fn far_ticket(&self, name: &str) -> Result<Option<Ticket>, HostError> {
        let Some(ticket) = self.variables.get(FAR_TICKET) else { return Ok(None) };
        if name == FAR || self.variables.get(FAR_ADDRESS).is_some_and(|address| address == name) {
            let invalid = |source| HostError::BadTicketVariable { variable: FAR_TICKET, source };
            return ticket.parse().map(Some).map_err(invalid);
        }
        Ok(None)
    }

    fn profile(&self, variable: &'static str) -> Result<Option<PathProfile>, HostError> {
        let Some(json) = self.variables.get(variable) else { return Ok(None) };
        serde_json::from_str(json).map(Some).map_err(|source| HostError::BadPathVariable { variable, source })
    }
}

/// Returns the variables of the emulation that is attached to this network namespace, if one of the hosts is its far
/// side.
fn attached(hosts: &[String]) -> BTreeMap<String, String> {
    if !hosts.iter().any(|host| host == FAR || host.parse::<Ipv4Addr>().is_ok()) {
        return BTreeMap::new();
    }
    let variables = control::attached_environment().unwrap_or_default();
    let is_far = |address: &String| hosts.iter().any(|host| host == FAR || host == address);
    if variables.get(FAR_ADDRESS).is_some_and(is_far) { variables } else { BTreeMap::new() }
}

/// Returns the host of `HOST` or `HOST:PATH`.
fn host_part(place: &str) -> &str {
    place.split_once(':').map_or(place, |(host, _)| host)
}
