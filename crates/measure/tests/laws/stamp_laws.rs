//! STAMP without a network: packets against the layouts of RFC 8762 and 8972, a reflector that never amplifies, and
//! senders that find the direction of loss, duplication and reordering over generated paths.

use std::net::SocketAddr;
use std::time::Duration;

use lfn_base::figure::Figure;
use lfn_base::time::Instant;
use lfn_measure::proto::stamp::packet::{
    AUTHENTICATED, BASE, ErrorEstimate, PacketError, ReflectorPacket, SenderPacket, Timestamp, TimestampFormat,
};
use lfn_measure::proto::stamp::reflector::{
    Ignored, MAX_SESSIONS, ReceivedPacket, Reflector, ReflectorLimits, SESSION_TIMEOUT,
};
use lfn_measure::proto::stamp::report::{DelayDistribution, ReflectorNumbering, StampReport};
use lfn_measure::proto::stamp::sender::StampSender;
use lfn_measure::proto::stamp::{Mac, tlv};
use proptest::prelude::*;

const MICRO: i64 = 1_000;
const MILLI: i64 = 1_000 * MICRO;

/// A keyed hash for tests.
fn hash(bytes: &[u8]) -> [u8; 16] {
    *blake3::keyed_hash(&[7; 32], bytes).as_bytes().first_chunk().unwrap()
}

fn stamp(nanos: i64) -> Timestamp {
    Timestamp::ntp(Duration::from_secs(1_800_000_000) + Duration::from_nanos(nanos as u64))
}

fn at(nanos: i64) -> Instant {
    Instant::from_nanos(nanos as u64)
}

fn from() -> SocketAddr {
    "192.0.2.1:4000".parse().unwrap()
}

fn synchronised() -> ErrorEstimate {
    ErrorEstimate::new(Some(Duration::from_micros(50)))
}

#[test]
fn packets_have_the_layout_of_the_rfc() {
    let sender = SenderPacket {
        sequence: 0x0102_0304,
        sent: Timestamp(0x1122_3344_5566_7788),
        estimate: ErrorEstimate(0x8101),
        session: 0xabcd,
    };
    let bytes = sender.encode(None);
    assert_eq!(bytes.len(), BASE);
    let head = [1, 2, 3, 4, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x81, 1, 0xab, 0xcd];
    assert_eq!(bytes[..16], head);
    assert_eq!(bytes[16..], [0; 28]);
    let hashed = sender.encode(Some(&hash));
    assert_eq!(hashed.len(), AUTHENTICATED);
    assert_eq!((&hashed[..4], &hashed[4..16], &hashed[16..28]), (&head[..4], &[0; 12][..], &head[4..]));
    assert_eq!((&hashed[28..96], &hashed[96..]), (&[0; 68][..], &hash(&hashed[..96])[..]));

    let reflected = ReflectorPacket {
        sequence: 9,
        sent: Timestamp(3),
        estimate: ErrorEstimate(2),
        session: 0xabcd,
        received: Timestamp(4),
        sender,
        sender_ttl: 61,
    };
    let mut open = [0xff; BASE];
    reflected.write(&mut open, None);
    assert_eq!((open[3], open[11], open[13], open[23], open[40]), (9, 3, 2, 4, 61));
    assert_eq!(
        (&open[24..28], &open[28..38], &open[38..40], &open[41..]),
        (&head[..4], &head[4..14], &[0; 2][..], &[0; 3][..])
    );
    let mut closed = [0xff; AUTHENTICATED];
    reflected.write(&mut closed, Some(&hash));
    assert_eq!((closed[3], closed[23], closed[25], closed[39], closed[80]), (9, 3, 2, 4, 61));
    assert_eq!((&closed[48..52], &closed[64..74]), (&head[..4], &head[4..14]));
    for (bytes, mac) in [(&open[..], None), (&closed[..], Some(&hash as Mac<'_>))] {
        assert_eq!(ReflectorPacket::decode(bytes, mac), Ok(reflected));
    }
}

#[test]
fn timestamps_follow_ntp() {
    assert_eq!(Timestamp::ntp(Duration::ZERO).0, 2_208_988_800 << 32);
    assert_eq!(Timestamp::ntp(Duration::from_millis(500)).0 & 0xffff_ffff, 1 << 31);
    // The era ends on 2036-02-07 at 06:28:16.
    let end = Duration::from_secs((1 << 32) - 2_208_988_800);
    assert_eq!(Timestamp::ntp(end).0, 0);
    let (before, after) =
        (Timestamp::ntp(end - Duration::from_millis(3)), Timestamp::ntp(end + Duration::from_millis(4)));
    assert_eq!(after.nanos_since(before, TimestampFormat::Ntp), 7 * MILLI);
    assert_eq!(before.nanos_since(after, TimestampFormat::Ntp), -7 * MILLI);
    let ptp = |seconds: u64, nanos: u64| Timestamp(seconds << 32 | nanos);
    assert_eq!(ptp(11, 5).nanos_since(ptp(9, 999_999_999), TimestampFormat::Ptp), 1_000_000_006);
    assert_eq!(ptp(0, 0).nanos_since(ptp(0xffff_ffff, 0), TimestampFormat::Ptp), 1_000_000_000);
}

#[test]
fn error_estimate_is_never_below_the_error() {
    for micros in [0, 1, 50, 1_000, 999_999, 16_000_000] {
        let error = Duration::from_micros(micros);
        let estimate = ErrorEstimate::new(Some(error));
        assert!(estimate.is_synchronised() && estimate.format() == TimestampFormat::Ntp);
        let reported = estimate.error().unwrap();
        assert!(
            reported + Duration::from_nanos(1) >= error && reported <= error.mul_f64(1.02) + Duration::from_nanos(1),
            "{error:?} {reported:?}"
        );
    }
    assert!(!ErrorEstimate::new(None).is_synchronised());
    assert_eq!(ErrorEstimate(0x8000).error(), None, "a multiplier of zero");
    assert_eq!(ErrorEstimate(0x4001).format(), TimestampFormat::Ptp);
}

/// A reflector that answers one packet at a time.
struct Far {
    reflector: Reflector,
    out: Vec<u8>,
}

impl Far {
    fn new(is_stateful: bool) -> Self {
        Far { reflector: Reflector::new(is_stateful, 8620, ReflectorLimits::default()), out: Vec::new() }
    }

    fn answer(&mut self, bytes: &[u8], peer: SocketAddr, mac: Option<Mac<'_>>, nanos: i64) -> Result<&[u8], Ignored> {
        let arrival = ReceivedPacket { bytes, from: peer, received: stamp(nanos), ttl: Some(250) };
        let sent = stamp(nanos + 10 * MICRO);
        self.reflector.reflect(&arrival, sent, synchronised(), mac, at(nanos), &mut self.out)?;
        Ok(&self.out)
    }
}

#[test]
fn packet_with_a_wrong_hash_is_not_answered() {
    let mut far = Far::new(true);
    let mut sender = StampSender::new(5, synchronised());
    let packet = sender.packet(stamp(0));
    let bytes = packet.encode(Some(&hash));
    assert!(far.answer(&bytes, from(), Some(&hash), 0).is_ok());
    for at in 0..AUTHENTICATED {
        let mut wrong = bytes.clone();
        wrong[at] ^= 1;
        assert_eq!(
            far.answer(&wrong, from(), Some(&hash), 0),
            Err(Ignored::Packet(PacketError::WrongMac)),
            "byte {at}"
        );
    }
    assert_eq!(
        far.answer(&packet.encode(None), from(), Some(&hash), 0),
        Err(Ignored::Packet(PacketError::Short(44, 112)))
    );
}

#[test]
fn reflectors_do_not_answer_each_other() {
    let packet = StampSender::new(5, synchronised()).packet(stamp(0));
    for mac in [None, Some(&hash as Mac<'_>)] {
        let mut far = Far::new(true);
        let bytes = packet.encode(mac);
        for (port, answered) in [(0, false), (7, false), (862, false), (1023, false), (1024, true), (8620, false)] {
            let peer = SocketAddr::new([192, 0, 2, 1].into(), port);
            let expected = if answered { Ok(()) } else { Err(Ignored::Service(port)) };
            assert_eq!(far.answer(&bytes, peer, mac, 0).map(|_| ()), expected);
        }
        // Two reflectors on unusual ports do not answer each other either.
        let peer = SocketAddr::new([192, 0, 2, 1].into(), 8621);
        let answer = far.answer(&bytes, peer, mac, 5 * MILLI).unwrap().to_vec();
        assert_eq!(far.answer(&answer, peer, mac, 7 * MILLI), Err(Ignored::Reflected));
        assert_eq!(far.reflector.tally().unreadable, 6);
    }
}

#[test]
fn twamp_light_packets_are_answered() {
    let mut far = Far::new(true);
    for (number, length) in [(0u8, 41), (1, 42), (2, 44), (3, 100)] {
        // Number, timestamp, estimate, and padding without identifier and TLV.
        let mut bytes = vec![number ^ 0x5a; length];
        bytes[..14].copy_from_slice(&[0, 0, 0, number + 7, 0, 0, 0, 1, 0, 0, 0, 2, 0x80, 1]);
        let answer = far.answer(&bytes, from(), None, 0).unwrap().to_vec();
        assert_eq!(answer.len(), length);
        assert_eq!((answer[3], answer[27], answer[40]), (number, number + 7, 250), "one session, with any padding");
        assert_eq!(answer[14..16], [0, 0]);
    }
    assert_eq!(far.answer(&[0; 40], from(), None, 0), Err(Ignored::TooShort(40)));
    assert_eq!(far.answer(&[0; 13], from(), None, 0), Err(Ignored::Packet(PacketError::Short(13, 14))));
}

#[test]
fn tlvs_are_echoed_as_in_the_rfc() {
    let mut bytes = tlv::padding(10);
    assert_eq!(bytes, [0x80, 1, 0, 6, 0, 0, 0, 0, 0, 0]);
    // An unknown class of service; a TLV that extends beyond the end; a TLV after it that stays unchanged.
    bytes.extend([0x00, 4, 0, 4, 1, 2, 3, 4]);
    bytes.extend([0x80, 1, 0, 9, 0x80, 1, 0, 0]);
    let before = bytes.clone();
    tlv::reflect(&mut bytes);
    let mut expected = before;
    (expected[0], expected[10], expected[18]) = (0x00, 0x80, 0xc0);
    assert_eq!(bytes, expected);
    for length in 0..10 {
        assert_eq!(tlv::padding(length).len(), length);
    }
}

#[test]
fn limits_apply_per_second_and_sender() {
    let limits = ReflectorLimits { per_second: 5, per_second_and_address: 3 };
    let mut reflector = Reflector::new(true, 8620, limits);
    let mut out = Vec::new();
    let mut try_one = |peer: &str, nanos: i64| {
        let arrival = ReceivedPacket { bytes: &[0; BASE], from: peer.parse().unwrap(), received: stamp(0), ttl: None };
        reflector.reflect(&arrival, stamp(0), synchronised(), None, at(nanos), &mut out).is_ok()
    };
    let first: Vec<bool> = (0..5).map(|port| try_one(&format!("192.0.2.1:{}", 4000 + port), 1)).collect();
    assert_eq!(first, [true, true, true, false, false], "other ports are the same sender");
    assert_eq!(
        [try_one("192.0.2.2:4000", 2), try_one("192.0.2.3:4000", 3), try_one("192.0.2.4:4000", 4)],
        [true, true, false]
    );
    assert!(try_one("192.0.2.1:4000", 1_000 * MILLI + 1));
    let tally = reflector.tally();
    assert_eq!((tally.reflected, tally.too_many, tally.unreadable), (6, 3, 0));
}

#[test]
fn sessions_have_own_counts_and_expire() {
    let mut far = Far {
        reflector: Reflector::new(
            true,
            862,
            ReflectorLimits { per_second: u32::MAX, per_second_and_address: u32::MAX },
        ),
        out: Vec::new(),
    };
    let packet =
        |session: u16| SenderPacket { sequence: 3, sent: stamp(0), estimate: synchronised(), session }.encode(None);
    let mut number = |session: u16, port: u16, nanos: i64| {
        let peer = SocketAddr::new([192, 0, 2, 1].into(), 4000 + port);
        let answer = far.answer(&packet(session), peer, None, nanos).unwrap();
        ReflectorPacket::decode(answer, None).unwrap().sequence
    };
    assert_eq!([number(1, 1, 0), number(1, 1, 1), number(2, 1, 2), number(1, 2, 3), number(1, 1, 4)], [0, 1, 0, 0, 2]);
    // An active sender keeps its session while thousands of others come and go.
    for port in 0..20_000u32 {
        let nanos = 10 + i64::from(port);
        number(9, (port % 60_000) as u16 + 5, nanos);
        if port % 500 == 0 {
            assert_eq!(number(1, 1, nanos), 3 + port / 500);
        }
    }
    let later = SESSION_TIMEOUT.as_nanos() as i64 * 2;
    assert_eq!(number(1, 1, later), 0, "a new session of an old port");
    const { assert!(MAX_SESSIONS >= 1024) }
}

/// Treatment of one packet by a path.
#[derive(Debug, Clone, Copy)]
struct PacketOutcome {
    lost_forward: bool,
    lost_back: bool,
    doubled_forward: bool,
    doubled_back: bool,
    forward: i64,
    back: i64,
}

fn outcomes() -> impl Strategy<Value = Vec<PacketOutcome>> {
    let chance = || prop::bool::weighted(0.15);
    let delay = || prop_oneof![4 => 1i64..3, 1 => 1i64..60];
    let outcome = (chance(), chance(), chance(), chance(), delay(), delay()).prop_map(|f| PacketOutcome {
        lost_forward: f.0,
        lost_back: f.1,
        doubled_forward: f.2,
        doubled_back: f.3,
        forward: f.4 * MILLI,
        back: f.5 * MILLI,
    });
    proptest::collection::vec(outcome, 1..60)
}

/// Sends a packet every 10 ms over a path and a query after them; returns the report.
fn run(outcomes: &[PacketOutcome], is_stateful: bool, offset: i64) -> StampReport {
    let (mut far, mut sender) = (Far::new(is_stateful), StampSender::new(77, synchronised()));
    let (mut there, mut back) = (Vec::new(), Vec::new());
    for (number, outcome) in outcomes.iter().enumerate() {
        let sent = number as i64 * 10 * MILLI;
        let bytes = sender.packet(stamp(sent)).encode(None);
        let copies = if outcome.lost_forward { 0 } else { 1 + usize::from(outcome.doubled_forward) };
        (0..copies).for_each(|copy| there.push((sent + outcome.forward + copy as i64, number, bytes.clone())));
    }
    there.sort();
    for (at, number, bytes) in there {
        let outcome = outcomes[number];
        let answer = far.answer(&bytes, from(), None, at + offset).unwrap();
        let copies = if outcome.lost_back { 0 } else { 1 + usize::from(outcome.doubled_back) };
        (0..copies).for_each(|copy| back.push((at + 10 * MICRO + outcome.back + copy as i64, answer.to_vec())));
    }
    let end = 100_000 * MILLI;
    let question = sender.numbering_query(stamp(end)).encode(None);
    back.push((end + 2 * MILLI, far.answer(&question, from(), None, end + MILLI).unwrap().to_vec()));
    back.sort();
    for (at, bytes) in back {
        sender.record_answer(&ReflectorPacket::decode(&bytes, None).unwrap(), stamp(at));
    }
    sender.report(from(), 44, Duration::from_millis(10), false)
}

/// Counts late arrivals, given as `(time, number)`.
fn overtaken(mut arrivals: Vec<((i64, i64), usize)>) -> u64 {
    arrivals.sort();
    let mut highest = None;
    let mut late = 0;
    for (_, number) in arrivals {
        late += u64::from(Some(number) < highest);
        highest = highest.max(Some(number));
    }
    late
}

proptest! {
    /// With a counting reflector, the sender assigns each loss to its direction exactly.
    #[test]
    fn losses_are_assigned_to_directions(outcomes in outcomes(), offset in 0i64..1_000_000_000) {
        let report = run(&outcomes, true, offset);
        let forward = outcomes.iter().filter(|outcome| outcome.lost_forward).count() as u64;
        let back = outcomes.iter().filter(|outcome| !outcome.lost_forward && outcome.lost_back).count() as u64;
        prop_assert_eq!(report.sequence_numbers, ReflectorNumbering::Counted);
        prop_assert_eq!((report.sent, report.lost), (outcomes.len() as u64, forward + back));
        // A packet that was duplicated on the forward path, with its answers lost, counts for another packet.
        let hidden = outcomes.iter().any(|outcome| !outcome.lost_forward && outcome.lost_back && outcome.doubled_forward);
        if !hidden {
            prop_assert_eq!((report.lost_forward, report.lost_back), (Some(forward), Some(back)));
        }
        prop_assert_eq!(report.lost_forward.unwrap() + report.lost_back.unwrap(), report.lost);
        prop_assert_eq!(report.unmatched, 0);
        prop_assert_eq!(report.forward_hops, (report.answered > 0).then_some(5));
    }

    /// The sender recognises a copying reflector, and reports nothing that it cannot know.
    #[test]
    fn stateless_reflector_is_recognised(outcomes in outcomes()) {
        let report = run(&outcomes, false, 0);
        prop_assert_eq!(report.sequence_numbers, ReflectorNumbering::Copied);
        prop_assert_eq!(report.lost_forward.is_some(), report.lost == 0);
        prop_assert_eq!(report.reordered_back, None);
    }

    /// The report has the duplicates and delays of the path. A clock offset changes no round trip.
    #[test]
    fn delays_and_duplicates_match_the_path(outcomes in outcomes(), offset in 0i64..1_000_000_000) {
        let report = run(&outcomes, true, offset);
        let arrived: Vec<&PacketOutcome> = outcomes.iter().filter(|outcome| !outcome.lost_forward && !outcome.lost_back).collect();
        let copies: usize = arrived.iter()
            .map(|outcome| (1 + usize::from(outcome.doubled_forward)) * (1 + usize::from(outcome.doubled_back)) - 1).sum();
        prop_assert_eq!(report.duplicates, copies as u64);
        let near = |seconds: Figure, nanos: i64| (seconds.get() - nanos as f64 / 1e9).abs() < 3e-9;
        prop_assert_eq!(report.rtt.is_none(), arrived.is_empty());
        let Some(rtt) = report.rtt else { return Ok(()) };
        let rtts = || arrived.iter().map(|outcome| outcome.forward + outcome.back);
        prop_assert!(near(rtt.min_seconds, rtts().min().unwrap()) && near(rtt.max_seconds, rtts().max().unwrap()), "{:?}", rtt);
        let shortest = arrived.iter().map(|outcome| outcome.forward).min().unwrap();
        let longest = arrived.iter().map(|outcome| outcome.forward).max().unwrap();
        prop_assert!(near(report.forward_variation.unwrap().max_seconds, longest - shortest));
        let one_way = report.one_way.unwrap();
        prop_assert!(near(one_way.forward.min_seconds, shortest + offset), "{:?}", one_way);
        prop_assert!((0.0001..0.000_102).contains(&one_way.error_seconds.get()));
        prop_assert!(near(report.reflector_delay.unwrap().max_seconds, 10 * MICRO));
    }

    /// The report assigns reordering to its direction.
    #[test]
    fn reordering_is_assigned_to_directions(outcomes in outcomes()) {
        let outcomes: Vec<PacketOutcome> = outcomes.into_iter()
            .map(|outcome| PacketOutcome { lost_forward: false, lost_back: false, doubled_forward: false, doubled_back: false, ..outcome })
            .collect();
        let report = run(&outcomes, true, 0);
        let there = |n: usize| n as i64 * 10 * MILLI + outcomes[n].forward;
        let forward = overtaken((0..outcomes.len()).map(|n| ((there(n), 0), n)).collect());
        let whole = overtaken((0..outcomes.len()).map(|n| ((there(n) + outcomes[n].back, there(n)), n)).collect());
        prop_assert_eq!((report.reordered, report.reordered_forward), (whole, Some(forward)));
    }

    /// An answer has the length of its packet and changes no byte after the base packet except flags.
    #[test]
    fn answers_are_never_longer(bytes in proptest::collection::vec(any::<u8>(), 0..300), stateful: bool, authenticated: bool) {
        let mut far = Far::new(stateful);
        let mut bytes = bytes;
        if authenticated && bytes.len() >= AUTHENTICATED {
            let seal = hash(&bytes[..96]);
            bytes[96..AUTHENTICATED].copy_from_slice(&seal);
        }
        let mac: Option<Mac<'_>> = if authenticated { Some(&hash) } else { None };
        if let Ok(answer) = far.answer(&bytes, from(), mac, 0) {
            prop_assert_eq!(answer.len(), bytes.len());
            let base = if authenticated { AUTHENTICATED } else { BASE };
            for (before, after) in bytes.iter().zip(answer).skip(base) {
                prop_assert_eq!((before ^ after) & 0x3f, 0);
            }
        }
    }

    /// Answers without a sent packet, or with a wrong copy of its fields, count as nonsense and change no figure.
    #[test]
    fn invalid_answers_are_only_counted(bytes in proptest::collection::vec(any::<u8>(), 41..100), echo: bool) {
        let mut sender = StampSender::new(1, synchronised());
        let packet = sender.packet(stamp(0));
        let mut bytes = bytes;
        if echo {
            bytes[24..28].copy_from_slice(&packet.sequence.to_be_bytes());
        }
        if let Ok(packet) = ReflectorPacket::decode(&bytes, None) {
            sender.record_answer(&packet, stamp(MILLI));
            let report = sender.report(from(), 44, Duration::from_secs(1), false);
            prop_assert_eq!((report.unmatched, report.answered, report.lost), (1, 0, 1));
        }
    }
}

#[test]
fn impossible_reflector_delay_is_rejected() {
    let mut sender = StampSender::new(1, synchronised());
    let packet = sender.packet(stamp(0));
    let mut answer = ReflectorPacket {
        sequence: 0,
        sent: stamp(3 * MILLI),
        estimate: synchronised(),
        session: 1,
        received: stamp(MILLI),
        sender: packet,
        sender_ttl: 255,
    };
    sender.record_answer(&answer, stamp(MILLI));
    answer.sent = stamp(MILLI);
    answer.received = stamp(2 * MILLI);
    sender.record_answer(&answer, stamp(10 * MILLI));
    let report = sender.report(from(), 44, Duration::from_secs(1), false);
    assert_eq!((report.unmatched, report.answered), (2, 0));
    assert_eq!((report.rtt, report.one_way), (None, None));
}

#[test]
fn percentiles_use_the_nearest_rank() {
    let spread = DelayDistribution::of((1..=100).rev().map(|n| n * MILLI).collect()).unwrap();
    assert_eq!([spread.p50_seconds, spread.p95_seconds, spread.p99_seconds].map(Figure::get), [0.05, 0.095, 0.099]);
    assert_eq!([spread.min_seconds, spread.max_seconds, spread.mean_seconds].map(Figure::get), [0.001, 0.1, 0.0505]);
    assert_eq!(DelayDistribution::of(vec![]), None);
    assert_eq!(DelayDistribution::of(vec![i64::MAX, i64::MIN]).unwrap().p50_seconds.get(), i64::MIN as f64 / 1e9);
}
