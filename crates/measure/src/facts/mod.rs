//! Facts of both hosts that a load does not change: settings, the interface and the route towards the other end, limits.
//!
//! `reader` reads the facts of this host in bounded time; `settings`, `network` and `machine` are its parts, and `sources`
//! has the files. `client` requests the facts of the server in a session of its own, and [`serve`] is the other end.

mod client;
mod machine;
mod network;
mod reader;
mod server;
mod settings;
mod sources;

pub use client::{EARLIER_VERSION, is_answered, of_both_ends};
pub use reader::of_this_host;
pub use server::serve;

use std::io;
use std::net::IpAddr;

use lfn_session::transport::Handle;

/// Addresses of a connection, which select the interface and the route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    /// Address of the other end.
    pub peer: IpAddr,
    /// Address of this end, if known.
    pub local: Option<IpAddr>,
}

impl Ends {
    /// Returns the ends of a connection. `None` if the transport has no addresses.
    fn of(handle: &dyn Handle) -> Option<Self> {
        // The route of an IPv4-mapped address is the route of the IPv4 address.
        let canonical = |address: io::Result<std::net::SocketAddr>| address.ok().map(|it| it.ip().to_canonical());
        Some(Ends { peer: canonical(handle.peer_address())?, local: canonical(handle.local_address()) })
    }
}
