//! A slow-start threshold that is too low from the start: slow start ended early, or a route has a stored threshold.

use lfn_base::units::Bytes;
use serde_json::json;

use crate::diagnose::shortfall::Shortfall;
use crate::diagnose::{Cause, Confidence, Finding, Remedy, figures_map, finding};
use crate::evidence::figures::Figures;

/// Maximum threshold in BDPs of the path, for a threshold that slows the growth down.
pub(in crate::diagnose) const MAX_THRESHOLD: f64 = 0.6;
/// Maximum MTU of a route that limits a connection, bytes: one below the minimum of IPv6 (RFC 8200 section 5).
pub(in crate::diagnose) const MIN_ROUTE_MTU: u64 = 1279;
/// Metrics of a sender's route that limit a connection.
const METRICS: [&str; 3] = ["cwnd", "ssthresh", "mtu"];

/// Finds slow start that HyStart ended far below the BDP.
pub(in crate::diagnose) fn early_exit(figures: &Figures) -> Option<Finding> {
    let exits = figures.counters.hystart_exits.filter(|exits| *exits > 0)?;
    let (threshold, needed) = low_threshold(figures)?;
    let summary =
        format!("slow start ended at {threshold} without a loss (HyStart); each stream needs {needed} in flight");
    let remedy = Remedy {
        command: "echo 0 > /sys/module/tcp_cubic/parameters/hystart   # or use bbr on this host".into(),
        host: Some(figures.sender.name.clone()),
    };
    Some(threshold_finding(figures, Cause::EarlyExit, summary, remedy, Confidence::High, threshold).with_exits(exits))
}

/// Finds values of earlier connections or of the route that start a connection slowly or limit its window.
pub(in crate::diagnose) fn route_metrics(figures: &Figures) -> Option<Finding> {
    let sender = figures.sender.facts.as_ref();
    let needed = figures.needed_in_flight();
    let mss = figures.streams.iter().map(|flow| flow.mss).max().unwrap_or(1448).max(1);
    let is_low = |segments: u64| {
        needed.is_some_and(|needed| (segments * u64::from(mss)) as f64 <= MAX_THRESHOLD * needed.0 as f64)
    };
    let is_slow = Shortfall::of(figures).is_some();
    if let Some(window) = route_window(figures).filter(|_| is_slow) {
        let name = &figures.receiver.name;
        let summary = format!(
            "the route to the other end on {name} sets window {}; each stream needs {} in flight",
            window.0,
            needed.unwrap_or_default()
        );
        let command = "ip route show table all | grep window   # remove the metric with ip route replace".to_owned();
        let remedy = Remedy { command, host: Some(name.clone()) };
        return Some(
            threshold_finding(figures, Cause::RouteMetrics, summary, remedy, Confidence::High, window).finding,
        );
    }
    let route = sender.and_then(|facts| facts.route.as_ref());
    let metric = METRICS.into_iter().find_map(|name| {
        let value = *route?.metrics.get(name)?;
        let limits = match name {
            "mtu" => is_slow && value <= MIN_ROUTE_MTU,
            // A metric that slows down the start of each connection counts also if this one became fast later.
            _ => is_low(value) && (is_slow || is_loss_based(figures)),
        };
        limits.then_some((name, value))
    });
    if let Some((name, value)) = metric {
        let summary = format!(
            "the route to the other end on {} sets {name} {value}, which is below the need of the path",
            figures.sender.name
        );
        let command = format!("ip route show table all | grep {name}   # remove the metric with ip route replace");
        let remedy = Remedy { command, host: Some(figures.sender.name.clone()) };
        let value = Bytes(if name == "mtu" { value } else { value * u64::from(mss) });
        return Some(threshold_finding(figures, Cause::RouteMetrics, summary, remedy, Confidence::High, value).finding);
    }
    Shortfall::of(figures)?;
    let stored =
        sender.and_then(|facts| facts.stored_metrics.as_ref()?.ssthresh_segments).filter(|at| is_low((*at).into()));
    let (threshold, confidence) = match stored {
        Some(segments) => (Bytes(u64::from(segments) * u64::from(mss)), Confidence::High),
        // No loss and no HyStart set the threshold, so the connection began with it.
        None if figures.counters.hystart_exits == Some(0) && is_loss_based(figures) => {
            (low_threshold(figures)?.0, Confidence::Medium)
        }
        None => return None,
    };
    let summary = format!(
        "a new connection starts with ssthresh {threshold}, which {} stored from an earlier connection; each stream needs {} in flight",
        figures.sender.name,
        needed.unwrap_or_default()
    );
    let remedy = Remedy {
        command: "ip tcp_metrics flush; sysctl -w net.ipv4.tcp_no_metrics_save=1".into(),
        host: Some(figures.sender.name.clone()),
    };
    Some(threshold_finding(figures, Cause::RouteMetrics, summary, remedy, confidence, threshold).finding)
}

/// Returns the largest window that the receiver's route lets it offer (ip-route(8): `window`), if the path needs more.
pub(in crate::diagnose) fn route_window(figures: &Figures) -> Option<Bytes> {
    let window = *figures.receiver.facts.as_ref()?.route.as_ref()?.metrics.get("window")?;
    let needed = figures.needed_in_flight()?;
    (window as f64 <= MAX_THRESHOLD * needed.0 as f64).then_some(Bytes(window))
}

/// Returns the first threshold without a loss and the need of the path, if the threshold is low and goodput is missing.
fn low_threshold(figures: &Figures) -> Option<(Bytes, Bytes)> {
    let (threshold, needed) = (figures.counters.threshold_without_loss?, figures.needed_in_flight()?);
    let slow = Shortfall::of(figures).is_some() && is_loss_based(figures);
    (slow && threshold as f64 <= MAX_THRESHOLD * needed.0 as f64).then_some((Bytes(threshold), needed))
}

/// Returns true for a congestion control whose growth is slow above the threshold. BBR sets a threshold that it ignores.
fn is_loss_based(figures: &Figures) -> bool {
    figures.streams.iter().all(|flow| ["cubic", "reno"].contains(&flow.sender_socket.congestion.as_str()))
}

struct ThresholdFinding {
    finding: Finding,
}

impl ThresholdFinding {
    fn with_exits(mut self, exits: u64) -> Finding {
        self.finding.evidence.extend(figures_map([("hystart_exits", json!(exits))]));
        self.finding
    }
}

fn threshold_finding(
    figures: &Figures,
    cause: Cause,
    summary: String,
    remedy: Remedy,
    confidence: Confidence,
    threshold: Bytes,
) -> ThresholdFinding {
    let predicted = match Shortfall::of(figures) {
        Some(_) => figures.possible_goodput(),
        None => Some(figures.steady_goodput()),
    };
    let mut finding = finding(figures, cause, summary, remedy, predicted);
    finding.confidence = Some(confidence);
    finding.evidence = figures_map([
        ("threshold_bytes", json!(threshold.0)),
        ("needed_bytes", json!(figures.needed_in_flight().map(|needed| needed.0))),
    ]);
    ThresholdFinding { finding }
}
