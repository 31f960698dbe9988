//! Messages between an agent and its hub, in a session that the agent opens.
//!
//! The hub greets ([`HubGreeting`]). Then the agent sends [`SyncRequest`]s and the hub answers each with a [`SyncReply`], until
//! the agent closes the session. The token
//! of the session names the agent. All messages are JSON; a receiver ignores fields that it does not know.

use std::time::Duration;

use lfn_base::path::seconds;
use lfn_session::dial::{self, Target};
use lfn_session::wire::Request;
use lfn_session::wire::mesh::MeshRequest;
use lfn_session::{Control, queue};
use lfn_session::{Fingerprint, SessionError, SessionId, TokenHash};
use serde::{Deserialize, Serialize};

use crate::entry::RawJson;
use crate::schedule::Dated;
use crate::spool::SpooledEntry;

/// Maximum entries of a request.
pub const MAX_BATCH_ENTRIES: usize = 500;

/// Length of the entries of a request above which no further entry is added, bytes.
pub const MAX_BATCH_BYTES: usize = 1 << 20;

/// Maximum wait for the answer of the hub, which may store entries of other agents first.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);

/// First message of the hub.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HubGreeting {
    /// Name of the agent, as its token has it.
    pub host: String,
}

/// Servers of an agent, for the tests of other agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentServers {
    /// Fingerprint of the server's key.
    pub fingerprint: Fingerprint,
    /// TCP and UDP port of tests.
    pub port: u16,
    /// UDP port of the STAMP reflector.
    pub stamp_port: Option<u16>,
}

/// An entry with its number in the spool of the agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NumberedEntry {
    pub number: u64,
    /// A [`crate::entry::Entry`]. The hub parses each entry by itself, so that one bad entry does not stop the others.
    pub entry: RawJson,
}

/// Results of an agent, and what the agent knows.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SyncRequest {
    /// Version of lfn that the agent runs.
    pub version: String,
    /// Random name of the agent's state, by which the hub finds two agents with one ticket.
    pub instance: String,
    /// Digest of the plan that the agent has.
    pub plan: Option<String>,
    /// Digest of the access list that the agent has.
    pub access: Option<String>,
    /// Servers of the agent; `None` before they listen.
    pub servers: Option<AgentServers>,
    /// Entries in the order of their numbers.
    pub entries: Vec<NumberedEntry>,
}

/// The hub's answer to a request.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SyncReply {
    /// Name of the agent, as its token has it.
    pub host: String,
    /// Clock of the hub: time since 1970.
    #[serde(rename = "clock_seconds", with = "seconds")]
    pub clock: Duration,
    /// The archive has all entries up to this number on disk, except the refused ones.
    pub acknowledged: Option<u64>,
    /// Entries that the hub will never store.
    pub refused: Vec<RefusedEntry>,
    /// Reason why the entries were not stored; the agent sends them again later.
    pub problem: Option<String>,
    /// The plan, if it differs from that of the agent.
    pub plan: Option<PlanUpdate>,
    /// The access list, if it differs from that of the agent.
    pub access: Option<AccessUpdate>,
}

/// An entry that the hub will never store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedEntry {
    pub number: u64,
    pub reason: String,
}

/// A plan: the sites file of the hub, and when it is valid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanUpdate {
    /// Hash of the other fields.
    pub digest: String,
    /// Text of the sites file.
    pub sites: String,
    /// Time since 1970 from which the plan is valid, by the clock of the hub.
    #[serde(rename = "valid_from_seconds", with = "seconds", default)]
    pub valid_from: Duration,
}

impl Dated for PlanUpdate {
    fn valid_from(&self) -> Duration {
        self.valid_from
    }
}

/// Tickets for the pairs of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessUpdate {
    pub digest: String,
    pub access: AccessList,
}

/// Tickets and tokens with which an agent tests its partners, and they test the agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessList {
    /// Clients that may test this agent, with the hashes of their tokens.
    pub clients: Vec<PairClient>,
    /// Servers that this agent may test.
    pub targets: Vec<PairTarget>,
    /// Key of STAMP packets between agents, in hexadecimal.
    pub stamp_key: String,
}

/// A client that may test this agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairClient {
    pub host: String,
    pub token: TokenHash,
}

/// A server that this agent may test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairTarget {
    pub host: String,
    /// Ticket for tests; `None` until the server has registered.
    pub ticket: Option<String>,
    /// Address and port of the STAMP reflector.
    pub stamp: Option<String>,
}

/// The agent's end of a session with its hub.
#[derive(Debug)]
pub struct HubConnection {
    control: Control,
}

impl HubConnection {
    /// Opens a session with the hub.
    pub fn open(target: &Target) -> Result<Self, SessionError> {
        let session: SessionId = dial::new_session_id()?;
        let mut control = dial::open_control(target, session, Request::Mesh(MeshRequest {}))?;
        queue::wait_for_admission(&mut control, &target.queue, target.connect_timeout, None, || ())?;
        let HubGreeting { .. } = control.recv(target.connect_timeout, "before the greeting of the hub")?;
        Ok(HubConnection { control })
    }

    /// Sends a request and returns the answer.
    pub fn exchange(&mut self, request: &SyncRequest) -> Result<SyncReply, SessionError> {
        self.control.send(request)?;
        self.control.recv(REPLY_TIMEOUT, "before the answer of the hub")
    }

    /// Ends the session with the hub.
    pub fn close(self) {
        self.control.close();
    }
}

/// Returns entries of the spool as a batch of a request. An entry that is no JSON is sent as text, and the hub refuses it.
pub fn batch(entries: Vec<SpooledEntry>) -> Vec<NumberedEntry> {
    let parse = |entry: SpooledEntry| {
        let json = RawJson::parse(entry.json.clone()).or_else(|| RawJson::of(&entry.json))?;
        Some(NumberedEntry { number: entry.number, entry: json })
    };
    entries.into_iter().filter_map(parse).collect()
}
