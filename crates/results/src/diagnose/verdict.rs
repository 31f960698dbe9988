//! The verdict of a finished test: the one limit of its goodput, with or without a finding.

use lfn_base::path::PathProfile;
use lfn_base::tcp_model::{GoodputLimit, Prediction};
use lfn_base::units::{BitRate, show_duration};
use serde::{Deserialize, Serialize};

use super::bottleneck::CopyBottleneck;
use super::copy::bottleneck;
use super::datagrams::late_sender;
use super::pacing::is_limited_by_pacing;
use super::{Cause, Finding};
use crate::evidence::LoadKind;
use crate::evidence::figures::Figures;
use crate::measure::TestDirection;
use crate::prediction::ExpectedRange;
use crate::udp::ramp::RampReport;

/// The limit of a finished load.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct Verdict {
    /// Kind of the limit.
    pub limit: VerdictLimit,
    /// The limit in one phrase with its figures.
    pub summary: String,
    /// False if the figures of the test are not reliable, for example if the sender of a ramp was late.
    pub reliable: bool,
}

/// Kinds of limits of a test.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum VerdictLimit {
    /// The first finding names the limit.
    Finding,
    /// The capacity or the loss of the path, as predicted.
    Path,
    /// The receive window, the send buffer, the pacing or the lock-step, as predicted, without another sign.
    Predicted,
    /// The path by all signs; its capacity is unknown.
    ProbablyPath,
    /// The rate or the pacing that the user requested.
    RequestedRate,
    /// The goodput is above the prediction: the capacity or the loss of the path is not as given.
    AbovePrediction,
    /// An activity or a resource of a copy that is as fast as predicted, or has no prediction.
    Resource,
    /// A ramp, which searches for the limit.
    Ramp,
    /// The ends report too few figures.
    #[default]
    Unknown,
}

/// Maximum measurement error: a higher share of the possible goodput means that the given capacity is too low.
const MAX_MEASUREMENT_ERROR: f64 = 1.05;
/// Maximum share of the time in which a window or a buffer stopped the sender, for a path that looks like the limit.
const MAX_HOST_LIMITED_SHARE: f64 = 0.3;

/// Minimum share of the possible goodput for a path that may be the limit.
const MIN_SHARE_OF_PATH: f64 = 0.5;

/// Minimum share of the time in which the path limited a connection, for a path that looks like the limit.
const MIN_PATH_SHARE: f64 = 0.4;

impl Verdict {
    fn new(limit: VerdictLimit, summary: impl Into<String>) -> Self {
        Verdict { limit, summary: summary.into(), reliable: true }
    }

    fn of_finding(finding: &Finding) -> Self {
        let phrase = finding.cause().unwrap_or(Cause::Unexplained).phrase();
        let rate = finding.evidence.get("rate_bits_per_second").and_then(serde_json::Value::as_u64);
        let rate = rate.map(|rate| format!(", {}", BitRate(rate))).unwrap_or_default();
        Verdict::new(VerdictLimit::Finding, format!("limited by {phrase}{rate}"))
    }
}

/// Returns the verdict of a load. The findings and the prediction are those of the same figures.
pub(super) fn verdict(
    figures: &Figures,
    findings: &[Finding],
    predicted: Option<(&Prediction, &ExpectedRange)>,
) -> Verdict {
    match figures.kind {
        LoadKind::Tcp => tcp_verdict(figures, findings, predicted),
        LoadKind::Datagrams => datagram_verdict(figures, findings),
        LoadKind::Copy => copy_verdict(figures, findings),
        LoadKind::Capture => capture_verdict(figures, findings),
        LoadKind::Couple => couple_verdict(figures, findings),
    }
}

fn couple_verdict(figures: &Figures, findings: &[Finding]) -> Verdict {
    let Some(couple) = figures.couple.as_deref() else { return Verdict::default() };
    let limit = findings.iter().find(|finding| finding.is_limit()).and_then(Finding::cause);
    let component = couple.differing().unwrap_or(&couple.components[0]);
    let (measured, predicted) = (show_duration(component.measured), show_duration(component.predicted));
    let (limit, summary) = match (couple.differing(), limit) {
        (None, _) => (VerdictLimit::Predicted, format!("a step takes {measured}, as predicted ({predicted})")),
        (Some(component), _) if component.difference() < 0.0 => {
            (VerdictLimit::AbovePrediction, format!("a step takes {measured}, less than predicted ({predicted})"))
        }
        (Some(_), cause) => {
            let phrase = cause.unwrap_or(Cause::Unexplained).phrase();
            (VerdictLimit::Finding, format!("a step takes {measured} instead of {predicted}: limited by {phrase}"))
        }
    };
    Verdict { limit, summary, reliable: true }
}

fn capture_verdict(figures: &Figures, findings: &[Finding]) -> Verdict {
    if let Some(finding) = findings.first() {
        return Verdict::of_finding(finding);
    }
    let path_share = figures.capture.as_ref().map_or(0.0, |capture| capture.path_share());
    if path_share >= MIN_PATH_SHARE {
        return Verdict::new(VerdictLimit::ProbablyPath, "limited by the path (no other bottleneck found)");
    }
    Verdict::new(VerdictLimit::Unknown, "the limit is unknown")
}

fn copy_verdict(figures: &Figures, findings: &[Finding]) -> Verdict {
    if let Some(finding) = findings.first() {
        return Verdict::of_finding(finding);
    }
    let limit = figures.copy.as_ref().map_or(CopyBottleneck::Unknown, bottleneck);
    match limit {
        CopyBottleneck::LinkFull { share } => {
            let summary = format!("limited by the path: {:.0} % of the predicted goodput", share * 100.0);
            Verdict::new(VerdictLimit::Path, summary)
        }
        CopyBottleneck::CongestionWindow => Verdict::new(VerdictLimit::ProbablyPath, "looks limited by the path"),
        CopyBottleneck::Unknown => Verdict::new(VerdictLimit::Unknown, "the limit is unknown"),
        CopyBottleneck::StartUp => Verdict::new(VerdictLimit::Resource, "limited by slow start"),
        other => {
            let name = other.display_for_end(figures.direction == TestDirection::Forward);
            Verdict::new(VerdictLimit::Resource, format!("limited by the {name}"))
        }
    }
}

fn tcp_verdict(figures: &Figures, findings: &[Finding], predicted: Option<(&Prediction, &ExpectedRange)>) -> Verdict {
    let limits_load = |finding: &&Finding| finding.is_limit() && !finding.cause().is_some_and(Cause::is_disk);
    if let Some(finding) = findings.iter().find(limits_load) {
        return Verdict::of_finding(finding);
    }
    let goodput = figures.steady_goodput();
    let is_beyond = |max: BitRate| goodput.as_f64() > MAX_MEASUREMENT_ERROR * max.as_f64();
    let within = predicted.is_some_and(|(_, expected)| goodput <= expected.max);
    if let Some(path) = figures.path.filter(|path| !within && is_beyond(path.payload_capacity())) {
        let source = if figures.is_capacity_measured { "measured" } else { "given" };
        let summary = format!("the path carries more than the {source} capacity of {}", path.capacity);
        return Verdict::new(VerdictLimit::AbovePrediction, summary);
    }
    if !within && figures.possible_goodput().is_some_and(is_beyond) {
        let summary = "more than the formulas predict for a path with this loss";
        return Verdict::new(VerdictLimit::AbovePrediction, summary);
    }
    if is_limited_by_pacing(figures, goodput) {
        return Verdict::new(
            VerdictLimit::RequestedRate,
            "limited by the requested pacing (--pacing, or --max-load of lfn doctor)",
        );
    }
    let others = if findings.is_empty() { " (no other bottleneck found)" } else { "" };
    let Some(path) = figures.path else {
        return if looks_limited_by_path(figures) {
            Verdict::new(VerdictLimit::ProbablyPath, format!("looks limited by the path{others}"))
        } else {
            Verdict::new(VerdictLimit::Unknown, "the limit is unknown (set the capacity with --rate)")
        };
    };
    let agrees = predicted.is_some_and(|(_, expected)| (expected.min..=expected.max).contains(&goodput));
    let limit = predicted.map_or(GoodputLimit::Capacity, |(predicted, _)| predicted.limit);
    match limit {
        GoodputLimit::Loss => {
            Verdict::new(VerdictLimit::Path, format!("limited by the loss of the path, as predicted{others}"))
        }
        GoodputLimit::ReceiveWindow | GoodputLimit::SendBuffer | GoodputLimit::Pacing | GoodputLimit::Lockstep
            if agrees && !figures.is_full() =>
        {
            Verdict::new(VerdictLimit::Predicted, format!("limited by the {limit}, as predicted{others}"))
        }
        _ => path_verdict(figures, &path, others),
    }
}

/// Returns the verdict of a test without another limit than the capacity of its path.
fn path_verdict(figures: &Figures, path: &PathProfile, others: &str) -> Verdict {
    let possible = figures.possible_goodput().unwrap_or(path.payload_capacity()).as_f64();
    let share = figures.steady_goodput().as_f64() / possible.max(1.0);
    if share < MIN_SHARE_OF_PATH {
        let summary = format!("the limit is unknown: {:.0} % of the possible goodput", share * 100.0);
        return Verdict::new(VerdictLimit::Unknown, summary);
    }
    let about = if figures.is_capacity_measured { "about " } else { "" };
    Verdict::new(VerdictLimit::Path, format!("limited by the path, {about}{}{others}", path.capacity))
}

fn datagram_verdict(figures: &Figures, findings: &[Finding]) -> Verdict {
    let datagrams = &figures.datagrams;
    if let Some(ramp) = &datagrams.ramp {
        let late = late_sender(ramp, datagrams.sent.first());
        let result = ramp_result(ramp);
        return match late {
            None => Verdict::new(VerdictLimit::Ramp, result),
            Some(late) => Verdict {
                limit: VerdictLimit::Ramp,
                summary: format!("{result}; not certain: {} sent late ({late})", figures.sender.name),
                reliable: false,
            },
        };
    }
    if let Some(finding) = findings.first() {
        return Verdict::of_finding(finding);
    }
    let requested = datagrams.sent.iter().map(|sent| sent.requested.0);
    match requested.fold(0, u64::saturating_add) {
        0 => Verdict::new(VerdictLimit::RequestedRate, "limited by the requested rate"),
        rate => Verdict::new(VerdictLimit::RequestedRate, format!("limited by the requested rate, {}", BitRate(rate))),
    }
}

/// Returns the result of a finished ramp.
fn ramp_result(ramp: &RampReport) -> String {
    match (ramp.highest_passed, ramp.lowest_failed, ramp.sender_limit) {
        (Some(highest), _, true) => format!("at least {highest} of payload: the sender reached its maximum"),
        (Some(highest), Some(failed), _) => format!("{highest} of payload passed, {failed} failed"),
        (Some(highest), None, _) => format!("{highest} of payload passed, the highest requested rate"),
        (None, failed, _) => {
            let lowest = failed.map(|failed| format!(" down to {failed}")).unwrap_or_default();
            format!(
                "datagrams were lost at every rate{lowest}: allow loss that does not depend on the rate with --loss-allowed"
            )
        }
    }
}

/// Returns true if the kernel of the sender reports that neither a window nor a buffer stopped the sender.
fn looks_limited_by_path(figures: &Figures) -> bool {
    let sum = |figure: fn(&crate::evidence::figures::StreamFigures) -> std::time::Duration| -> f64 {
        figures.streams.iter().map(|flow| figure(flow).as_secs_f64()).sum()
    };
    let stopped = sum(|flow| flow.rwnd_limited) + sum(|flow| flow.sndbuf_limited);
    figures.is_tcp() && stopped <= MAX_HOST_LIMITED_SHARE * sum(|flow| flow.busy)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lfn_base::units::{Bytes, Ratio};

    use super::*;
    use crate::diagnose::window::tests::half_bdp_window;
    use crate::diagnose::{Diagnosis, diagnose_figures};
    use crate::udp::figures::{Quantiles, UdpSent};

    /// A stream that neither a window nor a buffer limits, on a path with or without a known capacity.
    fn healthy(goodput: u64, capacity: Option<u64>) -> Figures {
        let mut figures = half_bdp_window();
        figures.path = capacity.map(|rate| PathProfile::new(BitRate(rate), figures.base_rtt));
        figures.goodput = BitRate(goodput);
        figures.elapsed = Duration::from_secs(60);
        figures.steady = None;
        for flow in &mut figures.streams {
            flow.goodput = BitRate(goodput);
            flow.snd_wnd = None;
            flow.busy_share = Some(1.0);
            flow.rwnd_limited = Duration::ZERO;
            flow.receiver_socket.window_requested_bytes = None;
            flow.receiver_socket.rcvbuf_requested_bytes = None;
        }
        figures
    }

    fn verdict_of(figures: &Figures) -> (Vec<&'static str>, Verdict) {
        let Diagnosis { findings, verdict, .. } = diagnose_figures(figures);
        (findings.iter().filter_map(|finding| Some(finding.cause()?.name())).collect(), verdict)
    }

    #[test]
    fn a_full_path_is_the_verdict_without_findings() {
        let (findings, verdict) = verdict_of(&healthy(191_000_000, Some(200_000_000)));
        assert_eq!(findings, [] as [&str; 0]);
        assert_eq!(verdict.limit, VerdictLimit::Path);
        assert_eq!(verdict.summary, "limited by the path, 200 Mb/s (no other bottleneck found)");
    }

    #[test]
    fn an_unknown_capacity_looks_limited_by_the_path() {
        let (findings, verdict) = verdict_of(&healthy(191_000_000, None));
        assert_eq!(findings, [] as [&str; 0]);
        assert_eq!(verdict.limit, VerdictLimit::ProbablyPath);
        assert_eq!(verdict.summary, "looks limited by the path (no other bottleneck found)");
    }

    #[test]
    fn a_shortfall_without_cause_is_unexplained() {
        let (findings, verdict) = verdict_of(&healthy(90_000_000, Some(200_000_000)));
        assert_eq!(findings, ["unexplained"]);
        assert_eq!((verdict.limit, verdict.summary.as_str()), (VerdictLimit::Finding, "limited by an unknown cause"));
    }

    #[test]
    fn a_predicted_limit_is_the_verdict_without_findings() {
        let mut figures = healthy(67_000_000, Some(200_000_000));
        figures.streams[0].receiver_socket.window_requested_bytes = Some(Bytes(4_547_840));
        let (findings, verdict) = verdict_of(&figures);
        assert_eq!((findings.len(), verdict.limit), (0, VerdictLimit::Predicted));
        assert_eq!(verdict.summary, "limited by the receive window, as predicted (no other bottleneck found)");
        // Above the prediction, so the window is not the limit; far below the capacity, so the path is not either.
        figures.goodput = BitRate(95_000_000);
        figures.streams[0].goodput = figures.goodput;
        let (findings, verdict) = verdict_of(&figures);
        assert_eq!((findings.len(), verdict.limit), (0, VerdictLimit::Unknown));
        assert_eq!(verdict.summary, "the limit is unknown: 50 % of the possible goodput");
    }

    #[test]
    fn more_than_the_capacity_is_above_prediction() {
        let (findings, verdict) = verdict_of(&healthy(300_000_000, Some(200_000_000)));
        assert_eq!(findings, [] as [&str; 0]);
        assert_eq!(verdict.summary, "the path carries more than the given capacity of 200 Mb/s");
    }

    #[test]
    fn pacing_is_the_limit_if_it_is_reached() {
        let mut figures = healthy(49_000_000, Some(200_000_000));
        figures.streams[0].sender_socket.pacing_requested = Some(BitRate(50_000_000));
        let (findings, verdict) = verdict_of(&figures);
        assert_eq!((findings.len(), verdict.limit), (0, VerdictLimit::RequestedRate));
    }

    #[test]
    fn a_ramp_of_a_late_sender_is_not_certain() {
        let verdict = |behind: f64| {
            let lateness = Quantiles { p99: Duration::from_micros(18_220), ..Quantiles::default() };
            let behind_schedule_share = Ratio::new(behind).unwrap();
            let mut figures = healthy(1, None);
            figures.kind = LoadKind::Datagrams;
            figures.datagrams.sent =
                vec![UdpSent { behind_schedule_share, lateness: Some(lateness), ..UdpSent::default() }];
            figures.datagrams.ramp = Some(RampReport {
                highest_passed: Some(BitRate(167_800_000)),
                lowest_failed: Some(BitRate(169_600_000)),
                ..RampReport::default()
            });
            diagnose_figures(&figures).verdict
        };
        let late = verdict(0.17);
        assert!(!late.reliable);
        assert!(
            late.summary.contains("169.6 Mb/s failed; not certain: ") && late.summary.contains("sent late (17 %"),
            "{late:?}"
        );
        let in_time = verdict(0.001);
        assert_eq!((in_time.reliable, in_time.summary.contains("certain")), (true, false));
    }
}
