//! Fields of the partner: the ones that arrive, and the ones that wait for the model.
//!
//! Pure: the threads of the channel call it under one lock. Memory is limited: a partner with more bytes in flight than the
//! window breaks the protocol.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::coupling::{Coupling, DropPolicy, ElementType};
use crate::report::ReceivedVariable;
use crate::wire::{CHUNK_BYTES, Frame, VariableState, WireError};

/// The variables that this component gets.
#[derive(Debug)]
pub struct Inbox {
    variables: Vec<Incoming>,
    steps: u64,
    window: u64,
    /// Bytes of complete and partial fields that the model has not got.
    held: u64,
}

#[derive(Debug)]
struct Incoming {
    number: u16,
    name: String,
    lag: u64,
    bytes: u64,
    element: ElementType,
    drop: DropPolicy,
    initial: Arc<Vec<u8>>,
    complete: BTreeMap<u64, Arc<Vec<u8>>>,
    partial: BTreeMap<u64, PartialField>,
    /// First step that has not arrived; every earlier one has arrived or was dropped.
    next: u64,
    /// First step that the model has not got.
    unread: u64,
    spare: Vec<Vec<u8>>,
    tally: ReceivedVariable,
}

#[derive(Debug)]
struct PartialField {
    buffer: Vec<u8>,
    /// Chunks that have arrived.
    chunks: Vec<bool>,
    missing: usize,
    nan: u64,
}

/// A field that has arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrived {
    pub variable: String,
    pub step: u64,
    /// Elements that are not a number, if this is the first such field of the variable.
    pub first_nan: Option<u64>,
}

/// Result of a request for a field.
#[derive(Debug, Clone)]
pub enum Taken {
    Field {
        step: Option<u64>,
        bytes: Arc<Vec<u8>>,
    },
    /// The field of this step has not arrived.
    NotArrived(u64),
    /// A variable that drops fields has none.
    Nothing,
    /// The model has got the field before.
    Again,
}

/// Wait of a get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitTime {
    pub wait: Duration,
    /// Part of the wait in which the partner had not put the field.
    pub partner: Duration,
}

impl Inbox {
    /// Creates the inbox of a component whose first step is `first_step`.
    pub fn new(coupling: &Coupling, component: &str, first_step: u64) -> Self {
        let numbered = coupling.variables.iter().enumerate();
        let own = numbered.filter(|(_, (_, variable))| variable.to == component);
        let variables = own.map(|(number, (name, variable))| {
            let first = first_step.saturating_sub(variable.lag);
            let element = variable.element.encode(variable.initial.unwrap_or(0.0));
            let bytes = coupling.field_bytes(variable).0;
            let initial = if variable.lag > first_step && variable.drop == DropPolicy::Never {
                element.repeat(usize::try_from(bytes).unwrap_or(0) / element.len())
            } else {
                Vec::new()
            };
            Incoming {
                number: u16::try_from(number).unwrap_or(u16::MAX),
                name: name.clone(),
                lag: variable.lag,
                bytes,
                element: variable.element,
                drop: variable.drop,
                initial: Arc::new(initial),
                complete: BTreeMap::new(),
                partial: BTreeMap::new(),
                next: first,
                unread: first,
                spare: Vec::new(),
                tally: ReceivedVariable::default(),
            }
        });
        Inbox { variables: variables.collect(), steps: coupling.steps, window: u64::MAX, held: 0 }
    }

    /// Returns the place of a variable in the inbox.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.variables.iter().position(|variable| variable.name == name)
    }

    /// Returns the names of the variables.
    pub fn names(&self) -> Vec<String> {
        self.variables.iter().map(|variable| variable.name.clone()).collect()
    }

    /// Sets the bytes that the partner may have in flight.
    pub fn set_window(&mut self, window: u64) {
        self.window = window;
    }

    /// Returns the fields that this side has, for a new connection. Parts of fields are sent again.
    pub fn states(&mut self) -> BTreeMap<String, VariableState> {
        for variable in &mut self.variables {
            self.held -= variable.partial.len() as u64 * variable.bytes;
            variable.partial.clear();
        }
        let state = |variable: &Incoming| VariableState { next: variable.next, unread: variable.unread };
        self.variables.iter().map(|variable| (variable.name.clone(), state(variable))).collect()
    }

    /// Returns the steps that have been read of each variable, for acknowledgements.
    pub fn unread(&self) -> Vec<(u16, u64)> {
        self.variables.iter().map(|variable| (variable.number, variable.unread)).collect()
    }

    /// Takes a chunk. Returns the field if the chunk completes it.
    pub fn accept(&mut self, frame: &Frame, data: &[u8]) -> Result<Option<Arrived>, WireError> {
        let (window, steps) = (self.window, self.steps);
        let variable = self.variables.iter_mut().find(|variable| variable.number == frame.variable);
        let own = variable.ok_or(WireError::Variable(frame.variable))?;
        let at_chunk = frame.offset.is_multiple_of(CHUNK_BYTES as u64);
        let expected = own.bytes.saturating_sub(frame.offset).min(CHUNK_BYTES as u64);
        if !at_chunk || expected == 0 || expected != data.len() as u64 {
            return Err(WireError::Chunk { offset: frame.offset, length: frame.length, bytes: own.bytes });
        }
        let step = frame.step;
        if own.drop == DropPolicy::Oldest && step < own.next {
            // A newer field has replaced this one.
            return Ok(None);
        }
        if step < own.next || step >= steps || own.complete.contains_key(&step) {
            return Err(WireError::Step { step });
        }
        if !own.partial.contains_key(&step) {
            let largest = own.bytes;
            if self.held > 0 && self.held + own.bytes > window.saturating_add(largest) {
                return Err(WireError::Window { window });
            }
            self.held += own.bytes;
            let size = usize::try_from(own.bytes).map_err(|_| WireError::Step { step })?;
            let buffer = own.spare.pop().unwrap_or_else(|| vec![0; size]);
            let missing = size.div_ceil(CHUNK_BYTES);
            own.partial.insert(step, PartialField { buffer, chunks: vec![false; missing], missing, nan: 0 });
        }
        let Some(partial) = own.partial.get_mut(&step) else { return Err(WireError::Step { step }) };
        let start = frame.offset as usize;
        let arrived = partial.chunks.get_mut(start / CHUNK_BYTES).ok_or(WireError::DuplicateChunk)?;
        if std::mem::replace(arrived, true) {
            return Err(WireError::DuplicateChunk);
        }
        partial.buffer[start..start + data.len()].copy_from_slice(data);
        partial.nan += own.element.count_nan(data);
        partial.missing -= 1;
        if partial.missing > 0 {
            return Ok(None);
        }
        let Some(PartialField { buffer, nan, .. }) = own.partial.remove(&step) else { return Ok(None) };
        own.complete.insert(step, Arc::new(buffer));
        let first_nan = (nan > 0 && own.tally.nan == 0).then_some(nan);
        own.tally.nan += nan;
        self.held -= own.advance(step);
        Ok(Some(Arrived { variable: own.name.clone(), step, first_nan }))
    }

    /// Returns the field for this step of the model, if it has arrived.
    pub fn take(&mut self, variable: usize, step: u64) -> Taken {
        let own = &mut self.variables[variable];
        let Some(used) = step.checked_sub(own.lag) else {
            if own.drop == DropPolicy::Oldest {
                return Taken::Nothing;
            }
            return Taken::Field { step: None, bytes: own.initial.clone() };
        };
        let found = match own.drop {
            DropPolicy::Never => own.complete.remove(&used).map(|bytes| (used, bytes)),
            DropPolicy::Oldest => own.complete.pop_last(),
        };
        let Some((used, bytes)) = found else {
            return match own.drop {
                DropPolicy::Oldest => Taken::Nothing,
                DropPolicy::Never if used < own.unread => Taken::Again,
                DropPolicy::Never => Taken::NotArrived(used),
            };
        };
        own.unread = own.unread.max(used + 1);
        own.tally.fields += 1;
        own.tally.bytes.0 += own.bytes;
        self.held -= own.bytes;
        Taken::Field { step: Some(used), bytes }
    }

    /// Reports whether every field before this step has arrived, or was replaced by a newer one.
    pub fn has_all_before(&self, end: u64) -> bool {
        self.variables.iter().all(|variable| variable.next >= end)
    }

    /// Returns the bytes of complete and partial fields that the model has not got.
    pub fn held_bytes(&self) -> u64 {
        self.held
    }

    /// Keeps the buffer of a field that the model no longer uses.
    pub fn recycle(&mut self, variable: usize, bytes: Arc<Vec<u8>>) {
        let own = &mut self.variables[variable];
        if own.spare.len() < 2 && bytes.len() as u64 == own.bytes {
            own.spare.extend(Arc::try_unwrap(bytes).ok());
        }
    }

    /// Adds the wait of a get in this step of a run that began with `first_step`.
    pub fn add_wait(&mut self, variable: usize, step: u64, first_step: u64, time: WaitTime) {
        let own = &mut self.variables[variable];
        own.tally.wait += time.wait;
        if step >= first_step + own.lag {
            own.tally.steady_wait += time.wait;
            own.tally.partner_wait += time.partner;
        }
    }

    /// Returns the figures of the variables by name.
    pub fn tallies(&self) -> BTreeMap<String, ReceivedVariable> {
        let tally =
            |variable: &Incoming| ReceivedVariable { unread: variable.complete.len() as u64, ..variable.tally.clone() };
        self.variables.iter().map(|variable| (variable.name.clone(), tally(variable))).collect()
    }
}

impl Incoming {
    /// Moves `next` after an arrival. Returns the bytes of fields that the newer field replaces.
    fn advance(&mut self, step: u64) -> u64 {
        if self.drop == DropPolicy::Oldest {
            // Only the newest field waits.
            let kept = self.complete.split_off(&step);
            let dropped = self.complete.len() as u64;
            self.complete = kept;
            let late = self.partial.split_off(&(step + 1));
            let abandoned = self.partial.len() as u64;
            self.partial = late;
            self.tally.dropped += dropped + abandoned;
            self.next = step + 1;
            self.unread = self.unread.max(step);
            return (dropped + abandoned) * self.bytes;
        }
        while self.complete.contains_key(&self.next) {
            self.next += 1;
        }
        0
    }
}
