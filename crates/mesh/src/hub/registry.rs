//! The servers of the agents, kept in a file so that tests continue when the hub starts again.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use lfn_session::atomic_file::AtomicFile;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::sync::AgentServers;

/// Maximum length of the file, bytes.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// Servers, address and version of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RegisteredAgent {
    pub servers: Option<AgentServers>,
    /// Address from which the agent dialled last.
    pub address: IpAddr,
    /// Version of lfn that the agent runs.
    pub version: String,
}

/// All agents that have dialled the hub.
#[derive(Debug)]
pub(super) struct Registry {
    path: PathBuf,
    agents: Mutex<Agents>,
}

#[derive(Debug, Default)]
struct Agents {
    known: BTreeMap<String, RegisteredAgent>,
    seen: BTreeMap<String, Duration>,
}

impl Registry {
    /// Reads the file. A missing or damaged file has no agents: they register again.
    pub(super) fn open(path: PathBuf) -> Self {
        let is_short = std::fs::metadata(&path).is_ok_and(|file| file.len() <= MAX_FILE_BYTES);
        let text = if is_short { std::fs::read_to_string(&path).unwrap_or_default() } else { String::new() };
        let known = serde_json::from_str(&text).unwrap_or_default();
        Registry { path, agents: Mutex::new(Agents { known, ..Agents::default() }) }
    }

    /// Records an agent. Returns whether it is new or changed.
    pub(super) fn record(
        &self,
        host: &str,
        peer: SocketAddr,
        servers: Option<AgentServers>,
        version: &str,
        now: Duration,
    ) -> io::Result<bool> {
        let mut agents = self.agents.lock();
        agents.seen.insert(host.to_owned(), now);
        let servers = servers.or_else(|| agents.known.get(host).and_then(|agent| agent.servers));
        let agent =
            RegisteredAgent { servers, address: peer.ip().to_canonical(), version: version.chars().take(40).collect() };
        if agents.known.get(host) == Some(&agent) {
            return Ok(false);
        }
        agents.known.insert(host.to_owned(), agent);
        let mut file = AtomicFile::create_private(&self.path)?;
        serde_json::to_writer(&mut file, &agents.known)?;
        file.flush()?;
        file.commit()?;
        Ok(true)
    }

    /// Returns the servers, the address and the version of an agent.
    pub(super) fn agent(&self, host: &str) -> Option<RegisteredAgent> {
        self.agents.lock().known.get(host).cloned()
    }

    /// Returns when each agent dialled last, since this hub started.
    pub(super) fn seen(&self) -> BTreeMap<String, Duration> {
        self.agents.lock().seen.clone()
    }
}
