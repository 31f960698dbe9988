//! The steps of a run: fields of the model to the channel, and fields of the partner to the model.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

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

/// Time without the files of the model after which it is reported for the first time. The time doubles for each further report.
const FIRST_REPORT: Duration = Duration::from_secs(10);

/// A file with which a model begins a step.
#[derive(Debug, Clone, Copy)]
enum Awaited<'a> {
    /// A field of a variable.
    Field(&'a String),
    /// The file of the step itself, because the component has no variables of its own.
    Step,
}

impl Awaited<'_> {
    fn file(self, directory: &ExchangeDirectory, step: u64) -> PathBuf {
        match self {
            Awaited::Field(name) => directory.own_field(name, step),
            Awaited::Step => directory.own_step(step),
        }
    }
}

/// Returns the files with which the model of a component begins a step.
fn awaited<'a>(coupling: &'a Coupling, component: &'a str, exchange: Exchange) -> Vec<Awaited<'a>> {
    let fields: Vec<_> = coupling.sent_by(component).map(|(name, _)| Awaited::Field(name)).collect();
    match exchange {
        Exchange::Files if fields.is_empty() => vec![Awaited::Step],
        Exchange::Files | Exchange::EachStep => fields,
    }
}

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
            Exchange::EachStep => self.run_once(channel, first, None).map_err(at(first))?,
        }
        let watch = DirectoryWatch::new(&self.directory.output());
        for step in first..steps {
            if step + 1 == steps {
                self.model.permit_end();
            }
            self.step(channel, &watch, step, first).map_err(at(step))?;
        }
        if self.exchange == Exchange::Files {
            let end = self.model.wait(|| self.check(channel)).map_err(at(steps - 1))?;
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
            Exchange::EachStep => self.run_once(channel, first, Some(step)),
        }
    }

    /// Returns the error that ends the run: a signal, or the end of the run at the partner.
    fn check(&self, channel: &Channel) -> Result<(), CoupleRunError> {
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(CoupleRunError::Interrupted);
        }
        Ok(channel.check_run()?)
    }

    /// Puts the fields of the model, in the order in which they appear.
    fn put(&mut self, channel: &mut Channel, watch: &DirectoryWatch, step: u64) -> Result<(), CoupleRunError> {
        let (coupling, directory) = (self.coupling, self.directory);
        let mut missing = awaited(coupling, self.component, self.exchange);
        let mut is_reported = false;
        let (start, mut next_report) = (Instant::now(), FIRST_REPORT);
        loop {
            // The model may write its last file and end, so its end is read before its files.
            let end = self.model.end();
            let (there, others): (Vec<_>, Vec<_>) =
                missing.into_iter().partition(|awaited| awaited.file(directory, step).exists());
            missing = others;
            if (!there.is_empty() || missing.is_empty()) && !is_reported {
                is_reported = true;
                self.report_checkpoint(channel, step)?;
            }
            for awaited in there {
                match awaited {
                    Awaited::Field(name) => channel.put(name, &directory.take_field(coupling, name, step)?)?,
                    Awaited::Step => directory.take_step(step),
                }
            }
            self.check_names()?;
            let Some(file) = missing.first().map(|awaited| awaited.file(directory, step)) else { return Ok(()) };
            self.check(channel)?;
            match (self.exchange, end) {
                (Exchange::Files, Some(end)) => return Err(self.ended(end, step)),
                (Exchange::EachStep, _) => {
                    return Err(CoupleRunError::NotWritten { command: self.model.name(), file });
                }
                (Exchange::Files, None) => watch.wait(),
            };
            let waited = start.elapsed();
            if waited >= next_report {
                next_report *= 2;
                (self.on_event)(&CoupleRunEvent::WaitingForModel { step, file: &file, waited });
            }
        }
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
        for (name, variable) in self.coupling.received_by(self.component) {
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
    fn run_once(&self, channel: &Channel, first: u64, step: Option<u64>) -> Result<(), CoupleRunError> {
        let mut variables = self.variables(first);
        let (name, next) = step.map_or((START.to_owned(), first), |step| (step.to_string(), step + 1));
        variables.push(("LFN_COUPLE_STEP", name.into()));
        variables.push(("LFN_COUPLE_NEXT_STEP", next.to_string().into()));
        self.model.permit_end();
        self.model.start(&variables)?;
        let end = self.model.wait(|| self.check(channel))?;
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
