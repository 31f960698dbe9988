//! Lost packets, and packets that only look lost.

use lfn_packet::SackRange;
use lfn_trace::PacketFlag;

use crate::support::{Analyzed, Flow, GAP, MS, MSS, RTT, START, sack, timestamps};

/// Packet that is missing, and the time of its retransmission after duplicate acknowledgements.
const LOST: u32 = 50;
const RESENT_AT: u64 = START + 3 * RTT + 14 * GAP;

/// Returns two round trips, a third one without packet 50, and the packet again after one RTT.
fn resent_once(mut flow: Flow, is_captured: bool) -> Flow {
    let at = flow.rounds(START, 0, 2);
    flow.round_with_gap(at, 40, is_captured);
    flow.data(RESENT_AT, LOST * MSS, MSS);
    flow
}

fn finish(mut flow: Flow, acknowledged_after: u64) -> Analyzed {
    flow.ack(RESENT_AT + acknowledged_after, 60 * MSS);
    flow.rounds(START + 5 * RTT, 60, 3);
    flow.analyze()
}

fn lost_after(after: Analyzed, expected: u64) {
    let loss = &after.evidence().loss;
    assert_eq!((loss.after_capture, loss.before_capture), (expected, 0));
}

#[test]
fn a_gap_that_is_filled_after_an_rtt_was_lost_before() {
    let flow = resent_once(Flow::at_receiver(), false);
    let after = flow.receiver_rtt;
    let analyzed = finish(flow, after);
    let evidence = analyzed.evidence();
    assert_eq!((evidence.loss.before_capture, evidence.loss.after_capture), (1, 0));
    assert_eq!((evidence.delivery.reordered, evidence.faults.missed.0), (0, 0));
    assert_eq!(analyzed.count(PacketFlag::Retransmission), 1);
    assert_eq!(analyzed.count(PacketFlag::LostSegment), 1);
}

#[test]
fn a_packet_that_is_seen_twice_was_lost_after() {
    let analyzed = finish(resent_once(Flow::at_sender(), true), RTT);
    assert_eq!(analyzed.count(PacketFlag::FastRetransmission), 1);
    assert_eq!(analyzed.evidence().loss.spurious, 0);
    assert_eq!(analyzed.evidence().payload.0, u64::from(120 * MSS));
    lost_after(analyzed, 1);
}

#[test]
fn an_acknowledged_gap_was_missed_by_the_capture() {
    let mut flow = Flow::at_sender();
    let at = flow.rounds(START, 0, 2);
    for number in (40..60).filter(|number| *number != LOST) {
        let at = at + u64::from(number - 40) * GAP;
        flow.data(at, number * MSS, MSS);
        flow.ack(at + RTT, (number + 1) * MSS);
    }
    flow.rounds(at + RTT, 60, 2);
    let analyzed = flow.analyze();
    assert_eq!(analyzed.evidence().faults.missed.0, u64::from(MSS));
    lost_after(analyzed, 0);
}

#[test]
fn a_packet_recorded_after_its_acknowledgement_is_no_gap() {
    let mut flow = Flow::at_receiver();
    let at = flow.rounds(START, 0, 2);
    for number in 40..60 {
        // Captures of two interfaces can be recorded in another order than the times of their packets.
        let is_late = number == LOST;
        let at = at + u64::from(number - 40) * GAP;
        flow.data(at + if is_late { flow.receiver_rtt + GAP * 3 / 2 } else { 0 }, number * MSS, MSS);
        flow.ack(at + flow.receiver_rtt, (number + 1) * MSS);
    }
    flow.rounds(at + RTT, 60, 2);
    let analyzed = flow.analyze();
    assert_eq!((analyzed.evidence().faults.missed.0, analyzed.evidence().loss.spurious), (0, 0));
}

#[test]
fn an_early_acknowledgement_shows_a_spurious_copy() {
    let analyzed = finish(resent_once(Flow::at_sender(), true), RTT / 5);
    assert_eq!(analyzed.evidence().loss.spurious, 1);
    lost_after(analyzed, 0);
}

#[test]
fn a_report_of_a_duplicate_shows_a_spurious_copy() {
    let mut flow = resent_once(Flow::at_sender(), true);
    let twice = SackRange { start: flow.sequence(LOST * MSS), end: flow.sequence((LOST + 1) * MSS) };
    sack(&mut flow.ack(RESENT_AT + RTT + 1, 60 * MSS).options, &[twice]);
    let analyzed = finish(flow, RTT);
    assert_eq!(analyzed.evidence().delivery.duplicate_reports, 1);
    assert_eq!(analyzed.evidence().loss.spurious, 1);
    lost_after(analyzed, 0);
}

#[test]
fn resent_acknowledged_data_is_spurious() {
    let mut flow = Flow::at_sender();
    let at = flow.rounds(START, 0, 2);
    flow.data(at + GAP * 30, 30 * MSS, MSS);
    flow.rounds(at + RTT, 40, 2);
    let analyzed = flow.analyze();
    assert_eq!(analyzed.count(PacketFlag::SpuriousRetransmission), 1);
    assert_eq!(analyzed.evidence().loss.spurious, 1);
    lost_after(analyzed, 0);
}

#[test]
fn a_report_without_a_retransmission_is_a_network_duplicate() {
    let mut flow = Flow::at_sender();
    let at = flow.rounds(START, 0, 2);
    for number in 0..12 {
        let twice = SackRange { start: flow.sequence(number * MSS), end: flow.sequence((number + 1) * MSS) };
        sack(&mut flow.ack(at + u64::from(number) * GAP, 40 * MSS).options, &[twice]);
    }
    flow.rounds(at + RTT, 40, 2);
    let analyzed = flow.analyze();
    assert_eq!((analyzed.evidence().delivery.duplicated, analyzed.evidence().delivery.duplicate_reports), (12, 0));
}

#[test]
fn a_packet_that_arrives_twice_is_a_network_duplicate() {
    let mut flow = Flow::at_receiver();
    flow.rounds(START, 0, 5);
    let mut packets = flow.sorted();
    let copy = packets.iter().copied().find(|packet| packet.segment.payload > 0).unwrap();
    let place = packets.iter().position(|packet| packet.at > copy.at + MS / 4).unwrap();
    packets.insert(place, crate::support::Captured { at: copy.at + MS / 4, ..copy });
    let analyzed = crate::support::analyze(&packets);
    let evidence = analyzed.evidence();
    assert_eq!((evidence.delivery.duplicated, evidence.faults.captured_twice, evidence.loss.spurious), (1, 0, 0));
}

#[test]
fn packets_with_equal_identification_were_captured_twice() {
    let mut flow = Flow::at_sender();
    flow.rounds(START, 0, 3);
    let twice: Vec<_> = flow.sorted().into_iter().flat_map(|packet| [packet, packet]).collect();
    let analyzed = crate::support::analyze(&twice);
    let evidence = analyzed.evidence();
    assert_eq!(evidence.faults.captured_twice as usize, twice.len() / 2);
    assert_eq!((evidence.delivery.duplicated, evidence.loss.spurious, evidence.data_packets), (0, 0, 60));
    assert_eq!(analyzed.count(PacketFlag::CapturedTwice), twice.len() / 2);
    lost_after(analyzed, 0);
}

#[test]
fn a_late_packet_with_an_older_timestamp_is_reordered() {
    for (own, is_reordered) in [(1000, true), (1001, true), (1040, false)] {
        let mut flow = Flow::at_receiver();
        let at = flow.rounds(START, 0, 2);
        for number in (40..60).filter(|number| *number != LOST) {
            let at = at + u64::from(number - 40) * GAP;
            timestamps(flow.data(at, number * MSS, MSS), 1001);
            let acknowledged = LOST.min(number + 1);
            flow.ack(at + flow.receiver_rtt, acknowledged * MSS);
        }
        timestamps(flow.data(at + 40 * GAP, LOST * MSS, MSS), own);
        flow.ack(at + 40 * GAP + flow.receiver_rtt, 60 * MSS);
        flow.rounds(at + RTT, 60, 2);
        let analyzed = flow.analyze();
        let evidence = analyzed.evidence();
        let expected = if is_reordered { (1, 0) } else { (0, 1) };
        assert_eq!((evidence.delivery.reordered, evidence.loss.before_capture), expected, "{own}");
        assert_eq!(analyzed.count(PacketFlag::OutOfOrder), usize::from(is_reordered));
    }
}
