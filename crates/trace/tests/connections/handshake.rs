//! Handshakes, windows, sequence numbers, and the place of the capture.

use lfn_packet::TcpFlags;
use lfn_results::evidence::capture::CapturePoint;
use lfn_trace::PacketFlag;

use crate::support::{Flow, MS, MSS, RTT, START, analyze};

#[test]
fn both_halves_of_the_rtt_show_the_capture_point() {
    let places = [
        (0, CapturePoint::Sender),
        (RTT / 50, CapturePoint::Sender),
        (RTT / 2, CapturePoint::Middle),
        (RTT - RTT / 50, CapturePoint::Receiver),
    ];
    for (sender_rtt, point) in places {
        let mut flow = Flow::with_handshake(sender_rtt, RTT - sender_rtt);
        flow.rounds(START, 0, 3);
        let analyzed = flow.analyze();
        let evidence = analyzed.evidence();
        assert_eq!(evidence.point, point, "{sender_rtt}");
        assert_eq!(evidence.rtt.base.as_nanos(), u128::from(RTT), "{sender_rtt}");
        assert!(evidence.handshake.is_complete);
        assert_eq!((evidence.handshake.window_scale, evidence.handshake.is_scale_inferred), (Some(7), false));
    }
}

#[test]
fn a_missing_window_scale_is_inferred_from_the_data() {
    let mut flow = Flow::without_handshake(0, RTT, 1000);
    for round in 0..4_u32 {
        let at = START + u64::from(round) * RTT;
        for number in round * 100..(round + 1) * 100 {
            let at = at + u64::from(number % 100) * MS / 10;
            flow.data(at, number * MSS, MSS);
            flow.ack(at + RTT, (number + 1) * MSS).window = 1000;
        }
    }
    let analyzed = flow.analyze();
    let evidence = analyzed.evidence();
    assert!(evidence.handshake.is_scale_inferred && !evidence.handshake.is_complete);
    assert!(evidence.handshake.window_scale.is_some_and(|scale| (5..=8).contains(&scale)), "{:?}", evidence.handshake);
    assert!(evidence.window.max.0 + u64::from(8 * MSS) >= evidence.window.max_in_flight.0, "{:?}", evidence.window);
}

#[test]
fn another_syn_with_the_same_ports_is_another_connection() {
    let mut first = Flow::at_sender();
    first.rounds(START, 0, 2);
    let mut second = Flow::without_handshake(0, RTT, 5_000_000);
    second.handshake(2000 * MS);
    second.rounds(2000 * MS + START, 0, 3);
    let packets: Vec<_> = first.sorted().into_iter().chain(second.sorted()).collect();
    let analyzed = analyze(&packets);
    let payloads: Vec<_> =
        analyzed.finished.connections.iter().map(|connection| connection.evidence.payload.0).collect();
    assert_eq!(payloads, [60_000, 40_000]);
    assert_eq!(analyzed.count(PacketFlag::ReusedPorts), 1);
    assert_eq!(analyzed.finished.totals.connections, 2);
}

#[test]
fn a_repeated_syn_is_the_same_connection() {
    let mut flow = Flow::without_handshake(0, RTT, 1000);
    flow.handshake(0);
    let syn = flow.sorted()[0];
    let mut flow = Flow::without_handshake(0, RTT, 1000);
    flow.handshake(1000 * MS);
    flow.rounds(1000 * MS + START, 0, 2);
    let packets: Vec<_> = [syn].into_iter().chain(flow.sorted()).collect();
    let analyzed = analyze(&packets);
    assert_eq!(analyzed.evidence().handshake.lost_syn.as_millis(), 1000);
    assert_eq!(analyzed.count(PacketFlag::ReusedPorts), 0);
}

#[test]
fn sequence_numbers_may_wrap() {
    for isn in [u32::MAX - 30_500, u32::MAX - 1, u32::MAX] {
        let mut flow = Flow::without_handshake(0, RTT, isn);
        flow.handshake(0);
        flow.rounds(START, 0, 3);
        let analyzed = flow.analyze();
        let evidence = analyzed.evidence();
        assert_eq!((evidence.payload.0, evidence.data_packets), (60_000, 60));
        assert_eq!((evidence.loss.share, evidence.faults.missed.0), (0.0, 0));
    }
}

#[test]
fn the_time_with_a_closed_window_is_measured() {
    let mut flow = Flow::at_sender();
    flow.send(START, 0..10);
    flow.ack(START + RTT + MS, 10 * MSS).window = 0;
    flow.ack(START + RTT + 301 * MS, 10 * MSS);
    flow.rounds(START + RTT + 301 * MS, 10, 2);
    let analyzed = flow.analyze();
    let window = analyzed.evidence().window;
    assert_eq!(window.zero_windows, 1);
    assert!((299..=301).contains(&window.zero.as_millis()), "{:?}", window.zero);
    assert_eq!(analyzed.count(PacketFlag::ZeroWindow), 1);
    assert_eq!(analyzed.count(PacketFlag::WindowUpdate), 1);
}

#[test]
fn a_step_back_in_time_is_counted() {
    let mut flow = Flow::at_sender();
    flow.rounds(START, 0, 3);
    let mut packets = flow.sorted();
    packets[60].at -= 20 * MS;
    let analyzed = analyze(&packets);
    let evidence = analyzed.evidence();
    assert_eq!(evidence.faults.time_steps_back, 1);
    assert!(evidence.periods.iter().all(|period| period.start <= period.end));
}

#[test]
fn ends_agree_on_ecn_and_marks_are_counted() {
    for (ecn, is_bleached, marked) in [(0, true, 0), (2, false, 0), (3, false, 60)] {
        let mut flow = Flow::at_receiver();
        flow.rounds(START, 0, 3);
        let mut packets = flow.sorted();
        for packet in &mut packets {
            let segment = &mut packet.segment;
            if segment.payload > 0 {
                segment.ecn = ecn;
            } else if segment.flags == TcpFlags::SYN {
                segment.flags = TcpFlags(segment.flags.0 | TcpFlags::ECE.0 | TcpFlags::CWR.0);
            } else if segment.flags.contains(TcpFlags::SYN) || (ecn == 3 && segment.source.port == 5001) {
                segment.flags = TcpFlags(segment.flags.0 | TcpFlags::ECE.0);
            }
        }
        let analyzed = analyze(&packets);
        let evidence = analyzed.evidence();
        assert!(evidence.handshake.ecn);
        assert_eq!((evidence.path.is_ecn_bleached, evidence.path.ecn_marked), (is_bleached, marked), "{ecn}");
        assert_eq!(evidence.path.ecn_echoes, marked, "{ecn}");
    }
}
