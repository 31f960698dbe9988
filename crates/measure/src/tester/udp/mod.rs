//! Tests with datagram streams: the two ends of the protocol (`client`, `server`) and the common part of both ends.
//!
//! One thread per stream sends on the schedule of [`crate::load::Pacer`] (`sender`), or receives and passes the
//! datagrams to `crate::proto::udp::receiver` (`receiver`). The control connection's thread reads their figures
//! regularly (`end`), and in a ramp it chooses the next step (`ramp_steps`). The client opens datagram streams only
//! when the server is ready, because the server's port stores nothing for later sessions.

mod client;
mod datagram_too_long;
mod end;
mod flow;
mod ramp_steps;
mod receiver;
mod sender;
mod server;

pub(super) use client::run;
pub(super) use datagram_too_long::DatagramTooLong;
pub(super) use server::serve;
