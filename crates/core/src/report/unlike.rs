//! What was not the same about results that are compared: a difference may come from it instead of from what is looked for.
//!
//! It is about how they were measured and over what. What each of them found is for `compare`.

use std::time::Duration;

use super::compare::Summary;
use super::document::Ended;
use super::read::Stored;
use crate::units::show_duration;
use crate::wire::test::{Data, Direction, Modes};

/// What a file holds of a test that failed.
pub(super) fn failed(file: &str, stored: &Stored) -> Option<String> {
    let Stored::Test(document) = stored else { return None };
    let why = document.error.as_ref().map(|error| format!(": {}", error.message)).unwrap_or_default();
    let has = if document.unfinished.is_some() { "a test that did not come to its end" } else { "a test that failed" };
    let is_whole = document.unfinished.is_none() && document.error.is_none();
    (!is_whole).then(|| format!("{file} has {has}, which is not compared{why}"))
}

/// What differs in how results of one direction were measured, each once; and which of them were broken off.
pub(super) fn warnings(results: &[Summary]) -> Vec<String> {
    let mut warnings = Vec::new();
    for direction in [Direction::Forward, Direction::Reverse] {
        let alike: Vec<&Summary> = results.iter().filter(|summary| summary.direction == direction).collect();
        for warning in unlike(&alike) {
            if !warnings.contains(&warning) {
                warnings.push(warning);
            }
        }
    }
    let interrupted = results.iter().filter(|summary| summary.ended == Ended::Interrupted);
    warnings.extend(interrupted.map(|summary| {
        let run = if summary.run > 0 { format!(" #{}", summary.run + 1) } else { String::new() };
        format!("{}{run} was interrupted after {}", summary.file, show_duration(summary.time))
    }));
    warnings
}

/// Two round trips that differ by less than this share, or by less than this, are of one path.
const SAME_RTT: (f64, Duration) = (1.1, Duration::from_millis(1));

fn unlike_rtt(results: &[&Summary]) -> Option<String> {
    let mut all: Vec<Duration> = results.iter().filter_map(|summary| summary.base_rtt).collect();
    all.sort();
    let (least, most) = (*all.first()?, *all.last()?);
    let is_same = most.as_secs_f64() <= SAME_RTT.0 * least.as_secs_f64() || most - least <= SAME_RTT.1;
    (!is_same).then(|| format!("not the same least RTT: {} to {}", show_duration(least), show_duration(most)))
}

fn unlike(results: &[&Summary]) -> Vec<String> {
    type Told = fn(&Summary) -> Option<String>;
    let settings: [(&str, Told); 13] = [
        ("path capacity", |s| s.capacity.map(|capacity| capacity.to_string())),
        ("queue of the path", |s| s.path?.queue.map(|queue| queue.to_string())),
        ("loss of the path", |s| s.path.map(|path| format!("{} %", path.loss.get() * 100.0))),
        ("load", |s| Some(if s.at_once { "both directions at once" } else { "one direction at a time" }.into())),
        ("way of moving bytes", |s| Some(s.modes.map_or("not told".into(), |modes| modes.to_string()))),
        ("payload", |s| s.data.map(|data| if data == Data::Zero { "zeros" } else { "random" }.into())),
        ("path MTU", |s| s.mtu.map(|mtu| format!("{mtu} B"))),
        ("protocol", |s| Some(s.protocol.clone())),
        ("congestion control", |s| s.congestion.clone()),
        ("full segment", |s| s.mss.map(|mss| format!("{mss} B"))),
        ("streams", |s| Some(s.streams.to_string())),
        ("duration", |s| Some(show_duration(Duration::from_secs(s.time.as_secs_f64().round() as u64)))),
        ("record", |s| s.record.map(|record| record.to_string())),
    ];
    let mut warnings: Vec<String> = unlike_rtt(results).into_iter().collect();
    for (name, told) in settings {
        let mut values: Vec<String> = Vec::new();
        for value in results.iter().filter_map(|summary| told(summary)) {
            if !values.contains(&value) {
                values.push(value);
            }
        }
        // What iperf3 does not tell is most likely what it does if nothing is asked.
        let likely = ["not told".to_owned(), Modes::default().to_string()];
        if values.len() > 1 && !values.iter().all(|value| likely.contains(value)) {
            warnings.push(format!("not the same {name}: {}", values.join(", ")));
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::super::compare::compare;
    use super::super::compare::tests::summary;
    use super::*;
    use crate::path::PathProfile;
    use crate::report::{Document, Failed, Unfinished};
    use crate::units::{BitRate, Bytes, Ratio};
    use crate::wire::test::Mode;

    #[test]
    fn ways_of_moving_bytes_are_never_mixed_up() {
        let of = |modes, mtu| Summary { modes, mtu, ..summary(vec![1e9; 9]) };
        let no_copy = Modes { near: Mode::NoCopy, far: Mode::Copying };
        let warned = |results: &[Summary]| warnings(results).join("; ");
        let copying = Some(Modes::default());
        assert_eq!(warned(&[of(copying, Some(1500)), of(copying, Some(1500)), of(None, None)]), "");
        assert_eq!(
            warned(&[of(copying, Some(1500)), of(Some(no_copy), Some(9000)), of(None, None)]),
            "not the same way of moving bytes: copying, no copy near and copying far, not told; \
             not the same path MTU: 1500 B, 9000 B"
        );
    }

    #[test]
    fn the_two_directions_are_no_runs_of_the_same_thing() {
        let of = |direction, mss, streams| Summary { direction, mss: Some(mss), streams, ..summary(vec![1e9; 10]) };
        let both = [of(Direction::Forward, 1448, 1), of(Direction::Reverse, 1428, 1)];
        assert_eq!(warnings(&both), [] as [String; 0]);
        let again = [of(Direction::Forward, 1448, 2), of(Direction::Reverse, 1428, 2)];
        let warned = warnings(&[both, again].concat());
        assert_eq!(warned, ["not the same streams: 1, 2"], "once for both directions");
    }

    #[test]
    fn other_paths_are_warned_of_and_jitter_is_no_other_path() {
        let ms = Duration::from_millis;
        let of = |rtt, path: PathProfile| Summary {
            base_rtt: Some(rtt),
            capacity: Some(path.capacity),
            path: Some(path),
            ..summary(vec![1e9; 9])
        };
        let path = PathProfile { queue: Some(Bytes(250_000)), ..PathProfile::new(BitRate(100_000_000), ms(20)) };
        let warned = |other: Summary| warnings(&[of(ms(20), path), other]);
        assert_eq!(warned(of(ms(21), path)), [] as [String; 0]);
        assert_eq!(warned(of(ms(40), path)), ["not the same least RTT: 20 ms to 40 ms"]);
        let slower = PathProfile { capacity: BitRate(50_000_000), ..path };
        assert_eq!(warned(of(ms(20), slower)), ["not the same path capacity: 100 Mb/s, 50 Mb/s"]);
        let lossy = PathProfile { loss: Ratio::new(0.001).unwrap(), queue: Some(Bytes(1_000_000)), ..path };
        assert_eq!(
            warned(of(ms(20), lossy)),
            ["not the same queue of the path: 250 kB, 1 MB", "not the same loss of the path: 0 %, 0.1 %"]
        );
        // A LAN's tenths of a millisecond, and a path of which nothing is known.
        let lan = |rtt| of(Duration::from_micros(rtt), path);
        assert_eq!(warnings(&[lan(100), lan(900)]), [] as [String; 0]);
        assert_eq!(
            warned(Summary { base_rtt: None, capacity: None, path: None, ..of(ms(20), path) }),
            [] as [String; 0]
        );
        // The way back is another path.
        let back = Summary { direction: Direction::Reverse, ..of(ms(40), slower) };
        assert_eq!(warned(back), [] as [String; 0]);
    }

    #[test]
    fn what_was_broken_off_is_warned_of() {
        let of = |ended, run| Summary { ended, run, time: Duration::from_secs(3), ..summary(vec![1e9; 9]) };
        let results = [of(Ended::Narrow, 0), of(Ended::Done, 0), of(Ended::Interrupted, 1)];
        assert_eq!(warnings(&results), ["x #2 was interrupted after 3 s"]);
        let document = Document {
            unfinished: Some(Unfinished::new(Default::default())),
            error: Some(Failed { message: "the server fell silent".into(), hint: None }),
            ..Document::default()
        };
        let named = |document: Document| compare(&[("x".into(), Stored::Test(Box::new(document)))]).warnings;
        assert_eq!(named(Document::default()), [] as [String; 0]);
        assert_eq!(
            named(Document { unfinished: None, ..document.clone() }),
            ["x has a test that failed, which is not compared: the server fell silent"]
        );
        assert_eq!(
            named(document),
            ["x has a test that did not come to its end, which is not compared: the server fell silent"]
        );
    }
}
