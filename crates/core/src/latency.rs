//! Latency under load: what a probe flow beside the load says of the round-trip time, before the load and under it.
//!
//! The buffer delay is RFC 6349 §4.3's. Round trips a minute follow draft-ietf-ippm-responsiveness in how they are made
//! of round-trip times: 60 s over their mean without the longest 5 % (§5.1.3, trimmed mean); but of echoes of small
//! datagrams alone, where the draft mixes in the handshakes of TCP, TLS and HTTP. What is not known is absent.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::figure::Figure;
use crate::path::seconds;
use crate::rfc6349;
use crate::stats::nearest_rank;

/// Probes asked for beside a load.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LatencyRequest {
    /// Time from one probe to the next.
    #[serde(rename = "pace_seconds", with = "seconds")]
    pub pace: Duration,
}

impl Default for LatencyRequest {
    fn default() -> Self {
        LatencyRequest { pace: Duration::from_millis(20) }
    }
}

/// How probes went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// UDP echo beside the load.
    #[default]
    Udp,
    /// Questions on the control connection: they wait behind its own retransmissions, and none is ever lost.
    Tcp,
}

/// One probe.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Probe {
    /// When it left, from the beginning of the load; before it, negative nanoseconds.
    pub sent: i64,
    /// Its round trip without the time at the far end, if it came back.
    pub rtt: Option<Duration>,
}

/// Round trips of some probes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RoundTrips {
    /// Probes sent.
    pub sent: u64,
    /// Of these, never answered.
    pub lost: u64,
    /// Of those that came back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt: Option<Rtt>,
}

/// How round-trip times were spread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Rtt {
    /// The shortest.
    #[serde(rename = "min_seconds", with = "seconds")]
    pub least: Duration,
    /// Half were shorter.
    #[serde(rename = "p50_seconds", with = "seconds")]
    pub p50: Duration,
    /// 90 % were shorter.
    #[serde(rename = "p90_seconds", with = "seconds")]
    pub p90: Duration,
    /// 99 % were shorter.
    #[serde(rename = "p99_seconds", with = "seconds")]
    pub p99: Duration,
    /// The longest.
    #[serde(rename = "max_seconds", with = "seconds")]
    pub most: Duration,
    /// Their mean.
    #[serde(rename = "mean_seconds", with = "seconds")]
    pub mean: Duration,
    /// The mean without the longest 5 %.
    #[serde(rename = "trimmed_mean_seconds", with = "seconds")]
    pub trimmed: Duration,
}

/// Latency of one interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LatencyInterval {
    /// From the beginning of the load.
    #[serde(rename = "start_seconds", with = "seconds")]
    pub start: Duration,
    /// To then.
    #[serde(rename = "end_seconds", with = "seconds")]
    pub end: Duration,
    /// Probes sent in it.
    #[serde(flatten)]
    pub trips: RoundTrips,
}

/// What the probes of a test say.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Latency {
    /// How they went.
    pub transport: Transport,
    /// Time from one to the next.
    #[serde(rename = "pace_seconds", with = "seconds")]
    pub pace: Duration,
    /// Times of arrival are the kernel's.
    pub kernel_stamps: bool,
    /// Before the load.
    pub idle: RoundTrips,
    /// Under it.
    pub loaded: RoundTrips,
    /// Per cent by which the mean round trip under load exceeds the shortest before it (RFC 6349 §4.3).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffer_delay_percent: Option<Figure>,
    /// Before the load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_round_trips_per_minute: Option<Figure>,
    /// Under load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loaded_round_trips_per_minute: Option<Figure>,
    /// Each interval under load.
    pub intervals: Vec<LatencyInterval>,
}

impl Latency {
    /// Of these probes, in the order they left; the load lasted for `load`, told in slices of `interval`.
    pub fn new(transport: Transport, pace: Duration, probes: &[Probe], load: Duration, interval: Duration) -> Self {
        let end = i64::try_from(load.as_nanos()).unwrap_or(i64::MAX);
        // They are in order, so that no interval looks at those of the others.
        let until = |time: i64| probes.partition_point(|probe| probe.sent < time);
        let within = |from: i64, to: i64| round_trips(&probes[until(from)..until(to.max(from))]);
        let (idle, loaded) = (within(i64::MIN, 0), within(0, end));
        let per_minute = |trips: &RoundTrips| {
            let trimmed = trips.rtt?.trimmed.as_secs_f64();
            Figure::new(60.0 / trimmed)
        };
        Latency {
            transport,
            pace,
            kernel_stamps: false,
            buffer_delay_percent: idle.rtt.zip(loaded.rtt).and_then(|(i, l)| buffer_delay(&i, &l)),
            idle_round_trips_per_minute: per_minute(&idle),
            loaded_round_trips_per_minute: per_minute(&loaded),
            intervals: intervals(load, interval).map(|(start, end)| slice(start, end, &within)).collect(),
            idle,
            loaded,
        }
    }
}

fn buffer_delay(idle: &Rtt, loaded: &Rtt) -> Option<Figure> {
    rfc6349::buffer_delay(loaded.mean, idle.least).and_then(Figure::new)
}

fn slice(start: Duration, end: Duration, within: &impl Fn(i64, i64) -> RoundTrips) -> LatencyInterval {
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
    RoundTrips { sent, lost: sent - rtts.len() as u64, rtt: spread(&rtts) }
}

/// Of times in their order; nothing of none.
fn spread(sorted: &[Duration]) -> Option<Rtt> {
    let (least, most) = (*sorted.first()?, *sorted.last()?);
    let at = |per_cent| nearest_rank(sorted, per_cent).unwrap_or(most);
    let mean = |times: &[Duration]| {
        let sum: u128 = times.iter().map(Duration::as_nanos).sum();
        Duration::from_nanos(u64::try_from(sum / times.len().max(1) as u128).unwrap_or(u64::MAX))
    };
    let kept = (sorted.len() * 95).div_ceil(100);
    let (mean_of_all, trimmed) = (mean(sorted), mean(&sorted[..kept]));
    Some(Rtt { least, p50: at(50), p90: at(90), p99: at(99), most, mean: mean_of_all, trimmed })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    fn probe(sent_ms: i64, rtt_ms: Option<u64>) -> Probe {
        Probe { sent: sent_ms * MS, rtt: rtt_ms.map(Duration::from_millis) }
    }

    #[test]
    fn idle_and_loaded_are_told_apart() {
        let idle = (-10..0).map(|n| probe(20 * n, Some(40)));
        let loaded = (0..100).map(|n| probe(20 * n, (n % 10 != 3).then_some(100 + (n as u64 % 2) * 20)));
        let probes: Vec<Probe> = idle.chain(loaded).chain([probe(2000, Some(1))]).collect();
        let second = Duration::from_secs(1);
        let latency = Latency::new(Transport::Udp, Duration::from_millis(20), &probes, 2 * second, second);
        assert_eq!((latency.idle.sent, latency.idle.lost), (10, 0));
        assert_eq!((latency.loaded.sent, latency.loaded.lost), (100, 10));
        let rtt = latency.loaded.rtt.unwrap();
        assert_eq!((rtt.least, rtt.p50), (Duration::from_millis(100), Duration::from_millis(100)));
        assert_eq!((rtt.p90, rtt.most), (Duration::from_millis(120), Duration::from_millis(120)));
        // 50 of 100 ms and 40 of 120: (50 · 100 + 40 · 120) / 90 over 40 ms.
        assert!((latency.buffer_delay_percent.unwrap().get() - (108.889 - 40.0) / 40.0 * 100.0).abs() < 0.01);
        assert!((latency.idle_round_trips_per_minute.unwrap().get() - 1500.0).abs() < 1e-6);
        assert_eq!(latency.intervals.len(), 2);
        assert_eq!(latency.intervals[1].trips.sent, 50);
    }

    #[test]
    fn the_longest_twentieth_is_left_out_of_round_trips_a_minute() {
        let probes: Vec<Probe> = (0..100).map(|n| probe(n, Some(if n < 95 { 10 } else { 1000 }))).collect();
        let latency = Latency::new(Transport::Udp, Duration::ZERO, &probes, Duration::from_secs(1), Duration::ZERO);
        assert!((latency.loaded_round_trips_per_minute.unwrap().get() - 6000.0).abs() < 1e-6);
        assert_eq!(latency.loaded.rtt.unwrap().p90, Duration::from_millis(10));
        assert_eq!(latency.buffer_delay_percent, None, "no base RTT is known");
    }

    #[test]
    fn nothing_came_back_and_nothing_is_made_up() {
        let probes = [probe(-5, None), probe(5, None)];
        let latency = Latency::new(Transport::Udp, Duration::ZERO, &probes, Duration::from_secs(1), Duration::MAX);
        assert_eq!((latency.idle.rtt, latency.loaded.lost, latency.loaded_round_trips_per_minute), (None, 1, None));
        let text = serde_json::to_string(&latency).unwrap();
        assert!(!text.contains("null") && !text.contains("NaN"), "{text}");
        assert_eq!(serde_json::from_str::<Latency>(&text).unwrap(), latency);
    }
}
