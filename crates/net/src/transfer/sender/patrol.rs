//! Looks after the streams of a sender: what they carried when they broke is told, and one that is stalled is ended.
//!
//! The receiver says how much it took off each stream. A stream of which nothing is taken, though bytes of it are on
//! their way, the receiver lives and it keeps nobody waiting, is stalled: its connection is dead somewhere on the way, or
//! retransmits ever more seldom. It is cut, as if it had broken, and another one takes its place.

use std::time::{Duration, Instant};

use lfn_core::wire::copy::{FromReceiver, FromSender};

use super::{Sender, State};
use crate::transfer::TransferError;
use crate::transfer::flow::lock;
use crate::transfer::line::{Over, RANGES, STREAM_STALLED};

/// How long the receiver may be silent before the clocks of the streams stand still: then it is not they that stall.
const SILENT: Duration = Duration::from_secs(3);

/// How often it looks.
const EVERY: Duration = Duration::from_millis(500);

/// When what was seen of the receiver.
#[derive(Debug)]
pub(super) struct Patrol {
    looked: Instant,
    heard: Instant,
    /// Since when it has been heard without a break, and has kept nobody waiting.
    since: Instant,
    held: bool,
    /// Instead of [`STREAM_STALLED`], for tests.
    pub(super) least: Duration,
}

impl Patrol {
    pub(super) fn new(now: Instant) -> Self {
        Patrol { looked: now, heard: now, since: now, held: false, least: STREAM_STALLED }
    }

    /// The receiver said something.
    pub(super) fn heard(&mut self, now: Instant) {
        if now.saturating_duration_since(self.heard) > SILENT {
            self.since = now;
        }
        self.heard = now;
    }

    fn held(&mut self, held: bool, now: Instant) {
        if held || self.held {
            self.since = now;
        }
        self.held = held;
    }

    /// Since when streams should have moved, if it is time to look and they should.
    fn look(&mut self, now: Instant) -> Option<Instant> {
        if now.saturating_duration_since(self.looked) < EVERY {
            return None;
        }
        self.looked = now;
        (!self.held && now.saturating_duration_since(self.heard) < SILENT).then_some(self.since)
    }
}

impl Sender {
    /// Tells what streams carried that are over, and ends those that are stalled.
    pub(super) fn look_after_streams(&self, now: Instant) {
        let flow = &self.shared.flow;
        for Over { line, why } in flow.take_over() {
            let Some(why) = why else { continue };
            let mut state = lock(&self.shared.state);
            let parts = line.unaccounted(RANGES);
            let last = parts.len();
            let (stream, stalled) = (line.number(), line.is_stalled());
            for (at, blocks) in parts.into_iter().enumerate() {
                state.outbox.push_back(FromSender::Lost { stream, blocks, more: at + 1 < last, stalled });
            }
            drop(state);
            if stalled {
                flow.stalls(now);
            }
            flow.lose(why);
        }
        let (since, least) = {
            let patrol = &mut lock(&self.shared.state).patrol;
            (patrol.look(now), patrol.least)
        };
        let Some(since) = since else { return };
        for line in flow.live() {
            if line.stalls(since, least, now) {
                line.cut_as_stalled();
                // Whoever waits for work on it finds out.
                self.shared.work.notify_all();
            }
        }
    }

    /// What the receiver says of streams.
    pub(super) fn hear_of_streams(&self, state: &mut State, message: &FromReceiver) -> Result<(), TransferError> {
        let flow = &self.shared.flow;
        match message {
            FromReceiver::Taken { streams, held } => {
                state.patrol.held(*held, Instant::now());
                for taken in streams {
                    if let Some(line) = flow.line(taken.stream) {
                        flow.arrive(line.taken(*taken));
                    }
                }
            }
            FromReceiver::Broken { stream, blocks, why } => {
                flow.arrive(*blocks);
                if let Some(why) = why {
                    flow.far_says(why);
                }
                flow.bury(*stream);
                self.shared.work.notify_all();
            }
            _ => {}
        }
        Ok(())
    }
}
