//! Sums over connections that the result does not list.

use lfn_results::diagnose::diagnose;
use lfn_results::evidence::Evidence;
use lfn_trace::{Analysis, AnalysisOptions, ConnectionTotals, Finished};

use crate::support::{Captured, Flow, GAP, MS, MSS, RTT, START, endpoint, instant};

/// Packets of a connection with this port. Each third connection loses a packet, and each fifth has a closed window.
fn connection(number: u16) -> Vec<Captured> {
    let mut flow = Flow::at_sender();
    let next = flow.rounds(START, 0, 1 + u32::from(number % 7));
    let sent = 20 * (1 + u32::from(number % 7));
    if number.is_multiple_of(3) {
        flow.data(next, sent * MSS, MSS);
        flow.data(next + 300 * MS, sent * MSS, MSS);
        flow.ack(next + 300 * MS + RTT, (sent + 1) * MSS);
    }
    if number.is_multiple_of(5) {
        flow.ack(next + 400 * MS, sent * MSS + if number.is_multiple_of(3) { MSS } else { 0 }).window = 0;
        flow.ack(next + 4000 * MS + GAP, sent * MSS + if number.is_multiple_of(3) { MSS } else { 0 });
    }
    let mut packets = flow.sorted();
    for packet in &mut packets {
        packet.at += u64::from(number) * 20_000 * MS;
        for end in [&mut packet.segment.source, &mut packet.segment.destination] {
            if end.port == 40_000 {
                *end = endpoint(1, 10_000 + number);
            }
        }
    }
    packets
}

fn analyze(max_finished: usize) -> Finished {
    let mut analysis = Analysis::new(AnalysisOptions { max_finished, max_open: 30, ..AnalysisOptions::default() });
    for packet in (0..200).flat_map(connection) {
        analysis.add(instant(packet.at), &packet.segment);
    }
    analysis.finish()
}

/// Returns the sums of all connections, listed and not listed.
fn all(finished: Finished) -> ConnectionTotals {
    let mut totals = finished.unlisted;
    for connection in finished.connections {
        let evidence = Evidence::of_capture(connection.evidence);
        let first = diagnose(&evidence).findings.first().map(|finding| finding.name.clone());
        totals.add(evidence.capture.as_ref().unwrap(), first.as_deref());
    }
    totals
}

#[test]
fn sums_do_not_depend_on_the_number_of_listed_connections() {
    let complete = analyze(1000);
    assert_eq!((complete.connections.len(), complete.unlisted.connections), (200, 0));
    let expected = all(complete);
    assert_eq!((expected.connections, expected.lost), (200, 67), "{expected:?}");
    assert!(expected.retransmissions >= 67 && !expected.findings.is_empty(), "{expected:?}");
    for max_finished in [0, 1, 50] {
        let finished = analyze(max_finished);
        assert_eq!(finished.connections.len(), max_finished);
        assert_eq!(finished.unlisted.connections, 200 - max_finished as u64);
        assert_eq!(all(finished), expected, "{max_finished}");
    }
}
