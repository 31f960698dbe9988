//! Subflows of MPTCP connections.

use lfn_packet::MptcpOption;
use lfn_results::evidence::capture::PeriodLimit;
use lfn_trace::{Analysis, AnalysisOptions, Finished, Subflow};

use crate::support::{Captured, Flow, MS, MSS, RTT, START, analyze, endpoint, instant};

/// Keys with their tokens: the first 32 bits of their SHA-256, of a handshake of Linux.
const CLIENT: Key = Key { key: 0xa0de_0925_78df_f8f8, token: 0x27e2_a9d8 };
const SERVER: Key = Key { key: 0xcd08_77c0_2d0f_0a20, token: 0x73dd_8f88 };
/// A key with the first 32 bits of its SHA-1.
const OLD_SERVER: Key = Key { key: 0x0102_0304_0506_0708, token: 0xdd57_83bc };

#[derive(Clone, Copy)]
struct Key {
    key: u64,
    token: u32,
}

fn capable(version: u8, key: Option<Key>, receiver_key: Option<Key>) -> Option<MptcpOption> {
    Some(MptcpOption::Capable { version, key: key.map(|key| key.key), receiver_key: receiver_key.map(|key| key.key) })
}

/// Options of SYN, SYN-ACK and the third packet of a first subflow.
fn first(version: u8, client: Key, server: Key) -> [Option<MptcpOption>; 3] {
    let of_syn = (version == 0).then_some(client);
    [capable(version, of_syn, None), capable(version, Some(server), None), capable(version, Some(client), Some(server))]
}

fn joined(token: u32) -> [Option<MptcpOption>; 3] {
    [Some(MptcpOption::Join { token }), Some(MptcpOption::Other), Some(MptcpOption::Other)]
}

/// Packets of a connection with these options in its handshake, which begins at a time and sends so many round trips.
fn connection(port: u16, at: u64, options: [Option<MptcpOption>; 3], rounds: u32) -> Vec<Captured> {
    let mut flow = Flow::without_handshake(0, RTT, 1000);
    flow.handshake(at);
    flow.rounds(at + START, 0, rounds);
    let mut packets = flow.sorted();
    for (number, packet) in packets.iter_mut().enumerate() {
        let segment = &mut packet.segment;
        for end in [&mut segment.source, &mut segment.destination] {
            if end.port == 40_000 {
                *end = endpoint(u8::try_from(port % 200).unwrap(), port);
            }
        }
        segment.options.mptcp = options.get(number).copied().unwrap_or(Some(MptcpOption::Other));
    }
    packets
}

fn together(connections: &[Vec<Captured>]) -> Vec<Captured> {
    let mut packets = connections.concat();
    packets.sort_by_key(|packet| packet.at);
    packets
}

/// Returns the ports of the clients with their places in MPTCP connections, in the order of the ports.
fn places(finished: &Finished) -> Vec<(u16, Option<[u64; 2]>)> {
    let place = |subflow: Subflow| [subflow.mptcp, subflow.number];
    let mut places: Vec<_> = finished.connections.iter().map(|one| (one.client.port, one.mptcp.map(place))).collect();
    places.sort_unstable();
    places
}

#[test]
fn joined_subflow_belongs_to_the_connection_of_its_token() {
    let packets = together(&[
        connection(1001, 0, first(1, CLIENT, SERVER), 4),
        connection(1002, 300 * MS, joined(SERVER.token), 8),
        connection(1003, 310 * MS, joined(0x1234_5678), 1),
        connection(1004, 320 * MS, [None; 3], 1),
    ]);
    let finished = analyze(&packets).finished;
    assert_eq!(places(&finished), [(1001, Some([1, 1])), (1002, Some([1, 2])), (1003, Some([2, 1])), (1004, None)]);
    let subflows: Vec<_> = finished.connections.iter().filter_map(|one| one.mptcp).collect();
    let shown = subflows.iter().filter(|one| one.mptcp == 1).map(|one| (one.number, one.is_joined, one.token));
    assert_eq!(shown.collect::<Vec<_>>(), [(2, true, SERVER.token), (1, false, SERVER.token)]);
    let [both, unknown] = &finished.mptcp[..] else { panic!("{:?}", finished.mptcp) };
    assert_eq!((both.number, both.version), (1, Some(1)));
    assert_eq!((both.client_token, both.server_token), (Some(CLIENT.token), Some(SERVER.token)));
    assert_eq!((unknown.version, unknown.client_token, unknown.server_token), (None, None, Some(0x1234_5678)));
    assert_eq!(finished.totals.mptcp_connection_count, 2);
}

#[test]
fn figures_of_subflows_are_added_over_the_union_of_their_time() {
    let packets = together(&[
        connection(1001, 0, first(1, CLIENT, SERVER), 4),
        connection(1002, 100 * MS, joined(SERVER.token), 8),
        connection(1003, 5000 * MS, joined(SERVER.token), 2),
    ]);
    let finished = analyze(&packets).finished;
    let [mptcp] = &finished.mptcp[..] else { panic!("{:?}", finished.mptcp) };
    assert_eq!((mptcp.payload.0, mptcp.reverse_payload.0), (u64::from(14 * 20 * MSS), 0));
    assert_eq!((mptcp.totals.connections, mptcp.totals.data_packets, mptcp.totals.lost), (3, 14 * 20, 0));
    // The first subflow lasts into the second, and the third is apart from both.
    let end = |number: usize| finished.connections[number].start + finished.connections[number].evidence.duration;
    let parts = end(0).saturating_since(mptcp.start) + finished.connections[2].evidence.duration;
    assert_eq!(mptcp.duration, parts, "{mptcp:?}");
    assert_eq!(mptcp.start, instant(0));
    let sum = |limit: PeriodLimit| {
        let evidence = finished.connections.iter().map(|one| one.evidence.time_of(limit));
        evidence.sum::<std::time::Duration>()
    };
    for (limit, total) in &mptcp.totals.limits {
        assert_eq!(total.time, sum(*limit), "{limit:?}");
    }
    let limit = mptcp.totals.main_limit().unwrap();
    assert!(mptcp.totals.limits.values().all(|other| other.time <= sum(limit)), "{mptcp:?}");
}

#[test]
fn joins_without_the_first_subflow_are_grouped_by_token() {
    let packets = together(&[
        connection(1001, 0, joined(7), 2),
        connection(1002, 10 * MS, joined(7), 1),
        connection(1003, 20 * MS, joined(8), 4),
    ]);
    let finished = analyze(&packets).finished;
    assert_eq!(places(&finished), [(1001, Some([2, 1])), (1002, Some([2, 2])), (1003, Some([1, 1]))]);
    assert!(finished.mptcp.iter().all(|one| one.version.is_none() && one.client_token.is_none()));
}

#[test]
fn first_subflow_after_its_joins_is_of_the_same_connection() {
    let packets = together(&[
        connection(1001, 0, joined(SERVER.token), 2),
        connection(1002, 10 * MS, first(1, CLIENT, SERVER), 1),
    ]);
    let finished = analyze(&packets).finished;
    assert_eq!(places(&finished), [(1001, Some([1, 1])), (1002, Some([1, 2]))]);
    assert_eq!(finished.mptcp[0].version, Some(1));
}

#[test]
fn third_packet_shows_both_keys_without_the_others() {
    for missing in [0..1, 0..2] {
        let mut main = connection(1001, 0, first(1, CLIENT, SERVER), 2);
        main.drain(missing);
        let packets = together(&[main, connection(1002, 300 * MS, joined(SERVER.token), 1)]);
        let finished = analyze(&packets).finished;
        assert_eq!(places(&finished), [(1001, Some([1, 1])), (1002, Some([1, 2]))]);
    }
}

#[test]
fn version_0_has_tokens_of_sha_1() {
    let packets = together(&[
        connection(1001, 0, first(0, CLIENT, OLD_SERVER), 2),
        connection(1002, 300 * MS, joined(OLD_SERVER.token), 1),
    ]);
    let finished = analyze(&packets).finished;
    assert_eq!(places(&finished), [(1001, Some([1, 1])), (1002, Some([1, 2]))]);
    assert_eq!(finished.mptcp[0].version, Some(0));
}

#[test]
fn declined_offer_is_no_mptcp_connection() {
    let declined = [capable(1, None, None), None, None];
    let mut packets = connection(1001, 0, declined, 2);
    packets.iter_mut().skip(1).for_each(|packet| packet.segment.options.mptcp = None);
    let finished = analyze(&packets).finished;
    assert_eq!((places(&finished), finished.mptcp.len()), (vec![(1001, None)], 0));
}

#[test]
fn subflow_of_the_server_has_the_payload_of_its_direction() {
    // Its opener, the server of the MPTCP connection, sends.
    let reversed = connection(1002, 300 * MS, joined(CLIENT.token), 3);
    let packets = together(&[connection(1001, 0, first(1, CLIENT, SERVER), 2), reversed]);
    let finished = analyze(&packets).finished;
    assert_eq!(places(&finished), [(1001, Some([1, 1])), (1002, Some([1, 2]))]);
    let mptcp = &finished.mptcp[0];
    assert_eq!((mptcp.payload.0, mptcp.reverse_payload.0), (u64::from(60 * MSS), u64::from(40 * MSS)));
}

#[test]
fn new_connection_takes_over_a_token() {
    let packets = together(&[
        connection(1001, 0, first(1, CLIENT, SERVER), 3),
        connection(1002, 2000 * MS, first(1, OLD_SERVER, SERVER), 2),
        connection(1003, 3000 * MS, joined(SERVER.token), 1),
    ]);
    let finished = analyze(&packets).finished;
    let places: Vec<_> = places(&finished).into_iter().filter_map(|(_, place)| place).collect();
    assert_eq!(places.iter().filter(|place| **place == places[2]).count(), 1);
    assert_eq!((places[1], places[2]), ([places[2][0], 1], [places[2][0], 2]));
    assert_ne!(places[0][0], places[1][0]);
}

#[test]
fn many_mptcp_connections_stay_within_the_limits() {
    let options = AnalysisOptions { max_open: 50, max_finished: 20, ..AnalysisOptions::default() };
    let mut analysis = Analysis::new(options);
    for number in 0..1000_u16 {
        let token = u32::from(number);
        let rounds = if number % 100 == 7 { 2 } else { 1 };
        for packet in connection(2000 + number, u64::from(number) * 10_000 * MS, joined(token), rounds) {
            analysis.add(instant(packet.at), &packet.segment);
        }
    }
    let finished = analysis.finish();
    assert_eq!((finished.connections.len(), finished.mptcp.len()), (20, 20));
    assert_eq!((finished.totals.mptcp_connection_count, finished.unlisted.connections), (1000, 980));
    let listed = finished.connections.iter().map(|one| one.mptcp.unwrap().mptcp);
    assert_eq!(listed.collect::<std::collections::BTreeSet<_>>(), (1..=20).collect());
    assert!(finished.mptcp[..10].iter().all(|one| one.payload.0 == u64::from(40 * MSS)), "{:?}", finished.mptcp);
}
