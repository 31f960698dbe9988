//! Different settings of compared results: a difference in goodput may come from them.
//!
//! This module compares settings and paths. The module `compare` compares the measured figures.

use std::time::Duration;

use lfn_base::units::show_duration;

use super::read::StoredResult;
use super::run_summary::RunSummary;
use crate::evidence::EndReason;
use crate::measure::{Modes, PayloadData, TestDirection};

/// Returns a warning if the file holds a test that failed.
pub(super) fn failure_warning(file: &str, stored: &StoredResult) -> Option<String> {
    let StoredResult::Test(document) = stored else { return None };
    let why = document.error.as_ref().map(|error| format!(": {}", error.message)).unwrap_or_default();
    let state = if document.unfinished.is_some() { "an unfinished test" } else { "a failed test" };
    let is_whole = document.unfinished.is_none() && document.error.is_none();
    (!is_whole).then(|| format!("{file} has {state}, which is not compared{why}"))
}

/// Returns warnings about different settings within one direction, each once, and about interrupted tests.
pub(super) fn warnings(results: &[RunSummary]) -> Vec<String> {
    let mut warnings = Vec::new();
    for direction in [TestDirection::Forward, TestDirection::Reverse] {
        let alike: Vec<&RunSummary> = results.iter().filter(|summary| summary.direction == direction).collect();
        for warning in differing_settings(&alike) {
            if !warnings.contains(&warning) {
                warnings.push(warning);
            }
        }
    }
    let interrupted = results.iter().filter(|summary| summary.ended == EndReason::Interrupted);
    warnings.extend(interrupted.map(|summary| {
        let run = if summary.run > 0 { format!(" #{}", summary.run + 1) } else { String::new() };
        format!("{}{run} was interrupted after {}", summary.file, show_duration(summary.time))
    }));
    warnings
}

/// Two RTTs belong to the same path if they differ by less than this factor or by less than this time.
const SAME_RTT: (f64, Duration) = (1.1, Duration::from_millis(1));

fn differing_rtt(results: &[&RunSummary]) -> Option<String> {
    let mut all: Vec<Duration> = results.iter().filter_map(|summary| summary.base_rtt).collect();
    all.sort();
    let (min, max) = (*all.first()?, *all.last()?);
    let is_same = max.as_secs_f64() <= SAME_RTT.0 * min.as_secs_f64() || max - min <= SAME_RTT.1;
    (!is_same).then(|| format!("different base RTT: {} to {}", show_duration(min), show_duration(max)))
}

fn differing_settings(results: &[&RunSummary]) -> Vec<String> {
    type Setting = fn(&RunSummary) -> Option<String>;
    let settings: [(&str, Setting); 13] = [
        ("path capacity", |s| s.capacity.map(|capacity| capacity.to_string())),
        ("path queue", |s| s.path?.queue.map(|queue| queue.to_string())),
        ("path loss", |s| s.path.map(|path| format!("{} %", path.loss.get() * 100.0))),
        ("load", |s| Some(if s.bidirectional { "both directions at once" } else { "one direction at a time" }.into())),
        ("data path", |s| Some(s.modes.map_or("unknown".into(), |modes| modes.to_string()))),
        ("payload", |s| s.data.map(|data| if data == PayloadData::Zero { "zeros" } else { "random" }.into())),
        ("path MTU", |s| s.mtu.map(|mtu| format!("{mtu} B"))),
        ("protocol", |s| Some(s.protocol.clone())),
        ("congestion control", |s| s.congestion.clone()),
        ("MSS", |s| s.mss.map(|mss| format!("{mss} B"))),
        ("streams", |s| Some(s.streams.to_string())),
        ("duration", |s| Some(show_duration(Duration::from_secs(s.time.as_secs_f64().round() as u64)))),
        ("record", |s| s.record.map(|record| record.to_string())),
    ];
    let mut warnings: Vec<String> = differing_rtt(results).into_iter().collect();
    for (name, setting) in settings {
        let mut values: Vec<String> = Vec::new();
        for value in results.iter().filter_map(|summary| setting(summary)) {
            if !values.contains(&value) {
                values.push(value);
            }
        }
        // A setting that iperf3 does not report is most likely its default.
        let likely = ["unknown".to_owned(), Modes::default().to_string()];
        if values.len() > 1 && !values.iter().all(|value| likely.contains(value)) {
            warnings.push(format!("different {name}: {}", values.join(", ")));
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use lfn_base::path::PathProfile;
    use lfn_base::units::{BitRate, Bytes, Ratio};

    use super::super::compare::compare;
    use super::super::compare::tests::summary;
    use super::*;
    use crate::measure::Mode;
    use crate::report::{CommandError, TestDocument, UnfinishedTest};

    #[test]
    fn different_data_paths_are_reported() {
        let of = |modes, mtu| RunSummary { modes, mtu, ..summary(vec![1e9; 9]) };
        let no_copy = Modes { near: Mode::NoCopy, far: Mode::Copying };
        let warned = |results: &[RunSummary]| warnings(results).join("; ");
        let copying = Some(Modes::default());
        assert_eq!(warned(&[of(copying, Some(1500)), of(copying, Some(1500)), of(None, None)]), "");
        assert_eq!(
            warned(&[of(copying, Some(1500)), of(Some(no_copy), Some(9000)), of(None, None)]),
            "different data path: copying, no copy near and copying far, unknown; \
             different path MTU: 1500 B, 9000 B"
        );
    }

    #[test]
    fn the_two_directions_are_compared_separately() {
        let of = |direction, mss, streams| RunSummary { direction, mss: Some(mss), streams, ..summary(vec![1e9; 10]) };
        let both = [of(TestDirection::Forward, 1448, 1), of(TestDirection::Reverse, 1428, 1)];
        assert_eq!(warnings(&both), [] as [String; 0]);
        let again = [of(TestDirection::Forward, 1448, 2), of(TestDirection::Reverse, 1428, 2)];
        let warned = warnings(&[both, again].concat());
        assert_eq!(warned, ["different streams: 1, 2"], "once for both directions");
    }

    #[test]
    fn another_path_is_reported_but_jitter_is_not() {
        let ms = Duration::from_millis;
        let of = |rtt, path: PathProfile| RunSummary {
            base_rtt: Some(rtt),
            capacity: Some(path.capacity),
            path: Some(path),
            ..summary(vec![1e9; 9])
        };
        let path = PathProfile { queue: Some(Bytes(250_000)), ..PathProfile::new(BitRate(100_000_000), ms(20)) };
        let warned = |other: RunSummary| warnings(&[of(ms(20), path), other]);
        assert_eq!(warned(of(ms(21), path)), [] as [String; 0]);
        assert_eq!(warned(of(ms(40), path)), ["different base RTT: 20 ms to 40 ms"]);
        let slower = PathProfile { capacity: BitRate(50_000_000), ..path };
        assert_eq!(warned(of(ms(20), slower)), ["different path capacity: 100 Mb/s, 50 Mb/s"]);
        let lossy = PathProfile { loss: Ratio::new(0.001).unwrap(), queue: Some(Bytes(1_000_000)), ..path };
        assert_eq!(
            warned(of(ms(20), lossy)),
            ["different path queue: 250 kB, 1 MB", "different path loss: 0 %, 0.1 %"]
        );
        // Tenths of a millisecond on a LAN, and a path without known figures.
        let lan = |rtt| of(Duration::from_micros(rtt), path);
        assert_eq!(warnings(&[lan(100), lan(900)]), [] as [String; 0]);
        assert_eq!(
            warned(RunSummary { base_rtt: None, capacity: None, path: None, ..of(ms(20), path) }),
            [] as [String; 0]
        );
        // The reverse direction is another path.
        let back = RunSummary { direction: TestDirection::Reverse, ..of(ms(40), slower) };
        assert_eq!(warned(back), [] as [String; 0]);
    }

    #[test]
    fn interrupted_and_failed_tests_are_reported() {
        let of = |ended, run| RunSummary { ended, run, time: Duration::from_secs(3), ..summary(vec![1e9; 9]) };
        let results = [of(EndReason::Converged, 0), of(EndReason::Completed, 0), of(EndReason::Interrupted, 1)];
        assert_eq!(warnings(&results), ["x #2 was interrupted after 3 s"]);
        let document = TestDocument {
            unfinished: Some(UnfinishedTest::new(Default::default())),
            error: Some(CommandError { message: "the server fell silent".into(), hint: None }),
            ..TestDocument::default()
        };
        let named = |document: TestDocument| compare(&[("x".into(), StoredResult::Test(Box::new(document)))]).warnings;
        assert_eq!(named(TestDocument::default()), [] as [String; 0]);
        assert_eq!(
            named(TestDocument { unfinished: None, ..document.clone() }),
            ["x has a failed test, which is not compared: the server fell silent"]
        );
        assert_eq!(named(document), ["x has an unfinished test, which is not compared: the server fell silent"]);
    }
}
