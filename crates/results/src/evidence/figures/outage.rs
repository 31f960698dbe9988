//! An outage of the path: the receiver got nothing for several round trips, although the sender had data in flight.

use std::time::Duration;

use lfn_base::tcp_info::TcpInfo;

use super::steady_window::{length, sample};
use crate::evidence::Evidence;
use crate::measure::{EndReport, Interval};

/// Minimum share of an interval without arrivals in which the sender had data in flight.
pub const MIN_BUSY_SHARE: f64 = 0.9;
/// Maximum share of this time limited by the receive window: a receiver that does not read closes its window.
pub const MAX_RWND_SHARE: f64 = 0.1;

/// Longest time of a test in which nothing arrived.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outage {
    /// Total length of the successive intervals without arrivals.
    pub time: Duration,
    /// Number of intervals of the sender at other times, without the last before the outage and the recovery.
    pub other_intervals: usize,
    /// Number of these intervals with retransmissions.
    pub lossy_intervals: usize,
}

impl Outage {
    /// Finds the longest outage in the intervals of the receiver; none if the kernel of the sender does not show that
    /// it had data in flight.
    pub(super) fn of(evidence: &Evidence, whole: &[Interval]) -> Option<Outage> {
        let sender = evidence.sender();
        let is_silent = |interval: &Interval| interval.bytes == 0 && was_sending(sender, interval);
        let started = whole.iter().position(|interval| interval.bytes > 0)?;
        let groups = whole[started..].chunk_by(|a, b| is_silent(a) == is_silent(b));
        let longest = groups
            .filter(|group| group.first().is_some_and(is_silent))
            .max_by_key(|group| group.iter().map(length).sum::<Duration>())?;
        let margin = whole.first().map(length).unwrap_or_default();
        let from = longest.first()?.placed().0.saturating_sub(margin);
        let to = longest.last()?.placed().1.saturating_add(margin);
        let mut outage = Outage { time: longest.iter().map(length).sum(), ..Outage::default() };
        let mut before = 0;
        for interval in &sender.intervals {
            let counts = interval.streams.iter().filter_map(|stream| stream.tcp_info.as_ref());
            let count = counts.map(|info| u64::from(info.retransmitted_segments)).sum();
            if !(from..=to).contains(&interval.middle()) {
                outage.other_intervals += 1;
                outage.lossy_intervals += usize::from(count > before);
            }
            before = count;
        }
        Some(outage)
    }
}

/// Returns true if each stream of the sender had data in flight during an interval of the receiver.
fn was_sending(sender: &EndReport, interval: &Interval) -> bool {
    let (from, to) = interval.placed();
    let grown = |stream: u16, figure: fn(&TcpInfo) -> Option<Duration>| {
        let value = |interval: &Interval| sample(interval, stream)?.tcp_info.as_ref().and_then(figure);
        let last = sender.intervals.iter().filter(|at| at.middle() <= to).filter_map(value).next_back()?;
        let before = sender.intervals.iter().filter(|at| at.middle() < from).filter_map(value).next_back()?;
        Some(last.saturating_sub(before).as_secs_f64())
    };
    let time = to.saturating_sub(from).as_secs_f64();
    let is_busy = |stream: u16| {
        let busy = grown(stream, |info| info.busy);
        let limited = grown(stream, |info| info.rwnd_limited);
        busy.is_some_and(|busy| busy >= MIN_BUSY_SHARE * time)
            && limited.is_some_and(|limited| limited <= MAX_RWND_SHARE * time)
    };
    time > 0.0 && !sender.streams.is_empty() && sender.streams.iter().all(|stream| is_busy(stream.stream))
}
