//! The state of a pair in one letter.

use std::time::Duration;

use lfn_base::units::Ratio;
use lfn_mesh::entry::{Entry, Outcome};

use super::mesh::Mesh;

/// Time by which the clock of an agent may be ahead of the clock of the hub. An entry beyond it would stay new for too long.
const MAX_CLOCK_LEAD: Duration = Duration::from_secs(300);

/// State of a pair, worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum State {
    Failed,
    Limited,
    /// The newest measurement is older than two intervals of its test, or from the future.
    Stale,
    Unknown,
    /// There is no measurement.
    Empty,
    Good,
}

impl State {
    /// All states in the order of the legend.
    pub const ALL: [State; 6] =
        [State::Good, State::Limited, State::Failed, State::Unknown, State::Stale, State::Empty];

    /// Returns the letter of the matrix.
    pub fn letter(self) -> &'static str {
        match self {
            State::Good => "G",
            State::Limited => "L",
            State::Failed => "F",
            State::Unknown => "?",
            State::Stale => "S",
            State::Empty => "–",
        }
    }

    /// Returns the name of the state.
    pub fn word(self) -> &'static str {
        match self {
            State::Good => "good",
            State::Limited => "limited",
            State::Failed => "failed",
            State::Unknown => "unknown",
            State::Stale => "stale",
            State::Empty => "not measured",
        }
    }

    /// Returns the sentence of the legend.
    pub fn explanation(self) -> &'static str {
        match self {
            State::Good => "as predicted, or limited by the path",
            State::Limited => "a finding names a limit other than the path",
            State::Failed => "the newest measurement failed",
            State::Unknown => "measured, but the limit is unknown",
            State::Stale => "older than two intervals of its test; 2 days without a plan",
            State::Empty => "no measurement in the archive",
        }
    }

    /// Returns the state of a fresh entry with this outcome.
    pub fn of_outcome(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Good => State::Good,
            Outcome::Limited => State::Limited,
            Outcome::Failed => State::Failed,
            Outcome::Unknown => State::Unknown,
        }
    }
}

/// Returns the state of a pair from its newest load and its newest latency measurement.
///
/// The load decides. A newer latency measurement that failed shows that the path is down now, and a fresh one stands in for a
/// missing load.
pub(crate) fn state_of(mesh: &Mesh, load: Option<&Entry>, latency: Option<&Entry>, now: Duration) -> State {
    let state =
        |entry: &Entry| if is_stale(mesh, entry, now) { State::Stale } else { State::of_outcome(entry.outcome) };
    match (load, latency) {
        (None, None) => State::Empty,
        (Some(load), None) => state(load),
        (None, Some(latency)) => state(latency),
        (Some(load), Some(latency)) if latency.time > load.time && state(latency) == State::Failed => State::Failed,
        (Some(load), Some(_)) => state(load),
    }
}

/// Returns whether an entry is too old to describe the present.
pub(crate) fn is_stale(mesh: &Mesh, entry: &Entry, now: Duration) -> bool {
    now.saturating_sub(entry.time) > mesh.max_age(entry) || entry.time.saturating_sub(now) > MAX_CLOCK_LEAD
}

/// Returns the share of lost packets; `None` if no packets were sent.
pub(crate) fn loss_ratio(entry: &Entry) -> Option<Ratio> {
    loss_of(entry.packets, entry.lost_packets)
}

/// Returns the share of lost packets in the packets sent.
pub(crate) fn loss_of(packets: Option<u64>, lost: Option<u64>) -> Option<Ratio> {
    let (packets, lost) = (packets.filter(|packets| *packets > 0)?, lost?);
    Ratio::new((lost as f64 / packets as f64).min(1.0))
}

#[cfg(test)]
mod tests {
    use lfn_mesh::entry::EntryKind;
    use proptest::prelude::*;

    use super::*;

    const DAY: u64 = 86_400;

    fn entry(kind: EntryKind, time: u64, outcome: Outcome) -> Entry {
        Entry { outcome, ..Entry::new(kind, "a", "b", Duration::from_secs(time)) }
    }

    fn state(load: Option<&Entry>, latency: Option<&Entry>, now: u64) -> State {
        state_of(&Mesh::default(), load, latency, Duration::from_secs(now))
    }

    #[test]
    fn old_load_is_stale_whatever_its_outcome() {
        let load = entry(EntryKind::Load, DAY, Outcome::Good);
        assert_eq!(state(Some(&load), None, 2 * DAY), State::Good);
        assert_eq!(state(Some(&load), None, 3 * DAY), State::Good);
        assert_eq!(state(Some(&load), None, 3 * DAY + 1), State::Stale);
        assert_eq!(state(None, None, DAY), State::Empty);
    }

    #[test]
    fn newer_failed_latency_makes_a_good_load_failed() {
        let load = entry(EntryKind::Load, DAY, Outcome::Good);
        let [before, after] = [DAY - 1, DAY + 1].map(|time| entry(EntryKind::Latency, time, Outcome::Failed));
        assert_eq!(state(Some(&load), Some(&after), DAY + 2), State::Failed);
        assert_eq!(state(Some(&load), Some(&before), DAY + 2), State::Good);
    }

    #[test]
    fn fresh_latency_does_not_refresh_a_stale_load() {
        let load = entry(EntryKind::Load, 0, Outcome::Good);
        let latency = entry(EntryKind::Latency, 9 * DAY, Outcome::Good);
        assert_eq!(state(Some(&load), Some(&latency), 9 * DAY), State::Stale);
    }

    proptest! {
        #[test]
        fn stale_or_future_entry_is_never_good(time in 0..40 * DAY, now in 0..40 * DAY) {
            let load = entry(EntryKind::Load, time, Outcome::Good);
            let is_good = state(Some(&load), None, now) == State::Good;
            prop_assert_eq!(is_good, now <= time + 2 * DAY && time <= now + 300);
        }
    }
}
