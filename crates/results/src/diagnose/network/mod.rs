//! Faults of the path in a test of TCP: token buckets, queues, order, outages, the return path, marks and proxies.
//!
//! The rules use the intervals and the counters of the test. Trains of datagrams, if they were sent, show more: they have
//! a known rate, so they separate a loss that depends on the rate from a loss that does not.

pub(super) mod bucket;
pub(super) mod delivery;
pub(super) mod dips;
pub(super) mod ecn;
pub(super) mod flat_rtt;
pub(super) mod loss_kind;
pub(super) mod queue;
pub(super) mod return_path;
pub(super) mod split;

#[cfg(test)]
mod tests;
