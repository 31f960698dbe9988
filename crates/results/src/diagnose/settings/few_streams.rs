//! Few streams: random loss limits each stream, and the sender has no congestion control that tolerates loss.

use lfn_base::tcp_model::{self, Congestion, FlowParameters};
use lfn_base::units::BitRate;
use serde_json::json;

use crate::diagnose::network::loss_kind;
use crate::diagnose::{Cause, Confidence, Finding, figures_map, finding};
use crate::evidence::figures::Figures;

/// Maximum streams of the remedy: more would be unfair to others, and need more than one CPU.
pub(in crate::diagnose) const MAX_STREAMS: u32 = 32;
/// Minimum predicted goodput with more streams over the goodput.
pub(in crate::diagnose) const MIN_GAIN_FACTOR: f64 = 1.5;

/// Finds a loss that limits each stream by itself, if BBR is not available.
pub(in crate::diagnose) fn too_few_streams(figures: &Figures) -> Option<Finding> {
    let path = figures.path?;
    if has_bbr(figures) {
        return None;
    }
    let loss = loss_kind::random_loss(figures).or_else(|| loss_kind::loss(figures))?;
    let lost = loss.evidence.get("lost_share")?.as_f64()?;
    let (now, goodput) = (figures.stream_count().max(1), figures.steady_goodput());
    // Loss limits each stream, not their sum (Mathis et al. 1997).
    let each = goodput.as_f64() / f64::from(now);
    let wanted = (path.payload_capacity().as_f64() * (1.0 - lost) / each.max(1.0)).ceil();
    let streams = (wanted.min(f64::from(MAX_STREAMS)) as u32).max(now);
    let bbr = FlowParameters { streams, congestion: Congestion::Bbr, ..FlowParameters::default() };
    let most = tcp_model::predict_steady(&path, &bbr).goodput.as_f64();
    let predicted = BitRate((each * f64::from(streams)).min(most) as u64);
    if streams <= now || predicted.as_f64() < MIN_GAIN_FACTOR * goodput.as_f64() {
        return None;
    }
    let summary = format!(
        "the loss of {:.2} % limits each stream to {}, and {} has no bbr: {streams} streams have more goodput together",
        lost * 100.0,
        BitRate(each as u64),
        figures.sender.name
    );
    let remedy = figures.repeat_command(&format!("--streams {streams}"));
    let mut finding = finding(figures, Cause::StreamCount, summary, remedy, Some(predicted));
    finding.confidence = Some(Confidence::Medium);
    finding.evidence = figures_map([
        ("streams", json!(now)),
        ("needed_streams", json!(streams)),
        ("lost_share", json!(lost)),
        ("goodput_of_a_stream_bits_per_second", json!(each as u64)),
    ]);
    Some(finding)
}

/// Returns true if the sender has BBR, or if this is unknown.
fn has_bbr(figures: &Figures) -> bool {
    let is_bbr = |name: &String| name.starts_with("bbr");
    if figures.streams.iter().any(|flow| is_bbr(&flow.sender_socket.congestion)) {
        return true;
    }
    let facts = figures.sender.facts.as_ref().filter(|facts| !facts.congestion_available.is_empty());
    facts.is_none_or(|facts| facts.congestion_available.iter().any(is_bbr))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::host::tests::half_goodput;
    use crate::evidence::figures::{SendTotals, SteadyPart};
    use crate::host::facts::HostFacts;

    /// A test of CUBIC at a tenth of 135 Mb/s and 539 ms with this loss, on a host with these congestion controls.
    fn lossy(lost_bytes: u64, available: &[&str]) -> Figures {
        let mut figures = half_goodput();
        let goodput = BitRate(800_000);
        (figures.goodput, figures.streams[0].goodput) = (goodput, goodput);
        figures.steady = figures.steady.map(|steady| SteadyPart { goodput, ..steady });
        figures.streams[0].mss = 1448;
        figures.streams[0].sender_socket.congestion = "cubic".into();
        figures.streams[0].sent =
            Some(SendTotals { sent_bytes: 10_000_000, resent_bytes: lost_bytes, ..SendTotals::default() });
        let congestion_available = available.iter().map(|name| (*name).to_owned()).collect();
        figures.sender.facts = Some(HostFacts { congestion_available, ..HostFacts::default() });
        figures
    }

    #[test]
    fn loss_without_bbr_needs_more_streams() {
        let found = too_few_streams(&lossy(100_000, &["reno", "cubic"])).unwrap();
        assert_eq!(found.cause(), Some(Cause::StreamCount));
        assert!(found.remedy.command.ends_with("--streams 32"), "{}", found.remedy.command);
        assert_eq!(found.predicted, Some(BitRate(800_000 * 32)));
    }

    #[test]
    fn streams_are_enough_with_bbr_or_without_loss() {
        assert_eq!(too_few_streams(&lossy(100_000, &["reno", "cubic", "bbr"])), None, "BBR is the remedy");
        assert_eq!(too_few_streams(&lossy(0, &["reno", "cubic"])), None, "no loss");
        assert_eq!(too_few_streams(&lossy(100_000, &[])), None, "unknown congestion controls");
        let mut full = lossy(100_000, &["reno", "cubic"]);
        full.steady = full.steady.map(|steady| SteadyPart { goodput: BitRate(130_000_000), ..steady });
        assert_eq!(too_few_streams(&full), None, "full path");
    }
}
