//! Any datagrams at the receiver of a UDP stream are read and counted, and the sums are correct.

#![no_main]

use lfn_measure::proto::udp::datagram::{DatagramHeader, HEADER_LENGTH};
use lfn_measure::proto::udp::receiver::{ArrivalKind, DatagramReceiver};
use lfn_measure::proto::udp::step::StepMeter;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((first, rest)) = bytes.split_first_chunk::<8>() else { return };
    let tag = u64::from_be_bytes(*first);
    let (mut receiver, mut step, mut taken) = (DatagramReceiver::default(), StepMeter::new(0), 0);
    let mut at = 0u64;
    // Each chunk is a header. Half of them get the tag and the magic number, so that they reach the counters.
    for chunk in rest.chunks(HEADER_LENGTH) {
        let mut datagram = chunk.to_vec();
        if datagram.len() == HEADER_LENGTH && datagram[5] & 1 == 0 {
            datagram[..4].copy_from_slice(b"lfnU");
            datagram[4] %= 3;
            datagram[8..16].copy_from_slice(first);
            // Some numbers are close to each other.
            if datagram[6] & 1 == 0 {
                datagram[16..22].fill(0);
            }
        }
        let Ok(head) = DatagramHeader::read(&datagram, tag) else { continue };
        at = at.wrapping_add(u64::from(head.extra));
        taken += 1;
        if matches!(receiver.arrived(head.sequence, head.sent, at), ArrivalKind::InOrder | ArrivalKind::Late) {
            step.arrived(head.sent, at);
        }
    }
    receiver.finish(tag);
    let figures = receiver.figures();
    assert_eq!(figures.datagrams + figures.duplicates + figures.too_late, taken);
    assert_eq!(figures.datagrams + figures.lost, receiver.next());
    assert!(step.figures().delay_growth_seconds.get().is_finite());
    serde_json::to_string(&figures).expect("finite figures");
});
