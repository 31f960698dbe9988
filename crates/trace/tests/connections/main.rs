//! Crafted and simulated connections, and the evidence that the analysis finds in them.

mod delivery;
mod handshake;
mod hostile;
mod losses;
mod pauses;
mod simulated;
mod support;
