//! Any text as settings of a link: read, written again, made into a link. One setting a line, `KEY=VALUE`.

#![no_main]

use lfn_core::link::settings::{EmulatedPath, HopSettings};
use lfn_core::link::{Event, Link, Packet};
use lfn_core::time::Instant;
use lfn_core::units::{BitRate, Bytes, Ratio, parse_duration, typed_duration};
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

/// What is printed to be typed is read as what it was.
fn quantities(text: &str) {
    if let Ok(bytes) = text.parse::<Bytes>() {
        assert_eq!(bytes.typed().parse(), Ok(bytes));
    }
    if let Ok(rate) = text.parse::<BitRate>() {
        assert_eq!(rate.typed().parse(), Ok(rate));
    }
    if let Ok(ratio) = text.parse::<Ratio>() {
        assert_eq!(ratio.typed().parse(), Ok(ratio));
    }
    if let Ok(duration) = parse_duration(text) {
        assert_eq!(parse_duration(&typed_duration(duration)), Ok(duration));
    }
}

fn round_trip(settings: &HopSettings) {
    let mut again = HopSettings::default();
    for (key, value) in settings.given() {
        again.set(&key, &value).unwrap_or_else(|error| panic!("{key}={value}: {error}"));
    }
    assert_eq!(&again, settings);
}

/// What was accepted is a link: a packet comes out of it one way or the other.
fn send_one(path: &EmulatedPath) {
    let mut link = Link::chain(&path.forward).expect("it was checked");
    link.push(Packet::single(0, 1514), Instant::ZERO);
    let mut left = 1;
    for _ in 0..1000 {
        let Some(next) = link.next() else { break };
        while let Some(event) = link.poll(next) {
            match event {
                Event::Duplicate { packet, .. } => left += packet.count,
                Event::Forward { packet, .. } | Event::Drop { packet, .. } => left -= packet.count,
            }
        }
    }
    assert_eq!((left, link.next()), (0, None));
}
