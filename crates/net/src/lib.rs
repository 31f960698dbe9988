//! Network and file I/O of `lfn`. This crate drives the pure state machines of `lfn-core` with the system calls of
//! `lfn-sys`.
//!
//! Each data stream has one thread and blocking sockets. This design is the simplest one and as fast as any other.
//! Every wait has a deadline.
//!
//! - [`transport`] has the byte streams between two hosts, over TCP and TLS.
//! - [`session`] connects and authenticates both ends. [`server`] accepts connections, and [`service`] starts the
//!   service that a session requests.
//! - [`tester`], [`transfer`] and [`path`] are these services. Each module contains both of its ends.
//! - [`atomic_file`] replaces files as a whole, and [`symlink_guard`] refuses links of other users.
//! - [`limits`] enforces the limits of clients, sessions and connections.
//! - [`iperf3`] and [`stamp`] work with other implementations of these protocols.
//! - [`emulator`] emulates a link.
#![forbid(unsafe_code)]

pub mod atomic_file;
pub mod emulator;
pub mod iperf3;
pub mod limits;
pub mod path;
pub mod server;
pub mod service;
pub mod session;
pub mod stamp;
pub mod symlink_guard;
pub mod tester;
pub mod transfer;
pub mod transport;
mod written_files;
