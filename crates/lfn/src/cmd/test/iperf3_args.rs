//! Flags of a test with an iperf3 server.

use std::path::PathBuf;

/// Flags of a test with an iperf3 server.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "iperf3")]
pub(super) struct Iperf3ClientArgs {
    /// Test with an iperf3 server instead of `lfn serve` [default port: 5201]
    ///
    /// Figures that iperf3 does not report are unknown in the result.
    #[arg(long, value_name = "HOST[:PORT]", conflicts_with = "host")]
    pub(super) iperf3: Option<String>,
    /// Set the user name for authentication; the password comes from IPERF3_PASSWORD or a prompt
    #[arg(long, value_name = "NAME", requires_all = ["iperf3", "iperf3_rsa_public_key"])]
    pub(super) iperf3_user: Option<String>,
    /// Encrypt the credentials with this RSA public key (PEM) of the server
    #[arg(long, value_name = "FILE", requires = "iperf3_user")]
    pub(super) iperf3_rsa_public_key: Option<PathBuf>,
    /// Use PKCS#1 padding, for servers before iperf3 3.17
    #[arg(long, requires = "iperf3_user")]
    pub(super) iperf3_pkcs1: bool,
    /// Print the output of the server too
    #[arg(long, requires = "iperf3")]
    pub(super) iperf3_server_output: bool,
}
