//! Options of an agent.

use std::net::IpAddr;
use std::path::PathBuf;

use lfn_session::Ticket;

/// Options of an agent.
#[derive(Debug, Clone)]
pub struct AgentStart {
    /// Ticket of the hub for this agent; `None` uses the ticket of the last start.
    pub hub: Option<Ticket>,
    /// Directory of the key, the plan and the spool.
    pub state: PathBuf,
    /// Address to listen on for tests; `None` listens on every address.
    pub bind: Option<IpAddr>,
    /// Port to listen on for tests; `None` uses that of the sites file. 0 uses any free port.
    pub port: Option<u16>,
    /// Maximum length of the spool, bytes.
    pub max_spool: u64,
}
