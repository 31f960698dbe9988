//! MTU black hole: the path drops packets above a size, and no router reports this to the sender.

use lfn_base::units::BitRate;
use serde_json::json;

use super::{Cause, Confidence, Finding, Remedy, figures_map, finding};
use crate::evidence::figures::Figures;
use crate::prediction::MSS_HEADERS;

/// MTU of Ethernet, bytes: usual size of the packets of TCP if the load has no figures.
const ETHERNET_MTU: u32 = 1500;

/// Finds a path MTU that probes show, that no ICMP message reports, and that is below the packets of TCP.
pub(super) fn black_hole(figures: &Figures) -> Option<Finding> {
    let passed = figures.black_hole?;
    // A load without any data has no figures of its streams. TCP then sends packets of the interface's size.
    let path_mtu = figures.streams.iter().map(|flow| flow.pmtu).max().unwrap_or(ETHERNET_MTU);
    let segment = figures.streams.iter().map(|flow| flow.mss).max().unwrap_or(ETHERNET_MTU);
    // TCP has found the size with its own probes (RFC 4821), or its peer offered small segments.
    if path_mtu <= passed || segment.saturating_add(MSS_HEADERS) <= passed {
        return None;
    }
    let summary = format!(
        "probes of more than {passed} B get lost without an ICMP message, and TCP sends packets of {path_mtu} B; the \
         goodput was {}",
        figures.steady_goodput()
    );
    let command = "sysctl -w net.ipv4.tcp_mtu_probing=1   # permanent: let the firewalls pass ICMP (RFC 4890)";
    let remedy = Remedy { command: command.to_owned(), host: Some(figures.sender.name.clone()) };
    let predicted = figures.possible_goodput().map(|possible| {
        let smaller =
            f64::from(passed.saturating_sub(MSS_HEADERS)) / f64::from(path_mtu.saturating_sub(MSS_HEADERS).max(1));
        BitRate((possible.as_f64() * smaller.min(1.0)) as u64)
    });
    let mut finding = finding(figures, Cause::BlackHole, summary, remedy, predicted);
    finding.confidence = Some(Confidence::High);
    finding.evidence = figures_map([
        ("largest_passed_bytes", json!(passed)),
        ("tcp_path_mtu_bytes", json!(path_mtu)),
        ("goodput_bits_per_second", json!(figures.steady_goodput().0)),
    ]);
    Some(finding)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::{diagnose_figures, half_bdp_window};

    /// A test over a path that drops packets above 1300 B. TCP knows a path MTU of `pmtu`.
    fn dropped(pmtu: u32) -> Figures {
        let mut figures = half_bdp_window();
        (figures.black_hole, figures.probed_mtu) = (Some(1300), Some(1300));
        (figures.goodput, figures.steady) = (BitRate(0), None);
        for flow in &mut figures.streams {
            (flow.mss, flow.pmtu, flow.snd_wnd, flow.goodput) = (pmtu - 52, pmtu, None, BitRate(0));
        }
        figures
    }

    #[test]
    fn black_hole_below_the_packets_of_tcp_is_the_first_finding() {
        let diagnosis = diagnose_figures(&dropped(1500));
        let first = &diagnosis.findings[0];
        assert_eq!(first.cause(), Some(Cause::BlackHole), "{:?}", diagnosis.findings);
        assert!(first.remedy.command.starts_with("sysctl -w net.ipv4.tcp_mtu_probing=1"), "{}", first.remedy.command);
        assert!(first.gain.is_some_and(|gain| gain.0 > 100_000_000), "{:?}", first.gain);
    }

    #[test]
    fn tcp_that_knows_the_size_has_no_black_hole() {
        assert!(black_hole(&dropped(1300)).is_none());
        let mut clean = dropped(1500);
        clean.black_hole = None;
        assert!(black_hole(&clean).is_none());
        let without_data = Figures { streams: Vec::new(), ..dropped(1500) };
        assert!(black_hole(&without_data).is_some(), "the load failed");
    }
}
