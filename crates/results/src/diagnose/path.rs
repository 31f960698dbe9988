//! Properties of the path: loss, queueing and a small MTU; and a congestion control that differs from the requested
//! one.

use std::time::Duration;

use lfn_base::path::PathProfile;
use lfn_base::tcp_model::{self, Congestion, congestion_loss_budget};
use lfn_base::units::{BitRate, Ratio, show_duration};
use serde_json::json;

use super::remedy::rate_below;
use super::{Cause, Finding, Remedy, figures_map, finding};
use crate::evidence::LoadKind;
use crate::evidence::figures::course::MAX_START_UP_ROUND_TRIPS;
use crate::evidence::figures::{FULL_SHARE, Figures, HostFigures, SendTotals, StreamFigures};
use crate::measure::TestDirection;

/// Without a known capacity: goodput within this factor of the loss formula is limited by loss.
pub(super) const FORMULA_FACTOR: f64 = 2.0;
/// Goodput above this many times the formula means that the losses came in bursts, for example when a queue overflowed.
/// A smaller factor would include the slow-start losses of a short test.
pub(super) const BURST_LOSS_FACTOR: f64 = 8.0;
/// RTT under load in base RTTs that shows a queue; loss is then congestion.
pub(super) const QUEUE_RTT_FACTOR: f64 = 1.5;
/// Minimum goodput of a nearly full path, as a share of its capacity. A path with random loss does not stay nearly full.
pub(super) const NEARLY_FULL_SHARE: f64 = 0.75;
/// RTT under load in base RTTs that shows a queue on a nearly full path: a short queue (1 ms on a path of 1 ms) is half
/// empty most of the time.
pub(super) const NEARLY_FULL_RTT_FACTOR: f64 = 1.15;
/// Without a known capacity: maximum share of the busy time limited by the receive window, for a limit by loss.
pub(super) const MAX_RWND_LIMITED_SHARE: f64 = 0.3;
/// Loss from which BBR slows down too (its first version, 15 to 20 %).
pub(super) const BBR_LOSS_LIMIT: f64 = 0.1;
/// Minimum lost share that limits BBR if the goodput is low. Less loss does not slow BBR down by itself, but the data
/// behind a lost segment waits one round trip, and the window waits with it. Measured with loss of 0.1, 0.5, 1 and 5 %:
/// 93, 82, 78 and 64 % of the capacity over 10 ms, 81, 75, 70 and 53 % over 100 ms, 79, 77, 65 and 48 % over 300 ms;
/// without loss 93 to 98 % (doc/explanation/congestion-control.md). The threshold is half of the minimum loss, because
/// the loss of a single test varies.
pub(super) const MIN_BBR_LOSS: f64 = 0.0005;
/// Maximum goodput of BBR that loss limits, as a share of the capacity.
pub(super) const MAX_BBR_GOODPUT_SHARE: f64 = 0.9;
/// Minimum share of the time with data to send, for a loss that slows BBR down.
pub(super) const MIN_BUSY_SHARE: f64 = 0.8;
/// Window in BDPs that holds the data behind lost segments (measured: with 1 % of loss, 98 % of the capacity over 10
/// ms, 93 % over 100 ms).
const BBR_WINDOW_BDPS: u64 = 4;
/// Minimum number of lost segments; fewer are chance.
pub(super) const MIN_LOST_SEGMENTS: u64 = 3;
/// Maximum retransmitted share of the sent data that is not reported.
pub(super) const MAX_RETRANSMITTED_SHARE: f64 = 0.01;
/// Minimum number of retransmitted segments that is reported.
pub(super) const MIN_RETRANSMITTED_SEGMENTS: u64 = 20;
/// Minimum round trips of a test with retransmissions: its second half begins after start-up.
pub(super) const MIN_ROUND_TRIPS: u32 = 2 * MAX_START_UP_ROUND_TRIPS;
/// RTT under load in base RTTs that shows a standing queue.
pub(super) const STANDING_QUEUE_RTT_FACTOR: f64 = 2.0;
/// Minimum delay of a standing queue: half of the CoDel interval (RFC 8289 section 4.2). A shorter delay disturbs no
/// application.
pub(super) const MIN_QUEUEING_DELAY: Duration = Duration::from_millis(50);
/// Minimum share of the wait that the sender's own queue must explain, at the goodput.
const LOCAL_QUEUE_SHARE: f64 = 0.5;
/// Minimum difference in bytes between the path MTU and both interfaces' MTU; the MTU of loopback is one byte short.
pub(super) const MIN_MTU_DIFFERENCE: u32 = 20;

/// Finds loss above the loss budget of the congestion control without an overflowed queue.
pub(super) fn loss(figures: &Figures) -> Option<Finding> {
    let lost = StreamLoss::of(figures)?;
    let lossless = figures.path.map(|path| PathProfile { loss: Ratio::default(), ..path });
    let streams = figures.stream_count().max(1);
    let target = match &lossless {
        Some(path) => path.payload_capacity(),
        None => BitRate(figures.steady_goodput().0.saturating_mul(2)),
    };
    let congestion = figures.streams.first()?.sender_socket.congestion.clone();
    let bbr = congestion.starts_with("bbr");
    // BBR has no budget: each loss delays the data behind it.
    let budget = if bbr {
        0.0
    } else {
        let path = lossless.unwrap_or(PathProfile::new(target, figures.base_rtt));
        congestion_loss_budget(&path, streams, congestion.parse().unwrap_or_default()).get()
    };
    let is_limited = match &lossless {
        Some(path) => figures.steady_goodput().as_f64() < FULL_SHARE * path.payload_capacity().as_f64(),
        None => follows_formula(figures, lost.share) && figures.rwnd_share().unwrap_or(0.0) <= MAX_RWND_LIMITED_SHARE,
    };
    let nearly_full = lossless
        .is_some_and(|path| figures.steady_goodput().as_f64() >= NEARLY_FULL_SHARE * path.payload_capacity().as_f64());
    let enough = if nearly_full { NEARLY_FULL_RTT_FACTOR } else { QUEUE_RTT_FACTOR };
    // Goodput far above the formula is not limited by loss: TCP sees a burst of losses as one loss.
    let together = lossless.is_some()
        && !bbr
        && !is_below_formula(figures, lost.share, if nearly_full { FORMULA_FACTOR } else { BURST_LOSS_FACTOR });
    let risen = figures.rtt_under_load().as_secs_f64() > enough * figures.base_rtt.as_secs_f64();
    if !is_limited
        || risen
        || together
        || lost.share <= budget
        || lost.segments < MIN_LOST_SEGMENTS
        || (bbr && lost.share < BBR_LOSS_LIMIT && !slows_bbr(figures, lost.share))
    {
        return None;
    }
    let [each, tolerated] = [lost.share, budget].map(|share| (1.0 / share.max(f64::MIN_POSITIVE)).round());
    let tolerance = if bbr {
        format!("{congestion} slows down at this loss")
    } else {
        format!(
            "{target} at {} with {congestion} tolerates at most 1 loss in {} segments",
            show_duration(figures.base_rtt),
            group_digits(tolerated)
        )
    };
    let summary = format!(
        "1 of {} segments was lost ({} segments, {:.3} %); {tolerance}; RTT {} under load: the queue did not overflow",
        group_digits(each),
        lost.segments,
        lost.share * 100.0,
        show_duration(figures.rtt_under_load()),
    );
    let remedy = loss_remedy(figures, lost.share, bbr);
    let flow =
        tcp_model::FlowParameters { streams, congestion: Congestion::Bbr, ..tcp_model::FlowParameters::default() };
    let predicted = figures.path.map(|path| tcp_model::predict_steady(&path, &flow).goodput);
    let mut finding = finding(figures, Cause::Loss, summary, remedy, predicted);
    finding.evidence = figures_map([
        ("lost_share", json!(lost.share)),
        ("lost_segments", json!(lost.segments)),
        ("loss_budget_share", json!(budget)),
        ("base_rtt_seconds", json!(figures.base_rtt.as_secs_f64())),
        ("rtt_under_load_seconds", json!(figures.rtt_under_load().as_secs_f64())),
    ]);
    Some(finding)
}

/// Returns the remedy of a loss: BBR, then a window for the data behind a lost segment while it is retransmitted, then more
/// streams.
fn loss_remedy(figures: &Figures, lost_share: f64, bbr: bool) -> Remedy {
    if !bbr && figures.is_tuned && has_bbr_by_default(figures) && !figures.has_flag("congestion") {
        return figures.repeat_without("tuned");
    }
    if !bbr {
        return figures.repeat_command("--congestion bbr");
    }
    let needed = figures.needed_in_flight().filter(|_| lost_share < BBR_LOSS_LIMIT);
    match needed.map(|needed| needed.0.saturating_mul(BBR_WINDOW_BDPS)) {
        Some(window) if figures.kind != LoadKind::Copy && !has_window(figures, window) => {
            figures.repeat_command(&format!("--window {window}"))
        }
        _ => figures.repeat_command(&format!("--streams {}", figures.stream_count().max(1).saturating_mul(2))),
    }
}

/// Returns true if the receivers of all streams offer a window of this size, bytes.
fn has_window(figures: &Figures, window: u64) -> bool {
    figures.streams.iter().all(|flow| flow.snd_wnd.is_some_and(|offered| offered.median >= window))
}

/// Returns true if the kernel of the sender uses BBR for new sockets, so that only the plan replaced it.
fn has_bbr_by_default(figures: &Figures) -> bool {
    figures.sender.kernel.as_ref().is_some_and(|kernel| kernel.congestion.starts_with("bbr"))
}

/// Formats an integer with commas between groups of three digits.
fn group_digits(number: f64) -> String {
    let digits = format!("{number:.0}");
    let groups: Vec<&str> = digits.as_bytes().rchunks(3).rev().filter_map(|group| str::from_utf8(group).ok()).collect();
    groups.join(",")
}

/// Finds much data that was sent more than once although no rule names lost packets as the limit: a queue that
/// overflows, or acknowledgements that come late.
pub(super) fn retransmissions(figures: &Figures) -> Option<Finding> {
    let (share, segments) = retransmitted_later(figures)?;
    // The second half of a short test still repairs the losses of slow start.
    if figures.elapsed < figures.base_rtt.saturating_mul(MIN_ROUND_TRIPS) {
        return None;
    }
    // BBR keeps up to two BDPs in flight and does not slow down for the losses of a shorter queue.
    let bbr = figures.streams.iter().all(|flow| flow.sender_socket.congestion.starts_with("bbr"));
    let max = if bbr { BBR_LOSS_LIMIT } else { MAX_RETRANSMITTED_SHARE };
    if share <= max || segments < MIN_RETRANSMITTED_SEGMENTS {
        return None;
    }
    let (base, loaded) = (figures.base_rtt, figures.rtt_under_load());
    let queue = if loaded.as_secs_f64() > NEARLY_FULL_RTT_FACTOR * base.as_secs_f64() {
        "the streams overflow a queue on the path"
    } else {
        "packets are lost or delayed in bursts"
    };
    let summary = format!(
        "{:.1} % of the sent data was retransmitted in the second half ({} segments); {queue} (RTT {} without load, {} under load)",
        share * 100.0,
        group_digits(segments as f64),
        show_duration(base),
        show_duration(loaded),
    );
    let each = figures.steady_goodput().0 / u64::from(figures.stream_count().max(1));
    let paced = rate_below(BitRate(each)).to_argument();
    let remedy = figures.repeat_command(&format!("--pacing {paced}"));
    // The data arrives once in any case: retransmissions cost capacity, not goodput that is known.
    let mut finding = finding(figures, Cause::Retransmissions, summary, remedy, Some(figures.steady_goodput()));
    finding.evidence = figures_map([
        ("retransmitted_share", json!(share)),
        ("retransmitted_segments", json!(segments)),
        ("base_rtt_seconds", json!(base.as_secs_f64())),
        ("rtt_under_load_seconds", json!(loaded.as_secs_f64())),
    ]);
    Some(finding)
}

/// Returns the retransmitted share and segments of the second half of the steady part: the losses of slow start may be
/// repaired in its first half.
pub(super) fn retransmitted_later(figures: &Figures) -> Option<(f64, u64)> {
    let later: Vec<SendTotals> = figures.streams.iter().map(|flow| flow.sent_later).collect::<Option<_>>()?;
    let sum = |figure: fn(&SendTotals) -> u64| later.iter().map(figure).fold(0, u64::saturating_add);
    let resent = sum(|totals| totals.resent_bytes);
    let mss = figures.streams.iter().map(|flow| flow.mss).max().filter(|mss| *mss > 0)?;
    Some((resent as f64 / sum(|totals| totals.sent_bytes).max(1) as f64, resent / u64::from(mss)))
}

/// Returns the retransmitted share of the sent payload; none if a stream does not report it.
pub(super) fn retransmitted_share(figures: &Figures) -> Option<f64> {
    let moved: Vec<SendTotals> = figures.streams.iter().map(|flow| flow.sent).collect::<Option<_>>()?;
    let sum = |figure: fn(&SendTotals) -> u64| moved.iter().map(figure).fold(0, u64::saturating_add);
    let sent = sum(|totals| totals.sent_bytes);
    (sent > 0).then(|| sum(|totals| totals.resent_bytes) as f64 / sent as f64)
}

fn slows_bbr(figures: &Figures, share: f64) -> bool {
    let capacity = figures.path.map(|path| path.payload_capacity().as_f64());
    // A sender without data to send leaves the path unused too.
    let busy = figures.streams.iter().filter_map(|flow| flow.busy_share).fold(1.0, f64::min);
    share >= MIN_BBR_LOSS
        && busy >= MIN_BUSY_SHARE
        && capacity.is_some_and(|capacity| figures.steady_goodput().as_f64() < MAX_BBR_GOODPUT_SHARE * capacity)
}

/// Losses of all streams together.
struct StreamLoss {
    share: f64,
    segments: u64,
}

impl StreamLoss {
    /// Counts the retransmissions, without the segments that the peer already had.
    fn of(figures: &Figures) -> Option<StreamLoss> {
        let (mut sent, mut again, mut mss) = (0, 0, 0);
        for flow in &figures.streams {
            let moved = flow.sent?;
            sent += moved.sent_bytes;
            again += moved.resent_bytes.saturating_sub(moved.duplicates * u64::from(flow.mss));
            mss = mss.max(flow.mss);
        }
        let share = again as f64 / (sent as f64).max(1.0);
        (sent > 0 && mss > 0).then_some(StreamLoss { share, segments: again / u64::from(mss.max(1)) })
    }
}

/// Returns true if the goodput is close to the formula's rate for this loss.
fn follows_formula(figures: &Figures, share: f64) -> bool {
    let goodput = figures.steady_goodput().as_f64();
    formula_rate(figures, share).is_some_and(|rate| goodput < FORMULA_FACTOR * rate && goodput * FORMULA_FACTOR > rate)
}

/// Returns true if the goodput is not above the formula's rate for this loss; a lower goodput may have other causes.
pub(super) fn is_limited_by_loss(figures: &Figures, share: f64) -> bool {
    is_below_formula(figures, share, FORMULA_FACTOR)
}

fn is_below_formula(figures: &Figures, share: f64, times: f64) -> bool {
    let goodput = figures.steady_goodput().as_f64();
    formula_rate(figures, share).is_some_and(|rate| goodput < times * rate)
}

/// Returns the rate of the congestion control in use at this loss, on a path of any capacity.
fn formula_rate(figures: &Figures, share: f64) -> Option<f64> {
    let loss = Ratio::new(share).filter(|loss| loss.get() > 0.0)?;
    let congestion = figures.streams.first()?.sender_socket.congestion.parse().unwrap_or_default();
    let endless = PathProfile { loss, ..PathProfile::new(BitRate(1 << 50), figures.base_rtt) };
    let flow = tcp_model::FlowParameters {
        streams: figures.stream_count(),
        congestion,
        ..tcp_model::FlowParameters::default()
    };
    Some(tcp_model::predict_steady(&endless, &flow).goodput.as_f64())
}

/// Finds a standing queue: round trips under load take much longer than without load.
pub(super) fn queueing(figures: &Figures) -> Option<Finding> {
    let (base, loaded) = (figures.base_rtt, figures.rtt_under_load());
    let waits = loaded.saturating_sub(base);
    if base.is_zero()
        || loaded.as_secs_f64() <= STANDING_QUEUE_RTT_FACTOR * base.as_secs_f64()
        || waits < MIN_QUEUEING_DELAY
    {
        return None;
    }
    let summary = format!(
        "RTT {} under load, {} without: packets wait {} in a queue",
        show_duration(loaded),
        show_duration(base),
        show_duration(waits)
    );
    // The maximum backlog of this host must explain the wait, else the queue is on the path.
    let waits_here = |bytes: u64| {
        bytes as f64 * 8.0 >= LOCAL_QUEUE_SHARE * waits.as_secs_f64() * figures.steady_goodput().as_f64() && bytes > 0
    };
    let local = figures.sender.qdisc.as_ref().filter(|(_, counters)| waits_here(counters.backlog_bytes));
    let remedy = match (local, &figures.sender.interface) {
        (Some(_), Some(interface)) => Remedy {
            command: format!("tc qdisc replace dev {} root fq_codel", interface.name),
            host: Some(figures.sender.name.clone()),
        },
        _ => {
            let each = figures.steady_goodput().0 / u64::from(figures.stream_count().max(1));
            let paced = rate_below(BitRate(each)).to_argument();
            figures.repeat_command(&format!("--pacing {paced}"))
        }
    };
    // A queue costs time, not goodput.
    let mut finding = finding(figures, Cause::Queueing, summary, remedy, Some(figures.steady_goodput()));
    finding.evidence = figures_map([
        ("base_rtt_seconds", json!(base.as_secs_f64())),
        ("rtt_under_load_seconds", json!(loaded.as_secs_f64())),
        ("queueing_delay_seconds", json!(waits.as_secs_f64())),
    ]);
    Some(finding)
}

/// Returns true if TCP of this host searches the path MTU with its own probes.
fn probes_mtu(host: &HostFigures) -> bool {
    let facts = host.facts.as_ref();
    facts.and_then(|facts| facts.sysctls.get("net.ipv4.tcp_mtu_probing")).is_some_and(|value| value.trim() != "0")
}

/// Finds a path MTU that is smaller than the MTU of both interfaces.
pub(super) fn small_mtu(figures: &Figures) -> Option<Finding> {
    let mtu = |host: &HostFigures| host.interface.as_ref().filter(|i| !i.loopback).map(|i| i.mtu_bytes);
    let (sender, receiver) = (mtu(&figures.sender)?, mtu(&figures.receiver)?);
    let by_tcp = figures.streams.iter().map(|flow| flow.pmtu).filter(|mtu| *mtu > 0).min();
    // TCP knows a small MTU from ICMP, but not a black hole. Acknowledged probes show both.
    let path = by_tcp.into_iter().chain(figures.probed_mtu).min()?;
    let min_mtu = sender.min(receiver);
    if path.saturating_add(MIN_MTU_DIFFERENCE) > min_mtu {
        return None;
    }
    let summary = format!(
        "packets of {path} B are the maximum of the path; the interface MTU is {sender} B on {} and {receiver} B on {}",
        figures.sender.name, figures.receiver.name
    );
    let share = |mtu: u32| {
        let framing = figures.path.map(|path| path.framing).unwrap_or_default();
        f64::from(framing.payload(mtu)) / f64::from(framing.wire_bytes_full(mtu).max(1) as u32)
    };
    let predicted = BitRate((figures.steady_goodput().as_f64() * (share(min_mtu) / share(path)).max(1.0)) as u64);
    let remedy = match figures.probed_mtu {
        None => figures.repeat_command("--path"),
        Some(_) if by_tcp.is_some_and(|mtu| mtu <= path) => {
            let is_far = figures.direction == TestDirection::Forward;
            let receiver = if is_far { figures.far_network_name() } else { figures.receiver.name.as_str() };
            let command = format!("tracepath -n {receiver}   # the hop after which pmtu falls");
            Remedy { command, host: Some(figures.sender.name.clone()) }
        }
        Some(mtu) if probes_mtu(&figures.sender) => {
            let receiver = figures.far_network_name();
            let command = format!("ip route show {receiver}   # then add `mtu {mtu}` to this route: ip route change");
            Remedy { command, host: Some(figures.sender.name.clone()) }
        }
        // TCP sends packets that are too large if it does not know the path MTU.
        Some(_) => {
            Remedy { command: "sysctl -w net.ipv4.tcp_mtu_probing=1".into(), host: Some(figures.sender.name.clone()) }
        }
    };
    let mut finding = finding(figures, Cause::SmallMtu, summary, remedy, Some(predicted));
    finding.evidence = figures_map([
        ("path_mtu_bytes", json!(path)),
        ("sender_mtu_bytes", json!(sender)),
        ("receiver_mtu_bytes", json!(receiver)),
    ]);
    let found = [("tcp_path_mtu_bytes", by_tcp), ("probed_path_mtu_bytes", figures.probed_mtu)];
    finding.evidence.extend(figures_map(found.map(|(name, mtu)| (name, json!(mtu)))));
    Some(finding)
}

/// Finds a congestion control that differs from the requested one: a route's `congctl`, or a kernel without it.
pub(super) fn congestion_control(figures: &Figures) -> Option<Finding> {
    let flow = figures.streams.iter().find(|flow| has_other_congestion_control(flow))?;
    let used = &flow.sender_socket.congestion;
    let (requested, by_plan) = match (&flow.sender_socket.congestion_requested, &flow.sender_socket.congestion_planned)
    {
        (Some(requested), _) => (requested, false),
        (None, planned) => (planned.as_ref()?, true),
    };
    let with = |name: &str| {
        let congestion = name.parse().ok()?;
        let flow = tcp_model::FlowParameters {
            streams: figures.stream_count(),
            congestion,
            ..tcp_model::FlowParameters::default()
        };
        figures.path.map(|path| tcp_model::predict_steady(&path, &flow).goodput)
    };
    let predicted = with(requested);
    // A planned congestion control counts only if it improves the prediction.
    let helps = predicted.is_some_and(|rate| FULL_SHARE * rate.as_f64() > figures.steady_goodput().as_f64());
    if by_plan && !helps {
        return None;
    }
    let requester = if by_plan { "chosen by the plan" } else { "requested" };
    let summary = format!("{requested} was {requester}, but {used} is in use on {}", figures.sender.name);
    let command = if by_plan {
        format!("modprobe tcp_{requested}")
    } else {
        "ip route show table all | grep congctl   # a route's congctl overrides the request of a program".into()
    };
    let remedy = Remedy { command, host: Some(figures.sender.name.clone()) };
    let mut finding = finding(figures, Cause::CongestionControl, summary, remedy, predicted);
    finding.evidence = figures_map([("requested", json!(requested)), ("in_use", json!(used))]);
    Some(finding)
}

fn has_other_congestion_control(flow: &StreamFigures) -> bool {
    let socket = &flow.sender_socket;
    let requested = socket.congestion_requested.as_ref().or(socket.congestion_planned.as_ref());
    !socket.congestion.is_empty() && requested.is_some_and(|requested| *requested != socket.congestion)
}

#[cfg(test)]
mod tests;
