//! Any text as settings of a link, one `KEY=VALUE` per line: parsed, written again, and used for a link.

#![no_main]

use lfn_base::time::Instant;
use lfn_base::units::{BitRate, Bytes, Ratio, duration_argument, parse_duration};
use lfn_link::settings::{EmulatedPath, HopSettings};
use lfn_link::{Link, LinkEvent, Packet};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let mut settings = HopSettings::default();
    for line in text.lines() {
        quantities(line);
        if let Err(error) = settings.set_pair(line) {
            let _ = (error.to_string(), error.hint());
        }
    }
    round_trip(&settings);
    match EmulatedPath::new(&[settings], 1500) {
        Ok(path) => send_one(&path),
        Err(error) => drop((error.to_string(), error.hint())),
    }
});

/// Text that is printed for arguments is read as the same value.
fn quantities(text: &str) {
    if let Ok(bytes) = text.parse::<Bytes>() {
        assert_eq!(bytes.to_argument().parse(), Ok(bytes));
    }
    if let Ok(rate) = text.parse::<BitRate>() {
        assert_eq!(rate.to_argument().parse(), Ok(rate));
    }
    if let Ok(ratio) = text.parse::<Ratio>() {
        assert_eq!(ratio.to_argument().parse(), Ok(ratio));
    }
    if let Ok(duration) = parse_duration(text) {
        assert_eq!(parse_duration(&duration_argument(duration)), Ok(duration));
    }
}

fn round_trip(settings: &HopSettings) {
    let mut again = HopSettings::default();
    for (key, value) in settings.entries() {
        again.set(&key, &value).unwrap_or_else(|error| panic!("{key}={value}: {error}"));
    }
    assert_eq!(&again, settings);
}

/// Accepted settings form a link: a packet leaves it or is dropped.
fn send_one(path: &EmulatedPath) {
    let mut link = Link::chain(&path.forward).expect("it was checked");
    link.push(Packet::single(0, 1514), Instant::ZERO);
    let mut left = 1;
    for _ in 0..1000 {
        let Some(next) = link.next_event_at() else { break };
        while let Some(event) = link.poll(next) {
            match event {
                LinkEvent::Duplicate { packet, .. } => left += packet.count,
                LinkEvent::Forward { packet, .. } | LinkEvent::Drop { packet, .. } => left -= packet.count,
            }
        }
    }
    assert_eq!((left, link.next_event_at()), (0, None));
}
