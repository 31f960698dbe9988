//! iperf3's protocol over sockets: a server for stock clients, and a client for stock servers.
//!
//! [`crate::proto::iperf3`] defines the messages. This module reads them with a deadline for every step, and moves the
//! load with [`crate::load`]. `control` is the connection for states and JSON, `stream` has the open streams and the
//! loops for datagrams, `figures` the counts of all streams. iperf3's streams start together at a state and count from
//! the end of the warm-up. iperf3 has no encryption.

pub mod client;
mod control;
mod error;
mod figures;
mod options;
pub mod rsa;
pub mod server;
mod stream;

pub use error::Error;
