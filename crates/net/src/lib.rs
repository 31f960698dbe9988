//! The I/O of `lfn`: it drives the pure state of `lfn-core` with the system calls of `lfn-sys`.
//!
//! One thread a data stream with blocking sockets, because nothing is faster or simpler to reason about; every wait
//! has a deadline. [`session`] is both ends of a connection, [`server`] the far end that waits for them; [`tester`]
//! and [`transfer`] are what sessions are for, each with both of its ends in one place; [`emulator`] is the link, and
//! [`iperf3`] the same work done with whoever speaks iperf3's protocol.
#![forbid(unsafe_code)]

pub mod emulator;
pub mod iperf3;
pub mod path;
pub mod planted;
pub mod server;
pub mod service;
pub mod session;
pub mod stamp;
pub mod tester;
pub mod transfer;
