//! The verb `couple run`: couples a model that reads and writes files.
//!
//! The model and lfn share a directory ([`directory`]). In step n the model writes `out/VARIABLE.n.nc` for each of its variables.
//! lfn puts these fields into the channel, and writes the fields of the partner for step n to `in/VARIABLE.n.nc`. Both sides
//! rename complete files to these names, so that neither reads a part of a file.
//!
//! The model runs once for all steps ([`Exchange::Files`]), or once for each step ([`Exchange::EachStep`]).

mod directory;
mod error;
mod event;
mod model;
mod model_end;
mod options;
mod steps;
#[cfg(test)]
mod tests;
mod watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lfn_couple::channel::{Channel, ChannelError, RunReport};

pub use error::{CoupleRunError, ModelPhase};
pub use event::{CoupleRunEvent, OnRunEvent};
pub use model_end::ModelEnd;
pub use options::{CoupleRunOptions, Exchange, listen_options};

use directory::ExchangeDirectory;
use model::ModelProcess;
use steps::{StepLoop, StepsError};

/// Runs one component until its last step, and returns the figures of both. `interrupted` stops the run at both ends.
pub fn run(
    options: CoupleRunOptions,
    on_event: OnRunEvent,
    interrupted: Arc<AtomicBool>,
) -> Result<RunReport, CoupleRunError> {
    let CoupleRunOptions { channel: channel_options, exchange, command, directory, keep } = options;
    let (coupling, component) = (channel_options.coupling.clone(), channel_options.component.clone());
    let directory = ExchangeDirectory::create(directory, &coupling, keep)?;
    let model = Arc::new(ModelProcess::new(command));
    let (on_channel, ended, stop) = (on_event.clone(), model.clone(), interrupted.clone());
    let mut channel = Channel::open(
        channel_options,
        move |event| on_channel(&CoupleRunEvent::Channel(event)),
        move || stop.load(Ordering::Relaxed) || ended.has_ended_early(),
    )?;
    let first_step = channel.first_step();
    on_event(&CoupleRunEvent::Started { directory: directory.path(), first_step });
    let mut steps = StepLoop {
        coupling: &coupling,
        component: &component,
        directory: &directory,
        model: &model,
        exchange,
        on_event: &on_event,
        interrupted: &interrupted,
        has_checkpoint: first_step > 0,
        confirmed: None,
    };
    let done = steps.run(&mut channel);
    let has_checkpoint = steps.has_checkpoint && coupling.components.get(&component).is_some_and(|it| it.checkpoints);
    match done {
        Ok(()) => Ok(channel.finish()?),
        Err(error) => {
            let error = cause(error, &model, &interrupted, has_checkpoint);
            if error.keeps_partner() {
                channel.leave(&error.reason());
            } else {
                channel.stop(&error.reason());
            }
            model.stop();
            Err(error)
        }
    }
}

/// Returns the cause of the end of a run. The end of the model and a signal also end the waits of the channel.
fn cause(error: StepsError, model: &ModelProcess, interrupted: &AtomicBool, has_checkpoint: bool) -> CoupleRunError {
    let ended = |end: ModelEnd, phase, step| CoupleRunError::ModelEnded {
        command: model.name(),
        end,
        phase,
        step,
        is_resumable: has_checkpoint,
    };
    match error.cause {
        _ if interrupted.load(Ordering::Relaxed) => CoupleRunError::Interrupted,
        CoupleRunError::Channel(ChannelError::Interrupted) => match model.end() {
            Some(end) => ended(end, ModelPhase::Step, error.step),
            None => CoupleRunError::Interrupted,
        },
        CoupleRunError::ModelEnded { end, phase, .. } => ended(end, phase, error.step),
        other => other,
    }
}
