//! Flags of the paths between the two hosts: the stripes, and the transport.

use lfn_api::copy::{StreamOptions, Transport};

/// Flags of the stripes.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Several links")]
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
    /// Use plain TCP, or Multipath TCP if both hosts have it
    #[arg(long, value_name = "NAME", value_enum, default_value = "tcp")]
    pub transport: TransportName,
}

/// Transport of a copy.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportName {
    /// Plain TCP, one path for each stream
    Tcp,
    /// Multipath TCP (RFC 8684), or plain TCP if an end does not have it
    Mptcp,
}

impl StripeFlags {
    /// Adds these flags to the options of the streams.
    pub fn add_to(&self, options: StreamOptions) -> StreamOptions {
        let transport = match self.transport {
            TransportName::Tcp => Transport::Tcp,
            TransportName::Mptcp => Transport::Mptcp,
        };
        StreamOptions { stripes: self.stripes.clone(), transport, ..options }
    }

    /// Reports whether the stripes are to be found.
    pub fn is_auto(&self) -> bool {
        self.stripes == ["auto"]
    }
}
