//! Pictures of stored results: one result as after the test, or several results in the same plots.

use lfn_results::report::StoredResult;

use super::course::RunCourse;
use super::overlay::overlay;
use super::run::direction_name;
use super::{Album, test};

/// Returns the charts of stored results with the names of their files.
pub fn of_results(results: &[(String, StoredResult)]) -> Album {
    match results {
        [(_, StoredResult::Test(document))] => test::of_test(document),
        [(_, StoredResult::Tuning(document))] => test::of_tuning(document),
        _ => overlay(results.iter().flat_map(|(file, result)| courses(file, result)).collect()),
    }
}

fn courses(file: &str, result: &StoredResult) -> Vec<RunCourse> {
    let file = file.rsplit('/').next().unwrap_or(file);
    let named = |count: usize, direction| match count {
        1 => file.to_owned(),
        _ => format!("{file}, {}", direction_name(direction)),
    };
    match result {
        StoredResult::Test(document) => {
            let count = document.runs.len();
            document.runs.iter().map(|run| RunCourse::of_run(named(count, run.direction), run)).collect()
        }
        StoredResult::Tuning(document) => {
            let pairs = document.comparisons.iter();
            let runs = pairs.flat_map(|pair| {
                let tuned = pair.tuned.iter().map(|run| (format!("{file}, tuned"), run.as_ref()));
                std::iter::once((format!("{file}, own settings"), pair.now.as_ref())).chain(tuned)
            });
            runs.map(|(name, run)| RunCourse::of_run(name, run)).collect()
        }
        StoredResult::Iperf3(output) => {
            let courses = output.courses();
            let count = courses.len();
            courses.iter().map(|course| RunCourse::of_iperf3(named(count, course.direction), course)).collect()
        }
    }
}
