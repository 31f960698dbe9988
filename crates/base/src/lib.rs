//! Units, time, statistics, and the arithmetic of a path.
//!
//! This crate is pure. It opens no socket and no file, reads no clock, no environment variable and no random source, and
//! starts no thread. The caller passes `now` and the bytes. `clippy.toml` of this crate and `.ci/layers` check the rule.
//!
//! | module | contents |
//! | --- | --- |
//! | [`units`], [`figure`], [`time`], [`date`] | quantities in types, finite numbers, virtual or real time |
//! | [`place`], [`geometry`], [`framing`], [`named_link`], [`path`] | from places and link types to a [`path::PathProfile`] |
//! | [`queue_limit`] | limit of a queue in bytes or packets |
//! | [`plan`], [`tcp_model`], [`rfc6349`] | from a path to buffers, streams and predicted goodput |
//! | [`congestion_request`] | request of a congestion control |
//! | [`tcp_info`], [`stats`] | the kernel's figures of a connection; medians and the end of start-up |
//! | [`random_data`] | random bytes from a seed and a position |

#![forbid(unsafe_code)]

pub mod congestion_request;
pub mod date;
pub mod figure;
pub mod framing;
pub mod geometry;
pub mod named_link;
pub mod path;
pub mod place;
pub mod plan;
pub mod queue_limit;
pub mod random_data;
pub mod rfc6349;
#[cfg(any(test, feature = "schema"))]
mod schema;
pub mod stats;
pub mod tcp_info;
pub mod tcp_model;
pub mod time;
pub mod units;
