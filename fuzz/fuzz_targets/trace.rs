//! Any text as a trace: parsed, written again as CSV, and packets sent over a link that follows it.

#![no_main]

use std::time::Duration;

use lfn_base::time::Instant;
use lfn_link::settings::{EmulatedPath, HopSettings};
use lfn_link::trace::LinkTrace;
use lfn_link::{Link, LinkEvent, Packet};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let trace = match LinkTrace::parse("fuzz", text) {
        Ok(trace) => trace,
        Err(error) => return drop(error.to_string()),
    };
    let again = LinkTrace::parse("fuzz", &trace.to_csv()).expect("what is written can be read");
    assert_eq!((&again.rate, &again.delay, &again.loss), (&trace.rate, &trace.delay, &trace.loss));
    send_some(trace);
});

fn send_some(trace: LinkTrace) {
    let mut hop = HopSettings::default();
    for (given, text) in
        [(trace.rate.is_some(), "rate=10mbit"), (trace.delay.is_some(), "delay=5ms"), (false, "queue=9MB")]
    {
        if !given {
            hop.set_pair(text).expect("a setting");
        }
    }
    hop.both.trace = Some(Some(trace));
    let Ok(path) = EmulatedPath::new(&[hop], 1500) else { return };
    for config in [&path.forward, &path.back] {
        let mut link = Link::chain(config).expect("it was checked");
        for id in 0..40 {
            link.push(Packet::super_packet(id, 1 + id as u32, 1514, 60), Instant::ZERO + Duration::from_millis(7 * id));
        }
        let (mut left, mut due_before) = (40 * 41 / 2, Instant::ZERO);
        for _ in 0..100_000 {
            let Some(next) = link.next_event_at() else { break };
            while let Some(event) = link.poll(next.max(Instant::from_nanos(280_000_000))) {
                let (LinkEvent::Forward { packet, .. } | LinkEvent::Drop { packet, .. }) = event else {
                    panic!("{event:?}")
                };
                left -= packet.count;
                if let LinkEvent::Forward { due, .. } = event {
                    assert!(due >= due_before);
                    due_before = due;
                }
            }
        }
        assert_eq!((left, link.next_event_at()), (0, None));
    }
}
