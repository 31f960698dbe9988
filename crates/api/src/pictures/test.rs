//! Pictures of `lfn test` and `lfn test --compare`.

use std::collections::VecDeque;

use lfn_results::report::{Run, TestDocument, TuningDocument};

use super::course::RunCourse;
use super::overlay::overlay;
use super::run::{self, direction_name, facts};
use super::{Album, Chart};

/// Returns the charts of a test; none if no run has finished.
pub fn of_test(document: &TestDocument) -> Album {
    let hosts = &document.origin.hosts;
    of_runs(&document.runs, &hosts.near, &hosts.far, &document.origin.started)
}

/// Returns the charts of runs in one or two directions.
pub(super) fn of_runs(runs: &[Run], near: &str, far: &str, started: &str) -> Album {
    let mut lines = vec![format!("{near} → {far}, {started}")];
    lines.extend(runs.iter().map(facts));
    let warning = runs.iter().find(|run| run.is_unreliable()).map(|run| match run.evidence.has_wrong_bytes() {
        true => "the receiver found wrong bytes".to_owned(),
        false => run.diagnosis.verdict.summary.clone(),
    });
    let mut album = Album { title: "Test of a path".into(), lines, warning, charts: Vec::new() };
    let is_one = runs.len() == 1;
    let mut charts_of_runs: Vec<VecDeque<Chart>> = Vec::new();
    for (number, run) in runs.iter().enumerate() {
        let name = direction_name(run.direction);
        let is_repeated = runs.iter().filter(|other| other.direction == run.direction).count() > 1;
        let number = if is_repeated { format!("-{}", number + 1) } else { String::new() };
        let prefix = if is_one { String::new() } else { format!("{}{number}-", name.replace(' ', "-")) };
        let suffix = if is_one { String::new() } else { format!(", {name}{}", number.replace('-', " ")) };
        run::add(&mut album, run, &prefix, &suffix);
        charts_of_runs.push(album.charts.drain(..).collect());
    }
    // The same chart of all runs, then the next chart: both directions are side by side.
    while charts_of_runs.iter().any(|charts| !charts.is_empty()) {
        album.charts.extend(charts_of_runs.iter_mut().filter_map(VecDeque::pop_front));
    }
    album
}

/// Returns the charts of a comparison: each direction with the settings of the host and with those of the plan.
pub fn of_tuning(document: &TuningDocument) -> Album {
    let mut runs = Vec::new();
    for pair in &document.comparisons {
        let name = direction_name(pair.direction);
        runs.push((format!("{name}, settings of this host"), pair.now.as_ref()));
        runs.extend(pair.tuned.as_deref().map(|tuned| (format!("{name}, tuned"), tuned)));
    }
    let hosts = &document.origin.hosts;
    let mut album = overlay(runs.into_iter().map(|(name, run)| RunCourse::of_run(name, run)).collect());
    album.title = "Settings of this host and tuned".into();
    album.lines.insert(0, format!("{} → {}, {}", hosts.near, hosts.far, document.origin.started));
    album
}
