//! Any datagram at a STAMP reflector and at a STAMP sender, as a path probe, and as an ICMP extension.

#![no_main]

use lfn_base::time::Instant;
use lfn_measure::proto::discover::extension::mpls;
use lfn_measure::proto::discover::probe::{HEADER_LENGTH, PathProbe};
use lfn_measure::proto::stamp::Mac;
use lfn_measure::proto::stamp::packet::{ErrorEstimate, ReflectorPacket, Timestamp};
use lfn_measure::proto::stamp::reflector::{ReceivedPacket, Reflector, ReflectorLimits};
use lfn_measure::proto::stamp::sender::StampSender;
use libfuzzer_sys::fuzz_target;

/// A hash of zeros, so that the fuzzer can pass the check easily.
fn hash(_: &[u8]) -> [u8; 16] {
    [0; 16]
}

fuzz_target!(|data: &[u8]| {
    let Some((&kind, bytes)) = data.split_first() else { return };
    let mac: Option<Mac<'_>> = if kind & 1 == 1 { Some(&hash) } else { None };
    let estimate = ErrorEstimate::new(None);

    let mut reflector = Reflector::new(kind & 2 == 2, 862, ReflectorLimits::default());
    let arrival = ReceivedPacket {
        bytes,
        from: ([192, 0, 2, 1], 4000).into(),
        received: Timestamp(u64::from(kind) << 40),
        ttl: Some(kind),
    };
    let mut out = Vec::new();
    for _ in 0..2 {
        if reflector.reflect(&arrival, Timestamp(7), estimate, mac, Instant::ZERO, &mut out).is_ok() {
            assert_eq!(out.len(), bytes.len());
        }
    }

    let mut sender = StampSender::new(0, estimate);
    sender.packet(Timestamp(0));
    sender.numbering_query(Timestamp(0));
    if let Ok(packet) = ReflectorPacket::decode(bytes, mac) {
        sender.record_answer(&packet, Timestamp(1 << 32));
        sender.record_answer(&packet, Timestamp(u64::MAX));
    }
    let report = sender.report(arrival.from, 44, std::time::Duration::ZERO, mac.is_some());
    assert!(report.answered <= 1 && report.lost + report.answered == 1);

    // The tag comes from the input itself, so that every input passes the check.
    let tag = bytes.get(20..HEADER_LENGTH).and_then(|tag| Some(u64::from_be_bytes(*tag.first_chunk()?))).unwrap_or(0);
    if let Some(probe) = PathProbe::decode(bytes, tag, u32::from(kind)) {
        assert_eq!(probe.encode(tag)[8..], bytes[8..HEADER_LENGTH]);
    }
    assert!(mpls(bytes).len() <= 16);
});
