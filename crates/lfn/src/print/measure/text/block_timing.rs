//! Block timings: the lines of a test that recorded the time of each block.

use lfn_base::units::{BitRate, show_duration};
use lfn_results::block_timing::{BlockTimes, ReceivedBlocks};
use lfn_results::measure::EndReport;

use super::layout::wrapped;

/// Returns the write times of the sender and the arrival times of the receiver.
pub(super) fn blocks(sender: &EndReport, caught: &ReceivedBlocks) -> String {
    let pitched: Vec<&BlockTimes> = sender.streams.iter().filter_map(|stream| stream.blocks.as_ref()).collect();
    let fastest = pitched.iter().filter_map(|times| times.fastest).max();
    let slowest = pitched.iter().filter_map(|times| times.slowest).min();
    let written: u64 = pitched.iter().map(|times| times.blocks).sum();
    let sent = format!("{written} blocks; fastest {}, slowest {}", rate(fastest), rate(slowest));
    let first = caught
        .first_delay
        .map_or("at an unknown time".into(), |delay| format!("{} after the start", show_duration(delay)));
    let received = format!(
        "{} blocks, the first complete {first}; fastest {}, slowest {}; {} with this delay, {} without it",
        caught.blocks,
        rate(caught.fastest),
        rate(caught.slowest),
        rate(caught.with_delay),
        rate(caught.without_delay),
    );
    wrapped("write times", &sent) + &wrapped("read times", &received)
}

fn rate(rate: Option<BitRate>) -> String {
    rate.map_or("an unknown rate".into(), |rate| rate.to_string())
}
