//! A standstill of the path: the receiver got nothing for several round trips, although the sender had data in flight.

use std::time::Duration;

use super::steady_window::{SteadyWindow, length, sample};
use crate::evidence::Evidence;
use crate::tcp_info::TcpInfo;
use crate::wire::measure::{EndReport, Interval};

/// Minimum share of an interval without arrivals in which the sender had data in flight.
const MIN_BUSY_SHARE: f64 = 0.9;
/// Maximum share of this time limited by the receive window: a receiver that does not read closes its window.
const MAX_RWND_SHARE: f64 = 0.1;
/// Intervals before and after a standstill with its losses: the last packets before, and the recovery after.
const RECOVERY_INTERVALS: u32 = 3;

/// Longest time of a test in which nothing arrived.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Standstill {
    /// Total length of the successive intervals without arrivals.
    pub time: Duration,
    /// Segments that the sender retransmitted in the rest of the steady window, without the recovery from the standstill.
    pub other_retransmits: u64,
}

impl Standstill {
    /// Finds the longest standstill in the intervals of the receiver; none if the kernel of the sender does not show that
    /// it had data in flight.
    pub(super) fn of(evidence: &Evidence, whole: &[Interval], window: SteadyWindow) -> Option<Standstill> {
        let (sender, receiver) = (evidence.sender(), evidence.receiver());
        let is_silent = |interval: &Interval| interval.bytes == 0 && was_sending(sender, interval);
        let started = whole.iter().position(|interval| interval.bytes > 0)?;
        let groups = whole[started..].chunk_by(|a, b| is_silent(a) == is_silent(b));
        let longest = groups
            .filter(|group| group.first().is_some_and(is_silent))
            .max_by_key(|group| group.iter().map(length).sum::<Duration>())?;
        let (first, last) = (longest.first()?, longest.last()?);
        let margin = receiver.intervals.first().map(length).unwrap_or_default() * RECOVERY_INTERVALS;
        let from = first.placed().0.saturating_sub(margin);
        let to = last.placed().1.saturating_add(margin);
        let other_retransmits = sender.streams.iter().map(|stream| {
            let count =
                |interval: &Interval| Some(sample(interval, stream.stream)?.tcp_info.as_ref()?.retransmitted_segments);
            let until = |time: Duration| sender.intervals.iter().rfind(|at| at.middle() <= time).and_then(count);
            let start = window.sample_before(&sender.intervals, stream.stream);
            let start = start.and_then(|sample| Some(sample.tcp_info.as_ref()?.retransmitted_segments)).unwrap_or(0);
            let end = window.intervals_within(&sender.intervals).filter_map(count).last().unwrap_or(0);
            let before = until(from).unwrap_or(0).saturating_sub(start);
            u64::from(before) + u64::from(end.saturating_sub(until(to).unwrap_or(0)))
        });
        Some(Standstill {
            time: longest.iter().map(length).sum(),
            other_retransmits: other_retransmits.fold(0, u64::saturating_add),
        })
    }
}

/// Returns true if each stream of the sender had data in flight during an interval of the receiver.
fn was_sending(sender: &EndReport, interval: &Interval) -> bool {
    let (from, to) = interval.placed();
    let grown = |stream: u16, figure: fn(&TcpInfo) -> Option<Duration>| {
        let value = |interval: &Interval| sample(interval, stream)?.tcp_info.as_ref().and_then(figure);
        let last = sender.intervals.iter().filter(|at| at.middle() <= to).filter_map(value).last()?;
        let before = sender.intervals.iter().filter(|at| at.middle() < from).filter_map(value).last()?;
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
