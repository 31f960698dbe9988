//! Size of the window in bytes, from the measured BDP.

use std::time::{Duration, Instant};

use lfn_base::units::BitRate;

use crate::coupling::Coupling;

/// Minimum part of the window for the path.
const MIN_PATH_WINDOW: u64 = 4 << 20;

/// Maximum part of the window for the path.
const MAX_PATH_WINDOW: u64 = 4 << 30;

/// Minimum time of a measurement of the rate.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// Measures the rate at which fields arrive, and derives the window: the fields that the lags keep waiting, and twice the BDP.
#[derive(Debug)]
pub struct WindowMeter {
    /// Bytes of the fields that wait for the model because of their lag.
    waiting: u64,
    path: u64,
    interval: Option<(Instant, u64)>,
}

impl WindowMeter {
    /// Starts with the bytes that the variables of a component need. A rate in the coupling file counts until a higher rate is
    /// measured.
    pub fn new(coupling: &Coupling, component: &str) -> Self {
        let needed = coupling
            .received_by(component)
            .map(|(_, variable)| (variable.lag + 2).saturating_mul(coupling.field_bytes(variable).0));
        let waiting = needed.fold(0, u64::saturating_add);
        let expected = coupling.path.map_or(0, |path| path.rate.times(path.rtt).0);
        let path = (2 * expected).clamp(MIN_PATH_WINDOW, MAX_PATH_WINDOW);
        WindowMeter { waiting, path, interval: None }
    }

    /// Returns the window in bytes.
    pub fn window(&self) -> u64 {
        self.waiting.saturating_add(self.path)
    }

    /// Adds bytes that have arrived. Returns the new window if it has grown.
    pub fn add(&mut self, bytes: u64, rtt: Duration, now: Instant) -> Option<u64> {
        let (start, sum) = self.interval.get_or_insert((now, 0));
        *sum += bytes;
        let elapsed = now.saturating_duration_since(*start);
        if elapsed < rtt.max(MIN_INTERVAL) {
            return None;
        }
        let rate = BitRate((*sum as f64 * 8.0 / elapsed.as_secs_f64()) as u64);
        self.interval = Some((now, 0));
        let needed = (2 * rate.times(rtt).0).min(MAX_PATH_WINDOW);
        // A small growth is not worth a message.
        if needed <= self.path + self.path / 4 {
            return None;
        }
        self.path = needed;
        Some(self.window())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

    use super::*;

    #[test]
    fn window_follows_the_measured_rate() {
        let text = include_str!("../../tests/lag.toml").replace("[path]\nrate = \"155Mb/s\"\nrtt = \"539ms\"\n", "");
        let coupling = Coupling::parse(&text).unwrap();
        let mut meter = WindowMeter::new(&coupling, "lake");
        let (rtt, start) = (Duration::from_millis(500), Instant::now());
        assert_eq!(meter.window(), 6 * 65_536 + MIN_PATH_WINDOW);
        // 10 MB in each RTT: the BDP is 10 MB.
        let grown = (0..20).filter_map(|n| meter.add(1_000_000, rtt, start + n * rtt / 10)).last();
        let path = grown.unwrap() - 6 * 65_536;
        assert!((18_000_000..=24_000_000).contains(&path), "{path}");
        assert_eq!(meter.add(1000, rtt, start + 30 * rtt), None);
    }
}
