//! What a direction counts that the model cannot know: how late packets left, how long those that left had waited, when
//! the first came and the last left, and what was lost outside the model.
//!
//! It makes no system call and does not grow, because the data path is waiting; it is small enough to be copied while
//! that runs. With the model's own account it makes the ledger's.

use std::time::Duration;

use hdrhistogram::Histogram;
use lfn_core::link::{DropCause, LinkStats, Packet};
use lfn_core::time::Instant;
use lfn_core::units::Ratio;

use crate::emulator::ledger::{DirectionLedger, Lateness, Queueing, Unmodelled};
use crate::emulator::{EmulateError, system};

/// Times above a minute count as a minute, nanoseconds.
const MOST: u64 = 60_000_000_000;
/// Times are kept within 1 %: figures for a page, in 30 kB instead of 200.
const DIGITS: u8 = 2;

/// The account of one direction of one path.
#[derive(Clone, Debug)]
pub(in crate::emulator) struct Tally {
    /// Lost outside the model.
    pub(in crate::emulator) unmodelled: Unmodelled,
    /// Nanoseconds, of every virtual packet sent.
    lateness: Histogram<u64>,
    /// The latest, exactly.
    latest: Duration,
    /// Nanoseconds, of every virtual packet sent.
    waited: Histogram<u64>,
    /// When the first packet came.
    first: Option<Instant>,
    /// When the last one left.
    last: Option<Instant>,
}

impl Tally {
    pub(super) fn new() -> Result<Self, EmulateError> {
        let histogram = || {
            let histogram = Histogram::new_with_bounds(1, MOST, DIGITS);
            histogram.map_err(|e| system("make a histogram")(std::io::Error::other(e)))
        };
        Ok(Tally {
            unmodelled: Unmodelled::default(),
            lateness: histogram()?,
            latest: Duration::ZERO,
            waited: histogram()?,
            first: None,
            last: None,
        })
    }

    /// The model was given something that came at `at`.
    pub(super) fn arrived(&mut self, at: Instant) {
        self.first.get_or_insert(at);
    }

    /// `packet` was due at `due` and is sent at `left`.
    pub(super) fn left(&mut self, packet: &Packet, due: Instant, left: Instant) {
        let (late, count) = (left - due, u64::from(packet.count));
        self.lateness.saturating_record_n(nanos(late), count);
        self.latest = self.latest.max(late);
        self.waited.saturating_record_n(nanos(packet.waited), count);
        self.last = Some(left);
    }

    /// The ledger of the direction, beside the model's own account. The processor time is left to who can ask for it.
    pub(super) fn ledger(&self, stats: &LinkStats) -> DirectionLedger {
        let made = stats.offered.packets + stats.duplicated.packets;
        let dropped = DropCause::ALL.map(|cause| (cause, stats.dropped[cause].packets));
        let active = self.active();
        DirectionLedger {
            offered: stats.offered.packets,
            duplicated: stats.duplicated.packets,
            forwarded: stats.forwarded.packets.saturating_sub(self.unmodelled.send_failed),
            forwarded_bytes: stats.forwarded.bytes,
            dropped: dropped.into_iter().filter(|(_, count)| *count > 0).collect(),
            marked: stats.marked.packets,
            damaged: stats.damaged.packets,
            in_flight: made.saturating_sub(stats.forwarded.packets + stats.dropped.total().packets),
            queue_peak: stats.queue_peak,
            queueing: Queueing::from(&self.waited),
            active: active.as_secs_f64(),
            throughput: stats.forwarded.bytes.per(active),
            utilisation: self.utilisation(stats.busy),
            lateness: self.lateness(),
            cpu: 0.0,
            unmodelled: self.unmodelled,
        }
    }

    /// No percentile is above the latest, which is known exactly.
    fn lateness(&self) -> Lateness {
        let (max, rough) = (self.latest.as_secs_f64(), Lateness::from(&self.lateness));
        Lateness { max, p50: rough.p50.min(max), p99: rough.p99.min(max), ..rough }
    }

    /// A line that was still busy when the last packet had left was so for no longer than that.
    fn utilisation(&self, busy: Duration) -> Ratio {
        let active = self.active().as_secs_f64();
        let share = if active > 0.0 { busy.as_secs_f64() / active } else { 0.0 };
        Ratio::new(share.min(1.0)).unwrap_or_default()
    }

    fn active(&self) -> Duration {
        self.first.zip(self.last).map_or(Duration::ZERO, |(first, last)| last - first)
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Instant {
        Instant::from_nanos(micros * 1000)
    }

    #[test]
    fn every_virtual_packet_counts() {
        let mut tally = Tally::new().unwrap();
        tally.arrived(at(1_000));
        tally.arrived(at(2_000));
        let mut waiting = Packet::several(0, 98, 1514, 1514);
        waiting.waited = Duration::from_millis(7);
        tally.left(&waiting, at(11_000), at(11_100));
        tally.left(&Packet::several(1, 2, 1514, 1514), at(500_000), at(501_000));
        let mut stats = LinkStats::default();
        stats.offered.packets = 120;
        stats.forwarded.packets = 100;
        stats.forwarded.bytes.0 = 125_000;
        stats.dropped[DropCause::Queue].packets = 5;
        stats.busy = Duration::from_millis(125);
        let ledger = tally.ledger(&stats);
        assert_eq!((ledger.in_flight, ledger.active, ledger.throughput.0), (15, 0.5, 2_000_000));
        assert_eq!((ledger.lateness.max, ledger.utilisation.get()), (0.001, 0.25));
        assert!((100e-6..=101e-6).contains(&ledger.lateness.p50), "{:?}", ledger.lateness);
        assert!((990e-6..=1e-3).contains(&ledger.lateness.p99), "{:?}", ledger.lateness);
        assert!((7e-3..=7.07e-3).contains(&ledger.queueing.p90), "{:?}", ledger.queueing);
        assert_eq!(ledger.dropped, [(DropCause::Queue, 5)].into());
    }

    #[test]
    fn a_direction_without_packets_has_a_ledger() {
        let ledger = Tally::new().unwrap().ledger(&LinkStats::default());
        assert_eq!(ledger, DirectionLedger::default());
    }
}
