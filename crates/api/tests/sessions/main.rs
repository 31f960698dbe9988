//! Sessions between a client and a server over loopback: faults, hostile peers and limits.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod datagrams;
mod disks;
mod facts;
mod fault_proxy;
mod hostile_copies;
mod hostile_streams;
mod lockstep;
mod mesh;
mod outages;
mod protocol_faults;
mod queue;
mod rank_downloads;
mod ranks;
mod support;
mod symlink_swap;
mod third_party;
mod unauthenticated;
mod write_only;
