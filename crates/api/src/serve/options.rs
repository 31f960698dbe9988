//! Options of a server.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use lfn_core::limits::ServerLimits;
use lfn_core::session::{DEFAULT_PORT, Rights, WriteAccess};
use lfn_net::limits::access::Access;
use lfn_net::limits::connection_table::ConnectionLimits;

/// Options of a server.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// Address to listen on; `None` listens on every address.
    pub bind: Option<IpAddr>,
    /// Port to listen on; 0 uses any free port.
    pub port: u16,
    /// Host in the ticket; `None` uses an address of this host, or `bind`.
    pub ticket_host: Option<String>,
    /// Directory that confines all copies. Without a directory only generated data can be copied.
    pub root: Option<PathBuf>,
    pub key: KeyStorage,
    /// Lifetime of a new token.
    pub ticket_lifetime: Option<Duration>,
    /// Accept all clients without a token. Only on loopback or an emulated path.
    pub insecure: bool,
    /// Allow `insecure` on a real network.
    pub insecure_anywhere: bool,
    /// Maximum rights of a session, for any token.
    pub rights: Rights,
    /// Send to other servers if a client requests a third-party copy.
    pub third_party: bool,
    /// File of the audit log.
    pub audit: Option<PathBuf>,
    /// Copies may use every path that this process may use. Only for a server whose client is the user of the process.
    pub unconfined: bool,
    pub limits: ServerLimits,
    pub connections: ConnectionLimits,
    pub access: Access,
    /// Time that running sessions may continue after a stop.
    pub drain: Duration,
}

/// Storage of the key and the token of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyStorage {
    /// In memory, for this run only.
    Ephemeral,
    /// In the state directory of the user.
    Saved {
        /// Create a new token, so that old tickets stop working.
        new_token: bool,
    },
}

impl ServeOptions {
    /// Creates options for a server with these limits, on every address, with an ephemeral key and without a directory.
    pub fn new(limits: ServerLimits) -> Self {
        ServeOptions {
            bind: None,
            port: DEFAULT_PORT,
            ticket_host: None,
            root: None,
            key: KeyStorage::Ephemeral,
            ticket_lifetime: None,
            insecure: false,
            insecure_anywhere: false,
            rights: Rights { test: true, read: true, write: WriteAccess::Yes },
            third_party: false,
            audit: None,
            unconfined: false,
            limits,
            connections: ConnectionLimits::default(),
            access: Access::default(),
            drain: Duration::from_secs(30),
        }
    }
}
