//! The servers of the agents, kept in a file so that tests continue when the hub starts again.
//!
//! Sessions record agents in memory only, because the sandbox of the server does not let them write the file. A thread outside
//! of the sandbox writes it with [`Registry::save`].

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use lfn_session::atomic_file::AtomicFile;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::sync::{AgentServers, SyncRequest};

/// Time in which one instance of an agent excludes others. An agent dials the hub every 10 s.
const EXCLUSION: Duration = Duration::from_secs(60);

/// Maximum length of a version and of the name of an instance, characters.
const MAX_TEXT: usize = 40;

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

/// Result of a request of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recorded {
    Unchanged,
    /// The agent is new, or its address, servers or version changed.
    Changed,
    /// Another instance of the agent dialled less than [`EXCLUSION`] ago.
    SecondInstance {
        /// The first request of this instance.
        is_new: bool,
    },
}

/// All agents that have dialled the hub.
#[derive(Debug)]
pub(super) struct Registry {
    path: PathBuf,
    agents: Mutex<Agents>,
}

#[derive(Debug)]
struct Agents {
    known: BTreeMap<String, RegisteredAgent>,
    seen: BTreeMap<String, Seen>,
    /// The file has all known agents.
    is_saved: bool,
}

/// Last request of an agent since the start of the hub.
#[derive(Debug, Default)]
struct Seen {
    at: Duration,
    /// Random name of the agent's state. Agents of earlier versions have none.
    instance: String,
    /// Instance that was refused last.
    refused: String,
}

impl Registry {
    /// Reads the file. A missing or damaged file has no agents: they register again.
    pub(super) fn open(path: PathBuf) -> Self {
        let is_short = std::fs::metadata(&path).is_ok_and(|file| file.len() <= MAX_FILE_BYTES);
        let text = if is_short { std::fs::read_to_string(&path).unwrap_or_default() } else { String::new() };
        let known = serde_json::from_str(&text).unwrap_or_default();
        Registry { path, agents: Mutex::new(Agents { known, seen: BTreeMap::new(), is_saved: true }) }
    }

    /// Records an agent in memory. `now` is the time since 1970.
    pub(super) fn record(&self, host: &str, peer: SocketAddr, request: &SyncRequest, now: Duration) -> Recorded {
        let mut agents = self.agents.lock();
        let Agents { known, seen, is_saved } = &mut *agents;
        if let Err(is_new) = seen.entry(host.to_owned()).or_default().admit(&request.instance, now) {
            return Recorded::SecondInstance { is_new };
        }
        let servers = request.servers.or_else(|| known.get(host).and_then(|agent| agent.servers));
        let agent = RegisteredAgent { servers, address: peer.ip().to_canonical(), version: short(&request.version) };
        if known.get(host) == Some(&agent) {
            return Recorded::Unchanged;
        }
        known.insert(host.to_owned(), agent);
        *is_saved = false;
        Recorded::Changed
    }

    /// Writes the file if an agent changed since the last time.
    pub(super) fn save(&self) -> io::Result<()> {
        let json = {
            let mut agents = self.agents.lock();
            if std::mem::replace(&mut agents.is_saved, true) {
                return Ok(());
            }
            serde_json::to_vec(&agents.known)?
        };
        let written = self.write(&json);
        if written.is_err() {
            self.agents.lock().is_saved = false;
        }
        written
    }

    fn write(&self, json: &[u8]) -> io::Result<()> {
        let mut file = AtomicFile::create_private(&self.path)?;
        file.write_all(json)?;
        file.commit()
    }

    /// Returns the servers, the address and the version of an agent.
    pub(super) fn agent(&self, host: &str) -> Option<RegisteredAgent> {
        self.agents.lock().known.get(host).cloned()
    }

    /// Returns when each agent dialled last, since this hub started.
    pub(super) fn seen(&self) -> BTreeMap<String, Duration> {
        self.agents.lock().seen.iter().map(|(host, seen)| (host.clone(), seen.at)).collect()
    }
}

impl Seen {
    /// Refuses an instance while another one is active. The error is whether this is the first refusal of the instance.
    fn admit(&mut self, instance: &str, now: Duration) -> Result<(), bool> {
        let instance = short(instance);
        let is_active = now.checked_sub(self.at).is_some_and(|age| age < EXCLUSION);
        let is_other = !instance.is_empty() && !self.instance.is_empty() && instance != self.instance;
        if is_other && is_active {
            let is_new = self.refused != instance;
            self.refused = instance;
            return Err(is_new);
        }
        self.at = now;
        if !instance.is_empty() {
            self.instance = instance;
        }
        Ok(())
    }
}

fn short(text: &str) -> String {
    text.chars().take(MAX_TEXT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(registry: &Registry, instance: &str, seconds: u64) -> Recorded {
        let request = SyncRequest { instance: instance.to_owned(), ..SyncRequest::default() };
        registry.record("a", "192.0.2.1:40000".parse().unwrap(), &request, Duration::from_secs(seconds))
    }

    #[test]
    fn agents_are_written_only_by_save() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("agents.json");
        let registry = Registry::open(path.clone());
        assert_eq!(record(&registry, "", 0), Recorded::Changed);
        assert!(!path.exists());
        registry.save().unwrap();
        assert!(Registry::open(path.clone()).agent("a").is_some());
        std::fs::remove_file(&path).unwrap();
        assert_eq!(record(&registry, "", 1), Recorded::Unchanged);
        registry.save().unwrap();
        assert!(!path.exists(), "an unchanged registry was written");
    }

    #[test]
    fn a_failed_save_is_repeated() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path().join("state");
        std::fs::write(&state, "").unwrap();
        let registry = Registry::open(state.join("agents.json"));
        record(&registry, "", 0);
        registry.save().unwrap_err();
        std::fs::remove_file(&state).unwrap();
        registry.save().unwrap();
        assert!(Registry::open(state.join("agents.json")).agent("a").is_some());
    }

    #[test]
    fn a_second_instance_waits_until_the_first_is_away() {
        let registry = Registry::open("none".into());
        assert_eq!(record(&registry, "one", 100), Recorded::Changed);
        assert_eq!(record(&registry, "two", 101), Recorded::SecondInstance { is_new: true });
        assert_eq!(record(&registry, "two", 102), Recorded::SecondInstance { is_new: false });
        assert_eq!(record(&registry, "one", 120), Recorded::Unchanged);
        // Agents of earlier versions have no instance.
        assert_eq!(record(&registry, "", 130), Recorded::Unchanged);
        assert_eq!(record(&registry, "two", 189), Recorded::SecondInstance { is_new: false });
        assert_eq!(record(&registry, "two", 190), Recorded::Unchanged);
        assert_eq!(record(&registry, "one", 191), Recorded::SecondInstance { is_new: true });
        // The clock of the hub was set back.
        assert_eq!(record(&registry, "one", 50), Recorded::Unchanged);
    }
}
