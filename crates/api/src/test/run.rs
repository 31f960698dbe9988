//! Tests with an lfn server: one direction after the other, or both at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use lfn_measure::tester::{self, Test, TestError, TestProgress};
use lfn_results::evidence::Evidence;
use lfn_results::measure::TestDirection;
use lfn_results::path_report::PathReport;
use lfn_session::dial::Target;

use super::error::TestVerbError;
use super::options::TestOptions;
use super::path::{self, KnownPaths, with_tcp_mtu};
use super::recorder::TestRecorder;
use super::server;
use super::settings::settings;
use crate::resolve::{ReachedServer, ServerResolver};

/// Interval at which the caller's flag is read during two tests at the same time.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Runs all tests with an lfn server, which is reached first if it is not reached yet.
pub(super) fn run_tests(
    options: &TestOptions,
    resolver: &ServerResolver,
    reached: Option<&ReachedServer>,
    paths: KnownPaths,
    stop: &Arc<AtomicBool>,
    recorder: &mut TestRecorder<'_>,
) -> Result<(), TestVerbError> {
    let found;
    let server = match reached {
        Some(server) => server,
        None => {
            found = server::reach(options, resolver, stop)?;
            &found
        }
    };
    recorder.set_far_name(server::far_name(&options.server, server));
    let target = &server.target;
    let path = path::discover(options, target)?;
    if options.bidirectional {
        return run_both(options, paths, target, path.as_ref(), stop, recorder);
    }
    for &direction in &options.directions {
        let test = settings(options, paths, direction, stop);
        let number = recorder.begin(&test, false);
        let mut watch = |progress: TestProgress<'_>| recorder.progress(number, &progress);
        let evidence = tester::run(target, &test, &mut watch)
            .map_err(|error| path::explain(error, target, direction, &recorder.origin.hosts))?;
        let searched = if path.is_none() && path::is_stuck(&evidence) { path::search_mtu(target) } else { None };
        end_test(recorder, number, evidence, path.as_ref().or(searched.as_ref()));
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    Ok(())
}

fn end_test(recorder: &mut TestRecorder<'_>, number: usize, evidence: Evidence, path: Option<&PathReport>) {
    let path_report = with_tcp_mtu(path, &evidence);
    recorder.end(number, Evidence { path_report, ..evidence });
}

/// Runs both directions at the same time. One direction may have a result even if the other one fails.
fn run_both(
    options: &TestOptions,
    paths: KnownPaths,
    target: &Target,
    path: Option<&PathReport>,
    stop: &Arc<AtomicBool>,
    recorder: &mut TestRecorder<'_>,
) -> Result<(), TestVerbError> {
    // A failed test stops the other one. The flag of the caller stays as it is.
    let stop_both = Arc::new(AtomicBool::new(stop.load(Ordering::Relaxed)));
    let tests = [TestDirection::Forward, TestDirection::Reverse]
        .map(|direction| settings(options, paths, direction, &stop_both));
    let numbers = [recorder.begin(&tests[0], true), recorder.begin(&tests[1], true)];
    let measured = forward_stop(stop, &stop_both, || measure_both(target, &tests, numbers, recorder));
    let mut failure = None;
    for (number, measured) in numbers.into_iter().zip(measured) {
        match measured {
            Ok(evidence) => end_test(recorder, number, evidence, path),
            // The other direction was stopped because of the first failure.
            Err(error) if matches!(failure, None | Some(TestError::Stopped)) => failure = Some(error),
            Err(_) => {}
        }
    }
    failure.map_or(Ok(()), |error| Err(error.into()))
}

fn measure_both(
    target: &Target,
    tests: &[Test; 2],
    numbers: [usize; 2],
    recorder: &mut TestRecorder<'_>,
) -> [Result<Evidence, TestError>; 2] {
    tester::run_both(target, [&tests[0], &tests[1]], &mut |test, progress| {
        recorder.progress(numbers[test], &progress);
    })
}

/// Sets `to` as soon as `from` is set, during `work`.
fn forward_stop<T>(from: &AtomicBool, to: &AtomicBool, work: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) && !from.load(Ordering::Relaxed) {
                thread::sleep(POLL_INTERVAL);
            }
            if from.load(Ordering::Relaxed) {
                to.store(true, Ordering::Relaxed);
            }
        });
        let result = work();
        is_over.store(true, Ordering::Relaxed);
        result
    })
}
