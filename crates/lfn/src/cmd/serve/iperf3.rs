//! Serves iperf3 clients too.

use std::path::PathBuf;
use std::time::Duration;

use lfn_api::serve::{Iperf3ServerOptions, Iperf3Users};

use super::limits::duration;

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

    /// Returns the options of the server for iperf3 clients, if requested.
    pub(super) fn options(&self) -> Option<Iperf3ServerOptions> {
        let users = self
            .iperf3_users
            .clone()
            .zip(self.iperf3_rsa_private_key.clone())
            .map(|(users, key)| Iperf3Users { users, key, skew: self.iperf3_time_skew, also_pkcs1: self.iperf3_pkcs1 });
        Some(Iperf3ServerOptions { port: self.iperf3?, users, json_output: self.iperf3_json })
    }
}
