//! The verb `sweep`: a designed set of tests.
//!
//! [`sweep()`] checks every point before the first test (`options`, `prepared`), predicts it (`predict`), and runs the tests
//! in the order of [`lfn_campaign::schedule`]. The server is resolved once. Each finished run is in the state file
//! (`state_file`) before the next one starts, so an interrupted sweep resumes (`running`).

mod error;
mod options;
mod predict;
mod prepared;
mod progress;
mod running;
mod state_file;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use lfn_campaign::document::SweepDocument;
use lfn_campaign::run::SweepRun;
use lfn_campaign::schedule::{Schedule, SweepEnd};

pub use error::{StateFileError, SweepError, SweepFailure};
pub use options::{RETRY_FOR, SweepOptions};
pub use progress::SweepProgress;

use crate::resolve::ServerResolver;
use prepared::PreparedSweep;
use running::RunningSweep;
use state_file::{StateFile, state_error};

/// Runs a sweep, or continues it from its state file. A set `stop` ends the running test, whose figures are not kept.
pub fn sweep(
    options: &SweepOptions,
    resolver: &ServerResolver,
    stop: &Arc<AtomicBool>,
    on_progress: &mut dyn FnMut(&SweepProgress<'_>),
) -> Result<SweepDocument, SweepFailure> {
    let refused = |error| SweepFailure { error: Box::new(error), document: None };
    let prepared = PreparedSweep::new(options, resolver).map_err(refused)?;
    let times = || prepared.planned.iter().map(|point| point.time).collect::<Vec<_>>();
    let existing = StateFile::open_existing(&prepared.state).map_err(refused)?;
    let stored = existing.as_ref().and_then(|existing| existing.stored.as_ref());
    let known_seed = stored.map(|stored| stored.header.seed).or(options.seed);
    let seed = match known_seed {
        Some(seed) => seed,
        None => random_seed().map_err(refused)?,
    };
    let header = prepared.header(seed);
    if let Some(stored) = stored {
        header
            .check(&stored.header, options.seed)
            .map_err(|error| refused(state_error(&prepared.state, StateFileError::Contents(error))))?;
    }
    let runs: Vec<SweepRun> = stored.map(|stored| stored.runs.clone()).unwrap_or_default();
    let schedule = Schedule::new(seed, options.goals, times(), runs);
    schedule.check_budget().map_err(|error| refused(SweepError::Budget(error)))?;
    if options.dry_run {
        return Ok(prepared.document(&schedule, known_seed, SweepEnd::DryRun, &[], None));
    }
    let state = match existing {
        None => StateFile::create(&prepared.state, &header).map_err(refused)?,
        Some(existing) => {
            let (state, is_cut) = existing.resume(&header).map_err(refused)?;
            if is_cut {
                on_progress(&SweepProgress::LineRemoved(&prepared.state));
            }
            state
        }
    };
    RunningSweep::new(prepared, resolver, stop, schedule, seed, state).run(on_progress)
}

fn random_seed() -> Result<u64, SweepError> {
    let mut bytes = [0; 4];
    getrandom::fill(&mut bytes).map_err(|error| SweepError::Random(std::io::Error::other(error)))?;
    // A short seed is easier to type.
    Ok(u32::from_le_bytes(bytes).into())
}
