//! Flags of the stripes: several paths between the two hosts.

/// Flags of the stripes.
#[derive(clap::Args, Debug)]
pub struct StripeFlags {
    /// Use several paths: from LOCAL, an address or interface of this host, to REMOTE, an address of the server
    ///
    /// Repeat the flag, or separate stripes by commas. Each stripe has its own data streams, and --streams counts for
    /// each stripe. A slow stripe carries less, and a stripe that is down carries nothing and is tried again. REMOTE
    /// may be a name and may have a port, HOST:PORT [default: the port of the server].
    #[arg(long = "stripe", value_name = "LOCAL=REMOTE", value_delimiter = ',')]
    pub stripes: Vec<String>,
}
