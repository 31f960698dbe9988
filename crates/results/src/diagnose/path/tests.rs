//! Tests of the findings about the path.

use lfn_base::units::Bytes;

use super::super::{Cause, rule_findings};
use super::*;
use crate::diagnose::window::tests::half_bdp_window;
use crate::evidence::figures::{SendTotals, Spread, SteadyPart, StreamFigures};
use crate::host::Interface;

/// 100 Mb/s over 50 ms, with a quarter of this goodput and an open window.
fn quarter() -> Figures {
    let mut figures = half_bdp_window();
    let rtt = Duration::from_millis(50);
    figures.path = Some(PathProfile::new(BitRate(100_000_000), rtt));
    figures.base_rtt = rtt;
    let goodput = BitRate(24_000_000);
    figures.goodput = goodput;
    figures.steady = figures.steady.map(|steady| SteadyPart { goodput, ..steady });
    for host in [&mut figures.sender, &mut figures.receiver] {
        host.interface = Some(Interface { name: "eth0".into(), mtu_bytes: 1500, ..Interface::default() });
    }
    let wide = Spread { min: 3 << 20, median: 3 << 20, max: 3 << 20 };
    let sending = crate::measure::SocketReport { congestion: "cubic".into(), ..Default::default() };
    figures.streams[0] = StreamFigures {
        goodput,
        rtt: Duration::from_millis(51),
        snd_wnd: Some(wide),
        cwnd: Bytes(150_000),
        busy_share: Some(1.0),
        rwnd_limited: Duration::ZERO,
        mss: 1448,
        pmtu: 1500,
        sent: Some(SendTotals { sent_bytes: 90_000_000, resent_bytes: 0, duplicates: 0 }),
        receiver_socket: Default::default(),
        sender_socket: sending,
        ..figures.streams[0].clone()
    };
    figures
}

fn lossy() -> Figures {
    let mut figures = quarter();
    figures.streams[0].sent = Some(SendTotals { sent_bytes: 90_000_000, resent_bytes: 36_000, duplicates: 2 });
    figures
}

fn causes(figures: &Figures) -> Vec<Cause> {
    rule_findings(figures).iter().filter_map(Finding::cause).collect()
}

#[test]
fn loss_with_bbr_is_found_on_an_underused_path() {
    let with = |goodput: u64, resent_bytes: u64| {
        let mut figures = quarter();
        let goodput = BitRate(goodput);
        figures.goodput = goodput;
        figures.steady = figures.steady.map(|steady| SteadyPart { goodput, ..steady });
        figures.streams[0].sender_socket.congestion = "bbr".into();
        figures.streams[0].sent = Some(SendTotals { sent_bytes: 90_000_000, resent_bytes, duplicates: 0 });
        rule_findings(&figures)
    };
    let found = with(73_000_000, 900_000);
    assert_eq!(found[0].cause(), Some(Cause::Loss));
    assert_eq!(found[0].remedy.to_string(), "lfn test far.example --streams 2");
    let named = |found: Vec<super::Finding>| found.iter().any(|finding| finding.cause() == Some(Cause::Loss));
    assert!(!named(with(90_000_000, 900_000)), "the path is in use");
    assert!(named(with(76_000_000, 90_000)), "0.1 %, as over 100 ms");
    assert!(!named(with(89_000_000, 90_000)), "and as over 10 ms");
    assert!(!named(with(73_000_000, 36_000)), "too little loss to matter");
}

#[test]
fn loss_beyond_the_budget_is_found_with_both_figures() {
    assert_eq!(causes(&quarter()), []);
    let found = &rule_findings(&lossy())[0];
    let expected = "1 of 2,719 segments was lost (22 segments, 0.037 %); 95.64 Mb/s at 50 ms with cubic tolerates at \
most 1 loss in 57,325 segments; RTT 51 ms under load: the queue did not overflow";
    assert_eq!((found.cause(), found.summary.as_str()), (Some(Cause::Loss), expected));
    assert_eq!(found.remedy.to_string(), "lfn test far.example --congestion bbr");
    assert_eq!(found.predicted, Some(BitRate(95_640_686)));
}

#[test]
fn loss_that_does_not_limit_is_no_finding() {
    type Change = fn(&mut Figures);
    let cases: [(&str, Change); 7] = [
        ("far more than that loss allows", |e| {
            e.streams[0].sent = Some(SendTotals { sent_bytes: 90_000_000, resent_bytes: 2_000_000, duplicates: 0 });
            e.steady = e.steady.map(|steady| SteadyPart { goodput: BitRate(50_000_000), ..steady });
        }),
        ("a short queue on a path that is nearly full", |e| {
            e.streams[0].sent = Some(SendTotals { sent_bytes: 90_000_000, resent_bytes: 9_000, duplicates: 0 });
            e.streams[0].rtt = Duration::from_millis(60);
            e.steady = e.steady.map(|steady| SteadyPart { goodput: BitRate(74_000_000), ..steady });
        }),
        ("within the budget", |e| {
            e.streams[0].sent = Some(SendTotals { sent_bytes: 9_000_000_000, resent_bytes: 14_480, duplicates: 0 });
        }),
        ("a queue that overflowed", |e| e.streams[0].rtt = Duration::from_millis(99)),
        ("retransmitted without need", |e| {
            e.streams[0].sent = e.streams[0].sent.map(|m| SendTotals { duplicates: 23, ..m })
        }),
        ("BBR tolerates it", |e| e.streams[0].sender_socket.congestion = "bbr".into()),
        ("a path that is full", |e| {
            e.steady = e.steady.map(|steady| SteadyPart { goodput: BitRate(95_000_000), ..steady });
        }),
    ];
    for (name, change) in cases {
        let mut figures = lossy();
        change(&mut figures);
        assert_eq!(causes(&figures), [], "{name}");
    }
}

#[test]
fn without_capacity_loss_is_found_by_the_formula() {
    let mut figures = lossy();
    figures.path = None;
    // RFC 9438: 0.037 % over 50 ms gives CUBIC about 15 Mb/s.
    let at = |figures: &mut Figures, goodput| {
        figures.steady = figures.steady.map(|steady| SteadyPart { goodput: BitRate(goodput), ..steady });
    };
    at(&mut figures, 12_000_000);
    assert_eq!(causes(&figures), [Cause::Loss]);
    at(&mut figures, 150_000_000);
    assert_eq!(causes(&figures), [], "ten times what that loss allows: the loss is old, or not random");
}

#[test]
fn a_standing_queue_is_found_on_a_full_path_too() {
    let mut figures = quarter();
    figures.steady = figures.steady.map(|steady| SteadyPart { goodput: BitRate(95_500_000), ..steady });
    figures.streams[0].rtt = Duration::from_millis(250);
    let found = &rule_findings(&figures)[0];
    assert_eq!(found.summary, "RTT 250 ms under load, 50 ms without: packets wait 200 ms in a queue");
    assert_eq!(found.remedy.to_string(), "lfn test far.example --pacing 90725kbit");
    assert_eq!(found.gain, Some(BitRate(0)), "it costs time, not goodput");
    // 200 ms at 95.5 Mb/s are 2.4 MB. The backlog of the sender's interface is either the queue or a small part
    // of it.
    let mut backlog = |backlog_bytes| {
        let counters = crate::host::QdiscCounters { backlog_bytes, ..Default::default() };
        figures.sender.qdisc = Some(("pfifo_fast".into(), counters));
        rule_findings(&figures)[0].remedy.to_string()
    };
    assert_eq!(backlog(2_000_000), "tc qdisc replace dev eth0 root fq_codel   # on near.example");
    assert_eq!(backlog(3_000), "lfn test far.example --pacing 90725kbit");
    figures.streams[0].rtt = Duration::from_millis(98);
    assert_eq!(causes(&figures), [], "less than twice");
    (figures.base_rtt, figures.streams[0].rtt) = (Duration::from_millis(1), Duration::from_millis(30));
    assert_eq!(causes(&figures), [], "thirty times the base RTT, but only 29 ms");
}

#[test]
fn an_mtu_below_both_interfaces_is_the_paths() {
    let mut figures = quarter();
    figures.streams[0].pmtu = 1400;
    let found = &rule_findings(&figures)[0];
    let expected = "packets of 1400 B are the maximum of the path; the interface MTU is 1500 B on near.example and 1500 B on far.example";
    assert_eq!((found.cause(), found.summary.as_str()), (Some(Cause::SmallMtu), expected));
    assert!(found.gain.unwrap().0 > 0);
    for host in [&mut figures.sender, &mut figures.receiver] {
        host.interface.as_mut().unwrap().mtu_bytes = 9000;
    }
    assert_eq!(causes(&figures), [Cause::SmallMtu]);
    figures.receiver.interface.as_mut().unwrap().mtu_bytes = 1400;
    assert_eq!(causes(&figures), [], "one of the interfaces is as small");
    figures.receiver.interface = None;
    assert_eq!(causes(&figures), [], "a far end without figures");
}

#[test]
fn probes_count_if_tcp_does_not_know_the_path_mtu() {
    let mut figures = quarter();
    figures.probed_mtu = Some(1400);
    let found = &rule_findings(&figures)[0];
    assert_eq!(found.cause(), Some(Cause::SmallMtu));
    assert!(found.summary.starts_with("packets of 1400 B are the maximum"), "{}", found.summary);
    assert_eq!(found.remedy.to_string(), "sysctl -w net.ipv4.tcp_mtu_probing=1   # on near.example");
    assert_eq!(
        (&found.evidence["tcp_path_mtu_bytes"], &found.evidence["probed_path_mtu_bytes"]),
        (&json!(1500), &json!(1400))
    );
    // TCP knows the path MTU: the remedy finds the hop.
    figures.streams[0].pmtu = 1400;
    assert!(rule_findings(&figures)[0].remedy.command.starts_with("tracepath -n far.example"));
    (figures.probed_mtu, figures.streams[0].pmtu) = (Some(1500), 1500);
    assert_eq!(causes(&figures), [], "probes of full size arrived");
    (figures.probed_mtu, figures.streams[0].pmtu) = (Some(1400), 0);
    assert_eq!(causes(&figures), [Cause::SmallMtu], "a sender without figures of its TCP");
}

#[test]
fn another_congestion_control_than_requested_is_found() {
    let mut figures = quarter();
    figures.streams[0].sender_socket.congestion_requested = Some("bbr".into());
    let found = &rule_findings(&figures)[0];
    assert_eq!(found.summary, "bbr was requested, but cubic is in use on near.example");
    assert!(found.remedy.command.starts_with("ip route show table all | grep congctl"));
    // This finding is first: all other findings are of another congestion control.
    let moved = figures.streams[0].sent;
    figures.streams[0].sent = lossy().streams[0].sent;
    assert_eq!(causes(&figures), [Cause::CongestionControl, Cause::Loss]);
    figures.streams[0].sent = moved;
    // A planned congestion control is found if it would help, but not on a full path.
    let socket = &mut figures.streams[0].sender_socket;
    (socket.congestion_requested, socket.congestion_planned) = (None, Some("bbr".into()));
    assert_eq!(causes(&figures), [Cause::CongestionControl]);
    figures.steady = figures.steady.map(|steady| SteadyPart { goodput: BitRate(95_000_000), ..steady });
    assert_eq!(causes(&figures), []);
}

#[test]
fn many_retransmissions_are_found_in_the_second_half_only() {
    let mut figures = half_bdp_window();
    figures.elapsed = Duration::from_secs(60);
    let totals = |resent| SendTotals { sent_bytes: 100_000_000, resent_bytes: resent, ..SendTotals::default() };
    let flow = &mut figures.streams[0];
    (flow.mss, flow.sent, flow.sent_later) = (1448, Some(totals(9_000_000)), Some(totals(500_000)));
    assert_eq!(retransmissions(&figures), None, "the losses of slow start");
    figures.streams[0].sent_later = Some(totals(9_000_000));
    let found = retransmissions(&figures).unwrap();
    assert!(found.summary.starts_with("9.0 % of the sent data was retransmitted"), "{}", found.summary);
    assert!(found.summary.contains("(6,215 segments)") && !found.is_limit(), "{}", found.summary);
    assert_eq!(found.remedy.command, "lfn test far.example --pacing 64030kbit");
    figures.streams[0].sender_socket.congestion = "bbr".into();
    assert_eq!(retransmissions(&figures), None, "a queue shorter than two BDPs");
    figures.streams[0].sent_later = Some(totals(11_000_000));
    assert!(retransmissions(&figures).is_some());
    figures.elapsed = Duration::from_secs(15);
    assert_eq!(retransmissions(&figures), None, "28 round trips: the losses of slow start");
}
