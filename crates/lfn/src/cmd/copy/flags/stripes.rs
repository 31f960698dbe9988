//! Flags of the stripes: several paths between the two hosts.

/// Flags of the stripes.
#[derive(clap::Args, Debug)]
pub struct StripeFlags {
    /// Use several paths: from LOCAL, an address or interface of this host, to REMOTE, an address of the server;
    /// or find the paths with auto
    ///
    /// Repeat the flag, or separate stripes by commas. Each stripe has its own data streams, and --streams counts for
    /// each stripe. A slow stripe carries less, and a stripe that is down carries nothing and is tried again. REMOTE
    /// may be a name and may have a port, HOST:PORT [default: the port of the server]. auto
    /// asks both hosts for their addresses, tries the pairs, and uses each interface once.
    #[arg(long = "stripe", value_name = "LOCAL=REMOTE", value_delimiter = ',')]
    pub stripes: Vec<String>,
}

impl StripeFlags {
    /// Reports whether the stripes are to be found.
    pub fn is_auto(&self) -> bool {
        self.stripes == ["auto"]
    }
}
