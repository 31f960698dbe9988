//! Options of a server.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lfn_mesh::hub::Hub;
use lfn_session::limits::ServerLimits;
use lfn_session::limits::access::Access;
use lfn_session::limits::connection_table::ConnectionLimits;
use lfn_session::{DEFAULT_PORT, Rights, WriteAccess};

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
    /// Directory of the saved key and tokens; `None` uses the state directory of the user.
    pub state: Option<PathBuf>,
    /// Serve the agents of a mesh, and nothing else.
    pub hub: Option<Arc<Hub>>,
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
    /// Serve iperf3 clients too.
    pub iperf3: Option<Iperf3ServerOptions>,
    /// Reflect STAMP packets too.
    pub stamp: Option<StampReflectorOptions>,
    /// Serve metrics for Prometheus on this address, without authentication.
    pub metrics: Option<SocketAddr>,
    /// Time that running sessions may continue after a stop.
    pub drain: Duration,
}

/// Options of the server for iperf3 clients. Without users, anyone who can reach the port can load the path, within the
/// limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Iperf3ServerOptions {
    /// Port for TCP and UDP; 0 uses any free port.
    pub port: u16,
    /// Users that must authenticate.
    pub users: Option<Iperf3Users>,
    /// Answer `--get-server-output` with JSON instead of text.
    pub json_output: bool,
}

/// Authentication of iperf3 clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Iperf3Users {
    /// File with lines `USER,HASH`, as in iperf3.
    pub users: PathBuf,
    /// RSA private key that decrypts the credentials: PEM, without passphrase.
    pub key: PathBuf,
    /// Maximum difference between the clocks of server and client.
    pub skew: Duration,
    /// Accept clients before iperf3 3.17 too (PKCS#1 padding).
    pub also_pkcs1: bool,
}

/// Options of the STAMP reflector. The access rules of the server apply to the senders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StampReflectorOptions {
    /// UDP port; 0 uses any free port.
    pub port: u16,
    /// File of the key that packets must be authenticated with.
    pub key: Option<PathBuf>,
    /// Count packets, so that senders see in which direction a packet was lost.
    pub is_stateful: bool,
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
            state: None,
            hub: None,
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
            iperf3: None,
            stamp: None,
            metrics: None,
            drain: Duration::from_secs(30),
        }
    }

    /// Returns the addresses to listen on, in the order of preference: `bind`, or all addresses, IPv6 and IPv4 if the
    /// host has IPv6.
    pub(super) fn addresses(&self) -> Vec<IpAddr> {
        let wildcards = [IpAddr::V6(Ipv6Addr::UNSPECIFIED), IpAddr::V4(Ipv4Addr::UNSPECIFIED)];
        self.bind.map_or(wildcards.to_vec(), |address| vec![address])
    }
}
