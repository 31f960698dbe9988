//! The receive window: too small, or unable to grow for want of a scale.

use serde_json::json;

use super::{Cause, Remedy, Evidence, Finding, Flow, finding};
use crate::plan;
use crate::units::{BitRate, Bytes, show_duration};
use crate::wire::test::Kernel;

/// Goodput must come this close to window / base RTT: bursts and the edges of intervals cost a few per cent.
const NEAR_LAW: f64 = 0.85;
/// A window that moves no more than this about its median stood still.
const STILL: f64 = 0.1;
/// RTT under load beyond this multiple of the base RTT means a queue: then the path is full, not the window.
const QUEUE: f64 = 1.2;
/// The largest window without scaling (RFC 9293).
const UNSCALED: u64 = 65_535;

/// Goodput is the window over the base RTT, while the congestion window is larger and the window stands still. Surer
/// than `rwnd_limited`, which says 27 % on a path of 539 ms that only the window limits (Linux 6.18).
pub(super) fn receive_window(evidence: &Evidence) -> Option<Finding> {
    let held = held(evidence)?;
    if evidence.flows.iter().any(|flow| !flow.window_scaling) && held.window <= UNSCALED * held.flows {
        return None;
    }
    let cap = Bytes(held.window).per(evidence.base_rtt);
    let each = if held.flows > 1 {
        format!("{} streams with {} each", held.flows, Bytes(held.window / held.flows))
    } else {
        Bytes(held.window).to_string()
    };
    let summary = format!(
        "{each} per {} RTT caps it at {cap}; the window stood still while cwnd was {:.1} times it",
        show_duration(evidence.base_rtt),
        held.cwnd as f64 / held.window as f64,
    );
    let mut finding = finding(evidence, Cause::ReceiveWindow, summary, cure(evidence), evidence.possible());
    finding.evidence = held.figures(evidence, cap);
    Some(finding)
}

/// The same, but the window could not be larger because no scale was negotiated.
pub(super) fn scale_absent(evidence: &Evidence) -> Option<Finding> {
    let held = held(evidence)?;
    if evidence.flows.iter().all(|flow| flow.window_scaling) {
        return None;
    }
    let cap = Bytes(UNSCALED * held.flows).per(evidence.base_rtt);
    let summary = format!(
        "without it no window is above {UNSCALED} B, which caps a stream at {} over {} RTT",
        Bytes(UNSCALED).per(evidence.base_rtt),
        show_duration(evidence.base_rtt),
    );
    let off = [&evidence.sender, &evidence.receiver]
        .into_iter()
        .find(|host| host.kernel.as_ref().is_some_and(|kernel| !kernel.window_scaling));
    let cure = match off {
        Some(host) => Remedy { command: "sysctl -w net.ipv4.tcp_window_scaling=1".into(), host: Some(host.name.clone()) },
        // Both offer it, and it did not arrive.
        None => Remedy {
            command: "tcpdump -vn 'tcp[tcpflags] & tcp-syn != 0'   # both ends offer wscale: find what strips it"
                .into(),
            host: Some(evidence.receiver.name.clone()),
        },
    };
    let mut finding = finding(evidence, Cause::WindowScaleAbsent, summary, cure, evidence.possible());
    finding.evidence = held.figures(evidence, cap);
    Some(finding)
}

/// The streams that their receive window holds.
pub(super) struct Held {
    pub(super) window: u64,
    cwnd: u64,
    flows: u64,
    goodput: u64,
}

/// Those streams together, if they carry most of the goodput and the path is not full.
pub(super) fn held(evidence: &Evidence) -> Option<Held> {
    if evidence.is_full() || evidence.base_rtt.is_zero() {
        return None;
    }
    let mut sum = Held { window: 0, cwnd: 0, flows: 0, goodput: 0 };
    for flow in evidence.flows.iter().filter(|flow| is_held(flow, evidence)) {
        sum.window += flow.snd_wnd.map_or(0, |window| window.median);
        sum.cwnd += flow.cwnd.0;
        sum.flows += 1;
        sum.goodput += flow.goodput.0;
    }
    let all: u64 = evidence.flows.iter().map(|flow| flow.goodput.0).sum();
    (sum.flows > 0 && sum.goodput * 2 > all).then_some(sum)
}

fn is_held(flow: &Flow, evidence: &Evidence) -> bool {
    let Some(window) = flow.snd_wnd.filter(|window| window.median > 0) else { return false };
    let law = Bytes(window.median).per(evidence.base_rtt).as_f64();
    let still = (window.most - window.least) as f64 <= STILL * window.median as f64;
    let queue = flow.rtt.as_secs_f64() > QUEUE * evidence.base_rtt.as_secs_f64();
    flow.goodput.as_f64() >= NEAR_LAW * law && still && !queue && flow.cwnd.0 >= window.median
}

impl Held {
    fn figures(
        &self,
        evidence: &Evidence,
        cap: BitRate,
    ) -> std::collections::BTreeMap<&'static str, serde_json::Value> {
        let busy: f64 = evidence.flows.iter().map(|flow| flow.busy.as_secs_f64()).sum();
        let limited: f64 = evidence.flows.iter().map(|flow| flow.rwnd_limited.as_secs_f64()).sum();
        let mut figures = std::collections::BTreeMap::from([
            ("receive_window_bytes", json!(self.window)),
            ("cwnd_bytes", json!(self.cwnd)),
            ("base_rtt_seconds", json!(evidence.base_rtt.as_secs_f64())),
            ("window_over_rtt_bits_per_second", json!(cap.0)),
            ("goodput_bits_per_second", json!(self.goodput)),
            ("streams", json!(self.flows)),
        ]);
        if busy > 0.0 {
            figures.insert("rwnd_limited_share", json!((limited / busy).min(1.0)));
        }
        figures
    }
}

/// Whoever made the window small is told how to make it large: a flag of this test, or the receiver's kernel.
fn cure(evidence: &Evidence) -> Remedy {
    let Some(flow) = evidence.flows.first() else { return Remedy { command: String::new(), host: None } };
    let twice = Bytes(flow.snd_wnd.map_or(0, |window| window.median).saturating_mul(2));
    let needed = evidence.needed().unwrap_or(twice);
    let socket = &flow.receiving;
    let flag = match (socket.window_asked_bytes, socket.rcvbuf_asked_bytes) {
        (Some(_), _) => Some("--window"),
        (None, Some(asked)) if asked <= socket.rcvbuf_granted_bytes => Some("--rcvbuf"),
        _ => None,
    };
    if let Some(flag) = flag {
        return evidence.again(&format!("{flag} {}", needed.0));
    }
    let host = Some(evidence.receiver.name.clone());
    let kernel = evidence.receiver.kernel.clone().unwrap_or(Kernel { moderate_rcvbuf: true, ..Kernel::default() });
    let command = match socket.rcvbuf_asked_bytes {
        Some(_) => format!("sysctl -w net.core.rmem_max={}", needed.0),
        None if !kernel.moderate_rcvbuf => "sysctl -w net.ipv4.tcp_moderate_rcvbuf=1".into(),
        None => autotuning("net.ipv4.tcp_rmem", kernel.tcp_rmem_bytes, needed),
    };
    Remedy { command, host }
}

/// The line that lets autotuning go far enough for `needed` in flight.
pub(super) fn autotuning(key: &str, [least, first, most]: [u64; 3], needed: Bytes) -> String {
    format!("sysctl -w {key}='{least} {first} {}'", plan::kernel_limit(needed).0.max(most))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::evidence::Spread;
    use super::super::{Steady, diagnose};
    use super::*;
    use crate::path::PathProfile;
    use crate::wire::test::SocketReport;
    use std::time::Duration;

    /// The ACTS path with half its BDP as the window, as measured on Linux 6.18.
    pub(crate) fn half_window() -> Evidence {
        let rtt = Duration::from_millis(539);
        let kernel = Kernel {
            rmem_max_bytes: 4 << 20,
            wmem_max_bytes: 4 << 20,
            tcp_rmem_bytes: [4096, 131_072, 6 << 20],
            tcp_wmem_bytes: [4096, 16_384, 64 << 20],
            moderate_rcvbuf: true,
            window_scaling: true,
            ..Kernel::default()
        };
        let host = |name: &str| super::super::Host {
            name: name.into(),
            kernel: Some(kernel.clone()),
            ..super::super::Host::default()
        };
        let goodput = BitRate(67_400_000);
        Evidence {
            path: Some(PathProfile::new(BitRate(135_000_000), rtt)),
            base_rtt: rtt,
            goodput,
            elapsed: Duration::from_secs(30),
            steady: Some(Steady { start: Duration::ZERO, end: Duration::from_secs(30), goodput }),
            omitted: None,
            probed_mtu: None,
            intervals: 30,
            interval: Duration::from_secs(1),
            sender: host("near.example"),
            receiver: host("far.example"),
            far: "far.example".into(),
            again: "far.example".into(),
            at_once: false,
            one_host: false,
            no_gso: false,
            rate_limit: None,
            flows: vec![Flow {
                goodput,
                snd_wnd: Some(Spread { least: 4_547_840, median: 4_547_840, most: 4_547_840 }),
                cwnd: Bytes(6_000_000),
                rtt: Duration::from_millis(540),
                busy: Duration::from_secs(30),
                rwnd_limited: Duration::from_secs(9),
                sndbuf_limited: Duration::ZERO,
                window_scaling: true,
                sending: SocketReport::default(),
                receiving: SocketReport { window_asked_bytes: Some(Bytes(4_547_813)), ..SocketReport::default() },
                ..Flow::default()
            }],
        }
    }

    fn names(evidence: &Evidence) -> Vec<&'static str> {
        diagnose(evidence).iter().map(|finding| finding.cause.name()).collect()
    }

    #[test]
    fn a_held_window_is_named_with_its_arithmetic() {
        let findings = diagnose(&half_window());
        assert_eq!(findings[0].cause, Cause::ReceiveWindow);
        assert_eq!(
            findings[0].summary,
            "4.548 MB per 539 ms RTT caps it at 67.5 Mb/s; the window stood still while cwnd was 1.3 times it"
        );
        assert_eq!(findings[0].cure.to_string(), "lfn test far.example --window 9095625");
        assert_eq!(findings[0].predicted, Some(BitRate(129_114_927)));
        assert_eq!(findings[0].evidence["rwnd_limited_share"], json!(0.3));
    }

    #[test]
    fn autotuning_that_ends_too_early_is_cured_in_the_receivers_kernel() {
        let mut evidence = half_window();
        evidence.flows[0].receiving.window_asked_bytes = None;
        let cure = diagnose(&evidence)[0].cure.clone();
        assert_eq!(cure.host.as_deref(), Some("far.example"));
        assert!(cure.command.starts_with("sysctl -w net.ipv4.tcp_rmem='4096 131072 "), "{cure}");
        evidence.receiver.kernel.as_mut().unwrap().moderate_rcvbuf = false;
        assert_eq!(diagnose(&evidence)[0].cure.command, "sysctl -w net.ipv4.tcp_moderate_rcvbuf=1");
    }

    #[test]
    fn near_misses_are_no_receive_window() {
        type Change = fn(&mut Evidence);
        let cases: [(&str, Change); 6] = [
            ("goodput far below window over RTT", |e| {
                e.flows[0].goodput = BitRate(40_000_000);
                e.steady = e.steady.map(|steady| Steady { goodput: BitRate(40_000_000), ..steady });
            }),
            ("cwnd below the window", |e| e.flows[0].cwnd = Bytes(4_000_000)),
            ("a window that moves", |e| {
                e.flows[0].snd_wnd = Some(Spread { least: 2_000_000, median: 4_547_840, most: 4_547_840 });
            }),
            ("a queue on the way", |e| e.flows[0].rtt = Duration::from_millis(800)),
            ("a full path", |e| e.path = Some(PathProfile::new(BitRate(70_000_000), e.base_rtt))),
            ("a kernel that does not tell", |e| e.flows[0].snd_wnd = None),
        ];
        for (what, change) in cases {
            let mut evidence = half_window();
            change(&mut evidence);
            assert_eq!(names(&evidence).iter().find(|name| **name == "receive window"), None, "{what}");
        }
    }

    #[test]
    fn without_capacity_the_window_is_still_the_finding_but_the_gain_is_not_known() {
        let mut evidence = half_window();
        evidence.path = None;
        let finding = &diagnose(&evidence)[0];
        assert_eq!((finding.cause, finding.gain), (Cause::ReceiveWindow, None));
        assert_eq!(finding.cure.to_string(), "lfn test far.example --window 9095680");
    }

    #[test]
    fn many_streams_held_alike_are_one_finding() {
        let mut evidence = half_window();
        let mut flow = evidence.flows[0].clone();
        flow.goodput = BitRate(16_850_000);
        flow.snd_wnd = Some(Spread { least: 1_136_960, median: 1_136_960, most: 1_136_960 });
        flow.cwnd = Bytes(2_000_000);
        evidence.flows = vec![flow; 4];
        let finding = &diagnose(&evidence)[0];
        assert_eq!(finding.cause, Cause::ReceiveWindow);
        assert!(finding.summary.starts_with("4 streams with 1.137 MB each per 539 ms"), "{}", finding.summary);
        // One of the four does not make a finding.
        for flow in &mut evidence.flows[1..] {
            flow.cwnd = Bytes(1_000_000);
        }
        assert_eq!(names(&evidence), [] as [&str; 0]);
    }

    #[test]
    fn a_window_without_scale_names_the_kernel_that_does_not_offer_it() {
        let mut evidence = half_window();
        evidence.path = Some(PathProfile::new(BitRate(135_000_000), Duration::from_millis(40)));
        evidence.base_rtt = Duration::from_millis(40);
        let goodput = BitRate(12_900_000);
        evidence.steady = evidence.steady.map(|steady| Steady { goodput, ..steady });
        let flow = &mut evidence.flows[0];
        flow.goodput = goodput;
        flow.rtt = Duration::from_millis(40);
        flow.snd_wnd = Some(Spread { least: 65_535, median: 65_535, most: 65_535 });
        flow.cwnd = Bytes(100_000);
        flow.receiving = SocketReport::default();
        assert_eq!(names(&evidence), ["receive window"], "scale 0, but negotiated");
        evidence.flows[0].window_scaling = false;
        evidence.receiver.kernel.as_mut().unwrap().window_scaling = false;
        let findings = diagnose(&evidence);
        assert_eq!(findings.iter().map(|f| f.cause).collect::<Vec<_>>(), [Cause::WindowScaleAbsent]);
        assert_eq!(findings[0].cure.to_string(), "sysctl -w net.ipv4.tcp_window_scaling=1   (on far.example)");
        assert!(findings[0].summary.contains("13.11 Mb/s over 40 ms"), "{}", findings[0].summary);
        evidence.receiver.kernel.as_mut().unwrap().window_scaling = true;
        assert!(diagnose(&evidence)[0].cure.command.starts_with("tcpdump"));
    }
}
