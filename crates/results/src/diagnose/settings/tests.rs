//! Settings of the hosts: facts, counters and thresholds that limit a test, and those that do not.

use std::time::Duration;

use lfn_base::path::PathProfile;
use lfn_base::units::{BitRate, Bytes};

use super::congestion_fit::has_rare_losses;
use crate::diagnose::host::tests::half_goodput;
use crate::diagnose::window::tests::half_bdp_window;
use crate::diagnose::{Cause, Finding, diagnose_figures};
use crate::evidence::figures::{Figures, SendTotals, SteadyPart, WorkerTime};
use crate::host::facts::{ControlGroup, Duplex, HostFacts, InterfaceFacts, RouteFacts, TcpMetrics};
use crate::host::{Interface, QdiscCounters};

/// A test at half of the capacity of its path, 135 Mb/s at 539 ms, without a sign of a cause.
fn slow(congestion: &str) -> Figures {
    let mut figures = half_goodput();
    figures.streams[0].sender_socket.congestion = congestion.into();
    figures.streams[0].mss = 1448;
    figures
}

fn first(figures: &Figures) -> Finding {
    diagnose_figures(figures).findings.into_iter().next().expect("a finding")
}

fn causes(figures: &Figures) -> Vec<Cause> {
    diagnose_figures(figures).findings.iter().filter_map(Finding::cause).collect()
}

/// Sets the goodput in Mb/s of a test over a path of this capacity in Mb/s.
fn with_goodput(goodput: u64, capacity: u64) -> Figures {
    let mut figures = slow("cubic");
    let goodput = BitRate(goodput * 1_000_000);
    figures.path = Some(PathProfile::new(BitRate(capacity * 1_000_000), Duration::from_millis(40)));
    figures.base_rtt = Duration::from_millis(40);
    figures.streams[0].rtt = figures.base_rtt;
    figures.streams[0].goodput = goodput;
    figures.goodput = goodput;
    figures.steady = figures.steady.map(|steady| SteadyPart { goodput, ..steady });
    figures
}

#[test]
fn nothing_found_is_unexplained_with_the_excluded_causes() {
    let found = first(&slow("cubic"));
    assert_eq!(found.cause(), Some(Cause::Unexplained));
    let excluded = "excluded: receive window (0 % of the time), send buffer (0 % of the time), sending application (busy 100 %), \
                    CPU (6 % of a thread)";
    assert!(found.summary.contains(excluded), "{}", found.summary);
    assert!(found.confirmation.is_some_and(|step| step.contains("lfn test far.example --path")));
}

/// A small MTU explains a few per cent of a shortfall of one half.
#[test]
fn a_small_gain_does_not_explain_a_large_shortfall() {
    let mut figures = slow("cubic");
    figures.streams[0].pmtu = 1200;
    assert_eq!(causes(&figures), [Cause::Unexplained, Cause::SmallMtu]);
    // A queue costs no goodput.
    figures.streams[0].pmtu = 1500;
    figures.streams[0].rtt = figures.base_rtt * 3;
    assert_eq!(causes(&figures), [Cause::Unexplained, Cause::Queueing]);
}

#[test]
fn slow_start_does_not_explain_a_low_steady_part() {
    let mut figures = slow("cubic");
    figures.goodput = BitRate(40_000_000);
    figures.steady = figures.steady.map(|steady| SteadyPart { start: Duration::from_secs(8), ..steady });
    assert_eq!(causes(&figures), [Cause::Unexplained, Cause::StartUp]);
}

#[test]
fn a_low_threshold_is_hystart_or_a_stored_metric() {
    let mut figures = slow("cubic");
    figures.counters.threshold_without_loss = Some(500 * 1448);
    figures.counters.hystart_exits = Some(1);
    assert_eq!(causes(&figures), [Cause::EarlyExit]);
    figures.counters.hystart_exits = Some(0);
    assert_eq!(causes(&figures), [Cause::RouteMetrics]);
    // BBR sets a threshold that it does not use, and a threshold near the BDP is no limit.
    figures.streams[0].sender_socket.congestion = "bbr".into();
    assert_eq!(causes(&figures), [Cause::Unexplained]);
    figures.streams[0].sender_socket.congestion = "cubic".into();
    figures.counters.threshold_without_loss = Some(6000 * 1448);
    assert_eq!(causes(&figures), [Cause::Unexplained]);
}

#[test]
fn facts_name_stored_metrics_and_metrics_of_the_route() {
    let with = |facts: HostFacts| {
        let mut figures = slow("cubic");
        figures.sender.facts = Some(facts);
        first(&figures)
    };
    let metrics = TcpMetrics { ssthresh_segments: Some(20), ..TcpMetrics::default() };
    let stored = with(HostFacts { stored_metrics: Some(metrics), ..HostFacts::default() });
    assert_eq!(stored.cause(), Some(Cause::RouteMetrics));
    assert!(stored.remedy.command.starts_with("ip tcp_metrics flush"), "{}", stored.remedy);
    let route = RouteFacts { metrics: [("cwnd".to_owned(), 30)].into(), ..RouteFacts::default() };
    let of_route = with(HostFacts { route: Some(route), ..HostFacts::default() });
    assert!(of_route.summary.contains("near.example sets cwnd 30"), "{}", of_route.summary);
    let large = TcpMetrics { ssthresh_segments: Some(20_000), ..TcpMetrics::default() };
    let found = with(HostFacts { stored_metrics: Some(large), ..HostFacts::default() });
    assert_eq!(found.cause(), Some(Cause::Unexplained));
}

#[test]
fn a_full_link_below_the_capacity_is_the_limit() {
    let with = |rate: u64, kind: Option<String>| {
        let mut figures = with_goodput(94, 1000);
        let interface = figures.receiver.interface.as_mut().unwrap();
        (interface.rate, interface.kind) = (Some(BitRate(rate * 1_000_000)), kind);
        causes(&figures)[0]
    };
    assert_eq!(with(100, None), Cause::LinkRate);
    assert_eq!(with(1000, None), Cause::Unexplained);
    assert_eq!(with(200, None), Cause::Unexplained, "half of the link");
    assert_eq!(with(100, Some("veth".into())), Cause::Unexplained, "a virtual interface has no rate");
}

#[test]
fn half_duplex_is_a_fact() {
    let duplex = |duplex| {
        let mut figures = with_goodput(40, 100);
        let interface = InterfaceFacts { name: "eth0".into(), duplex: Some(duplex), ..InterfaceFacts::default() };
        figures.receiver.facts = Some(HostFacts { interface: Some(interface), ..HostFacts::default() });
        causes(&figures)[0]
    };
    assert_eq!((duplex(Duplex::Half), duplex(Duplex::Full)), (Cause::HalfDuplex, Cause::Unexplained));
}

#[test]
fn a_quota_and_memory_pressure_limit_a_host() {
    let mut figures = slow("cubic");
    figures.sender.memory_pressures = Some(2);
    assert_eq!(causes(&figures), [Cause::Memory]);
    figures.sender.memory_pressures = Some(0);
    let group = ControlGroup { max_processors: lfn_base::figure::Figure::new(0.2), ..ControlGroup::default() };
    figures.sender.facts = Some(HostFacts { control_group: Some(group), ..HostFacts::default() });
    assert_eq!(causes(&figures), [Cause::Unexplained], "6 % of a processor");
    figures.streams[0].sender_thread = Some(WorkerTime { running: 0.18, waiting: 0.0, processor: 0 });
    let found = first(&figures);
    assert_eq!(found.cause(), Some(Cause::Processor));
    assert!(found.summary.contains("may use 0.20 processors"), "{}", found.summary);
}

#[test]
fn reno_does_not_fit_a_path_with_a_long_repair() {
    let mut figures = slow("reno");
    figures.counters.retransmitted = 50;
    assert_eq!(first(&figures).cause(), Some(Cause::CongestionControl));
    figures.streams[0].sender_socket.congestion = "bbr".into();
    assert_eq!(causes(&figures), [Cause::Unexplained]);
}

#[test]
fn losses_are_rare_for_reno_only_if_they_are_usual() {
    let with = |resent_bytes, sender: &str| {
        let mut figures = slow(sender);
        (figures.counters.retransmitted, figures.counters.sent) = (resent_bytes / 1448, 20_000);
        let goodput = BitRate(4_000_000);
        (figures.goodput, figures.streams[0].goodput) = (goodput, goodput);
        figures.steady = figures.steady.map(|steady| SteadyPart { goodput, ..steady });
        figures.streams[0].sent = Some(SendTotals { sent_bytes: 20_000_000, resent_bytes, ..SendTotals::default() });
        figures.streams[0].rtt = figures.base_rtt;
        assert!(sender != "reno" || causes(&figures)[0] == Cause::CongestionControl);
        has_rare_losses(&figures)
    };
    assert!(with(5 * 1448, "reno"));
    assert!(!with(100 * 1448, "reno") && !with(5 * 1448, "cubic"));
}

#[test]
fn a_metric_of_the_route_counts_on_a_full_path_too() {
    let with = |sender: &str, metric: &str, value| {
        let mut figures = with_goodput(130, 135);
        figures.streams[0].sender_socket.congestion = sender.into();
        let route = RouteFacts { metrics: [(metric.to_owned(), value)].into(), ..RouteFacts::default() };
        figures.sender.facts = Some(HostFacts { route: Some(route), ..HostFacts::default() });
        diagnose_figures(&figures).findings
    };
    let found = with("reno", "ssthresh", 12);
    assert_eq!((found.len(), found[0].cause(), found[0].is_limit()), (1, Some(Cause::RouteMetrics), false));
    assert_eq!(with("bbr", "ssthresh", 12), [], "bbr ignores the threshold");
    assert_eq!(with("reno", "ssthresh", 2000), [], "above the need of the path");
}

#[test]
fn many_streams_with_timeouts_are_too_many() {
    let mut figures = slow("cubic");
    figures.streams[0].cwnd = Bytes(3 * 1448);
    figures.streams = vec![figures.streams[0].clone(); 32];
    figures.counters.timeouts = 40;
    let found = first(&figures);
    assert_eq!(
        (found.cause(), found.remedy.command.as_str()),
        (Some(Cause::StreamCount), "lfn test far.example --streams 8")
    );
    figures.counters.timeouts = 0;
    assert!(!causes(&figures).contains(&Cause::StreamCount));
}

#[test]
fn a_window_of_the_receivers_route_is_no_small_buffer() {
    let mut figures = half_bdp_window();
    figures.streams[0].receiver_socket.window_requested_bytes = None;
    let route = RouteFacts { metrics: [("window".to_owned(), 4_547_840)].into(), ..RouteFacts::default() };
    figures.receiver.facts = Some(HostFacts { route: Some(route), ..HostFacts::default() });
    let found = first(&figures);
    assert_eq!(causes(&figures), [Cause::RouteMetrics]);
    assert!(
        found.remedy.host.as_deref() == Some("far.example") && found.remedy.command.contains("window"),
        "{found:?}"
    );
    // The route of the sender does not limit its own data.
    figures.sender.facts = figures.receiver.facts.take();
    assert_eq!(causes(&figures)[0], Cause::ReceiveWindow);
}

#[test]
fn rate_of_the_own_queueing_discipline_is_a_shaper() {
    let with = |kind: &str, overlimits| {
        let mut figures = with_goodput(30, 100);
        let counters = QdiscCounters { sent_packets: 10_000, overlimits, ..QdiscCounters::default() };
        figures.sender.qdisc = Some((kind.to_owned(), counters));
        figures.sender.interface = Some(Interface { name: "eth0".into(), ..Interface::default() });
        diagnose_figures(&figures).findings.into_iter().find(|finding| finding.cause() == Some(Cause::Shaper))
    };
    let found = with("tbf", 9000).unwrap();
    assert!(found.is_limit() && found.remedy.command.starts_with("tc qdisc replace dev eth0"), "{found:?}");
    assert!(!with("htb", 1000).unwrap().is_limit(), "only bursts wait");
    assert_eq!(with("tbf", 100), None);
    assert_eq!(with("fq", 9000), None, "fq paces");
}
