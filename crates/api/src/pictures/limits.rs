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

/// Returns the limit of each time between two samples. The time of an unknown limit is skipped.
pub(super) fn of_samples(samples: &[ProgressSample], streams: u16, predicted: Option<BitRate>) -> Vec<LimitPeriod> {
    let mut earlier = ProgressSample::default();
    let mut periods = Vec::new();
    for sample in samples {
        let limit = name(classify(&earlier, sample, streams, predicted));
        if let Some(limit) = limit {
            periods.push(LimitPeriod { from: earlier.at.as_secs_f64(), to: sample.at.as_secs_f64(), limit });
        }
        // A short interval with little payload shows its limit together with the next one.
        if limit.is_some() || sample.at.saturating_sub(earlier.at) >= MAX_UNKNOWN {
            earlier = *sample;
        }
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

/// Adds the bands to a panel. The legend has the share of each limit of the known time.
pub(super) fn add(panel: &mut Panel, periods: &[LimitPeriod]) {
    let total: f64 = periods.iter().map(|period| period.to - period.from).sum();
    for (limit, color, hatch) in LOOKS {
        let own = periods.iter().filter(|period| period.limit == limit);
        let time: f64 = own.clone().map(|period| period.to - period.from).sum();
        if time <= 0.0 {
            continue;
        }
        let kind = panel.band_kinds.len();
        let name = format!("limit: {}", share_text(limit, time / total));
        panel.band_kinds.push(BandKind { name, label: limit.to_owned(), color, hatch });
        panel.bands.extend(own.map(|period| Band { from: period.from, to: period.to, kind }));
    }
}

/// Returns the limits with their shares in a sentence; empty without a known limit.
pub(super) fn in_words(periods: &[LimitPeriod]) -> String {
    let total: f64 = periods.iter().map(|period| period.to - period.from).sum();
    let shares = LOOKS.iter().filter_map(|(limit, ..)| {
        let own = periods.iter().filter(|period| period.limit == *limit);
        let time: f64 = own.map(|period| period.to - period.from).sum();
        (time > 0.0).then(|| share_text(limit, time / total))
    });
    let shares: Vec<String> = shares.collect();
    if shares.is_empty() { String::new() } else { format!(" Limits by time: {}.", shares.join(", ")) }
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
