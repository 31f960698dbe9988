//! Crafted and simulated connections, and the evidence that the analysis finds in them.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod delivery;
mod handshake;
mod hostile;
mod losses;
mod mptcp;
mod pauses;
mod reordering;
mod simulated;
mod support;
mod totals;
