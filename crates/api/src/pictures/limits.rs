//! Bands that show the limit of each interval of a test or a copy, by the rules of a running copy.

use std::time::Duration;

use lfn_base::units::{BitRate, Bytes};
use lfn_plot::{AMBER, Band, BandKind, Color, GREEN, Hatch, ORANGE, PURPLE, Panel, SKY, YELLOW};
use lfn_results::diagnose::bottleneck::{CopyBottleneck, classify};
use lfn_results::evidence::{Evidence, ProgressSample, SocketEvidence};

/// Looks of the limits, in the order of the legend.
const LOOKS: [(&str, Color, Hatch); 8] = [
    ("start-up", SKY, Hatch::Rising),
    ("path", GREEN, Hatch::None),
    ("receive window", ORANGE, Hatch::Falling),
    ("send buffer", PURPLE, Hatch::Crossed),
    ("processor", AMBER, Hatch::Horizontal),
    ("source disk", YELLOW, Hatch::Vertical),
    ("destination disk", YELLOW, Hatch::Grid),
    ("rate limit", PURPLE, Hatch::Horizontal),
];

/// Time after which intervals without a known limit are not examined together any more.
const MAX_UNKNOWN: Duration = Duration::from_secs(2);

fn name(limit: CopyBottleneck) -> Option<&'static str> {
    Some(match limit {
        CopyBottleneck::StartUp => "start-up",
        CopyBottleneck::LinkFull { .. } | CopyBottleneck::CongestionWindow => "path",
        CopyBottleneck::SourceDisk => "source disk",
        CopyBottleneck::DestinationDisk => "destination disk",
        CopyBottleneck::ServerRateLimit => "rate limit",
        CopyBottleneck::Cpu => "processor",
        CopyBottleneck::ReceiveWindow => "receive window",
        CopyBottleneck::SendBuffer => "send buffer",
        CopyBottleneck::LostConnection | CopyBottleneck::Unknown => return None,
    })
}

/// A limit from one time to another, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LimitPeriod {
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) limit: &'static str,
}

/// Growth of the congestion window that shows a start-up, as a factor.
const START_UP_GROWTH: f64 = 1.25;
/// Round-trip times without growth after which the start-up is over, as for BBR (draft-ietf-ccwg-bbr).
const START_UP_ROUNDS: f64 = 3.0;

/// The growth of the congestion window at the start. Congestion controls such as BBR have no slow start threshold, so that
/// the counters show a slow start all the time.
#[derive(Debug, Default)]
struct StartUp {
    /// Congestion window at the last growth, bytes.
    window: f64,
    grown_at: f64,
    is_over: bool,
}

impl StartUp {
    /// Returns the limit of a time that ends with this sample.
    fn limit(
        &mut self,
        earlier: &ProgressSample,
        sample: &ProgressSample,
        streams: u16,
        predicted: Option<BitRate>,
    ) -> CopyBottleneck {
        let limit = classify(earlier, sample, streams, predicted);
        let Some(sockets) = sample.sockets else { return limit };
        let (window, at) = (sockets.congestion_window.0 as f64, sample.at.as_secs_f64());
        if window >= START_UP_GROWTH * self.window {
            (self.window, self.grown_at) = (window, at);
        }
        self.is_over |= at - self.grown_at > START_UP_ROUNDS * sockets.rtt_seconds;
        if !self.is_over {
            let is_unclear = limit == CopyBottleneck::Unknown && sample.bytes > earlier.bytes;
            let has_loss = sockets.retransmits > earlier.sockets.map_or(0, |earlier| earlier.retransmits);
            // The first round trips carry too little payload for the rules of a copy.
            let is_slow_start = is_unclear && sockets.in_slow_start > 0 && !has_loss;
            return if is_slow_start { CopyBottleneck::StartUp } else { limit };
        }
        if limit != CopyBottleneck::StartUp {
            return limit;
        }
        let started = SocketEvidence { in_slow_start: 0, ..sockets };
        match classify(earlier, &ProgressSample { sockets: Some(started), ..*sample }, streams, predicted) {
            // Without a loss, the window alone does not show that the path is the limit.
            CopyBottleneck::CongestionWindow if sockets.retransmits == 0 => CopyBottleneck::Unknown,
            other => other,
        }
    }
}

/// Returns the limit of each time between two samples. The time of an unknown limit is skipped.
pub(super) fn of_samples(samples: &[ProgressSample], streams: u16, predicted: Option<BitRate>) -> Vec<LimitPeriod> {
    let (mut earlier, mut before) = (ProgressSample::default(), ProgressSample::default());
    let mut start_up = StartUp::default();
    let mut periods = Vec::new();
    for sample in samples {
        let limit = name(start_up.limit(&earlier, sample, streams, predicted));
        if let Some(limit) = limit {
            periods.push(LimitPeriod { from: earlier.at.as_secs_f64(), to: sample.at.as_secs_f64(), limit });
        }
        // A short interval with little payload shows its limit together with the next one.
        if limit.is_some() || sample.at.saturating_sub(earlier.at) >= MAX_UNKNOWN {
            (before, earlier) = (earlier, *sample);
        }
    }
    // A short rest shows its limit together with the time before it.
    if let Some(last) = samples.last().filter(|last| last.at > earlier.at)
        && let Some(limit) = name(start_up.limit(&before, last, streams, predicted))
    {
        periods.push(LimitPeriod { from: earlier.at.as_secs_f64(), to: last.at.as_secs_f64(), limit });
    }
    periods
}

/// Returns the limit of each interval of a test, from the samples of the sender's sockets.
pub(super) fn of_evidence(evidence: &Evidence, predicted: Option<BitRate>) -> Vec<LimitPeriod> {
    let mut bytes: u64 = 0;
    let mut samples = Vec::new();
    for interval in &evidence.sender().intervals {
        bytes = bytes.saturating_add(interval.bytes);
        let infos = interval.streams.iter().filter_map(|stream| stream.tcp_info.as_ref());
        let sockets = infos.map(SocketEvidence::of_stream).reduce(|sum, stream| sum + stream);
        let at = interval.placed().1;
        samples.push(ProgressSample { at, bytes: Bytes(bytes), sockets, ..ProgressSample::default() });
    }
    if samples.iter().all(|sample| sample.sockets.is_none()) {
        return Vec::new();
    }
    let streams = u16::try_from(evidence.sender().streams.len()).unwrap_or(u16::MAX).max(1);
    of_samples(&samples, streams, predicted)
}

/// Adds the bands to a panel over time. The legend has the share of each limit of the whole time.
pub(super) fn add(panel: &mut Panel, periods: &[LimitPeriod]) {
    let total = whole(panel);
    for (limit, color, hatch) in LOOKS {
        let own = periods.iter().filter(|period| period.limit == limit);
        let time: f64 = own.clone().map(|period| period.to - period.from).sum();
        if time <= 0.0 {
            continue;
        }
        let kind = panel.band_kinds.len();
        let name = format!("limit: {} of the time", share_text(limit, time / total));
        panel.band_kinds.push(BandKind { name, label: limit.to_owned(), color, hatch });
        panel.bands.extend(own.map(|period| Band { from: period.from, to: period.to, kind }));
    }
}

/// Returns the shown time in seconds.
fn whole(panel: &Panel) -> f64 {
    (panel.x.high - panel.x.low).max(f64::MIN_POSITIVE)
}

/// Returns the limits with their shares of the whole time in a sentence; empty without a known limit.
pub(super) fn in_words(panel: &Panel, periods: &[LimitPeriod]) -> String {
    let total = whole(panel);
    let shares = LOOKS.iter().filter_map(|(limit, ..)| {
        let own = periods.iter().filter(|period| period.limit == *limit);
        let time: f64 = own.map(|period| period.to - period.from).sum();
        (time > 0.0).then(|| share_text(limit, time / total))
    });
    let shares: Vec<String> = shares.collect();
    if shares.is_empty() { String::new() } else { format!(" Limits by share of the time: {}.", shares.join(", ")) }
}

/// Returns a limit with its share of the time, from 0 to 1.
pub(super) fn share_text(limit: &str, share: f64) -> String {
    match share * 100.0 {
        percent if percent < 0.5 => format!("{limit} < 1 %"),
        percent => format!("{limit} {percent:.0} %"),
    }
}

/// Returns the longest time of the samples.
pub(super) fn end_of(samples: &[ProgressSample]) -> Duration {
    samples.iter().map(|sample| sample.at).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples of a second each, of a flow without a slow start threshold.
    fn samples(windows: &[u64], retransmits: u64) -> Vec<ProgressSample> {
        let sample = |(number, window): (usize, &u64)| {
            let at = Duration::from_secs(number as u64 + 1);
            let sockets = SocketEvidence {
                congestion_window: Bytes(*window),
                receive_window: Bytes(1 << 30),
                in_slow_start: 1,
                busy_seconds: at.as_secs_f64(),
                min_rtt_seconds: 0.1,
                rtt_seconds: 0.1,
                // The losses are at the start, as of a policer.
                retransmits,
                ..SocketEvidence::default()
            };
            let bytes = Bytes(2_000_000 * (number as u64 + 1));
            ProgressSample { at, bytes, sockets: Some(sockets), ..ProgressSample::default() }
        };
        windows.iter().enumerate().map(sample).collect()
    }

    fn limits(windows: &[u64], retransmits: u64) -> Vec<(f64, &'static str)> {
        let periods = of_samples(&samples(windows, retransmits), 1, None);
        periods.iter().map(|period| (period.to, period.limit)).collect()
    }

    #[test]
    fn start_up_ends_with_the_growth_of_the_window() {
        let policed = limits(&[100_000, 200_000, 210_000, 90_000], 500);
        assert_eq!(policed[2..], [(3.0, "path"), (4.0, "path")]);
        let without_loss = limits(&[100_000, 200_000, 210_000, 205_000], 0);
        assert_eq!(without_loss, [(1.0, "start-up"), (2.0, "start-up")]);
    }

    #[test]
    fn short_rest_belongs_to_the_time_before_it() {
        let mut samples = samples(&[100_000, 200_000, 210_000], 500);
        let rest = ProgressSample { at: Duration::from_millis(3200), bytes: Bytes(6_100_000), ..samples[2] };
        samples.push(rest);
        let periods = of_samples(&samples, 1, None);
        assert_eq!(periods.last().map(|last| (last.to, last.limit)), Some((3.2, "path")));
    }

    #[test]
    fn shares_are_those_of_the_whole_time() {
        let time = lfn_plot::Axis::exact("time", lfn_plot::Unit::Seconds, 0.0, 8.0);
        let mut panel = Panel::new("", time, lfn_plot::Axis::from_zero("", lfn_plot::Unit::Count, 1.0));
        let periods = of_samples(&samples(&[100_000, 200_000, 210_000, 205_000], 0), 1, None);
        add(&mut panel, &periods);
        let names: Vec<&str> = panel.band_kinds.iter().map(|kind| kind.name.as_str()).collect();
        assert_eq!(names, ["limit: start-up 25 % of the time"]);
        assert_eq!(in_words(&panel, &periods), " Limits by share of the time: start-up 25 %.");
    }
}
