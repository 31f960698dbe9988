//! Settings of the hosts that limit a test of TCP: routes, links, congestion control, streams, quotas and memory.

pub(super) mod congestion_fit;
pub(super) mod few_streams;
pub(super) mod growth;
pub(super) mod host_shaper;
pub(super) mod link;
pub(super) mod quota;
pub(super) mod thresholds;

#[cfg(test)]
mod tests;
