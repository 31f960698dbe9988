//! The thread that lists: walks the sources one after the other, and waits where the list is too far ahead.
//!
//! What it finds goes to the list, to the deck and to the messages under one lock, a number of entries together:
//! to wake the streams for each of a million small files would cost more than to send them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lfn_core::transfer::digest::Digest;
use lfn_core::transfer::entry::{Entry, Kind, Name};
use lfn_core::units::Bytes;
use lfn_core::wire::copy::{Failure, FromSender};
use lfn_core::wire::third::CarriedEnd;

use super::origin::Item;
use super::walk::{Step, Walk};
use super::{Shared, State, wait};
use crate::transfer::flow::{Activity, lock};

/// Entries that are handed over together, and how long the first of them may wait for the others.
const TOGETHER: usize = 128;
const TOGETHER_WITHIN: Duration = Duration::from_millis(2);

/// Most entries in one message, and most bytes of one that holds several.
const LISTED_AT_ONCE: usize = 1024;
const MESSAGE: usize = 256 * 1024;
const LEFT_OUT_AT_ONCE: usize = 64;

/// Messages that wait to be said: a tree of unreadable files fills no memory.
const OUTBOX: usize = 1024;

impl Shared {
    /// Lists everything, or as much as there is before the copy is cut.
    pub(super) fn list(&self, walks: impl Iterator<Item = Walk>) {
        let (mut steps, mut since, mut weight) = (Vec::new(), Instant::now(), 0);
        let mut walks = walks.flatten();
        // Of what is left out nobody hears: that it is looked at is seen as work of the disk.
        while let Some(step) = self.flow.spend(Activity::Disk, || walks.next()) {
            if steps.is_empty() {
                (since, weight) = (Instant::now(), 0);
            }
            weight += step.weight();
            steps.push(step);
            if steps.len() < TOGETHER && weight < MESSAGE && since.elapsed() < TOGETHER_WITHIN {
                continue;
            }
            if !self.take(&mut steps) {
                return;
            }
        }
        if self.take(&mut steps) {
            lock(&self.state).complete();
            self.work.notify_all();
        }
    }

    /// Takes what was found, as soon as there is room; false if the copy is over.
    fn take(&self, steps: &mut Vec<Step>) -> bool {
        let mut state = lock(&self.state);
        for step in steps.drain(..) {
            let weight = step.weight();
            while !state.deck.has_room(weight) || state.outbox.len() >= OUTBOX {
                self.work.notify_all();
                if self.flow.is_stopped() {
                    return false;
                }
                state = wait(&self.room, state);
            }
            state.take(step);
        }
        drop(state);
        self.work.notify_all();
        !self.flow.is_stopped()
    }
}

impl Step {
    /// What the receiver has to hold of it.
    fn weight(&self) -> usize {
        match self {
            Step::Entry(entry, _) => entry.weight(),
            _ => 0,
        }
    }
}

impl State {
    fn take(&mut self, step: Step) {
        match step {
            Step::LinkLeftOut(path) => {
                self.count.left_out.links += 1;
                self.leave_out(&path);
            }
            Step::SpecialLeftOut(path) => {
                self.count.left_out.special += 1;
                self.leave_out(&path);
            }
            Step::Missed { name, what } => {
                self.fail(Failure { file: None, name, what, full: false, end: CarriedEnd::Sender })
            }
            Step::Entry(entry, item) => self.list(entry, item),
            Step::Excluded => {}
        }
    }

    fn leave_out(&mut self, path: &[u8]) {
        // A name that no list can hold is none that a copy has made.
        let Some(name) = Name::new(path).ok().filter(|_| self.tells_left_out) else { return };
        match self.outbox.back_mut() {
            Some(FromSender::LeftOut { names }) if names.len() < LEFT_OUT_AT_ONCE => names.push(name),
            _ => self.outbox.push_back(FromSender::LeftOut { names: vec![name] }),
        }
    }

    fn list(&mut self, mut entry: Entry, item: Option<Arc<Item>>) {
        let identity = item.as_ref().and_then(|item| item.identity()).filter(|_| self.names.are_kept());
        let earlier = identity.and_then(|identity| self.names.earlier(identity));
        let item = match earlier {
            Some(to) => {
                entry.kind = Kind::HardLink { to };
                None
            }
            None => item,
        };
        entry.linked = identity.is_some() && earlier.is_none();
        let length = match entry.kind {
            Kind::File { length } => length,
            _ => Bytes(0),
        };
        let number = match self.deck.list(entry.weight(), item.map(|item| (length, item))) {
            Ok(number) => number,
            Err(error) => {
                let what = error.to_string();
                return self.fail(Failure { file: None, name: entry.name, what, full: false, end: CarriedEnd::Sender });
            }
        };
        if let (Some(identity), true) = (identity, entry.linked) {
            self.names.note(number, entry.name.as_bytes().len(), identity);
        }
        if number == 0 && entry.kind == (Kind::File { length: Bytes(0) }) {
            // Nobody reads it.
            self.digest = Some(Digest(*blake3::hash(&[]).as_bytes()));
        }
        self.count.entries = number + 1;
        self.count.bytes = Bytes(self.count.bytes.0.saturating_add(length.0));
        self.listed_bytes += entry.json_bound();
        match self.outbox.back_mut() {
            Some(FromSender::List { entries, .. })
                if entries.len() < LISTED_AT_ONCE && self.listed_bytes <= MESSAGE =>
            {
                entries.push(entry);
            }
            _ => {
                self.listed_bytes = entry.json_bound();
                self.outbox.push_back(FromSender::List { first: number, entries: vec![entry] });
            }
        }
    }

    fn complete(&mut self) {
        self.deck.complete();
        self.count.complete = true;
        let super::Count { entries, bytes, left_out, .. } = self.count;
        self.outbox.push_back(FromSender::Listed { entries, bytes, left_out });
    }
}
