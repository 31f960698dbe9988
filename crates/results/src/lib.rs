//! Evidence, findings and result documents.
//!
//! This crate is pure: a finding is a function of its evidence, and a document is a function of its results. It opens no
//! socket and no file, reads no clock, and starts no thread.
//!
//! | module | contents |
//! | --- | --- |
//! | [`measure`] | request of a test, and the reports of its two ends |
//! | [`host`] | counters of a host during a test; the offset of two clocks |
//! | [`udp`], [`latency`], [`block_timing`] | figures of datagrams, of latency probes, and of blocks sent and received |
//! | [`path_report`], [`iperf3_report`] | figures of a path without load, and those that only iperf3 reports |
//! | [`stopping_rule`] | the accuracy of a steady goodput |
//! | [`evidence`] | the figures of both ends of a test or a copy, before any judgement |
//! | [`prediction`] | the expected range of a result |
//! | [`diagnose`] | from evidence to findings and a verdict, one rule per function |
//! | [`report`] | the stored result of a test, its events, tables and comparisons |

#![forbid(unsafe_code)]

pub mod block_timing;
pub mod diagnose;
pub mod evidence;
pub mod host;
pub mod iperf3_report;
pub mod latency;
pub mod measure;
pub mod path_report;
pub mod prediction;
pub mod report;
pub mod stopping_rule;
pub mod udp;
