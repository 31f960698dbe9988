//! One end of a channel, as the model uses it.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::error::ChannelError;
use super::event::ChannelEvent;
use super::rendezvous::{self, RendezvousThread};
use super::shared::{LinkState, PartnerState, Shared, State};
use super::window::WindowMeter;
use super::{ChannelOptions, DeclaredVariable, Field, Rendezvous};
use crate::coupling::{Coupling, Variable};
use crate::fields::Outbox;
use crate::fields::{Inbox, Taken, WaitTime};
use crate::report::{ComponentReport, RunReport};

/// Interval at which a wait checks for an interrupt.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Time after which a wait is reported for the first time. The time doubles for each further report.
const FIRST_REPORT: Duration = Duration::from_secs(5);

/// Maximum time in which the partner learns that the run stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// One end of a channel.
///
/// A channel that is dropped without [`finish`](Self::finish) stops the run at both ends.
pub struct Channel {
    shared: Arc<Shared>,
    /// Ends the threads when the channel is dropped.
    rendezvous_thread: Option<RendezvousThread>,
    ticket: Option<String>,
    first_step: u64,
    step: Option<u64>,
    times: StepTimes,
    is_finished: bool,
}

/// Times of the run so far.
#[derive(Debug, Default)]
struct StepTimes {
    start: Option<Instant>,
    put: Duration,
    put_wait: Duration,
    get: Duration,
    steps: u64,
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel").field("component", &self.shared.component).field("step", &self.step).finish()
    }
}

impl Channel {
    /// Connects to the partner, and returns when both sites agree about the coupling file. `on_event` is called on the threads of
    /// the channel, and must not block. `interrupted` ends every wait of the channel soon after it returns true.
    pub fn open(
        options: ChannelOptions,
        on_event: impl Fn(&ChannelEvent) + Send + Sync + 'static,
        interrupted: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Result<Channel, ChannelError> {
        let ChannelOptions { coupling, component, rendezvous, patience, resume, declared, history, streams } = options;
        let known = || coupling.components.keys().cloned().collect::<Vec<_>>().join(" and ");
        if !coupling.components.contains_key(&component) {
            return Err(ChannelError::NoSuchComponent { name: component, known: known() });
        }
        let Some((partner, _)) = coupling.partner_of(&component) else {
            return Err(ChannelError::NoSuchComponent { name: component, known: known() });
        };
        for (name, model) in &declared {
            check_declared(&coupling, name, model)?;
        }
        let state = State {
            outbox: Outbox::new(&coupling, &component, 0, history.0),
            inbox: Inbox::new(&coupling, &component, 0),
            first_step: None,
            step: None,
            checkpoint: None,
            confirmed: None,
            finishing: None,
            finished: None,
            stop: None,
            leaving: None,
            partner: PartnerState::default(),
            link: LinkState::default(),
            failure: None,
            window: WindowMeter::new(&coupling, &component),
        };
        let mut instance = [0; 8];
        getrandom::fill(&mut instance)
            .map_err(|error| lfn_session::SessionError::Io { peer: "the kernel", source: error.into() })?;
        let shared = Arc::new(Shared {
            partner: partner.clone(),
            component,
            coupling,
            instance: u64::from_le_bytes(instance),
            patience,
            resume,
            history: history.0,
            state: Mutex::new(state),
            work: Condvar::new(),
            changed: Condvar::new(),
            on_event: Box::new(on_event),
            interrupted: Box::new(interrupted),
        });
        let (rendezvous_thread, ticket) = match rendezvous {
            Rendezvous::Listen(listen) => {
                let (rendezvous_thread, ticket) = rendezvous::listen(&shared, &listen)?;
                shared.emit(&ChannelEvent::Listening { ticket: ticket.clone() });
                (rendezvous_thread, Some(ticket))
            }
            Rendezvous::Dial(target) => (rendezvous::dial(&shared, *target, streams)?, None),
        };
        let mut channel = Channel {
            shared,
            rendezvous_thread: Some(rendezvous_thread),
            ticket,
            first_step: 0,
            step: None,
            times: StepTimes::default(),
            is_finished: false,
        };
        channel.first_step = channel.wait_for_partner()?;
        Ok(channel)
    }

    fn wait_for_partner(&self) -> Result<u64, ChannelError> {
        let start = Instant::now();
        let mut state = self.shared.state.lock();
        loop {
            self.check(&mut state)?;
            if let (true, Some(first_step)) = (state.link.is_ready, state.first_step) {
                return Ok(first_step);
            }
            if start.elapsed() >= self.shared.patience {
                let (partner, reason) = (self.shared.partner.clone(), state.link.reason.clone());
                let (patience, resume) = (self.shared.patience, self.shared.resume);
                return Err(ChannelError::NoPartner { partner, patience, reason, resume });
            }
            self.shared.changed.wait_for(&mut state, POLL_INTERVAL);
        }
    }

    /// Returns the error that ends the run, if there is one.
    fn check(&self, state: &mut State) -> Result<(), ChannelError> {
        if let Some(failure) = state.failure.take() {
            // Later calls need an error, too.
            let (partner, reason) = (self.shared.partner.clone(), failure.to_string());
            state.failure = Some(ChannelError::StoppedByPartner { partner, reason });
            return Err(failure);
        }
        if (self.shared.interrupted)() { Err(ChannelError::Interrupted) } else { Ok(()) }
    }

    /// Returns the error that ends the run, if there is one: the partner has stopped, or the run is interrupted. A model that
    /// computes for long calls it between its puts and gets.
    pub fn check_run(&self) -> Result<(), ChannelError> {
        self.check(&mut self.shared.state.lock())
    }

    /// Returns the ticket for the partner, if this end listens.
    pub fn ticket(&self) -> Option<&str> {
        self.ticket.as_deref()
    }

    /// Returns the coupling file.
    pub fn coupling(&self) -> &Coupling {
        &self.shared.coupling
    }

    /// Returns the component of this end.
    pub fn component(&self) -> &str {
        &self.shared.component
    }

    /// Returns the first step of this process: 0, or the step of the last checkpoint after a resume.
    pub fn first_step(&self) -> u64 {
        self.first_step
    }

    /// Returns the number of steps in the coupling file.
    pub fn steps(&self) -> u64 {
        self.shared.coupling.steps
    }

    /// Returns the checkpoint from which this component can resume: the partner knows it and has all earlier fields. The model
    /// keeps the state of this step, and of all later checkpoints.
    pub fn confirmed_checkpoint(&self) -> Option<u64> {
        self.shared.state.lock().confirmed
    }

    /// Begins the next step, and ends the step before. The first call begins [`first_step`](Self::first_step). Returns the step;
    /// none after the last step.
    pub fn begin_step(&mut self) -> Result<Option<u64>, ChannelError> {
        let next = self.step.map_or(self.first_step, |step| step + 1);
        let mut state = self.shared.state.lock();
        self.check(&mut state)?;
        if let Some(step) = self.step {
            check_all_put(&state, step)?;
        }
        if next >= self.shared.coupling.steps {
            return Ok(None);
        }
        let now = Instant::now();
        state.step = Some((next, now));
        drop(state);
        self.shared.work.notify_all();
        if self.step.is_some() {
            self.times.steps += 1;
        }
        self.times.start.get_or_insert(now);
        self.step = Some(next);
        Ok(Some(next))
    }

    /// Puts the field of a variable in this step. `fill` writes the elements in C order, little-endian, into the buffer, which has
    /// old contents.
    pub fn put_with(&mut self, variable: &str, fill: impl FnOnce(&mut [u8])) -> Result<(), ChannelError> {
        let step = self.step.ok_or(ChannelError::NoStep)?;
        let start = Instant::now();
        let (place, mut buffer, waited) = {
            let mut state = self.shared.state.lock();
            let place =
                state.outbox.find(variable).ok_or_else(|| self.unknown(variable, "put", state.outbox.names()))?;
            if state.outbox.next_put(place) > step {
                return Err(ChannelError::PutTwice { variable: variable.to_owned(), step });
            }
            let waited = self.wait_for_room(&mut state, place, variable, step)?;
            (place, state.outbox.take_buffer(place), waited)
        };
        match Arc::get_mut(&mut buffer) {
            Some(bytes) => fill(bytes),
            None => {
                let mut bytes = vec![0; buffer.len()];
                fill(&mut bytes);
                buffer = Arc::new(bytes);
            }
        }
        let is_history_full = {
            let mut state = self.shared.state.lock();
            state.outbox.put(place, buffer);
            state.outbox.limit_history()
        };
        self.shared.work.notify_all();
        if is_history_full {
            let (partner, limit) = (self.shared.partner.clone(), self.shared.history);
            self.shared.emit(&ChannelEvent::HistoryFull { partner, limit });
        }
        self.times.put_wait += waited;
        self.times.put += start.elapsed().saturating_sub(waited);
        Ok(())
    }

    /// Puts the field of a variable in this step.
    pub fn put(&mut self, variable: &str, data: &[u8]) -> Result<(), ChannelError> {
        self.step.ok_or(ChannelError::NoStep)?;
        let expected = {
            let state = self.shared.state.lock();
            let place =
                state.outbox.find(variable).ok_or_else(|| self.unknown(variable, "put", state.outbox.names()))?;
            state.outbox.field_bytes(place)
        };
        if data.len() as u64 != expected {
            return Err(ChannelError::FieldSize { variable: variable.to_owned(), found: data.len(), expected });
        }
        self.put_with(variable, |buffer| buffer.copy_from_slice(data))
    }

    fn wait_for_room(
        &self,
        state: &mut MutexGuard<'_, State>,
        place: usize,
        variable: &str,
        step: u64,
    ) -> Result<Duration, ChannelError> {
        let mut wait = Wait::new(&self.shared, Some(variable), step);
        loop {
            self.check(state)?;
            // A partner that has finished takes no more fields.
            if !state.outbox.is_full(place) || state.partner.finished.is_some() {
                return Ok(wait.elapsed());
            }
            wait.check(state)?;
            self.shared.changed.wait_for(state, POLL_INTERVAL);
        }
    }

    /// Returns the partner's field of step n − lag, after a wait if necessary. A variable with `drop = "oldest"` returns the
    /// newest field that has arrived, without a wait; `None` if there is none yet.
    pub fn get(&mut self, variable: &str) -> Result<Option<Field>, ChannelError> {
        let step = self.step.ok_or(ChannelError::NoStep)?;
        let mut state = self.shared.state.lock();
        let place = state.inbox.find(variable).ok_or_else(|| self.unknown(variable, "get", state.inbox.names()))?;
        let mut wait = Wait::new(&self.shared, Some(variable), step);
        let field = loop {
            self.check(&mut state)?;
            match state.inbox.take(place, step) {
                Taken::Field { step, bytes } => break Some(Field { step, bytes }),
                Taken::Nothing => break None,
                Taken::Again => return Err(ChannelError::GotTwice { variable: variable.to_owned(), step }),
                Taken::NotArrived(missing) => {
                    if let Some(finished) = &state.partner.finished {
                        let end = finished.first_step.saturating_add(finished.steps);
                        if end <= missing {
                            let (partner, variable) = (self.shared.partner.clone(), variable.to_owned());
                            return Err(ChannelError::PartnerEnded { partner, variable, step: missing, steps: end });
                        }
                    }
                    wait.step = missing;
                }
            }
            wait.check(&mut state)?;
            self.shared.changed.wait_for(&mut state, POLL_INTERVAL);
        };
        let waited = wait.elapsed();
        // The partner puts its fields at the beginning of a step. The rest of the wait is that of the path.
        let begun = field.as_ref().and_then(|field| state.partner.step_time(field.step?));
        let partner = begun.map_or(Duration::ZERO, |begun| begun.saturating_duration_since(wait.start)).min(waited);
        state.inbox.add_wait(place, step, self.first_step, WaitTime { wait: waited, partner });
        drop(state);
        self.shared.work.notify_all();
        self.times.get += waited;
        Ok(field)
    }

    /// Gives the buffer of a field back to the channel, which then needs no new memory for the next field.
    pub fn recycle(&mut self, variable: &str, field: Field) {
        let mut state = self.shared.state.lock();
        if let Some(place) = state.inbox.find(variable) {
            state.inbox.recycle(place, field.bytes);
        }
    }

    /// Reports that the state of the model at the start of this step is on disk: a later process can resume from this step, once
    /// the checkpoint is [confirmed](Self::confirmed_checkpoint).
    /// Call it before the first put of the step.
    pub fn checkpoint(&mut self) -> Result<(), ChannelError> {
        let step = self.step.ok_or(ChannelError::NoStep)?;
        let mut state = self.shared.state.lock();
        self.check(&mut state)?;
        state.checkpoint = Some(step);
        drop(state);
        self.shared.work.notify_all();
        Ok(())
    }

    /// Ends the last step. Waits until the partner has finished its last step, and returns the figures of both.
    pub fn finish(mut self) -> Result<RunReport, ChannelError> {
        let run = self.times.start.map_or(Duration::ZERO, |start| start.elapsed());
        let step = self.step.ok_or(ChannelError::NoStep)?;
        let own = ComponentReport {
            component: self.shared.component.clone(),
            first_step: self.first_step,
            steps: self.times.steps + 1,
            run,
            compute: run.saturating_sub(self.times.put + self.times.put_wait + self.times.get),
            put: self.times.put,
            put_wait: self.times.put_wait,
            ..ComponentReport::default()
        };
        let mut state = self.shared.state.lock();
        self.check(&mut state)?;
        check_all_put(&state, step)?;
        state.finishing = Some(own);
        self.shared.work.notify_all();
        let mut wait = Wait::new(&self.shared, None, step);
        loop {
            self.check(&mut state)?;
            if let (Some(own), Some(partner), true) = (&state.finished, &state.partner.finished, state.link.is_closed) {
                let (own, partner) = (own.clone(), partner.clone());
                let report = RunReport { own, partner, rtt: state.link.rtt, streams: state.link.streams };
                drop(state);
                self.is_finished = true;
                return Ok(report);
            }
            // The partner may still compute: only a lost partner ends the wait.
            if state.link.current.is_none() {
                wait.check(&mut state)?;
            } else {
                wait.restart();
            }
            self.shared.changed.wait_for(&mut state, POLL_INTERVAL);
        }
    }

    /// Stops the run at both ends, with a reason for the partner.
    pub fn stop(mut self, reason: &str) {
        self.send_stop(reason);
    }

    /// Leaves the run with a reason. The partner waits for another process of this component, which resumes.
    pub fn leave(mut self, reason: &str) {
        self.shared.state.lock().leaving.get_or_insert_with(|| reason.to_owned());
        self.close();
    }

    /// Breaks the connection without a message, as a killed process does. The partner waits for this component.
    pub fn abandon(mut self) {
        self.is_finished = true;
        let mut state = self.shared.state.lock();
        state.failure = Some(ChannelError::Interrupted);
        state.abort_connection();
    }

    fn send_stop(&mut self, reason: &str) {
        self.shared.state.lock().stop.get_or_insert_with(|| reason.to_owned());
        self.close();
    }

    /// Waits until the partner has the reason for the end.
    fn close(&mut self) {
        self.is_finished = true;
        let deadline = Instant::now() + STOP_TIMEOUT;
        let mut state = self.shared.state.lock();
        self.shared.wake();
        while state.link.current.is_some() {
            if self.shared.changed.wait_until(&mut state, deadline).timed_out() {
                state.abort_connection();
                break;
            }
        }
    }

    fn unknown(&self, variable: &str, direction: &'static str, names: Vec<String>) -> ChannelError {
        let known = if names.is_empty() { "nothing".to_owned() } else { names.join(", ") };
        let (component, variable) = (self.shared.component.clone(), variable.to_owned());
        ChannelError::NoSuchVariable { component, variable, direction, known }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        if !self.is_finished {
            let is_interrupted = (self.shared.interrupted)();
            self.send_stop(if is_interrupted { "interrupted" } else { "the model ended before its last step" });
        }
        self.rendezvous_thread = None;
    }
}

fn check_all_put(state: &State, step: u64) -> Result<(), ChannelError> {
    match state.outbox.first_not_put(step) {
        Some(variable) => Err(ChannelError::NotPut { variable: variable.to_owned(), step }),
        None => Ok(()),
    }
}

/// Compares the properties of a model's field with the coupling file.
fn check_declared(coupling: &Coupling, name: &str, model: &DeclaredVariable) -> Result<(), ChannelError> {
    let differs = |key, model: String, file: String| {
        Err(ChannelError::ModelDiffers { variable: name.to_owned(), key, model, file })
    };
    let Some(variable): Option<&Variable> = coupling.variables.get(name) else {
        let known = coupling.variables.keys().cloned().collect::<Vec<_>>().join(", ");
        return differs("the name", name.to_owned(), known);
    };
    if let Some(units) = model.units.as_ref().filter(|units| **units != variable.units) {
        return differs("units", format!("\"{units}\""), format!("\"{}\"", variable.units));
    }
    if let Some(element) = model.element.as_ref().filter(|element| *element != variable.element.name()) {
        return differs("type", element.clone(), variable.element.name().to_owned());
    }
    let shape = coupling.grids.get(&variable.grid).map(|grid| grid.shape.clone()).unwrap_or_default();
    match &model.shape {
        Some(own) if *own != shape => differs("shape", format!("{own:?}"), format!("{shape:?}")),
        _ => Ok(()),
    }
}

/// A wait for the partner, with its reports and its end.
struct Wait<'a> {
    shared: &'a Shared,
    /// None after the last step: the end of the run.
    variable: Option<&'a str>,
    step: u64,
    start: Instant,
    next_report: Duration,
}

impl<'a> Wait<'a> {
    fn new(shared: &'a Shared, variable: Option<&'a str>, step: u64) -> Self {
        Wait { shared, variable, step, start: Instant::now(), next_report: FIRST_REPORT }
    }

    fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    fn restart(&mut self) {
        self.start = Instant::now();
        self.next_report = FIRST_REPORT;
    }

    /// Reports a long wait, and ends it after the patience of the run.
    fn check(&mut self, state: &mut MutexGuard<'_, State>) -> Result<(), ChannelError> {
        let waited = self.elapsed();
        let partner = self.shared.partner.clone();
        if waited >= self.shared.patience {
            let (patience, step) = (self.shared.patience, self.step);
            return Err(match self.variable.filter(|_| state.link.current.is_some()) {
                Some(variable) => {
                    let (variable, partner_step) = (variable.to_owned(), state.partner.step.unwrap_or(0));
                    ChannelError::NoField { variable, step, partner, partner_step, patience }
                }
                // Only a lost partner ends the wait for the end of the run.
                None => {
                    let reason = state.link.reason.clone().unwrap_or_else(|| "not connected".to_owned());
                    let own = self.shared.coupling.components.get(&self.shared.component);
                    let checkpoint = state.checkpoint.filter(|_| own.is_some_and(|component| component.checkpoints));
                    ChannelError::PartnerLost { partner, step, patience, reason, checkpoint }
                }
            });
        }
        if waited >= self.next_report {
            self.next_report *= 2;
            let event = ChannelEvent::Waiting {
                partner,
                variable: self.variable.map(str::to_owned),
                step: self.step,
                waited,
                partner_step: state.partner.step,
                connected: state.link.current.is_some(),
                not_put: state
                    .step
                    .and_then(|(step, _)| state.outbox.first_not_put(step))
                    .filter(|name| Some(*name) != self.variable)
                    .map(str::to_owned),
            };
            MutexGuard::unlocked(state, || self.shared.emit(&event));
        }
        Ok(())
    }
}
