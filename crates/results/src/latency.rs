//! Latency under load: round-trip times of probes before and during a load.
//!
//! The buffer delay is that of RFC 6349 §4.3. Round trips per minute follow draft-ietf-ippm-responsiveness in their
//! computation: 60 s divided by the mean RTT without the longest 5 % (§5.1.3, trimmed mean). They use echoes of small
//! datagrams only; the draft also uses the handshakes of TCP, TLS and HTTP. An unknown figure is absent.

use std::ops::Range;
use std::time::Duration;

use lfn_base::figure::Figure;
use lfn_base::path::seconds;
use lfn_base::rfc6349;
use lfn_base::stats::nearest_rank;
use serde::{Deserialize, Serialize};

/// A request for probes during a load.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct LatencyRequest {
    #[serde(rename = "probe_interval_seconds", with = "seconds")]
    pub pace: Duration,
}

impl Default for LatencyRequest {
    fn default() -> Self {
        LatencyRequest { pace: Duration::from_millis(20) }
    }
}

/// Protocol that carries the probes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ProbeTransport {
    #[default]
    Udp,
    /// Messages on the control connection. They wait behind its retransmissions, and none is ever lost.
    Tcp,
}

/// One probe and its round trip.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Probe {
    /// Send time in nanoseconds since the start of the load; negative before the start.
    pub sent: i64,
    /// Round-trip time without the processing time at the far end; `None` if the probe was lost.
    pub rtt: Option<Duration>,
}

/// Counts and round-trip times of some probes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct RoundTrips {
    /// Probes sent in this part of the test.
    pub sent: u64,
    /// Probes without an answer.
    pub lost: u64,
    /// Round-trip times of the answered probes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt: Option<RttDistribution>,
}

/// Distribution of round-trip times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct RttDistribution {
    /// Minimum of all RTTs, in seconds.
    #[serde(rename = "min_seconds", with = "seconds")]
    pub min: Duration,
    /// Median of the RTTs, in seconds (nearest rank).
    #[serde(rename = "p50_seconds", with = "seconds")]
    pub p50: Duration,
    /// 90 % are no longer.
    #[serde(rename = "p90_seconds", with = "seconds")]
    pub p90: Duration,
    /// 99 % are no longer.
    #[serde(rename = "p99_seconds", with = "seconds")]
    pub p99: Duration,
    /// Maximum RTT, in seconds.
    #[serde(rename = "max_seconds", with = "seconds")]
    pub max: Duration,
    /// Mean of all RTTs, in seconds.
    #[serde(rename = "mean_seconds", with = "seconds")]
    pub mean: Duration,
    /// Mean without the longest 5 %.
    #[serde(rename = "trimmed_mean_seconds", with = "seconds")]
    pub trimmed_mean: Duration,
}

/// Latency of one interval of the load.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct LatencyInterval {
    /// Seconds since the start of the load.
    #[serde(rename = "start_seconds", with = "seconds")]
    pub start: Duration,
    /// Seconds since the start of the load.
    #[serde(rename = "end_seconds", with = "seconds")]
    pub end: Duration,
    /// Probes sent in this interval.
    #[serde(flatten)]
    pub trips: RoundTrips,
}

/// Results of the probes of a test.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct Latency {
    pub transport: ProbeTransport,
    /// Time between two probes, in seconds.
    #[serde(rename = "probe_interval_seconds", with = "seconds")]
    pub pace: Duration,
    /// True if the arrival times are kernel timestamps.
    pub kernel_timestamps: bool,
    /// Probes before the load.
    pub idle: RoundTrips,
    /// Probes during the load.
    pub loaded: RoundTrips,
    /// Per cent by which the mean round trip under load exceeds the minimum before it (RFC 6349 §4.3).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffer_delay_percent: Option<Figure>,
    /// 60 s divided by the mean RTT before the load, without its longest 5 %.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_round_trips_per_minute: Option<Figure>,
    /// 60 s divided by the mean RTT under load, without its longest 5 %.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loaded_round_trips_per_minute: Option<Figure>,
    /// Intervals during the load.
    pub intervals: Vec<LatencyInterval>,
}

/// Minimum probes of an interval in which none was answered, for a silence.
const MIN_SILENT_PROBES: u64 = 8;

impl Latency {
    /// Returns the times under load in which no datagram was answered. There is none if most intervals have losses: a full
    /// queue drops datagrams all the time.
    pub fn silences(&self) -> Vec<Range<Duration>> {
        let lossy = self.intervals.iter().filter(|at| at.trips.lost > 0).count();
        if self.transport != ProbeTransport::Udp || lossy * 2 > self.intervals.len() {
            return Vec::new();
        }
        let mut silences: Vec<Range<Duration>> = Vec::new();
        let is_silent = |at: &&LatencyInterval| at.trips.sent >= MIN_SILENT_PROBES && at.trips.lost >= at.trips.sent;
        for at in self.intervals.iter().filter(is_silent) {
            match silences.last_mut().filter(|last| last.end == at.start) {
                Some(last) => last.end = at.end,
                None => silences.push(at.start..at.end),
            }
        }
        silences
    }

    /// Returns the round trips of the datagrams before the load; none if the probes were messages or none was answered.
    pub fn idle_udp_round_trips(&self) -> Option<RttDistribution> {
        self.idle.rtt.filter(|_| self.transport == ProbeTransport::Udp)
    }

    /// Returns the shortest round trip of the datagrams; none if the probes were messages or none was answered.
    pub fn shortest_udp_round_trip(&self) -> Option<Duration> {
        let known = [&self.idle, &self.loaded].into_iter().filter_map(|trips| Some(trips.rtt.as_ref()?.min));
        known.min().filter(|_| self.transport == ProbeTransport::Udp)
    }
}

impl Latency {
    /// Evaluates probes in the order of sending. `load` is the duration of the load, divided into intervals of
    /// `interval`.
    pub fn new(
        transport: ProbeTransport,
        pace: Duration,
        probes: &[Probe],
        load: Duration,
        interval: Duration,
    ) -> Self {
        let end = i64::try_from(load.as_nanos()).unwrap_or(i64::MAX);
        // The probes are in order, so an interval never searches the probes of the others.
        let until = |time: i64| probes.partition_point(|probe| probe.sent < time);
        let within = |from: i64, to: i64| round_trips(&probes[until(from)..until(to.max(from))]);
        let (idle, loaded) = (within(i64::MIN, 0), within(0, end));
        let per_minute = |trips: &RoundTrips| {
            let trimmed = trips.rtt?.trimmed_mean.as_secs_f64();
            Figure::new(60.0 / trimmed)
        };
        Latency {
            transport,
            pace,
            kernel_timestamps: false,
            buffer_delay_percent: idle.rtt.zip(loaded.rtt).and_then(|(i, l)| buffer_delay(&i, &l)),
            idle_round_trips_per_minute: per_minute(&idle),
            loaded_round_trips_per_minute: per_minute(&loaded),
            intervals: intervals(load, interval).map(|(start, end)| latency_interval(start, end, &within)).collect(),
            idle,
            loaded,
        }
    }
}

fn buffer_delay(idle: &RttDistribution, loaded: &RttDistribution) -> Option<Figure> {
    rfc6349::buffer_delay(loaded.mean, idle.min).and_then(Figure::new)
}

fn latency_interval(start: Duration, end: Duration, within: &impl Fn(i64, i64) -> RoundTrips) -> LatencyInterval {
    let nanos = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
    LatencyInterval { start, end, trips: within(nanos(start), nanos(end)) }
}

fn intervals(load: Duration, interval: Duration) -> impl Iterator<Item = (Duration, Duration)> {
    let interval = interval.max(Duration::from_millis(1));
    let count = load.as_nanos().div_ceil(interval.as_nanos());
    let count = u32::try_from(count).unwrap_or(u32::MAX).min(1_000_000);
    (0..count).map(move |n| (interval * n, load.min(interval * (n + 1))))
}

fn round_trips(probes: &[Probe]) -> RoundTrips {
    let sent = probes.len() as u64;
    let mut rtts: Vec<Duration> = probes.iter().filter_map(|probe| probe.rtt).collect();
    rtts.sort_unstable();
    RoundTrips { sent, lost: sent - rtts.len() as u64, rtt: distribution(&rtts) }
}

/// Returns the distribution of sorted times; `None` for an empty slice.
fn distribution(sorted: &[Duration]) -> Option<RttDistribution> {
    let (shortest, longest) = (*sorted.first()?, *sorted.last()?);
    let at = |per_cent| nearest_rank(sorted, per_cent).unwrap_or(longest);
    let mean = |times: &[Duration]| {
        let sum: u128 = times.iter().map(Duration::as_nanos).sum();
        Duration::from_nanos(u64::try_from(sum / times.len().max(1) as u128).unwrap_or(u64::MAX))
    };
    let kept = (sorted.len() * 95).div_ceil(100);
    let (mean_of_all, trimmed) = (mean(sorted), mean(&sorted[..kept]));
    Some(RttDistribution {
        min: shortest,
        p50: at(50),
        p90: at(90),
        p99: at(99),
        max: longest,
        mean: mean_of_all,
        trimmed_mean: trimmed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    fn probe(sent_ms: i64, rtt_ms: Option<u64>) -> Probe {
        Probe { sent: sent_ms * MS, rtt: rtt_ms.map(Duration::from_millis) }
    }

    #[test]
    fn idle_and_loaded_probes_are_separated() {
        let idle = (-10..0).map(|n| probe(20 * n, Some(40)));
        let loaded = (0..100).map(|n| probe(20 * n, (n % 10 != 3).then_some(100 + (n as u64 % 2) * 20)));
        let probes: Vec<Probe> = idle.chain(loaded).chain([probe(2000, Some(1))]).collect();
        let second = Duration::from_secs(1);
        let latency = Latency::new(ProbeTransport::Udp, Duration::from_millis(20), &probes, 2 * second, second);
        assert_eq!((latency.idle.sent, latency.idle.lost), (10, 0));
        assert_eq!((latency.loaded.sent, latency.loaded.lost), (100, 10));
        let rtt = latency.loaded.rtt.unwrap();
        assert_eq!((rtt.min, rtt.p50), (Duration::from_millis(100), Duration::from_millis(100)));
        assert_eq!((rtt.p90, rtt.max), (Duration::from_millis(120), Duration::from_millis(120)));
        // 50 probes of 100 ms and 40 of 120 ms: (50 · 100 + 40 · 120) / 90 over 40 ms.
        assert!((latency.buffer_delay_percent.unwrap().get() - (108.889 - 40.0) / 40.0 * 100.0).abs() < 0.01);
        assert!((latency.idle_round_trips_per_minute.unwrap().get() - 1500.0).abs() < 1e-6);
        assert_eq!(latency.intervals.len(), 2);
        assert_eq!(latency.intervals[1].trips.sent, 50);
    }

    #[test]
    fn round_trips_per_minute_skip_the_longest_5_percent() {
        let probes: Vec<Probe> = (0..100).map(|n| probe(n, Some(if n < 95 { 10 } else { 1000 }))).collect();
        let latency =
            Latency::new(ProbeTransport::Udp, Duration::ZERO, &probes, Duration::from_secs(1), Duration::ZERO);
        assert!((latency.loaded_round_trips_per_minute.unwrap().get() - 6000.0).abs() < 1e-6);
        assert_eq!(latency.loaded.rtt.unwrap().p90, Duration::from_millis(10));
        assert_eq!(latency.buffer_delay_percent, None, "no base RTT is known");
    }

    #[test]
    fn unanswered_probes_give_no_figures() {
        let probes = [probe(-5, None), probe(5, None)];
        let latency = Latency::new(ProbeTransport::Udp, Duration::ZERO, &probes, Duration::from_secs(1), Duration::MAX);
        assert_eq!((latency.idle.rtt, latency.loaded.lost, latency.loaded_round_trips_per_minute), (None, 1, None));
        let text = serde_json::to_string(&latency).unwrap();
        assert!(!text.contains("null") && !text.contains("NaN"), "{text}");
        assert_eq!(serde_json::from_str::<Latency>(&text).unwrap(), latency);
    }
}
