//! The pure part of `lfn`: decisions without input or output.
//!
//! This crate opens no socket and no file. It reads no clock, no environment variable and no random source, and it
//! starts no thread. The caller passes `now`, the bytes and the seeds of the generators. So the tests run the same link
//! that users emulate, in virtual time; a plan is a function of a path; and a finding is a function of its evidence.
//! `lfn-net` drives this crate and uses `lfn-sys` for the operating system. `clippy.toml` in this crate enforces the
//! rule.
//!
//! | module | contents |
//! | --- | --- |
//! | [`units`], [`figure`], [`time`], [`date`] | quantities in types, finite numbers, virtual or real time |
//! | [`place`], [`geometry`], [`framing`], [`named_link`], [`path`] | from places and link types to a [`path::PathProfile`] |
//! | [`plan`], [`tcp_model`], [`prediction`], [`rfc6349`] | from a path to buffers, streams and predictions |
//! | [`link`] | the emulated link: its stages, and several links in series |
//! | [`sim`] | virtual time: arrivals through a link, a modelled TCP, transfers of a fixed size |
//! | [`session`], [`wire`] | tickets, and the messages of a session |
//! | [`iperf3`], [`stamp`] | messages of the iperf3 protocol and of STAMP |
//! | [`discover`] | hops and path MTU: the next probe, and the meaning of each reply |
//! | [`limits`] | limits and the queue of a server |
//! | [`transfer`] | copies: options, entries, blocks, journal, results |
//! | [`tcp_info`], [`stats`] | the kernel's figures of a connection; medians and the end of start-up |
//! | [`host`] | counters of a host during a test; the offset of two clocks |
//! | [`udp`], [`latency`] | paced datagrams and their statistics; latency probes during a load |
//! | [`block_timing`], [`stopping_rule`] | times of blocks sent and received; the accuracy of a steady goodput |
//! | [`evidence`] | the figures of both ends of a test or a copy, before any judgement |
//! | [`diagnose`] | from evidence to findings and a verdict, one rule per function |
//! | [`report`] | the stored result of a test, its events, tables and comparisons |

#![forbid(unsafe_code)]

pub mod block_timing;
pub mod date;
pub mod diagnose;
pub mod discover;
pub mod evidence;
pub mod figure;
pub mod framing;
pub mod geometry;
pub mod host;
pub mod iperf3;
pub mod latency;
pub mod limits;
pub mod link;
pub mod named_link;
pub mod path;
pub mod place;
pub mod plan;
pub mod prediction;
pub mod report;
pub mod rfc6349;
pub mod session;
pub mod sim;
pub mod stamp;
pub mod stats;
pub mod stopping_rule;
pub mod tcp_info;
pub mod tcp_model;
pub mod time;
pub mod transfer;
pub mod udp;
pub mod units;
pub mod wire;
