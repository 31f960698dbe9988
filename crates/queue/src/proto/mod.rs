//! Decisions of the queue: its address, its manifest, its records, and the deadline of a lease. `now` is an argument.

pub mod address;
pub mod board;
pub mod header;
pub mod lease_timer;
pub mod part;
pub mod record;
