//! Settings of a server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use super::audit::AuditLog;
use crate::identity::ServerIdentity;
use crate::limits::ServerLimits;
use crate::limits::access::Access;
use crate::limits::connection_table::ConnectionLimits;
use crate::{Rights, Token};

/// Settings of a server, fixed at its start.
#[derive(Debug)]
pub struct ServerConfig {
    /// Address to listen on; port 0 takes any free port.
    pub listen: SocketAddr,
    pub identity: ServerIdentity,
    /// Token that clients need. `None` accepts every client (`--insecure`); the caller allows `None` only on loopback
    /// or emulated paths.
    pub token: Option<Token>,
    pub token_expires: Option<SystemTime>,
    /// File of the additional tokens (`lfn token add`).
    pub token_file: Option<PathBuf>,
    /// Maximum rights of a session, for any token.
    pub rights: Rights,
    /// Audit log of all sessions.
    pub audit: Option<AuditLog>,
    /// Directory that confines all copies. Without a directory only `random:`, `zero:` and `null:` can be copied.
    pub root: Option<PathBuf>,
    /// Copies may use every path that this process may use; relative paths start at its working directory. For servers
    /// that ssh started: the client is the user of the process.
    pub unconfined: bool,
    /// A client may ask this server to dial another server and send to it.
    pub allow_third_party: bool,
    /// Limits of one client's sessions and of all sessions.
    pub limits: ServerLimits,
    pub connection_limits: ConnectionLimits,
    pub access: Access,
    /// Congestion control of accepted connections; the server then has no Multipath TCP. `None` is that of the host.
    pub congestion: Option<&'static str>,
    /// Time that running sessions may continue after a stop.
    pub drain: Duration,
}
