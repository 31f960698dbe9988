//! The verdict of a finished test: the one limit of its goodput, with or without a finding.

use serde::{Deserialize, Serialize};

use super::datagrams::late_sender;
use super::{Cause, Evidence, Finding};
use crate::prediction::ExpectedRange;
use crate::tcp_model::{GoodputLimit, Prediction};
use crate::udp::ramp::RampReport;
use crate::units::BitRate;
use crate::wire::measure::EndReport;

/// The limit of a finished test.
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
    /// The path by all signs; its capacity is unknown.
    ProbablyPath,
    /// The rate or the pacing that the user requested.
    RequestedRate,
    /// The goodput is above the prediction: the capacity or the loss of the path is not as given.
    AbovePrediction,
    /// A ramp, which searches for the limit.
    Ramp,
    /// The ends report too few figures.
    #[default]
    Unknown,
}

/// Maximum measurement error: a higher share of the possible goodput means that the given capacity is too low.
const MAX_MEASUREMENT_ERROR: f64 = 1.05;
/// Minimum share of the requested pacing in the goodput; headers and clocks take the rest.
const MIN_SHARE_OF_PACING: f64 = 0.9;
/// Maximum share of the time in which a window or a buffer stopped the sender, for a path that looks like the limit.
const MAX_HOST_LIMITED_SHARE: f64 = 0.3;

impl Verdict {
    fn new(limit: VerdictLimit, summary: impl Into<String>) -> Self {
        Verdict { limit, summary: summary.into(), reliable: true }
    }

    fn of_finding(finding: &Finding) -> Self {
        Verdict::new(VerdictLimit::Finding, format!("limited by {}", finding.cause.phrase()))
    }
}

/// Returns the verdict of a test of TCP. The findings and the prediction are those of the same evidence.
pub fn tcp_verdict(
    evidence: &Evidence,
    findings: &[Finding],
    predicted: Option<(&Prediction, &ExpectedRange)>,
) -> Verdict {
    if let Some(finding) = findings.iter().find(|finding| finding.is_limit()) {
        return Verdict::of_finding(finding);
    }
    let goodput = evidence.steady_goodput();
    let is_beyond = |max: BitRate| goodput.as_f64() > MAX_MEASUREMENT_ERROR * max.as_f64();
    let within = predicted.is_some_and(|(_, expected)| goodput <= expected.max);
    if let Some(path) = evidence.path.filter(|path| !within && is_beyond(path.payload_capacity())) {
        let summary = format!("the path carries more than the given capacity of {}", path.capacity);
        return Verdict::new(VerdictLimit::AbovePrediction, summary);
    }
    if !within && evidence.possible_goodput().is_some_and(is_beyond) {
        let summary = "more than the formulas predict for a path with this loss";
        return Verdict::new(VerdictLimit::AbovePrediction, summary);
    }
    if is_limited_by_pacing(evidence, goodput) {
        return Verdict::new(VerdictLimit::RequestedRate, "limited by the requested pacing (--pacing)");
    }
    let others = if findings.is_empty() { " (no other bottleneck found)" } else { "" };
    match (evidence.path, predicted.map(|(predicted, _)| predicted.limit)) {
        (Some(_), Some(GoodputLimit::Loss)) => {
            Verdict::new(VerdictLimit::Path, format!("limited by the loss of the path, as predicted{others}"))
        }
        (Some(path), _) => Verdict::new(VerdictLimit::Path, format!("limited by the path, {}{others}", path.capacity)),
        (None, _) if looks_limited_by_path(evidence) => {
            Verdict::new(VerdictLimit::ProbablyPath, format!("looks limited by the path{others}"))
        }
        (None, _) => Verdict::new(VerdictLimit::Unknown, "the limit is unknown (set the capacity with --rate)"),
    }
}

/// Returns the verdict of a test of datagrams.
pub fn datagram_verdict(evidence: &Evidence, findings: &[Finding], sender: &EndReport) -> Verdict {
    let figures = || sender.streams.iter().filter_map(|stream| stream.udp.as_deref());
    if let Some(ramp) = figures().find_map(|udp| udp.ramp.as_ref()) {
        let late = late_sender(ramp, figures().find_map(|udp| udp.sent.as_ref()));
        let result = ramp_result(ramp);
        return match late {
            None => Verdict::new(VerdictLimit::Ramp, result),
            Some(late) => Verdict {
                limit: VerdictLimit::Ramp,
                summary: format!("{result}; not certain: {} sent late ({late})", evidence.sender.name),
                reliable: false,
            },
        };
    }
    if let Some(finding) = findings.first() {
        return Verdict::of_finding(finding);
    }
    let requested = figures().filter_map(|udp| udp.sent.as_ref()).map(|sent| sent.requested.0);
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

fn is_limited_by_pacing(evidence: &Evidence, goodput: BitRate) -> bool {
    let paces = evidence.streams.iter().map(|flow| flow.sender_socket.pacing_requested);
    let pace = paces.map(|pace| pace.map(|pace| pace.as_f64())).sum::<Option<f64>>();
    pace.is_some_and(|pace| pace > 0.0 && goodput.as_f64() >= MIN_SHARE_OF_PACING * pace)
}

/// Returns true if the kernel of the sender reports that neither a window nor a buffer stopped the sender.
fn looks_limited_by_path(evidence: &Evidence) -> bool {
    let sum = |figure: fn(&super::StreamEvidence) -> std::time::Duration| -> f64 {
        evidence.streams.iter().map(|flow| figure(flow).as_secs_f64()).sum()
    };
    let stopped = sum(|flow| flow.rwnd_limited) + sum(|flow| flow.sndbuf_limited);
    evidence.is_tcp() && stopped <= MAX_HOST_LIMITED_SHARE * sum(|flow| flow.busy)
}

impl Cause {
    /// Returns the cause as the object of "limited by".
    fn phrase(self) -> &'static str {
        match self {
            Cause::ReceiveWindow => "the receive window",
            Cause::SendBuffer => "the send buffer",
            Cause::KernelCap => "a buffer limit of the kernel",
            Cause::WindowScaleAbsent => "the missing window scaling",
            Cause::Processor => "the CPU",
            Cause::SlowWriter => "the sending application",
            Cause::SlowReader => "the receiving application",
            Cause::ServerLimit => "the rate limit of the server",
            Cause::LocalDrops => "packet drops in a host",
            Cause::Loss => "loss on the path",
            Cause::Queueing => "a standing queue",
            Cause::Retransmissions => "retransmissions",
            Cause::SmallMtu => "a small path MTU",
            Cause::CongestionControl => "the congestion control",
            Cause::Competing => "other traffic",
            Cause::StartUp => "slow start",
            Cause::ReceiverOverflow => "the receive buffer",
            Cause::SlowSender => "the sender",
            Cause::Unexplained => "an unknown cause",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::diagnose::diagnose;
    use crate::diagnose::window::tests::half_bdp_window;
    use crate::path::PathProfile;
    use crate::prediction::predict_test;
    use crate::udp::figures::{Quantiles, UdpFigures, UdpSent};
    use crate::units::Ratio;
    use crate::wire::measure::StreamReport;

    /// A stream that neither a window nor a buffer limits, on a path with or without a known capacity.
    fn healthy(goodput: u64, capacity: Option<u64>) -> Evidence {
        let mut evidence = half_bdp_window();
        evidence.path = capacity.map(|rate| PathProfile::new(BitRate(rate), evidence.base_rtt));
        evidence.goodput = BitRate(goodput);
        evidence.elapsed = Duration::from_secs(60);
        evidence.steady = None;
        for flow in &mut evidence.streams {
            flow.goodput = BitRate(goodput);
            flow.snd_wnd = None;
            flow.busy_share = Some(1.0);
            flow.rwnd_limited = Duration::ZERO;
            flow.receiver_socket.window_requested_bytes = None;
            flow.receiver_socket.rcvbuf_requested_bytes = None;
        }
        evidence
    }

    fn verdict_of(evidence: &Evidence) -> (Vec<&'static str>, Verdict) {
        let findings = diagnose(evidence);
        let predicted = predict_test(evidence);
        let verdict = tcp_verdict(evidence, &findings, predicted.as_ref().map(|(rate, range)| (rate, range)));
        (findings.iter().map(|finding| finding.cause.name()).collect(), verdict)
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
    fn more_than_the_capacity_is_above_prediction() {
        let (findings, verdict) = verdict_of(&healthy(300_000_000, Some(200_000_000)));
        assert_eq!(findings, [] as [&str; 0]);
        assert_eq!(verdict.summary, "the path carries more than the given capacity of 200 Mb/s");
    }

    #[test]
    fn pacing_is_the_limit_if_it_is_reached() {
        let mut evidence = healthy(49_000_000, Some(200_000_000));
        evidence.streams[0].sender_socket.pacing_requested = Some(BitRate(50_000_000));
        let (findings, verdict) = verdict_of(&evidence);
        assert_eq!((findings.len(), verdict.limit), (0, VerdictLimit::RequestedRate));
    }

    #[test]
    fn a_ramp_of_a_late_sender_is_not_certain() {
        let sender = |behind: f64| {
            let lateness = Quantiles { p99: Duration::from_micros(18_220), ..Quantiles::default() };
            let behind_schedule_share = Ratio::new(behind).unwrap();
            let sent = UdpSent { behind_schedule_share, lateness: Some(lateness), ..UdpSent::default() };
            let ramp = RampReport {
                highest_passed: Some(BitRate(167_800_000)),
                lowest_failed: Some(BitRate(169_600_000)),
                ..RampReport::default()
            };
            let udp = UdpFigures { sent: Some(sent), ramp: Some(ramp), ..UdpFigures::default() };
            EndReport {
                streams: vec![StreamReport { udp: Some(Box::new(udp)), ..StreamReport::default() }],
                ..EndReport::default()
            }
        };
        let evidence = healthy(1, None);
        let late = datagram_verdict(&evidence, &[], &sender(0.17));
        assert!(!late.reliable);
        assert!(
            late.summary.contains("169.6 Mb/s failed; not certain: ") && late.summary.contains("sent late (17 %"),
            "{late:?}"
        );
        let in_time = datagram_verdict(&evidence, &[], &sender(0.001));
        assert_eq!((in_time.reliable, in_time.summary.contains("certain")), (true, false));
    }
}
