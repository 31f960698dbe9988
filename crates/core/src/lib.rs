//! The pure part of `lfn`: everything that can be decided without touching the world.
//!
//! Nothing here opens a socket or a file, reads a clock, an environment variable or a random source, or starts a
//! thread: `now` is an argument, bytes are handed in, generators are seeded by the caller. So the link that users
//! emulate is the link the tests run in virtual time, a plan is a function of a path, and a finding is a function of
//! its evidence. `lfn-net` drives this crate with the help of `lfn-sys`; `clippy.toml` beside this crate keeps it so.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`units`], [`figure`], [`time`], [`date`] | quantities in types, finite numbers, virtual or real time |
//! | [`geometry`], [`framing`], [`links`], [`path`] | from places and link types to a [`path::PathProfile`] |
//! | [`plan`], [`tcp_model`], [`prediction`], [`rfc6349`] | from a path to buffers, streams and predictions |
//! | [`link`] | the emulated link: stages, and a chain of them |
//! | [`sim`] | virtual time: arrivals through a link, a modelled TCP, transfers of a fixed size |
//! | [`session`], [`wire`] | tickets, and what goes over a session |
//! | [`iperf3`], [`stamp`] | the bytes of iperf3's protocol and of STAMP's, and what they mean |
//! | [`discover`] | hops and path MTUs: what to probe next, what an answer means |
//! | [`admission`] | quotas and the queue of a server |
//! | [`transfer`] | what is sent, by whom, what is done |
//! | [`tcp_info`], [`stats`] | what a kernel says of a connection, medians and start-up |
//! | [`host`] | what a host did meanwhile, and two clocks laid on each other |
//! | [`udp`], [`latency`] | paced datagrams and their account, probes beside a load |
//! | [`blocks`], [`until`] | when blocks left and arrived, how well a steady goodput is known |
//! | [`diagnose`] | evidence to findings, one rule a function |
//! | [`report`] | the stored result of a test, its events, tables and comparison |

#![forbid(unsafe_code)]

pub mod admission;
pub mod blocks;
pub mod date;
pub mod diagnose;
pub mod discover;
pub mod figure;
pub mod framing;
pub mod geometry;
pub mod host;
pub mod iperf3;
pub mod latency;
pub mod link;
pub mod links;
pub mod path;
pub mod plan;
pub mod prediction;
pub mod report;
pub mod rfc6349;
pub mod session;
pub mod sim;
pub mod stamp;
pub mod stats;
pub mod tcp_info;
pub mod tcp_model;
pub mod time;
pub mod transfer;
pub mod udp;
pub mod units;
pub mod stopping_rule;
pub mod wire;
