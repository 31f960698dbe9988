//! Two clocks laid on each other: the far end's times on the near end's clock, with a bound for the error.
//!
//! An exchange is four stamps, as in RFC 5905 §8: sent near, received far, sent far, received near. Whatever the delays,
//! the offset of the far clock lies between what the way there and what the way back say, so of many exchanges the
//! quickest way there and the quickest way back bound it best, also while a load fills the queue of one of them. What is
//! left is half of the shortest round trip: no exchange can tell a longer way there from a longer way back. Over a long
//! test the two clocks drift apart; the drift is taken from exchanges early and late, where they show one.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::figure::Figure;
use crate::tcp_info::optional_seconds;

/// The stamps of one exchange, nanoseconds: the near end's by its clock, the far end's by the far one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exchange {
    /// When the question left.
    pub asked: u64,
    /// When it arrived there.
    pub received: u64,
    /// When the answer left.
    pub answered: u64,
    /// When it arrived here.
    pub heard: u64,
}

/// How the far clock stands to the near one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Alignment {
    /// Far minus near at `at`, nanoseconds.
    #[serde(rename = "offset_nanoseconds")]
    pub offset: i64,
    /// The offset is within this of the truth.
    #[serde(rename = "error_seconds", with = "crate::path::seconds")]
    pub error: Duration,
    /// When, nanoseconds on the near clock.
    #[serde(rename = "at_nanoseconds")]
    pub at: u64,
    /// How much faster the far clock runs, parts per million; absent where none could be told from none.
    #[serde(default, rename = "drift_parts_per_million", skip_serializing_if = "Option::is_none")]
    pub drift: Option<Figure>,
    /// The shortest exchange.
    #[serde(
        default,
        rename = "round_trip_seconds",
        skip_serializing_if = "Option::is_none",
        with = "optional_seconds"
    )]
    pub round_trip: Option<Duration>,
    /// How many there were.
    pub exchanges: usize,
}

impl Alignment {
    /// Whether the two clocks are one, as of two ends on one host: those of two hosts count from when each was booted.
    pub fn is_one_clock(&self) -> bool {
        u128::from(self.offset.unsigned_abs()) <= self.error.as_nanos() && self.drift.is_none()
    }
}

/// Exchanges kept: one a second for an hour.
pub const MOST_EXCHANGES: usize = 4096;
/// A test shorter than this shows no drift that matters: 50 parts in a million of it are half a millisecond.
const DRIFTS_FROM: u64 = 10_000_000_000;
/// Clocks that are looked after stay within this (NTP slews no faster, RFC 5905 §11.3).
const MOST_DRIFT: f64 = 500e-6;

impl Exchange {
    /// Far minus near, if the way there took no time: the truth is no more.
    fn most(&self) -> i64 {
        self.received.wrapping_sub(self.asked).cast_signed()
    }

    /// Far minus near, if the way back took no time: the truth is no less.
    fn least(&self) -> i64 {
        self.answered.wrapping_sub(self.heard).cast_signed()
    }

    /// Time on the way, both ways.
    fn round_trip(&self) -> i64 {
        self.most().wrapping_sub(self.least())
    }

    /// Whether an honest far end can have said this.
    fn is_possible(&self) -> bool {
        self.heard >= self.asked && self.answered >= self.received && self.round_trip() >= 0
    }
}

impl Alignment {
    /// From the exchanges of a test; `None` if there was none that makes sense.
    pub fn of(exchanges: &[Exchange]) -> Option<Alignment> {
        let mut sound: Vec<Exchange> = exchanges.iter().copied().filter(Exchange::is_possible).collect();
        sound.sort_by_key(|exchange| exchange.asked);
        let (first, last) = (sound.first()?.asked, sound.last()?.asked);
        let middle = first + (last - first) / 2;
        let drift = (last - first >= DRIFTS_FROM).then(|| drift(&sound, middle)).flatten();
        // On one clock that runs as the near one does, every exchange speaks of the same offset.
        let straight = |offset: i64, at: u64| offset.saturating_sub(grown(drift, at, middle));
        let most = sound.iter().map(|e| straight(e.most(), e.asked)).min()?;
        let least = sound.iter().map(|e| straight(e.least(), e.heard)).max()?;
        let round_trip = sound.iter().map(Exchange::round_trip).min()?;
        Some(Alignment {
            offset: least.saturating_add(most.saturating_sub(least) / 2),
            error: nanos((most.saturating_sub(least) / 2).abs()),
            at: middle,
            drift: drift.and_then(|drift| Figure::new(drift * 1e6)),
            round_trip: Some(nanos(round_trip)),
            exchanges: sound.len(),
        })
    }

    /// A time of the far clock on the near one, nanoseconds; it may lie before the near clock's zero.
    pub fn on_near_clock(&self, far: u64) -> i64 {
        let rough = far.cast_signed().saturating_sub(self.offset);
        let drift = self.drift.map(|drift| drift.get() / 1e6);
        rough.saturating_sub(grown(drift, u64::try_from(rough).unwrap_or(0), self.at))
    }
}

/// What drift makes of the offset between `reference` and `at`.
fn grown(drift: Option<f64>, at: u64, reference: u64) -> i64 {
    drift.map_or(0, |drift| (drift * at.wrapping_sub(reference).cast_signed() as f64) as i64)
}

/// The slope between the first third and the last one, if it is more than queues could have made of none.
fn drift(exchanges: &[Exchange], middle: u64) -> Option<f64> {
    let third = exchanges.last()?.asked.saturating_sub(exchanges.first()?.asked) / 3;
    let early = Third::of(exchanges.iter().filter(|e| e.asked < middle - third / 2))?;
    let late = Third::of(exchanges.iter().filter(|e| e.asked > middle + third / 2))?;
    let span = late.at - early.at;
    // Both thirds hold the same unknown asymmetry; what is above the shortest round trip is queues.
    let shortest = early.round_trip.min(late.round_trip);
    let doubt = (early.round_trip - shortest + late.round_trip - shortest) / 2.0;
    let moved = late.offset - early.offset;
    let drift = moved / span;
    (span > 0.0 && moved.abs() > 2.0 * doubt && drift.abs() <= MOST_DRIFT && moved.abs() > LEAST_MOVE).then_some(drift)
}

/// Less than this is what stamps are off by anyhow, nanoseconds.
const LEAST_MOVE: f64 = 50_000.0;

/// What a third of the exchanges says.
struct Third {
    at: f64,
    offset: f64,
    round_trip: f64,
}

impl Third {
    /// The quickest way there and the quickest way back.
    fn of<'a>(exchanges: impl Iterator<Item = &'a Exchange> + Clone) -> Option<Third> {
        let there = exchanges.clone().min_by_key(|e| e.most())?;
        let back = exchanges.max_by_key(|e| e.least())?;
        let (most, least) = (there.most() as f64, back.least() as f64);
        let at = (there.asked as f64 + back.heard as f64) / 2.0;
        Some(Third { at, offset: f64::midpoint(most, least), round_trip: most - least })
    }
}

fn nanos(value: i64) -> Duration {
    Duration::from_nanos(value.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const SECOND: u64 = 1000 * MS;

    /// A far clock ahead by `offset` that runs faster by `drift`, asked at `at` with these delays each way.
    fn exchange(offset: u64, drift: f64, at: u64, there: u64, back: u64) -> Exchange {
        let far = |near: u64| (near + offset).wrapping_add_signed((near as f64 * drift) as i64);
        let heard = at + there + back + MS;
        Exchange { asked: at, received: far(at + there), answered: far(at + there + MS), heard }
    }

    fn off(alignment: &Alignment, offset: u64, drift: f64, near: u64) -> f64 {
        let far = (near + offset).wrapping_add_signed((near as f64 * drift) as i64);
        (alignment.on_near_clock(far) - near.cast_signed()).abs() as f64 / MS as f64
    }

    #[test]
    fn a_symmetric_path_gives_the_offset_exactly() {
        let alignment = Alignment::of(&[exchange(77 * SECOND, 0.0, SECOND, 20 * MS, 20 * MS)]).unwrap();
        assert_eq!((alignment.offset, alignment.error), (77 * SECOND.cast_signed(), Duration::from_millis(20)));
        assert_eq!((alignment.drift, alignment.round_trip), (None, Some(Duration::from_millis(40))));
        assert_eq!(alignment.on_near_clock(78 * SECOND), SECOND.cast_signed());
    }

    #[test]
    fn a_queue_that_comes_with_the_load_does_not_move_it() {
        // One exchange before the load, then the way there is 20 to 300 ms longer.
        let mut exchanges = vec![exchange(9 * SECOND, 0.0, 0, 20 * MS, 20 * MS)];
        exchanges.extend((1..9).map(|n| exchange(9 * SECOND, 0.0, n * SECOND, (20 + 35 * n) * MS, 20 * MS)));
        let alignment = Alignment::of(&exchanges).unwrap();
        assert_eq!((alignment.offset, alignment.error), (9 * SECOND.cast_signed(), Duration::from_millis(20)));
        // Without that one the way there is bounded worse, and the bound says so.
        let alignment = Alignment::of(&exchanges[1..]).unwrap();
        let error = alignment.offset.abs_diff(9 * SECOND.cast_signed());
        assert!(error > 0 && u128::from(error) <= alignment.error.as_nanos(), "{alignment:?}");
    }

    #[test]
    fn the_truth_lies_within_the_bound_however_lopsided_the_path() {
        for (there, back) in [(0, 40), (40, 0), (5, 35), (33, 7)] {
            let exchanges: Vec<_> =
                (0..5).map(|n| exchange(3 * SECOND, 0.0, n * SECOND, there * MS, (back + n) * MS)).collect();
            let alignment = Alignment::of(&exchanges).unwrap();
            let error = alignment.offset.abs_diff(3 * SECOND.cast_signed());
            assert!(u128::from(error) <= alignment.error.as_nanos(), "{there} {back}: {alignment:?}");
        }
    }

    #[test]
    fn clocks_that_drift_apart_stay_aligned_over_a_long_test() {
        for drift in [80e-6, -80e-6_f64] {
            let at = |n: u64| 1000 * SECOND + n * SECOND;
            // A queue of up to 30 ms, now and then empty.
            let exchanges: Vec<_> = (0..300)
                .map(|n| exchange(2000 * SECOND, drift, at(n), (10 + (n * 7) % 31) * MS, (10 + (n * 11) % 13) * MS))
                .collect();
            let alignment = Alignment::of(&exchanges).unwrap();
            let told = alignment.drift.unwrap().get();
            assert!((told / 1e6 - drift).abs() < 10e-6, "{told} ppm of {drift}");
            for n in [0, 150, 299] {
                let off = off(&alignment, 2000 * SECOND, drift, at(n));
                assert!(off < 3.0, "{off} ms at {n} s, {alignment:?}");
            }
        }
    }

    #[test]
    fn equal_clocks_under_load_show_no_drift() {
        let exchanges: Vec<_> = (0..120)
            .map(|n| exchange(SECOND, 0.0, n * SECOND, (10 + if n > 60 { 40 + n % 9 } else { 0 }) * MS, 10 * MS))
            .collect();
        let alignment = Alignment::of(&exchanges).unwrap();
        assert_eq!(alignment.drift, None);
        assert_eq!(alignment.offset, SECOND.cast_signed());
    }

    #[test]
    fn stamps_that_cannot_be_are_left_out() {
        let honest = exchange(SECOND, 0.0, SECOND, 20 * MS, 20 * MS);
        let lies = [
            Exchange { answered: honest.received - 1, ..honest },
            Exchange { heard: honest.asked - 1, ..honest },
            // More time between the stamps there than passed here.
            Exchange { answered: honest.answered + SECOND, ..honest },
            Exchange { received: u64::MAX, answered: 0, ..honest },
        ];
        assert_eq!(Alignment::of(&lies), None);
        assert_eq!(Alignment::of(&[]), None);
        let mixed: Vec<_> = lies.into_iter().chain([honest]).collect();
        assert_eq!(Alignment::of(&mixed), Alignment::of(&[honest]));
        // Extremes never panic.
        let extreme = Exchange { asked: 0, received: u64::MAX, answered: u64::MAX, heard: u64::MAX };
        if let Some(alignment) = Alignment::of(&[extreme, honest]) {
            alignment.on_near_clock(u64::MAX);
        }
    }
}
