//! The steps of a run: fields of the model to the channel, and fields of the partner to the model.

use std::ffi::OsString;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use lfn_couple::channel::Channel;
use lfn_couple::coupling::Coupling;
use lfn_couple::netcdf::FieldFile;

use super::directory::{ExchangeDirectory, parse_field_name};
use super::error::CoupleRunError;
use super::event::{CoupleRunEvent, OnRunEvent};
use super::model::ModelProcess;
use super::model_end::ModelEnd;
use super::options::Exchange;
use super::watch::DirectoryWatch;

/// Value of `LFN_COUPLE_STEP` for the start of a model that is started for each step.
const START: &str = "start";

/// The loop over the steps of a run.
pub(super) struct StepLoop<'a> {
    pub coupling: &'a Coupling,
    pub component: &'a str,
    pub directory: &'a ExchangeDirectory,
    pub model: &'a ModelProcess,
    pub exchange: Exchange,
    pub on_event: &'a OnRunEvent,
    pub interrupted: &'a AtomicBool,
    /// The model can resume from a checkpoint.
    pub has_checkpoint: bool,
}

/// Reason for the end of the steps, with the step.
#[derive(Debug)]
pub(super) struct StepsError {
    pub step: u64,
    pub cause: CoupleRunError,
}

impl StepLoop<'_> {
    /// Runs all steps, and waits until the model ends.
    pub(super) fn run(&mut self, channel: &mut Channel) -> Result<(), StepsError> {
        let (first, steps) = (channel.first_step(), channel.steps());
        let at = |step| move |cause| StepsError { step, cause };
        match self.exchange {
            Exchange::Files => self.model.start(&self.variables(first)).map_err(at(first))?,
            Exchange::EachStep => self.run_once(first, None).map_err(at(first))?,
        }
        let watch = DirectoryWatch::new(&self.directory.output());
        for step in first..steps {
            if step + 1 == steps {
                self.model.permit_end();
            }
            self.step(channel, &watch, step, first).map_err(at(step))?;
        }
        if self.exchange == Exchange::Files {
            let end = self.model.wait(self.interrupted).map_err(at(steps - 1))?;
            if !end.is_success() {
                return Err(at(steps - 1)(self.ended(end, steps - 1)));
            }
        }
        Ok(())
    }

    fn step(
        &mut self,
        channel: &mut Channel,
        watch: &DirectoryWatch,
        step: u64,
        first: u64,
    ) -> Result<(), CoupleRunError> {
        channel.begin_step()?;
        self.put(channel, watch, step)?;
        if step > first {
            self.directory.delete_step(self.coupling, self.component, step - 1);
        }
        self.get(channel, step)?;
        match self.exchange {
            Exchange::Files => Ok(()),
            Exchange::EachStep => self.run_once(first, Some(step)),
        }
    }

    /// Puts the fields of the model, in the order in which they appear.
    fn put(&mut self, channel: &mut Channel, watch: &DirectoryWatch, step: u64) -> Result<(), CoupleRunError> {
        let mut missing: Vec<&String> = self.coupling.sent_by(self.component).map(|(name, _)| name).collect();
        let mut is_first = true;
        loop {
            // The model may write its last file and end, so its end is read before its files.
            let end = self.model.end();
            let (there, others): (Vec<_>, Vec<_>) =
                missing.into_iter().partition(|name| self.directory.own_field(name, step).exists());
            missing = others;
            if !there.is_empty() && is_first {
                is_first = false;
                self.report_checkpoint(channel, step)?;
            }
            for name in there {
                channel.put(name, &self.directory.take_field(self.coupling, name, step)?)?;
            }
            let Some(first_missing) = missing.first() else { break };
            if self.interrupted.load(Ordering::Relaxed) {
                return Err(CoupleRunError::Interrupted);
            }
            self.check_names()?;
            match (self.exchange, end) {
                (Exchange::Files, Some(end)) => return Err(self.ended(end, step)),
                (Exchange::EachStep, _) => {
                    let file = self.directory.own_field(first_missing, step);
                    return Err(CoupleRunError::NotWritten { command: self.model.name(), file });
                }
                (Exchange::Files, None) => watch.wait(),
            }
        }
        if is_first {
            // A component without variables of its own reports checkpoints, too.
            self.report_checkpoint(channel, step)?;
        }
        Ok(())
    }

    fn report_checkpoint(&mut self, channel: &mut Channel, step: u64) -> Result<(), CoupleRunError> {
        if self.directory.has_checkpoint(step) {
            channel.checkpoint()?;
            self.has_checkpoint = true;
            (self.on_event)(&CoupleRunEvent::Checkpoint { step });
        }
        Ok(())
    }

    /// Refuses files of variables that the component does not put, which a misspelt name causes.
    fn check_names(&self) -> Result<(), CoupleRunError> {
        let output = self.directory.output();
        let read = |source| CoupleRunError::Read { path: output.clone(), source };
        for entry in fs::read_dir(&output).map_err(read)? {
            let name = entry.map_err(read)?.file_name();
            let text = name.to_string_lossy();
            let Some((variable, _)) = parse_field_name(&text).filter(|_| !text.starts_with('.')) else { continue };
            let mut own = self.coupling.sent_by(self.component).map(|(name, _)| name.as_str());
            if !own.any(|own| own == variable) {
                let names: Vec<&str> = self.coupling.sent_by(self.component).map(|(name, _)| name.as_str()).collect();
                return Err(CoupleRunError::ForeignFile {
                    file: output.join(&name),
                    component: self.component.to_owned(),
                    known: names.join(", "),
                });
            }
        }
        Ok(())
    }

    /// Writes the partner's fields of this step for the model.
    fn get(&self, channel: &mut Channel, step: u64) -> Result<(), CoupleRunError> {
        let received = self.coupling.variables.iter().filter(|(_, variable)| variable.to == self.component);
        for (name, variable) in received {
            // A variable that may be dropped has no field before its first one arrives.
            let Some(field) = channel.get(name)? else { continue };
            let file = FieldFile {
                coupling: &self.coupling.name,
                component: &variable.from,
                variable: name,
                units: &variable.units,
                element: variable.element,
                shape: self.coupling.grids.get(&variable.grid).map_or(&[][..], |grid| &grid.shape),
                step,
                put_step: field.step,
            };
            self.directory.write_field(&file, &field.bytes)?;
        }
        self.directory.finish_input(step)
    }

    /// Runs the model for one step, or for its start.
    fn run_once(&self, first: u64, step: Option<u64>) -> Result<(), CoupleRunError> {
        let mut variables = self.variables(first);
        let (name, next) = step.map_or((START.to_owned(), first), |step| (step.to_string(), step + 1));
        variables.push(("LFN_COUPLE_STEP", name.into()));
        variables.push(("LFN_COUPLE_NEXT_STEP", next.to_string().into()));
        self.model.permit_end();
        self.model.start(&variables)?;
        let end = self.model.wait(self.interrupted)?;
        if end.is_success() { Ok(()) } else { Err(self.ended(end, step.unwrap_or(first))) }
    }

    fn ended(&self, end: ModelEnd, step: u64) -> CoupleRunError {
        CoupleRunError::ModelEnded { command: self.model.name(), end, step, is_resumable: false }
    }

    fn variables(&self, first: u64) -> Vec<(&'static str, OsString)> {
        vec![
            ("LFN_COUPLE_DIR", self.directory.path().into()),
            ("LFN_COUPLE_COMPONENT", self.component.into()),
            ("LFN_COUPLE_STEPS", self.coupling.steps.to_string().into()),
            ("LFN_COUPLE_FIRST_STEP", first.to_string().into()),
        ]
    }
}
