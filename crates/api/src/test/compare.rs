//! The comparison of the host's own settings with the settings of the plan.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lfn_base::units::Ratio;
use lfn_measure::tester::{self, TestProgress};
use lfn_results::diagnose::Cause;
use lfn_results::report::{Run, TuningDocument};
use lfn_session::dial::Target;

use super::error::{TestFailure, TestVerbError};
use super::event::TestEvent;
use super::options::TestOptions;
use super::path::{KnownPaths, known_paths};
use super::recorder::TestRecorder;
use super::{server, settings};
use crate::resolve::ServerResolver;

/// Runs each direction with the host's own settings and then with those of the plan, which knows the loss that limited
/// the first test. Returns the settings that make the difference. A set `stop` ends the load of the running test, and
/// later tests do not start.
pub fn compare(
    options: &TestOptions,
    resolver: &ServerResolver,
    stop: &Arc<AtomicBool>,
    on_event: &mut dyn FnMut(&TestEvent<'_>),
) -> Result<TuningDocument, TestFailure<TuningDocument>> {
    let invalid = |error: TestVerbError| TestFailure::without_document(error);
    options.check_comparison(&resolver.environment).map_err(|error| invalid(error.into()))?;
    let paths = known_paths(options.rate, &resolver.environment).map_err(|error| invalid(error.into()))?;
    let origin = server::origin(options, server::preliminary_name(&options.server));
    let mut recorder = TestRecorder::new(origin, server::arguments(options, resolver), on_event);
    let compared = server::reach(options, resolver, stop).and_then(|server| {
        recorder.set_far_name(server::far_name(&options.server, &server));
        compare_directions(options, paths, &server.target, stop, &mut recorder)
    });
    match compared {
        Ok(()) => Ok(recorder.tuning_document(None)),
        Err(error) => {
            let document = recorder.tuning_document(Some(error.command_error()));
            Err(TestFailure { error, document: Some(Box::new(document)) })
        }
    }
}

fn compare_directions(
    options: &TestOptions,
    paths: KnownPaths,
    target: &Target,
    stop: &Arc<AtomicBool>,
    recorder: &mut TestRecorder<'_>,
) -> Result<(), TestVerbError> {
    for &direction in &options.directions {
        let mut loss = None;
        for tuned in [false, true] {
            let options = TestOptions { tuned, ..options.clone() };
            let test = settings::with_loss(&options, paths, direction, loss, stop);
            let number = recorder.begin(&test, false);
            let mut watch = |progress: TestProgress<'_>| recorder.progress(number, &progress);
            let evidence = tester::run(target, &test, &mut watch)?;
            loss = limiting_loss(recorder.end(number, evidence));
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Returns the share of the sent data that was lost, if loss limited the test.
fn limiting_loss(run: &Run) -> Option<Ratio> {
    let losses = [Cause::Loss, Cause::RandomLoss, Cause::LossBursts];
    let mut findings = run.diagnosis.findings.iter();
    let loss = findings.find(|finding| finding.cause().is_some_and(|cause| losses.contains(&cause)))?;
    Ratio::new(loss.evidence.get("lost_share")?.as_f64()?)
}
