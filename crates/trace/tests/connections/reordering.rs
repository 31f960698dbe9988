//! Packets that arrive in another order, and signs that only look like it.

use lfn_packet::SackRange;

use crate::support::{Flow, GAP, MS, MSS, RTT, START, sack};

/// Packets of the tested round trip.
const FIRST: u32 = 40;

/// Sends two round trips, and then ten packets at once. Returns the flow and the time of the first acknowledgement of these.
fn ten_packets(payload: u32) -> (Flow, u64) {
    let mut flow = Flow::at_sender();
    let at = flow.rounds(START, 0, 2);
    for number in (0..10).step_by((payload / MSS) as usize) {
        flow.data(at + u64::from(number) * GAP, (FIRST + number) * MSS, payload);
    }
    (flow, at + RTT)
}

/// Adds an acknowledgement of the packets before `next`, with reports of these packets.
fn report(flow: &mut Flow, at: u64, next: u32, reported: &[u32]) {
    let packet =
        |number: &u32| SackRange { start: flow.sequence(number * MSS), end: flow.sequence((number + 1) * MSS) };
    let ranges: Vec<SackRange> = reported.iter().map(packet).collect();
    sack(&mut flow.ack(at, next * MSS).options, &ranges);
}

fn reordered(mut flow: Flow, at: u64) -> u64 {
    flow.rounds(at + RTT, FIRST + 10, 3);
    flow.analyze().evidence().delivery.reordered
}

#[test]
fn a_packet_after_reported_later_ones_was_overtaken() {
    let (mut flow, at) = ten_packets(MSS);
    report(&mut flow, at, FIRST, &[FIRST + 2]);
    flow.ack(at + MS, (FIRST + 10) * MSS);
    assert_eq!(reordered(flow, at), 2);
}

#[test]
fn packets_within_a_super_packet_can_be_overtaken() {
    let (mut flow, at) = ten_packets(5 * MSS);
    report(&mut flow, at, FIRST, &[FIRST + 1, FIRST + 3]);
    flow.ack(at + MS, (FIRST + 10) * MSS);
    assert_eq!(reordered(flow, at), 2);
}

#[test]
fn the_first_report_of_a_loss_shows_no_other_order() {
    let (mut flow, at) = ten_packets(MSS);
    // A receiver that merges packets acknowledges eight at once, and the tenth after the lost ninth.
    report(&mut flow, at, FIRST + 8, &[FIRST + 9]);
    flow.data(at + MS, (FIRST + 8) * MSS, MSS);
    flow.ack(at + MS + RTT, (FIRST + 10) * MSS);
    assert_eq!(reordered(flow, at + RTT), 0);
}

#[test]
fn packets_after_a_recovery_can_be_overtaken_again() {
    let (mut flow, at) = ten_packets(MSS);
    report(&mut flow, at, FIRST, &[FIRST + 3]);
    flow.data(at + MS, FIRST * MSS, MSS);
    // Later packets are always on their way in another order, so there is never an end without reports.
    for number in 0..40 {
        let (at, next) = (at + MS + RTT + u64::from(number) * 10 * GAP, FIRST + 10 + number * 2);
        flow.data(at - RTT / 2, next * MSS, MSS);
        flow.data(at - RTT / 2, (next + 1) * MSS, MSS);
        report(&mut flow, at, next, &[next + 1]);
    }
    let late = flow.analyze().evidence().delivery.reordered;
    assert!((35..=40).contains(&late), "{late}");
}
