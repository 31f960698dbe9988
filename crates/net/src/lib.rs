//! The I/O of `lfn`: it drives the pure state of `lfn-core` with the system calls of `lfn-sys`.
//!
//! One thread a data stream with blocking sockets, because nothing is faster or simpler to reason about; every wait
//! has a deadline. [`session`] is both ends of a connection, [`server`] the far end that waits for them; [`tester`],
//! [`transfer`] and [`path`] are what sessions are for, each with both of its ends in one place, and [`service`] which of
//! them one is for. [`iperf3`] and [`stamp`] work with whoever speaks those protocols; [`emulator`] is the link.
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
