//! Receive window: a window that is too small, or that cannot grow without window scaling.

use std::collections::BTreeMap;
use std::time::Duration;

use lfn_base::plan;
use lfn_base::plan::streams::MAX_AUTO_STREAMS;
use lfn_base::units::{BitRate, Bytes, show_duration};
use serde_json::{Value, json};

use super::network::delivery::varies_from_packet_to_packet;
use super::network::dips;
use super::settings::thresholds::route_window;
use super::{Cause, Finding, Remedy, figures_map, finding};
use crate::evidence::LoadKind;
use crate::evidence::figures::{Figures, StreamFigures};
use crate::measure::Kernel;

/// Minimum goodput as a share of window / base RTT: bursts and interval edges cost a few per cent.
pub(super) const MIN_SHARE_OF_WINDOW_RATE: f64 = 0.85;
/// Maximum change of a constant window, as a share of its median.
pub(super) const MAX_WINDOW_CHANGE: f64 = 0.1;
/// Maximum RTT under load in base RTTs: above it, a queue shows that the path is full.
pub(super) const MAX_RTT_FACTOR: f64 = 1.2;
/// Added to this RTT: wake-ups of both hosts.
const RTT_MARGIN: Duration = Duration::from_micros(500);
/// Minimum goodput of the streams that their window limits, as a share of the goodput of all streams.
pub(super) const MIN_GOODPUT_SHARE: f64 = 0.5;
/// Maximum window without scaling in bytes (RFC 9293).
pub(super) const MAX_UNSCALED_WINDOW: u64 = 65_535;

/// Finds a goodput that is equal to the window divided by the base RTT, with a larger congestion window and a constant
/// window. This sign is more reliable than `rwnd_limited`, which is 27 % on a path of 539 ms that only the window
/// limits (Linux 6.18).
pub(super) fn receive_window(figures: &Figures) -> Option<Finding> {
    let held = window_limited(figures)?;
    if figures.streams.iter().any(|flow| !flow.window_scaling) && held.window <= MAX_UNSCALED_WINDOW * held.streams {
        return None;
    }
    let cap = Bytes(held.window).per(figures.base_rtt);
    let each = if held.streams > 1 {
        format!("{} streams with {} each", held.streams, Bytes(held.window / held.streams))
    } else {
        Bytes(held.window).to_string()
    };
    let summary = format!(
        "{each} per {} RTT = {cap}; the window was constant, and cwnd was {:.1} times as large",
        show_duration(figures.base_rtt),
        held.cwnd as f64 / held.window as f64,
    );
    let mut finding = finding(figures, Cause::ReceiveWindow, summary, remedy(figures), figures.possible_goodput());
    finding.evidence = held.evidence_map(figures, cap);
    Some(finding)
}

/// Finds a window that is limited because no scale was negotiated.
pub(super) fn scale_absent(figures: &Figures) -> Option<Finding> {
    let held = window_limited(figures)?;
    if figures.streams.iter().all(|flow| flow.window_scaling) {
        return None;
    }
    let cap = Bytes(MAX_UNSCALED_WINDOW * held.streams).per(figures.base_rtt);
    let summary = format!(
        "without window scaling, the maximum window is {MAX_UNSCALED_WINDOW} B, which limits a stream to {} over {} RTT",
        Bytes(MAX_UNSCALED_WINDOW).per(figures.base_rtt),
        show_duration(figures.base_rtt),
    );
    let off = [&figures.sender, &figures.receiver]
        .into_iter()
        .find(|host| host.kernel.as_ref().is_some_and(|kernel| !kernel.window_scaling));
    let remedy = match off {
        Some(host) => {
            Remedy { command: "sysctl -w net.ipv4.tcp_window_scaling=1".into(), host: Some(host.name.clone()) }
        }
        // Both ends offer window scaling, but the option did not arrive.
        None => Remedy {
            command:
                "tcpdump -vn 'tcp[tcpflags] & tcp-syn != 0'   # both ends offer wscale: find the host that removes it"
                    .into(),
            host: Some(figures.receiver.name.clone()),
        },
    };
    let mut finding = finding(figures, Cause::WindowScaleAbsent, summary, remedy, figures.possible_goodput());
    finding.evidence = held.evidence_map(figures, cap);
    Some(finding)
}

/// Sums of the streams that their receive window limits.
pub(super) struct WindowLimited {
    pub(super) window: u64,
    cwnd: u64,
    streams: u64,
    goodput: u64,
}

/// Returns these streams' sums if they carry most of the goodput and the path is not full.
pub(super) fn window_limited(figures: &Figures) -> Option<WindowLimited> {
    // The route of the receiver limits the window: that is another cause.
    if figures.is_full() || figures.base_rtt.is_zero() || route_window(figures).is_some() {
        return None;
    }
    let mut sum = WindowLimited { window: 0, cwnd: 0, streams: 0, goodput: 0 };
    for flow in figures.streams.iter().filter(|flow| is_window_limited(flow, figures)) {
        sum.window += flow.snd_wnd.map_or(0, |window| window.median);
        sum.cwnd += flow.cwnd.0;
        sum.streams += 1;
        sum.goodput += flow.goodput.0;
    }
    let all: u64 = figures.streams.iter().map(|flow| flow.goodput.0).sum();
    (sum.streams > 0 && sum.goodput as f64 > MIN_GOODPUT_SHARE * all as f64).then_some(sum)
}

fn is_window_limited(flow: &StreamFigures, figures: &Figures) -> bool {
    let Some(window) = flow.snd_wnd.filter(|window| window.median > 0) else { return false };
    // One window passes in each round trip, so a longer RTT under load has less.
    let rtt = flow.rtt.max(figures.base_rtt);
    let law = Bytes(window.median).per(rtt).as_f64();
    let risen = rtt > figures.base_rtt.mul_f64(MAX_RTT_FACTOR) + RTT_MARGIN;
    // Jitter makes the RTT longer without a queue.
    let queue = risen && !varies_from_packet_to_packet(figures);
    // Outages lower the mean.
    let peak = figures.course.peak().filter(|_| figures.streams.len() == 1 && dips::outages(figures).is_some());
    let goodput = peak.unwrap_or_default().max(flow.goodput).as_f64();
    // The data behind the losses of an outage takes a part of the window.
    let usual_min = if peak.is_some() { window.median } else { window.min };
    let later_max = flow.later_max_wnd.unwrap_or(window.max);
    let still = later_max.saturating_sub(usual_min) as f64 <= MAX_WINDOW_CHANGE * window.median as f64;
    goodput >= MIN_SHARE_OF_WINDOW_RATE * law && still && !queue && flow.cwnd.0 >= window.median
}

impl WindowLimited {
    fn evidence_map(&self, figures: &Figures, cap: BitRate) -> BTreeMap<String, Value> {
        let busy: f64 = figures.streams.iter().map(|flow| flow.busy.as_secs_f64()).sum();
        let limited: f64 = figures.streams.iter().map(|flow| flow.rwnd_limited.as_secs_f64()).sum();
        let mut map = figures_map([
            ("receive_window_bytes", json!(self.window)),
            ("cwnd_bytes", json!(self.cwnd)),
            ("base_rtt_seconds", json!(figures.base_rtt.as_secs_f64())),
            ("window_over_rtt_bits_per_second", json!(cap.0)),
            ("goodput_bits_per_second", json!(self.goodput)),
            ("streams", json!(self.streams)),
        ]);
        if busy > 0.0 {
            map.extend(figures_map([("rwnd_limited_share", json!((limited / busy).min(1.0)))]));
        }
        map
    }
}

/// Returns the remedy: a flag of the test if the user set the window, else a sysctl of the receiver.
fn remedy(figures: &Figures) -> Remedy {
    let Some(flow) = figures.streams.first() else { return Remedy { command: String::new(), host: None } };
    let twice = Bytes(flow.snd_wnd.map_or(0, |window| window.median).saturating_mul(2));
    let needed = figures.needed_in_flight().unwrap_or(twice);
    let socket = &flow.receiver_socket;
    let flag = match (socket.window_requested_bytes, socket.rcvbuf_requested_bytes) {
        (Some(_), _) => Some("--window"),
        (None, Some(requested)) if requested <= socket.rcvbuf_granted_bytes => Some("--rcvbuf"),
        _ => None,
    };
    if let Some(flag) = flag {
        return figures.repeat_command(&format!("{flag} {}", needed.0));
    }
    // A receiver of a copy that does not report its kernel: more streams have more windows.
    if figures.kind == LoadKind::Copy && figures.receiver.kernel.is_none() {
        let streams = u64::from(figures.stream_count()).saturating_mul(needed.0.div_ceil(twice.0.max(2) / 2));
        return figures.repeat_command(&format!("--streams {}", streams.clamp(2, MAX_AUTO_STREAMS.into())));
    }
    let host = Some(figures.receiver.name.clone());
    let kernel = figures.receiver.kernel.clone().unwrap_or(Kernel { moderate_rcvbuf: true, ..Kernel::default() });
    let command = match socket.rcvbuf_requested_bytes {
        Some(_) => format!("sysctl -w net.core.rmem_max={}", needed.0),
        None if !kernel.moderate_rcvbuf => "sysctl -w net.ipv4.tcp_moderate_rcvbuf=1".into(),
        None => autotuning_command("net.ipv4.tcp_rmem", kernel.tcp_rmem_bytes, needed),
    };
    Remedy { command, host }
}

/// Returns the command that lets autotuning reach `needed` bytes in flight.
pub(super) fn autotuning_command(key: &str, [least, first, most]: [u64; 3], needed: Bytes) -> String {
    format!("sysctl -w {key}='{least} {first} {}'", plan::kernel_limit(needed).0.max(most))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use lfn_base::path::PathProfile;

    use super::super::rule_findings;
    use super::*;
    use crate::evidence::figures::{Course, DatagramFigures, IntervalFigures, PathCounters, Spread, SteadyPart};
    use crate::evidence::{LoadKind, TypedArgument};
    use crate::measure::{SocketReport, TestDirection};

    /// The ACTS path with a window of half its BDP, as measured on Linux 6.18.
    pub(crate) fn half_bdp_window() -> Figures {
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
        let host = |name: &str| crate::evidence::figures::HostFigures {
            name: name.into(),
            kernel: Some(kernel.clone()),
            ..crate::evidence::figures::HostFigures::default()
        };
        let goodput = BitRate(67_400_000);
        Figures {
            kind: LoadKind::Tcp,
            direction: TestDirection::Forward,
            datagrams: DatagramFigures::default(),
            copy: None,
            capture: None,
            couple: None,
            outage: None,
            course: Course::default(),
            counters: PathCounters::default(),
            trains: None,
            handshake_rtt: rtt,
            message_rtt: None,
            probe_rtt: None,
            silences: Vec::new(),
            idle_rtt: None,
            path: Some(PathProfile::new(BitRate(135_000_000), rtt)),
            is_capacity_measured: false,
            base_rtt: rtt,
            goodput,
            elapsed: Duration::from_secs(30),
            steady: Some(SteadyPart { start: Duration::ZERO, end: Duration::from_secs(30), goodput }),
            omit: None,
            probed_mtu: None,
            black_hole: None,
            intervals: 30,
            interval: Duration::from_secs(1),
            sender: host("near.example"),
            receiver: host("far.example"),
            far: "far.example".into(),
            arguments: vec![TypedArgument { flag: None, text: "far.example".into() }],
            is_tuned: false,
            bidirectional: false,
            is_one_host: false,
            no_gso: false,
            rate_limit: None,
            lockstep: None,
            streams: vec![StreamFigures {
                goodput,
                snd_wnd: Some(Spread { min: 4_547_840, median: 4_547_840, max: 4_547_840 }),
                cwnd: Bytes(6_000_000),
                rtt: Duration::from_millis(540),
                busy: Duration::from_secs(30),
                rwnd_limited: Duration::from_secs(9),
                sndbuf_limited: Duration::ZERO,
                window_scaling: true,
                sender_socket: SocketReport::default(),
                receiver_socket: SocketReport {
                    window_requested_bytes: Some(Bytes(4_547_813)),
                    ..SocketReport::default()
                },
                ..StreamFigures::default()
            }],
        }
    }

    fn names(figures: &Figures) -> Vec<&'static str> {
        rule_findings(figures).iter().map(|finding| finding.cause().unwrap().name()).collect()
    }

    #[test]
    fn a_limiting_window_is_found_with_its_arithmetic() {
        let findings = rule_findings(&half_bdp_window());
        assert_eq!(findings[0].cause(), Some(Cause::ReceiveWindow));
        assert_eq!(
            findings[0].summary,
            "4.548 MB per 539 ms RTT = 67.5 Mb/s; the window was constant, and cwnd was 1.3 times as large"
        );
        assert_eq!(findings[0].remedy.to_string(), "lfn test far.example --window 9095625");
        assert_eq!(findings[0].predicted, Some(BitRate(129_114_927)));
        assert_eq!(findings[0].evidence["rwnd_limited_share"], json!(0.3));
    }

    #[test]
    fn low_autotuning_has_a_remedy_on_the_receiver() {
        let mut figures = half_bdp_window();
        figures.streams[0].receiver_socket.window_requested_bytes = None;
        let remedy = rule_findings(&figures)[0].remedy.clone();
        assert_eq!(remedy.host.as_deref(), Some("far.example"));
        assert!(remedy.command.starts_with("sysctl -w net.ipv4.tcp_rmem='4096 131072 "), "{remedy}");
        figures.receiver.kernel.as_mut().unwrap().moderate_rcvbuf = false;
        assert_eq!(rule_findings(&figures)[0].remedy.command, "sysctl -w net.ipv4.tcp_moderate_rcvbuf=1");
    }

    #[test]
    fn near_misses_are_no_receive_window_limit() {
        type Change = fn(&mut Figures);
        let cases: [(&str, Change); 6] = [
            ("goodput far below window over RTT", |e| {
                e.streams[0].goodput = BitRate(40_000_000);
                e.steady = e.steady.map(|steady| SteadyPart { goodput: BitRate(40_000_000), ..steady });
            }),
            ("cwnd below the window", |e| e.streams[0].cwnd = Bytes(4_000_000)),
            ("a window that moves", |e| {
                e.streams[0].snd_wnd = Some(Spread { min: 2_000_000, median: 4_547_840, max: 4_547_840 });
            }),
            ("a queue on the way", |e| e.streams[0].rtt = Duration::from_millis(800)),
            ("a full path", |e| e.path = Some(PathProfile::new(BitRate(70_000_000), e.base_rtt))),
            ("a kernel without this figure", |e| e.streams[0].snd_wnd = None),
        ];
        for (name, change) in cases {
            let mut figures = half_bdp_window();
            change(&mut figures);
            assert_eq!(names(&figures).iter().find(|name| **name == "receive window"), None, "{name}");
        }
    }

    #[test]
    fn a_larger_window_at_the_start_is_no_change() {
        let mut figures = half_bdp_window();
        let flow = &mut figures.streams[0];
        flow.snd_wnd = flow.snd_wnd.map(|window| Spread { max: 6_000_000, ..window });
        assert!(!names(&figures).contains(&"receive window"));
        figures.streams[0].later_max_wnd = Some(4_547_840);
        assert_eq!(names(&figures), ["receive window"]);
    }

    #[test]
    fn jitter_makes_the_round_trips_of_a_window_longer() {
        let mut figures = half_bdp_window();
        let goodput = BitRate(45_000_000);
        figures.steady = figures.steady.map(|steady| SteadyPart { goodput, ..steady });
        (figures.streams[0].goodput, figures.streams[0].rtt) = (goodput, Duration::from_millis(800));
        assert!(!names(&figures).contains(&"receive window"), "a queue");
        let interval = |number: u32| IntervalFigures {
            start: Duration::from_secs(number.into()),
            end: Duration::from_secs((number + 1).into()),
            goodput,
            rtt: Duration::from_millis(800),
            rtt_deviation: Duration::from_millis(60),
            ..IntervalFigures::default()
        };
        figures.course = Course { intervals: (0..30).map(interval).collect(), start_up: 1 };
        assert!(names(&figures).contains(&"receive window"));
    }

    #[test]
    fn without_capacity_the_window_has_an_unknown_gain() {
        let mut figures = half_bdp_window();
        figures.path = None;
        let finding = &rule_findings(&figures)[0];
        assert_eq!((finding.cause(), finding.gain), (Some(Cause::ReceiveWindow), None));
        assert_eq!(finding.remedy.to_string(), "lfn test far.example --window 9095680");
    }

    #[test]
    fn many_limited_streams_are_one_finding() {
        let mut figures = half_bdp_window();
        let mut flow = figures.streams[0].clone();
        flow.goodput = BitRate(16_850_000);
        flow.snd_wnd = Some(Spread { min: 1_136_960, median: 1_136_960, max: 1_136_960 });
        flow.cwnd = Bytes(2_000_000);
        figures.streams = vec![flow; 4];
        let finding = &rule_findings(&figures)[0];
        assert_eq!(finding.cause(), Some(Cause::ReceiveWindow));
        assert!(finding.summary.starts_with("4 streams with 1.137 MB each per 539 ms"), "{}", finding.summary);
        // One of the four streams is not enough for a finding.
        for flow in &mut figures.streams[1..] {
            flow.cwnd = Bytes(1_000_000);
        }
        assert_eq!(names(&figures), [] as [&str; 0]);
    }

    #[test]
    fn missing_scaling_names_the_kernel_that_lacks_it() {
        let mut figures = half_bdp_window();
        figures.path = Some(PathProfile::new(BitRate(135_000_000), Duration::from_millis(40)));
        figures.base_rtt = Duration::from_millis(40);
        let goodput = BitRate(12_900_000);
        figures.steady = figures.steady.map(|steady| SteadyPart { goodput, ..steady });
        let flow = &mut figures.streams[0];
        flow.goodput = goodput;
        flow.rtt = Duration::from_millis(40);
        flow.snd_wnd = Some(Spread { min: 65_535, median: 65_535, max: 65_535 });
        flow.cwnd = Bytes(100_000);
        flow.receiver_socket = SocketReport::default();
        assert_eq!(names(&figures), ["receive window"], "scale 0, but negotiated");
        figures.streams[0].window_scaling = false;
        figures.receiver.kernel.as_mut().unwrap().window_scaling = false;
        let findings = rule_findings(&figures);
        assert_eq!(findings.iter().filter_map(Finding::cause).collect::<Vec<_>>(), [Cause::WindowScaleAbsent]);
        assert_eq!(findings[0].remedy.to_string(), "sysctl -w net.ipv4.tcp_window_scaling=1   # on far.example");
        assert!(findings[0].summary.contains("13.11 Mb/s over 40 ms"), "{}", findings[0].summary);
        figures.receiver.kernel.as_mut().unwrap().window_scaling = true;
        assert!(rule_findings(&figures)[0].remedy.command.starts_with("tcpdump"));
    }
}
