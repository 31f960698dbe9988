//! Outages, silent receivers, and packets that are too large for the path.

use crate::support::{Flow, MS, MSS, RTT, START};

/// Sends two round trips, then ten packets without an answer, and the first of these again after each timeout.
fn outage(payload: u32) -> Flow {
    let mut flow = Flow::at_sender();
    let at = flow.rounds(START, 0, 2);
    flow.data(at, 40 * MSS, payload);
    for wait in [300, 900, 2100, 4500] {
        flow.data(at + wait * MS, 40 * MSS, payload);
    }
    flow
}

#[test]
fn an_answer_after_several_timeouts_ends_an_outage() {
    let mut flow = outage(MSS);
    let at = START + 2 * RTT;
    flow.ack(at + 4500 * MS + RTT, 41 * MSS);
    flow.rounds(at + 4500 * MS + 2 * RTT, 41, 3);
    let analyzed = flow.analyze();
    let evidence = analyzed.evidence();
    assert!((4400..4700).contains(&evidence.path.outage.as_millis()), "{:?}", evidence.path.outage);
    assert!((150..260).contains(&evidence.path.outage_start.as_millis()), "{:?}", evidence.path.outage_start);
    assert!(!evidence.path.is_silent_peer && evidence.path.black_hole.is_none());
    assert_eq!(evidence.loss.timeouts, 4);
}

#[test]
fn a_receiver_that_never_answers_again_is_silent() {
    let analyzed = outage(MSS).analyze();
    let path = analyzed.evidence().path;
    assert!(path.is_silent_peer && path.black_hole.is_none());
    assert!((4400..4700).contains(&path.outage.as_millis()), "{:?}", path.outage);
}

#[test]
fn large_packets_that_vanish_show_a_black_hole() {
    let mut flow = Flow::at_sender();
    for number in 0..20 {
        let at = START + u64::from(number) * MS;
        flow.data(at, number * 500, 500);
        flow.ack(at + RTT, (number + 1) * 500);
    }
    for wait in [200, 600, 1200, 2400, 4800] {
        flow.data(START + wait * MS, 10_000, MSS);
    }
    let analyzed = flow.analyze();
    let path = analyzed.evidence().path;
    assert_eq!(path.black_hole.map(|bytes| bytes.0), Some(u64::from(MSS)));
    assert_eq!(path.largest_passed_bytes, 500);
}
