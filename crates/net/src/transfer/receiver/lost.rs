//! What a receiver does about streams: tells how much it took off them, says when one is over, and asks for what was
//! lost with it.
//!
//! The sender names the blocks that a broken stream carried. They are compared with what is here when nobody works on
//! that stream any more, so that no block is asked for that still comes and none is forgotten that does not.

use std::collections::HashSet;
use std::io;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use lfn_core::wire::copy::{FromReceiver, MOST_LOST, Part, in_messages};

use super::Receiver;
use crate::session::DEAD_AFTER;
use crate::transfer::TransferError;
use crate::transfer::flow::lock;
use crate::transfer::line::{Over, RANGES};

/// How long the sender may leave every stream closed in good order before it is said to have sent too little, and how long
/// if one broke and another may come.
const LEFT_ALONE: (Duration, Duration) = (Duration::from_secs(10), DEAD_AFTER);

/// How often the sender is told what came.
const TOLD_EVERY: Duration = Duration::from_millis(500);

/// Most broken streams that wait for their threads to notice.
const MOST_WAITING: usize = 1024;

/// Most runs of blocks that may be named of all of them; each file, even without one, is one more.
const MOST_RUNS: usize = 1 << 19;

/// Streams that are over, as this side has to deal with them.
#[derive(Debug, Default)]
pub(super) struct Losses(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Lost, as the sender says, and the last of its messages about each.
    waiting: Vec<(u16, Vec<Part>, bool)>,
    /// Since when there was no stream though there had been one.
    alone: Option<Instant>,
    /// Streams that ended in good order, as far as this side can tell.
    in_order: HashSet<u16>,
    told: Option<Instant>,
    held: bool,
}

impl Receiver {
    /// Says what there is to say of streams; the sender that leaves this side without any, and with blocks missing, ends the
    /// copy.
    pub(super) fn look_after_streams(&self) {
        let mut inner = lock(&self.losses.0);
        for Over { line, why } in self.flow.take_over() {
            inner.alone = Some(Instant::now());
            if !self.table.is_over() {
                let why = why.as_ref().map(ToString::to_string);
                let (stream, blocks) = (line.number(), line.untold());
                self.table.say(FromReceiver::Broken { stream, blocks, why });
            }
            match why {
                Some(why) => self.flow.lose(why),
                None => {
                    inner.in_order.insert(line.number());
                }
            }
        }
        let (over, waiting) = std::mem::take(&mut inner.waiting)
            .into_iter()
            .partition(|(stream, _, more)| !more && self.flow.line(*stream).is_none());
        inner.waiting = waiting;
        let over: Vec<_> = over;
        for (_, blocks, _) in over {
            self.miss(blocks);
        }
        self.tell_what_came(&mut inner);
        if self.left_alone(&mut inner) {
            self.flow.fail(TransferError::Incomplete);
        }
    }

    /// The sender says that a stream is over.
    pub(super) fn lost(&self, stream: u16, blocks: Vec<Part>, more: bool) -> Result<(), TransferError> {
        self.flow.bury(stream);
        let mut inner = lock(&self.losses.0);
        if inner.in_order.remove(&stream) {
            self.flow.lose(TransferError::Stream { stream, source: io::ErrorKind::UnexpectedEof.into() });
        }
        let number = |part: &Part| part.blocks.len();
        let many = blocks.iter().map(number).fold(0, u64::saturating_add);
        let runs = |parts: &Vec<Part>| parts.iter().map(|part| 1 + part.blocks.ranges().count()).sum::<usize>();
        let all = inner.waiting.iter().map(|(_, parts, _)| runs(parts)).sum::<usize>() + runs(&blocks);
        if many > MOST_LOST || all > MOST_RUNS || inner.waiting.len() >= MOST_WAITING {
            return Err(TransferError::Sender("says that more was lost than can have been on its way"));
        }
        match inner.waiting.iter_mut().find(|(waiting, _, more)| *waiting == stream && *more) {
            Some((_, all, last)) => {
                all.extend(blocks);
                *last = more;
                let many = all.iter().map(number).fold(0, u64::saturating_add);
                if many > MOST_LOST {
                    return Err(TransferError::Sender("says that more was lost than can have been on its way"));
                }
            }
            None => inner.waiting.push((stream, blocks, more)),
        }
        Ok(())
    }

    /// Asks for those of the blocks that are not here.
    fn miss(&self, blocks: Vec<Part>) {
        let mut missing = Vec::new();
        for Part { file, blocks } in blocks {
            match self.table.lacking(file, &blocks) {
                Ok(blocks) if blocks.is_empty() => {}
                Ok(blocks) => missing.push(Part { file, blocks }),
                Err(error) => return self.flow.fail(error),
            }
        }
        for blocks in in_messages(missing, RANGES) {
            self.table.say(FromReceiver::Missing { blocks });
        }
    }

    fn tell_what_came(&self, inner: &mut Inner) {
        if inner.told.is_some_and(|told| told.elapsed() < TOLD_EVERY) {
            return;
        }
        let held = self.flow.holds() || !self.is_idle();
        let streams: Vec<_> = self.flow.live().iter().filter_map(|line| line.news()).collect();
        if !streams.is_empty() || held != inner.held {
            (inner.told, inner.held) = (Some(Instant::now()), held);
            self.table.say(FromReceiver::Taken { streams, held });
        }
    }

    /// Whether nobody sends what is still missing.
    fn left_alone(&self, inner: &mut Inner) -> bool {
        let Some(since) = inner.alone else { return false };
        if !self.flow.live().is_empty() || !self.table.waits() {
            inner.alone = Some(Instant::now());
            return false;
        }
        let (in_order, broken) = LEFT_ALONE;
        since.elapsed() > if self.flow.broke() == 0 { in_order } else { broken }
    }
}
