//! Serves iperf3 clients too.

use std::fmt::Display;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lfn_core::iperf3::DEFAULT_PORT;
use lfn_core::iperf3::auth::Users;
use lfn_net::iperf3::rsa::PrivateKey;
use lfn_net::iperf3::server::{Authentication, IperfServer, IperfServerConfig, IperfTimeouts};
use lfn_net::limits::access::Access;
use lfn_net::limits::connection_table::ConnectionLimits;
use lfn_net::server as ours;

use super::limits::duration;
use crate::exit::Failure;

/// Maximum size of a file of users or a key, bytes.
const MAX_FILE: u64 = 16 << 20;

#[derive(clap::Args, Debug)]
#[command(next_help_heading = "iperf3")]
pub(super) struct Iperf3ServeArgs {
    /// Serve iperf3 clients too, with TCP and UDP on this port [default port: 5201]
    ///
    /// iperf3 clients have no ticket, and nothing is encrypted. Anyone who can reach the port can load the path, within
    /// the limits.
    #[arg(long, value_name = "PORT", num_args = 0..=1, require_equals = true, default_missing_value = "5201")]
    iperf3: Option<u16>,
    /// Accept only the users in FILE, with lines USER,HASH as in iperf3
    ///
    /// HASH is the SHA-256 of "{USER}PASSWORD".
    #[arg(long, value_name = "FILE", requires_all = ["iperf3", "iperf3_rsa_private_key"])]
    iperf3_users: Option<PathBuf>,
    /// Decrypt the credentials of these users with this RSA private key (PEM, without passphrase)
    #[arg(long, value_name = "FILE", requires = "iperf3_users")]
    iperf3_rsa_private_key: Option<PathBuf>,
    /// Set the maximum clock difference between server and client during authentication
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration, requires = "iperf3_users")]
    iperf3_time_skew: Duration,
    /// Accept clients before iperf3 3.17 too (PKCS#1 padding)
    ///
    /// An attacker who can send many requests can break this encryption.
    #[arg(long, requires = "iperf3_users")]
    iperf3_pkcs1: bool,
    /// Answer --get-server-output with JSON instead of text
    #[arg(long, requires = "iperf3")]
    iperf3_json: bool,
}

impl Iperf3ServeArgs {
    /// Reports whether iperf3 clients must authenticate.
    pub(super) fn has_users(&self) -> bool {
        self.iperf3_users.is_some()
    }

    /// Creates the server for iperf3 clients, if requested. It listens on the same address, and shares admission with
    /// the main server.
    pub(super) fn bind(
        &self,
        main_server: &ours::Server,
        access: Access,
        connections: ConnectionLimits,
    ) -> Result<Option<IperfServer>, Failure> {
        let Some(port) = self.iperf3 else { return Ok(None) };
        let config = IperfServerConfig {
            listen: SocketAddr::new(main_server.local_addr()?.ip(), port),
            access,
            admission: main_server.admission(),
            users: self.authentication()?,
            json_output: self.iperf3_json,
            // Unauthenticated iperf3 clients need descriptors in addition to those of lfn clients.
            connection_limits: ConnectionLimits {
                max_unauthenticated: connections.max_unauthenticated.min(connections.max_connections / 2).max(1),
                ..connections
            },
            timeouts: IperfTimeouts::default(),
        };
        let address = config.listen;
        let server = IperfServer::bind(config, main_server.event_logger()).map_err(|source| {
            let hint = match source.kind() {
                io::ErrorKind::AddrInUse => {
                    format!("is an iperf3 server running? choose another port: lfn serve --iperf3={}", DEFAULT_PORT + 1)
                }
                _ => "ports below 1024 need root".into(),
            };
            Failure::msg(format!("cannot listen on {address} for iperf3 clients: {source}")).hint(hint)
        })?;
        Ok(Some(server))
    }

    fn authentication(&self) -> Result<Option<Authentication>, Failure> {
        let (Some(users), Some(key)) = (&self.iperf3_users, &self.iperf3_rsa_private_key) else { return Ok(None) };
        let wrong = |flag: &str, file: &Path, error: &dyn Display| {
            Failure::msg(format!("--{flag} {}: {error}", file.display()))
        };
        let users_hint = "write lines USER,HASH and create the hash with: printf '{USER}PASSWORD' | sha256sum";
        let text = read(users).map_err(|error| wrong("iperf3-users", users, &error).hint(users_hint))?;
        let list = Users::parse(&text).map_err(|error| wrong("iperf3-users", users, &error).hint(users_hint))?;
        if list.is_empty() {
            return Err(wrong("iperf3-users", users, &"no user in the file").hint(users_hint));
        }
        let key_hint =
            "create a key pair: openssl genrsa -out key.pem 2048; openssl rsa -in key.pem -pubout -out public.pem";
        let pem = read(key).map_err(|error| wrong("iperf3-rsa-private-key", key, &error).hint(key_hint))?;
        let private =
            PrivateKey::from_pem(&pem).map_err(|error| wrong("iperf3-rsa-private-key", key, &error).hint(key_hint))?;
        Ok(Some(Authentication {
            users: list,
            key: private,
            skew: self.iperf3_time_skew,
            also_pkcs1: self.iperf3_pkcs1,
        }))
    }
}

fn read(file: &Path) -> io::Result<String> {
    if fs::metadata(file)?.len() > MAX_FILE {
        return Err(io::Error::other("larger than 16 MiB"));
    }
    fs::read_to_string(file)
}
