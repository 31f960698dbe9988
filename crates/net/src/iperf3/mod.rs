//! iperf3's protocol over sockets: a server for stock clients, and a client for stock servers.
//!
//! What the bytes mean is in [`lfn_core::iperf3`]; here they are read with a deadline on every step, and the load is
//! moved. `control` is the connection of states and JSON, `flow` one stream of either protocol in either direction,
//! `figures` what is counted of all of them. The loops are not those of our own tests ([`crate::tester`]): iperf3's
//! streams start together at a state, are counted from the end of the warm-up, keep a rate by the block, and datagrams
//! have another header. Nothing here is encrypted, because iperf3 has nothing of the kind.

pub mod client;
mod control;
mod error;
mod figures;
mod flow;
mod options;
mod pace;
mod payload;
pub mod rsa;
pub mod server;

pub use error::Error;
