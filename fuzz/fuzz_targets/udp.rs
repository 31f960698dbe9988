//! Any datagrams at the receiver of a UDP stream: read, accounted for, and the sums hold.

#![no_main]

use lfn_core::udp::datagram::{Head, LENGTH};
use lfn_core::udp::step::StepMeter;
use lfn_core::udp::receiver::{Arrival, Receiver};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((first, rest)) = bytes.split_first_chunk::<8>() else { return };
    let tag = u64::from_be_bytes(*first);
    let (mut receiver, mut step, mut taken) = (Receiver::default(), StepMeter::new(0), 0);
    let mut at = 0u64;
    // Each datagram a head; half of them are given the tag and magic they lack, so that the account is reached.
    for chunk in rest.chunks(LENGTH) {
        let mut datagram = chunk.to_vec();
        if datagram.len() == LENGTH && datagram[5] & 1 == 0 {
            datagram[..4].copy_from_slice(b"lfnU");
            datagram[4] %= 3;
            datagram[8..16].copy_from_slice(first);
            // Numbers near each other, or anywhere.
            if datagram[6] & 1 == 0 {
                datagram[16..22].fill(0);
            }
        }
        let Ok(head) = Head::read(&datagram, tag) else { continue };
        at = at.wrapping_add(u64::from(head.extra));
        taken += 1;
        if matches!(receiver.arrived(head.sequence, head.sent, at), Arrival::InOrder | Arrival::Late) {
            step.arrived(head.sent, at);
        }
    }
    receiver.finish(tag);
    let figures = receiver.figures();
    assert_eq!(figures.datagrams + figures.duplicates + figures.too_late, taken);
    assert_eq!(figures.datagrams + figures.lost, receiver.next());
    assert!(step.seen().delay_growth_seconds.get().is_finite());
    serde_json::to_string(&figures).expect("figures are printable");
});
