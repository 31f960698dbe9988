//! Pitch and catch: the lines of a test whose blocks were timed.

use lfn_core::blocks::{BlockTimes, Caught};
use lfn_core::units::{BitRate, show_duration};
use lfn_core::wire::test::EndReport;

use super::layout::wrapped;

/// What the sender pitched and the receiver caught.
pub(super) fn blocks(sender: &EndReport, caught: &Caught) -> String {
    let pitched: Vec<&BlockTimes> = sender.streams.iter().filter_map(|stream| stream.blocks.as_ref()).collect();
    let fastest = pitched.iter().filter_map(|times| times.fastest).max();
    let slowest = pitched.iter().filter_map(|times| times.slowest).min();
    let written: u64 = pitched.iter().map(|times| times.blocks).sum();
    let pitch = format!("{written} blocks written, the fastest at {}, the slowest at {}", rate(fastest), rate(slowest));
    let first = caught
        .first_delay
        .map_or("at an unknown time".into(), |delay| format!("{} after the start", show_duration(delay)));
    let catch = format!(
        "{} blocks, the first whole {first}; the fastest at {}, the slowest at {}; {} with that delay, {} \
         without",
        caught.blocks,
        rate(caught.fastest),
        rate(caught.slowest),
        rate(caught.with_delay),
        rate(caught.without_delay),
    );
    wrapped("pitch", &pitch) + &wrapped("catch", &catch)
}

fn rate(rate: Option<BitRate>) -> String {
    rate.map_or("an unknown rate".into(), |rate| rate.to_string())
}
