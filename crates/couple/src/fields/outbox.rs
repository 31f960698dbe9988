//! Fields for the partner: the ones to send, the ones in flight, and the ones that a restarted partner may need again.
//!
//! Pure: the threads of the channel call it under one lock. The most urgent field is sent first: the
//! partner's earliest step needs it. The window limits the bytes that are sent and that the partner's model has not got.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use crate::coupling::{Coupling, DropPolicy, ElementType};
use crate::report::SentVariable;
use crate::wire::{CHUNK_BYTES, VariableState};

/// Maximum size of a field that uses the stream of small fields.
pub const SMALL_FIELD: u64 = 64 * 1024;

/// Maximum number of unused buffers that are kept for each variable.
const MAX_SPARE: usize = 4;

/// Class of a field. Small fields have a stream of their own, so that they never wait behind large fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldClass {
    Small,
    Large,
}

/// A part of a field to send.
#[derive(Debug, Clone)]
pub struct Chunk {
    pub variable: usize,
    pub step: u64,
    pub data: Arc<Vec<u8>>,
    pub range: Range<usize>,
}

/// The variables that this component puts.
#[derive(Debug)]
pub struct Outbox {
    variables: Vec<Outgoing>,
    /// Fields of which a part is not sent, the most urgent one first.
    queue: [BTreeSet<QueueKey>; 2],
    window: u64,
    /// Bytes of fields that are sent, at least in part, and that the partner's model has not got.
    in_flight: u64,
    /// Bytes of fields that wait.
    waiting: u64,
    /// Chunks that a thread sends, and whose elements are not yet counted.
    unfinished_chunks: u64,
    /// The partner can restart: fields stay until its checkpoint no longer needs them.
    keeps_history: bool,
    history_limit: u64,
    history: u64,
    /// Step from which the partner resumes.
    partner_checkpoint: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct QueueKey {
    /// Step of the partner that needs the field.
    needed: u64,
    bytes: u64,
    variable: usize,
    step: u64,
}

#[derive(Debug)]
struct Outgoing {
    /// Number in the coupling file.
    number: u16,
    name: String,
    lag: u64,
    bytes: u64,
    element: ElementType,
    drop: DropPolicy,
    fields: BTreeMap<u64, OutField>,
    /// First step that the model has not put.
    next_put: u64,
    /// First step that the partner's model has not got.
    unread: u64,
    /// First step that the partner does not have.
    missing: u64,
    spare: Vec<Arc<Vec<u8>>>,
    tally: SentVariable,
}

#[derive(Debug)]
struct OutField {
    data: Arc<Vec<u8>>,
    /// Bytes that are handed to a stream.
    sent: u64,
}

/// A field that a restarted partner needs, and that no longer exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoneField {
    pub variable: String,
    pub step: u64,
}

impl Outbox {
    /// Creates the outbox of a component.
    pub fn new(coupling: &Coupling, component: &str, first_step: u64, history_limit: u64) -> Self {
        let numbered = coupling.variables.iter().enumerate();
        let own = numbered.filter(|(_, (_, variable))| variable.from == component);
        let variables = own.map(|(number, (name, variable))| Outgoing {
            number: u16::try_from(number).unwrap_or(u16::MAX),
            name: name.clone(),
            lag: variable.lag,
            bytes: coupling.field_bytes(variable).0,
            element: variable.element,
            drop: variable.drop,
            fields: BTreeMap::new(),
            next_put: first_step,
            unread: 0,
            missing: 0,
            spare: Vec::new(),
            tally: SentVariable::default(),
        });
        Outbox {
            variables: variables.collect(),
            queue: [BTreeSet::new(), BTreeSet::new()],
            window: 0,
            in_flight: 0,
            waiting: 0,
            unfinished_chunks: 0,
            keeps_history: coupling.partner_of(component).is_some_and(|(_, partner)| partner.checkpoints),
            history_limit,
            history: 0,
            partner_checkpoint: 0,
        }
    }

    /// Returns the place of a variable in the outbox.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.variables.iter().position(|variable| variable.name == name)
    }

    /// Returns the names of the variables.
    pub fn names(&self) -> Vec<String> {
        self.variables.iter().map(|variable| variable.name.clone()).collect()
    }

    /// Returns the number of the variable in the coupling file.
    pub fn number(&self, variable: usize) -> u16 {
        self.variables[variable].number
    }

    /// Returns the type of the variable's elements.
    pub fn element(&self, variable: usize) -> ElementType {
        self.variables[variable].element
    }

    /// Returns the size of a field of the variable.
    pub fn field_bytes(&self, variable: usize) -> u64 {
        self.variables[variable].bytes
    }

    /// Returns the step of the next put of a variable.
    pub fn next_put(&self, variable: usize) -> u64 {
        self.variables[variable].next_put
    }

    /// Returns the first variable that has no field of this step.
    pub fn first_not_put(&self, step: u64) -> Option<&str> {
        self.variables.iter().find(|variable| variable.next_put <= step).map(|variable| variable.name.as_str())
    }

    /// Returns a buffer for a field of the variable. Its contents are old.
    pub fn take_buffer(&mut self, variable: usize) -> Arc<Vec<u8>> {
        let (bytes, spare) = (self.variables[variable].bytes, self.variables[variable].spare.pop());
        let usable = spare.filter(|buffer| Arc::strong_count(buffer) == 1);
        usable.unwrap_or_else(|| Arc::new(vec![0; usize::try_from(bytes).unwrap_or(0)]))
    }

    /// Reports whether a put of the variable has to wait: enough bytes wait for the path.
    pub fn is_full(&self, variable: usize) -> bool {
        let own = &self.variables[variable];
        own.drop == DropPolicy::Never && self.waiting > 0 && self.waiting + own.bytes > self.window.max(2 * own.bytes)
    }

    /// Adds the next field of a variable.
    pub fn put(&mut self, variable: usize, data: Arc<Vec<u8>>) {
        let own = &mut self.variables[variable];
        let step = own.next_put;
        own.next_put += 1;
        own.tally.fields += 1;
        own.tally.bytes.0 += own.bytes;
        self.history += own.bytes;
        if step < own.missing {
            // The partner has the field from the process before the restart.
            own.tally.known_to_partner += 1;
            let sent = own.bytes;
            own.fields.insert(step, OutField { data, sent });
            self.forget(variable);
            return;
        }
        own.fields.insert(step, OutField { data, sent: 0 });
        self.enqueue(variable, step);
        if self.variables[variable].drop == DropPolicy::Oldest {
            self.drop_older(variable, step);
        }
    }

    /// Notes that a chunk is examined, with the number of elements that are not a number. Returns true for the first ones.
    pub fn chunk_counted(&mut self, variable: usize, count: u64) -> bool {
        self.unfinished_chunks = self.unfinished_chunks.saturating_sub(1);
        let tally = &mut self.variables[variable].tally;
        let is_first = tally.nan == 0;
        tally.nan += count;
        is_first && count > 0
    }

    fn key(&self, variable: usize, step: u64) -> (FieldClass, QueueKey) {
        let Outgoing { bytes, lag, .. } = self.variables[variable];
        let class = if bytes <= SMALL_FIELD { FieldClass::Small } else { FieldClass::Large };
        (class, QueueKey { needed: step + lag, bytes, variable, step })
    }

    fn enqueue(&mut self, variable: usize, step: u64) {
        let (class, key) = self.key(variable, step);
        if self.queue[class as usize].insert(key) {
            self.waiting += key.bytes;
        }
    }

    fn dequeue(&mut self, variable: usize, step: u64) {
        let (class, key) = self.key(variable, step);
        if self.queue[class as usize].remove(&key) {
            self.waiting -= key.bytes;
        }
    }

    /// Drops the unsent fields of a variable that are older than this step.
    fn drop_older(&mut self, variable: usize, step: u64) {
        let older = self.variables[variable].fields.range(..step);
        let unsent: Vec<u64> = older.filter(|(_, field)| field.sent == 0).map(|(step, _)| *step).collect();
        for old in unsent {
            self.dequeue(variable, old);
            self.remove(variable, old);
            self.variables[variable].tally.dropped += 1;
        }
    }

    /// Returns the next part of a field to send. The first part of a field needs room in the window.
    pub fn next_chunk(&mut self, class: FieldClass) -> Option<Chunk> {
        let key = *self.queue[class as usize].first()?;
        let field = self.variables[key.variable].fields.get_mut(&key.step)?;
        if field.sent == 0 {
            if self.in_flight > 0 && self.in_flight + key.bytes > self.window {
                return None;
            }
            self.in_flight += key.bytes;
        }
        self.unfinished_chunks += 1;
        let start = field.sent;
        field.sent = (start + CHUNK_BYTES as u64).min(key.bytes);
        let (data, end) = (field.data.clone(), field.sent);
        if end == key.bytes {
            self.queue[class as usize].remove(&key);
            self.waiting -= key.bytes;
        }
        let range = usize::try_from(start).ok()?..usize::try_from(end).ok()?;
        Some(Chunk { variable: key.variable, step: key.step, data, range })
    }

    /// Sets the bytes that may be in flight.
    pub fn set_window(&mut self, window: u64) {
        self.window = window;
    }

    /// Notes that the partner's model has got a field, and with it all earlier ones. Returns false for an unknown variable or a
    /// field that was not sent.
    pub fn consumed(&mut self, number: u16, step: u64) -> bool {
        let Some(variable) = self.variables.iter().position(|variable| variable.number == number) else { return false };
        if step >= self.variables[variable].next_put.max(self.variables[variable].missing) {
            return false;
        }
        self.advance_unread(variable, step + 1);
        true
    }

    fn advance_unread(&mut self, variable: usize, unread: u64) {
        let own = &mut self.variables[variable];
        if unread <= own.unread {
            return;
        }
        let read = own.fields.range(own.unread..unread).filter(|(_, field)| field.sent > 0).count();
        self.in_flight = self.in_flight.saturating_sub(read as u64 * own.bytes);
        own.unread = unread;
        own.missing = own.missing.max(unread);
        self.forget(variable);
    }

    /// Notes that the partner can resume from this step.
    pub fn partner_checkpoint(&mut self, step: u64) {
        self.partner_checkpoint = self.partner_checkpoint.max(step);
        for variable in 0..self.variables.len() {
            self.forget(variable);
        }
    }

    /// Removes fields that neither the partner nor its restart needs.
    fn forget(&mut self, variable: usize) {
        let own = &self.variables[variable];
        let needed = if self.keeps_history {
            self.partner_checkpoint.saturating_sub(own.lag).min(own.unread)
        } else {
            own.unread
        };
        let old: Vec<u64> = own.fields.range(..needed).map(|(step, _)| *step).collect();
        for step in old {
            self.dequeue(variable, step);
            self.remove(variable, step);
        }
    }

    fn remove(&mut self, variable: usize, step: u64) {
        let own = &mut self.variables[variable];
        let Some(field) = own.fields.remove(&step) else { return };
        self.history -= own.bytes;
        if own.spare.len() < MAX_SPARE {
            own.spare.push(field.data);
        }
    }

    /// Drops the history if it needs more memory than permitted. Returns true the first time.
    pub fn limit_history(&mut self) -> bool {
        let is_over = self.keeps_history && self.history > self.history_limit.max(self.window);
        if is_over {
            self.keeps_history = false;
            for variable in 0..self.variables.len() {
                self.forget(variable);
            }
        }
        is_over
    }

    /// Continues after a new connection: the partner has the fields below `next` of each variable. The error names a field that
    /// the partner needs and that no longer exists.
    pub fn rewind(&mut self, states: &[(String, VariableState)]) -> Result<(), GoneField> {
        for (name, state) in states {
            let Some(variable) = self.find(name) else { continue };
            let own = &self.variables[variable];
            let oldest = own.fields.keys().next().copied().unwrap_or(own.next_put);
            if state.next < oldest && own.drop == DropPolicy::Never {
                return Err(GoneField { variable: name.clone(), step: state.next });
            }
        }
        for (name, state) in states {
            let Some(variable) = self.find(name) else { continue };
            self.variables[variable].unread = state.unread;
            self.variables[variable].missing = state.next;
            let steps: Vec<u64> = self.variables[variable].fields.keys().copied().collect();
            for step in steps {
                self.dequeue(variable, step);
                let bytes = self.variables[variable].bytes;
                let Some(field) = self.variables[variable].fields.get_mut(&step) else { continue };
                field.sent = if step < state.next { bytes } else { 0 };
                if step >= state.next {
                    self.enqueue(variable, step);
                }
            }
        }
        self.unfinished_chunks = 0;
        let in_flight = |own: &Outgoing| {
            let sent = own.fields.range(own.unread..).filter(|(_, field)| field.sent > 0).count();
            sent as u64 * own.bytes
        };
        self.in_flight = self.variables.iter().map(in_flight).sum();
        Ok(())
    }

    /// Returns the bytes of small fields that are in flight at the same time, if `steps` steps begin in one RTT. A component is at
    /// most the lag and one step ahead of its partner.
    pub fn small_bytes_in_flight(&self, steps: u64) -> u64 {
        let small = self.variables.iter().filter(|variable| variable.bytes <= SMALL_FIELD);
        let in_flight = small.map(|variable| variable.bytes.saturating_mul(steps.min(variable.lag + 2)));
        in_flight.fold(0, u64::saturating_add)
    }

    /// Reports whether a variable uses the streams of large fields.
    pub fn has_large_fields(&self) -> bool {
        self.variables.iter().any(|variable| variable.bytes > SMALL_FIELD)
    }

    /// Reports whether every field is handed to a stream.
    pub fn is_drained(&self) -> bool {
        self.queue.iter().all(BTreeSet::is_empty) && self.unfinished_chunks == 0
    }

    /// Returns the figures of the variables by name.
    pub fn tallies(&self) -> BTreeMap<String, SentVariable> {
        self.variables.iter().map(|variable| (variable.name.clone(), variable.tally.clone())).collect()
    }
}
