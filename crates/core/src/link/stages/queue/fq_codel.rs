//! FQ-CoDel (RFC 8290): a queue for every flow, served in turn, each under CoDel.
//!
//! Turns are counted in bytes (deficit round robin): a flow sends while it has some left of its quantum, then the next
//! has its turn. Flows that have just begun to send come before those that have had a turn, so that a flow which sends
//! little hardly waits. When the queue is full, the flow with the most bytes in it loses from its front.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use super::codel::{CoDel, Controlled, Head, Rules};
use super::drop_tail::Waiting;
use super::settings::{DisciplineError, whole};
use super::{Held, Line};
use crate::link::Packet;
use crate::link::outbox::Outbox;
use crate::link::setting::{Parts, SettingError};
use crate::time::Instant;
use crate::units::Bytes;

/// What FQ-CoDel is set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FqCoDel {
    /// Of every flow's queue.
    pub codel: CoDel,
    /// How many queues there are: flows are hashed onto them.
    pub flows: u32,
    /// Bytes that a flow may send in its turn, counted as the line counts them. With a large quantum more packets of a
    /// super-packet stay together.
    pub quantum: Bytes,
}

impl Default for FqCoDel {
    /// 1,024 queues and a quantum of one Ethernet packet (RFC 8290 §5.2).
    fn default() -> Self {
        FqCoDel { codel: CoDel::default(), flows: 1024, quantum: Bytes(1514) }
    }
}

impl FqCoDel {
    pub(super) const FORM: &'static str = "fq-codel:flows=1024:quantum=1514:target=5ms:interval=100ms";
    /// As many as the kernel allows.
    pub(super) const MOST_FLOWS: u32 = 65_536;
    pub(super) const LEAST_QUANTUM: Bytes = Bytes(256);
    pub(super) const MOST_QUANTUM: Bytes = Bytes(16 << 20);

    pub(super) fn read(parts: &mut Parts) -> Result<Self, SettingError> {
        let default = FqCoDel::default();
        let flows = |text: &str| whole(text, text, "number of flows", "1024");
        Ok(FqCoDel {
            codel: CoDel::read(parts)?,
            flows: parts.key("flows", flows)?.unwrap_or(default.flows),
            quantum: parts.key("quantum", str::parse)?.unwrap_or(default.quantum),
        })
    }

    pub(super) fn check(&self) -> Result<(), DisciplineError> {
        if !(1..=Self::MOST_FLOWS).contains(&self.flows) {
            return Err(DisciplineError::Flows(self.flows));
        }
        if !(Self::LEAST_QUANTUM..=Self::MOST_QUANTUM).contains(&self.quantum) {
            return Err(DisciplineError::Quantum(self.quantum));
        }
        self.codel.check()
    }
}

impl fmt::Display for FqCoDel {
    /// The parameters as typed, each behind a colon, without what is the default.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let default = FqCoDel::default();
        if self.flows != default.flows {
            write!(f, ":flows={}", self.flows)?;
        }
        if self.quantum != default.quantum {
            write!(f, ":quantum={}", self.quantum.0)?;
        }
        self.codel.fmt(f)
    }
}

/// The flows that wait for a line.
#[derive(Debug)]
pub(super) struct Flows {
    flows: Vec<Flow>,
    /// Flows with something to send that have had no turn yet, in the order of their turns.
    new: VecDeque<usize>,
    /// The other flows that have, or lately had, something to send.
    old: VecDeque<usize>,
    quantum: i64,
    /// Virtual packets that wait.
    waiting: u64,
}

#[derive(Debug, Default)]
struct Flow {
    queue: Controlled,
    /// Bytes it may send before its turn is over.
    deficit: i64,
    /// Whether it is in one of the lists.
    is_listed: bool,
}

impl Flows {
    pub(super) fn new(settings: &FqCoDel) -> Self {
        let flows = std::iter::repeat_with(Flow::default).take(settings.flows as usize).collect();
        let mut flows = Flows { flows, new: VecDeque::new(), old: VecDeque::new(), quantum: 0, waiting: 0 };
        flows.set(settings);
        flows
    }

    /// Other settings with as many queues.
    pub(super) fn set(&mut self, settings: &FqCoDel) {
        self.quantum = i64::try_from(settings.quantum.0).unwrap_or(i64::MAX);
    }

    pub(super) fn count(&self) -> usize {
        self.flows.len()
    }

    /// True if both are of flows that share a queue.
    pub(super) fn are_one(&self, one: &Packet, other: &Packet) -> bool {
        self.index(one) == self.index(other)
    }

    pub(super) fn push(&mut self, waiting: Waiting, rules: &Rules) {
        let index = self.index(&waiting.packet);
        self.waiting += u64::from(waiting.packet.count);
        let flow = &mut self.flows[index];
        flow.queue.push(waiting, rules.tariff);
        if !flow.is_listed {
            flow.is_listed = true;
            flow.deficit = self.quantum;
            self.new.push_back(index);
        }
    }

    /// What was [taken](Self::take) and not begun goes back.
    pub(super) fn put_back(&mut self, waiting: Waiting) {
        let index = self.index(&waiting.packet);
        self.waiting += u64::from(waiting.packet.count);
        self.flows[index].queue.put_back(waiting);
    }

    /// The next slice, of `slice` virtual packets at most of so many bytes each.
    pub(super) fn take(
        &mut self,
        line: &mut Line,
        rules: &Rules,
        held: &mut Held,
        out: &mut Outbox,
    ) -> Option<(Head, Waiting)> {
        let now = line.free().at();
        loop {
            let index = self.turn()?;
            let flow = &mut self.flows[index];
            let before = held.packets;
            let head = flow.queue.begin(now, rules, held, out);
            self.waiting -= before - held.packets;
            let Some(head) = head else {
                self.rest(index);
                continue;
            };
            flow.deficit -= head.bytes as i64;
            let most = line.slice(head.bytes).min(flow.queue.sure(head, line, rules));
            let most = most.min(self.in_turn(index, head));
            let waiting = self.flows[index].queue.pop(if head.is_marked { 1 } else { most })?;
            self.waiting -= u64::from(waiting.packet.count);
            return Some((head, waiting));
        }
    }

    /// The next virtual packet of what was taken begins, having waited so long.
    pub(super) fn follow(&mut self, packet: &Packet, now: Instant, waited: Duration, bytes: u64, rules: &Rules) {
        let turn = self.turn();
        let index = self.index(packet);
        debug_assert_eq!(turn, Some(index), "a slice was longer than its flow's turn");
        let flow = &mut self.flows[index];
        flow.deficit -= bytes as i64;
        flow.queue.follow(now, waited, bytes, rules);
    }

    /// Drops from the front of the flow with the most bytes, because the queue is full.
    pub(super) fn drop_from_fattest(&mut self, rules: &Rules) -> Option<(Packet, u64)> {
        let listed = self.new.iter().chain(&self.old).copied();
        let fattest = listed.max_by_key(|index| (self.flows[*index].queue.bytes(), Reverse(*index)))?;
        let dropped = self.flows[fattest].queue.drop_first(rules.tariff)?;
        self.waiting -= 1;
        Some(dropped)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// There was nothing to send when the line was free: no flow is new or old any more.
    pub(super) fn idle(&mut self) {
        for index in self.new.drain(..).chain(self.old.drain(..)) {
            self.flows[index].queue.idle();
            self.flows[index].is_listed = false;
        }
    }

    /// All that waits, in the order in which it came, to be kept elsewhere.
    pub(super) fn drain(&mut self) -> Vec<Waiting> {
        self.waiting = 0;
        let mut all: Vec<Waiting> = self.flows.iter_mut().flat_map(|flow| flow.queue.drain()).collect();
        all.sort_by_key(|waiting| waiting.since);
        all
    }

    /// The flow whose turn it is (RFC 8290 §4.2).
    fn turn(&mut self) -> Option<usize> {
        loop {
            let list = if self.new.is_empty() { &mut self.old } else { &mut self.new };
            let index = *list.front()?;
            let flow = &mut self.flows[index];
            if flow.deficit > 0 {
                return Some(index);
            }
            flow.deficit += self.quantum;
            list.pop_front();
            self.old.push_back(index);
        }
    }

    /// The flow whose turn it is has nothing to send. Had it been forgotten at once it would be new again, and so before
    /// all others, with its next packet.
    fn rest(&mut self, index: usize) {
        if self.new.pop_front().is_some() {
            self.old.push_back(index);
        } else {
            self.old.pop_front();
            self.flows[index].is_listed = false;
        }
    }

    /// How many virtual packets like `head`, which is one of them, the flow may send before it is another's turn.
    fn in_turn(&self, index: usize, head: Head) -> u32 {
        if self.new.len() + self.old.len() == 1 {
            return u32::MAX;
        }
        let left = u64::try_from(self.flows[index].deficit).unwrap_or(0);
        u32::try_from(left.div_ceil(head.bytes)).unwrap_or(u32::MAX).saturating_add(1)
    }

    fn index(&self, packet: &Packet) -> usize {
        // Fibonacci hashing: neighbouring flow numbers fall far apart. Its upper half, scaled, never reaches the length.
        let hash = u64::from(packet.flow.wrapping_mul(0x9e37_79b1));
        ((hash * self.flows.len() as u64) >> 32) as usize
    }
}
