//! Tests of throughput, latency and paths: load, meters, and both ends of each protocol.
//!
//! - [`tester`] has lfn's own tests over TCP and UDP.
//! - `load` is the load engine of [`tester`] and [`iperf3`].
//! - [`iperf3`] and [`stamp`] work with other implementations of these protocols.
//! - [`facts`] has the settings and limits of both hosts, which a load does not change.
//! - [`path`] measures the hops and the MTU of a path without load.
//! - [`proto`] has what these need without sockets and clocks.

#![forbid(unsafe_code)]

pub mod facts;
pub mod iperf3;
mod load;
pub mod path;
pub mod proto;
pub mod stamp;
pub mod tester;
