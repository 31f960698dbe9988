//! Tests of the binary that need no namespaces: commands on this host, and clients and servers on loopback.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod conventions;
mod copy;
mod couple;
mod doctor;
mod documents;
mod dry_run;
mod file_owners;
mod flag_names;
mod formats;
mod hostile_text;
mod iperf3_faults;
mod mesh;
mod messages;
mod pictures;
mod plan;
mod serve_limits;
mod show;
mod skips;
#[path = "../support/mod.rs"]
mod support;
mod sweep;
mod test;
mod tokens;
mod trace;
mod verify;
