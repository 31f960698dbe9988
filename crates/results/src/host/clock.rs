//! Alignment of two clocks: times of the far end on the near end's clock, with a bound for the error.
//!
//! An exchange has four timestamps, as in RFC 5905 §8: sent near, received far, sent far, received near. Whatever the
//! delays, the offset of the far clock lies between the values from the two directions. So the fastest forward packet
//! and the fastest return packet of many exchanges give the best bounds, also while a load fills the queue of one
//! direction. The remaining error is half of the shortest round trip, because no exchange can distinguish a longer
//! forward path from a longer return path. Over a long test the clocks drift apart. The drift is estimated from early
//! and late exchanges, if they show one.

use std::time::Duration;

use lfn_base::figure::Figure;
use lfn_base::path::optional_seconds;
use serde::{Deserialize, Serialize};

/// The timestamps of one exchange, nanoseconds. Each end uses its own clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exchange {
    pub request_sent: u64,
    pub request_received: u64,
    pub reply_sent: u64,
    pub reply_received: u64,
}

/// The far clock relative to the near clock.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ClockAlignment {
    /// Far minus near at `at`, nanoseconds.
    #[serde(rename = "offset_nanoseconds")]
    pub offset: i64,
    /// Maximum error of the offset.
    #[serde(rename = "error_seconds", with = "lfn_base::path::seconds")]
    pub error: Duration,
    /// Time of the offset, nanoseconds on the near clock.
    #[serde(rename = "at_nanoseconds")]
    pub at: u64,
    /// Excess speed of the far clock in parts per million; absent if no drift could be measured.
    #[serde(default, rename = "drift_parts_per_million", skip_serializing_if = "Option::is_none")]
    pub drift: Option<Figure>,
    /// Shortest round trip of the exchanges.
    #[serde(
        default,
        rename = "round_trip_seconds",
        skip_serializing_if = "Option::is_none",
        with = "optional_seconds"
    )]
    pub round_trip: Option<Duration>,
    /// Number of ping exchanges behind the estimate.
    pub exchanges: usize,
}

impl ClockAlignment {
    /// Returns whether the two clocks are the same clock, as for two ends on one host. The clocks of two hosts count
    /// from their boot times.
    pub fn is_one_clock(&self) -> bool {
        u128::from(self.offset.unsigned_abs()) <= self.error.as_nanos() && self.drift.is_none()
    }
}

/// Maximum number of exchanges: one per second for an hour.
pub const MAX_EXCHANGES: usize = 4096;
/// Minimum duration of a test in which drift matters, nanoseconds: 50 parts per million of it are half a millisecond.
const MIN_DRIFT_SPAN: u64 = 10_000_000_000;
/// Maximum drift of a maintained clock (NTP slews no faster, RFC 5905 §11.3).
const MAX_DRIFT: f64 = 500e-6;

impl Exchange {
    /// Returns far minus near for a forward delay of zero: an upper bound of the offset.
    fn max_offset(&self) -> i64 {
        self.request_received.wrapping_sub(self.request_sent).cast_signed()
    }

    /// Returns far minus near for a return delay of zero: a lower bound of the offset.
    fn min_offset(&self) -> i64 {
        self.reply_sent.wrapping_sub(self.reply_received).cast_signed()
    }

    /// Returns the travel time in both directions.
    fn round_trip(&self) -> i64 {
        self.max_offset().wrapping_sub(self.min_offset())
    }

    /// Returns whether a correct far end can have sent these timestamps.
    fn is_possible(&self) -> bool {
        self.reply_received >= self.request_sent && self.reply_sent >= self.request_received && self.round_trip() >= 0
    }
}

impl ClockAlignment {
    /// Aligns the clocks from the exchanges of a test; `None` without a possible exchange.
    pub fn from_exchanges(exchanges: &[Exchange]) -> Option<ClockAlignment> {
        let mut possible: Vec<Exchange> = exchanges.iter().copied().filter(Exchange::is_possible).collect();
        possible.sort_by_key(|exchange| exchange.request_sent);
        let (first, last) = (possible.first()?.request_sent, possible.last()?.request_sent);
        let middle = first + (last - first) / 2;
        let drift = (last - first >= MIN_DRIFT_SPAN).then(|| estimate_drift(&possible, middle)).flatten();
        // Without drift, all exchanges have the same offset.
        let without_drift = |offset: i64, at: u64| offset.saturating_sub(drift_since(drift, at, middle));
        let max_offset = possible.iter().map(|e| without_drift(e.max_offset(), e.request_sent)).min()?;
        let min_offset = possible.iter().map(|e| without_drift(e.min_offset(), e.reply_received)).max()?;
        let round_trip = possible.iter().map(Exchange::round_trip).min()?;
        Some(ClockAlignment {
            offset: min_offset.saturating_add(max_offset.saturating_sub(min_offset) / 2),
            error: nanos((max_offset.saturating_sub(min_offset) / 2).abs()),
            at: middle,
            drift: drift.and_then(|drift| Figure::new(drift * 1e6)),
            round_trip: Some(nanos(round_trip)),
            exchanges: possible.len(),
        })
    }

    /// Converts a time of the far clock to the near clock, nanoseconds. The result may be before zero of the near
    /// clock.
    pub fn on_near_clock(&self, far: u64) -> i64 {
        let rough = far.cast_signed().saturating_sub(self.offset);
        let drift = self.drift.map(|drift| drift.get() / 1e6);
        rough.saturating_sub(drift_since(drift, u64::try_from(rough).unwrap_or(0), self.at))
    }
}

/// Returns the change of the offset by drift between `reference` and `at`.
fn drift_since(drift: Option<f64>, at: u64, reference: u64) -> i64 {
    drift.map_or(0, |drift| (drift * at.wrapping_sub(reference).cast_signed() as f64) as i64)
}

/// Returns the drift between the first and the last third, if it is more than queues could cause.
fn estimate_drift(exchanges: &[Exchange], middle: u64) -> Option<f64> {
    let third = exchanges.last()?.request_sent.saturating_sub(exchanges.first()?.request_sent) / 3;
    let early = Third::of(exchanges.iter().filter(|e| e.request_sent < middle - third / 2))?;
    let late = Third::of(exchanges.iter().filter(|e| e.request_sent > middle + third / 2))?;
    let span = late.at - early.at;
    // Both thirds contain the same unknown asymmetry; the part above the shortest round trip is queueing.
    let shortest = early.round_trip.min(late.round_trip);
    let uncertainty = (early.round_trip - shortest + late.round_trip - shortest) / 2.0;
    let moved = late.offset - early.offset;
    let drift = moved / span;
    (span > 0.0 && moved.abs() > 2.0 * uncertainty && drift.abs() <= MAX_DRIFT && moved.abs() > MIN_OFFSET_CHANGE)
        .then_some(drift)
}

/// Minimum change of the offset, nanoseconds: timestamps have about this error.
const MIN_OFFSET_CHANGE: f64 = 50_000.0;

/// Estimates from a third of the exchanges.
struct Third {
    at: f64,
    offset: f64,
    round_trip: f64,
}

impl Third {
    /// Combines the fastest forward packet and the fastest return packet.
    fn of<'a>(exchanges: impl Iterator<Item = &'a Exchange> + Clone) -> Option<Third> {
        let there = exchanges.clone().min_by_key(|e| e.max_offset())?;
        let back = exchanges.max_by_key(|e| e.min_offset())?;
        let (max_offset, min_offset) = (there.max_offset() as f64, back.min_offset() as f64);
        let at = (there.request_sent as f64 + back.reply_received as f64) / 2.0;
        Some(Third { at, offset: f64::midpoint(max_offset, min_offset), round_trip: max_offset - min_offset })
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

    /// Creates an exchange at `at` with these delays. The far clock is ahead by `offset` and faster by `drift`.
    fn exchange(offset: u64, drift: f64, at: u64, there: u64, back: u64) -> Exchange {
        let far = |near: u64| (near + offset).wrapping_add_signed((near as f64 * drift) as i64);
        let heard = at + there + back + MS;
        Exchange {
            request_sent: at,
            request_received: far(at + there),
            reply_sent: far(at + there + MS),
            reply_received: heard,
        }
    }

    fn off(alignment: &ClockAlignment, offset: u64, drift: f64, near: u64) -> f64 {
        let far = (near + offset).wrapping_add_signed((near as f64 * drift) as i64);
        (alignment.on_near_clock(far) - near.cast_signed()).abs() as f64 / MS as f64
    }

    #[test]
    fn symmetric_path_gives_the_exact_offset() {
        let alignment =
            ClockAlignment::from_exchanges(&[exchange(77 * SECOND, 0.0, SECOND, 20 * MS, 20 * MS)]).unwrap();
        assert_eq!((alignment.offset, alignment.error), (77 * SECOND.cast_signed(), Duration::from_millis(20)));
        assert_eq!((alignment.drift, alignment.round_trip), (None, Some(Duration::from_millis(40))));
        assert_eq!(alignment.on_near_clock(78 * SECOND), SECOND.cast_signed());
    }

    #[test]
    fn queue_under_load_does_not_change_the_offset() {
        // One exchange before the load; then the forward delay is 20 to 300 ms longer.
        let mut exchanges = vec![exchange(9 * SECOND, 0.0, 0, 20 * MS, 20 * MS)];
        exchanges.extend((1..9).map(|n| exchange(9 * SECOND, 0.0, n * SECOND, (20 + 35 * n) * MS, 20 * MS)));
        let alignment = ClockAlignment::from_exchanges(&exchanges).unwrap();
        assert_eq!((alignment.offset, alignment.error), (9 * SECOND.cast_signed(), Duration::from_millis(20)));
        // Without the first exchange the bound is worse, and `error` covers the difference.
        let alignment = ClockAlignment::from_exchanges(&exchanges[1..]).unwrap();
        let error = alignment.offset.abs_diff(9 * SECOND.cast_signed());
        assert!(error > 0 && u128::from(error) <= alignment.error.as_nanos(), "{alignment:?}");
    }

    #[test]
    fn offset_error_is_bounded_on_asymmetric_paths() {
        for (there, back) in [(0, 40), (40, 0), (5, 35), (33, 7)] {
            let exchanges: Vec<_> =
                (0..5).map(|n| exchange(3 * SECOND, 0.0, n * SECOND, there * MS, (back + n) * MS)).collect();
            let alignment = ClockAlignment::from_exchanges(&exchanges).unwrap();
            let error = alignment.offset.abs_diff(3 * SECOND.cast_signed());
            assert!(u128::from(error) <= alignment.error.as_nanos(), "{there} {back}: {alignment:?}");
        }
    }

    #[test]
    fn drifting_clocks_stay_aligned() {
        for drift in [80e-6, -80e-6_f64] {
            let at = |n: u64| 1000 * SECOND + n * SECOND;
            // A queue of up to 30 ms that is sometimes empty.
            let exchanges: Vec<_> = (0..300)
                .map(|n| exchange(2000 * SECOND, drift, at(n), (10 + (n * 7) % 31) * MS, (10 + (n * 11) % 13) * MS))
                .collect();
            let alignment = ClockAlignment::from_exchanges(&exchanges).unwrap();
            let measured = alignment.drift.unwrap().get();
            assert!((measured / 1e6 - drift).abs() < 10e-6, "{measured} ppm of {drift}");
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
        let alignment = ClockAlignment::from_exchanges(&exchanges).unwrap();
        assert_eq!(alignment.drift, None);
        assert_eq!(alignment.offset, SECOND.cast_signed());
    }

    #[test]
    fn impossible_timestamps_are_skipped() {
        let honest = exchange(SECOND, 0.0, SECOND, 20 * MS, 20 * MS);
        let lies = [
            Exchange { reply_sent: honest.request_received - 1, ..honest },
            Exchange { reply_received: honest.request_sent - 1, ..honest },
            // More time between the far timestamps than between the near ones.
            Exchange { reply_sent: honest.reply_sent + SECOND, ..honest },
            Exchange { request_received: u64::MAX, reply_sent: 0, ..honest },
        ];
        assert_eq!(ClockAlignment::from_exchanges(&lies), None);
        assert_eq!(ClockAlignment::from_exchanges(&[]), None);
        let mixed: Vec<_> = lies.into_iter().chain([honest]).collect();
        assert_eq!(ClockAlignment::from_exchanges(&mixed), ClockAlignment::from_exchanges(&[honest]));
        // Extreme values never panic.
        let extreme =
            Exchange { request_sent: 0, request_received: u64::MAX, reply_sent: u64::MAX, reply_received: u64::MAX };
        if let Some(alignment) = ClockAlignment::from_exchanges(&[extreme, honest]) {
            alignment.on_near_clock(u64::MAX);
        }
    }
}
