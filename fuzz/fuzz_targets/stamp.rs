//! Any datagram at a STAMP reflector and at a sender, and any datagram as a path probe or an ICMP extension.

#![no_main]

use lfn_core::discover::extension::mpls;
use lfn_core::discover::probe::{HEAD, PathProbe};
use lfn_core::stamp::Mac;
use lfn_core::stamp::packet::{ErrorEstimate, ReflectorPacket, Timestamp};
use lfn_core::stamp::reflector::{Arrival, Limits, Reflector};
use lfn_core::stamp::sender::Sender;
use lfn_core::time::Instant;
use libfuzzer_sys::fuzz_target;

/// Right for whatever ends in zeros, so that the fuzzer gets past it.
fn hash(_: &[u8]) -> [u8; 16] {
    [0; 16]
}

fuzz_target!(|data: &[u8]| {
    let Some((&kind, bytes)) = data.split_first() else { return };
    let mac: Option<Mac<'_>> = if kind & 1 == 1 { Some(&hash) } else { None };
    let estimate = ErrorEstimate::new(None);

    let mut reflector = Reflector::new(kind & 2 == 2, 862, Limits::default());
    let arrival = Arrival {
        bytes,
        from: ([192, 0, 2, 1], 4000).into(),
        received: Timestamp(u64::from(kind) << 40),
        ttl: Some(kind),
    };
    let mut out = Vec::new();
    for _ in 0..2 {
        if reflector.reflect(&arrival, (Timestamp(7), estimate), mac, Instant::ZERO, &mut out).is_ok() {
            assert_eq!(out.len(), bytes.len());
        }
    }

    let mut sender = Sender::new(0, estimate);
    sender.packet(Timestamp(0));
    sender.question(Timestamp(0));
    if let Ok(packet) = ReflectorPacket::decode(bytes, mac) {
        sender.answered(&packet, Timestamp(1 << 32));
        sender.answered(&packet, Timestamp(u64::MAX));
    }
    let report = sender.report(arrival.from, 44, std::time::Duration::ZERO, mac.is_some());
    assert!(report.answered <= 1 && report.lost + report.answered == 1);

    // The tag is taken from where it stands, so that every input gets past it.
    let tag = bytes.get(20..HEAD).and_then(|tag| Some(u64::from_be_bytes(*tag.first_chunk()?))).unwrap_or(0);
    if let Some(probe) = PathProbe::decode(bytes, tag, u32::from(kind)) {
        assert_eq!(probe.encode(tag)[8..], bytes[8..HEAD]);
    }
    assert!(mpls(bytes).len() <= 16);
});
