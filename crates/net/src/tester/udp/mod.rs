//! Tests whose streams are datagrams: the two conversations (`client`, `server`) around what is the same at both ends.
//!
//! One thread a stream sends by the schedule of `lfn_core::udp::pace` (`sender`) or takes what comes and hands it to
//! `lfn_core::udp::receiver` (`receiver`); the control connection's thread looks at their figures now and then (`end`)
//! and, in a ramp, says what to try next (`steps`). Datagrams are opened only when the server has said that it is ready:
//! its port keeps nothing for sessions to come.

mod client;
mod end;
mod lane;
mod receiver;
mod sender;
mod server;
mod steps;

pub(super) use client::run;
pub(super) use sender::TooLong;
pub(super) use server::serve;
