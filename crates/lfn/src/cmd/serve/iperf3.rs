//! Serving stock iperf3 clients beside our own.

use std::fmt::Display;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lfn_core::iperf3::DEFAULT_PORT;
use lfn_core::iperf3::auth::Users;
use lfn_net::iperf3::rsa::PrivateKey;
use lfn_net::iperf3::server::{Authentication, Config, Patience, Server};
use lfn_net::server::access::Access;
use lfn_net::server::{self as ours, Connections};

use super::limits::duration;
use crate::exit::Failure;

/// A users file is a line a user.
const LARGEST_FILE: u64 = 16 << 20;

#[derive(clap::Args, Debug)]
#[command(next_help_heading = "iperf3")]
pub(super) struct Iperf3Args {
    /// Serve stock iperf3 clients too, with TCP and UDP on this port [default port: 5201]. They show no ticket and
    /// nothing is encrypted: whoever reaches the port may load the path, within the limits
    #[arg(long, value_name = "PORT", num_args = 0..=1, require_equals = true, default_missing_value = "5201")]
    iperf3: Option<u16>,
    /// Only users in this file, lines of USER,HASH as iperf3 has them: HASH is SHA-256 of "{USER}password"
    #[arg(long, value_name = "FILE", requires_all = ["iperf3", "iperf3_key"])]
    iperf3_users: Option<PathBuf>,
    /// RSA private key (PEM, no passphrase) of the public key that those users encrypt for
    #[arg(long, value_name = "FILE", requires = "iperf3_users")]
    iperf3_key: Option<PathBuf>,
    /// How far those users' clocks may be from this one
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration, requires = "iperf3_users")]
    iperf3_time_skew: Duration,
    /// Take users of iperf3 before 3.17 too, whose encryption can be broken by who can ask often enough
    #[arg(long, requires = "iperf3_users")]
    iperf3_pkcs1: bool,
    /// Answer --get-server-output with JSON instead of text
    #[arg(long, requires = "iperf3")]
    iperf3_json: bool,
}

impl Iperf3Args {
    /// Whether its clients show who they are.
    pub(super) fn has_users(&self) -> bool {
        self.iperf3_users.is_some()
    }

    /// The server for iperf3's clients, if there is to be one; it listens where ours does, and lets in by the same door.
    pub(super) fn bind(
        &self,
        beside: &ours::Server,
        access: Access,
        connections: Connections,
    ) -> Result<Option<Server>, Failure> {
        let Some(port) = self.iperf3 else { return Ok(None) };
        let config = Config {
            listen: SocketAddr::new(beside.local_addr()?.ip(), port),
            access,
            admission: beside.admission(),
            users: self.authentication()?,
            json_output: self.iperf3_json,
            // Its strangers have files beside those of ours.
            connections: Connections {
                strangers: connections.strangers.min(connections.most / 2).max(1),
                ..connections
            },
            patience: Patience::default(),
        };
        let address = config.listen;
        let server = Server::bind(config, beside.teller()).map_err(|source| {
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
        let (Some(users), Some(key)) = (&self.iperf3_users, &self.iperf3_key) else { return Ok(None) };
        let wrong = |flag: &str, file: &Path, error: &dyn Display| {
            Failure::msg(format!("--{flag} {}: {error}", file.display()))
        };
        let users_hint = "a line is USER,HASH; the hash: printf '{USER}PASSWORD' | sha256sum";
        let text = read(users).map_err(|error| wrong("iperf3-users", users, &error).hint(users_hint))?;
        let list = Users::parse(&text).map_err(|error| wrong("iperf3-users", users, &error).hint(users_hint))?;
        if list.is_empty() {
            return Err(wrong("iperf3-users", users, &"no user in it").hint(users_hint));
        }
        let key_hint = "openssl genrsa -out key.pem 2048; openssl rsa -in key.pem -pubout -out public.pem";
        let pem = read(key).map_err(|error| wrong("iperf3-key", key, &error).hint(key_hint))?;
        let private = PrivateKey::from_pem(&pem).map_err(|error| wrong("iperf3-key", key, &error).hint(key_hint))?;
        Ok(Some(Authentication {
            users: list,
            key: private,
            skew: self.iperf3_time_skew,
            also_pkcs1: self.iperf3_pkcs1,
        }))
    }
}

fn read(file: &Path) -> io::Result<String> {
    if fs::metadata(file)?.len() > LARGEST_FILE {
        return Err(io::Error::other("larger than 16 MiB"));
    }
    fs::read_to_string(file)
}
