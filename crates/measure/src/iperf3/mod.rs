//! iperf3's protocol over sockets: a server for stock clients, and a client for stock servers.
//!
//! [`crate::proto::iperf3`] defines the messages. This module reads them with a deadline for every step, and moves the
//! load. `control` is the connection for states and JSON, `stream` one stream of either protocol in either direction,
//! `figures` the counts of all streams. The loops differ from those of `lfn`'s own tests ([`crate::tester`]): iperf3's
//! streams start together at a state, count from the end of the warm-up, keep a rate per block, and use another
//! datagram header. iperf3 has no encryption.

pub mod client;
mod control;
mod error;
mod figures;
mod options;
mod pace;
mod payload;
pub mod rsa;
pub mod server;
mod stream;

pub use error::Error;
