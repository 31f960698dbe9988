//! FQ-CoDel (RFC 8290): one queue per flow under CoDel, served in turn.
//!
//! Turns are counted in bytes (deficit round robin): a flow sends until its quantum is used, then the next flow sends.
//! Flows that have just begun to send come before flows that already had a turn, so a flow with little traffic hardly
//! waits. If the queue is full, packets are dropped from the front of the flow with the most bytes.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use lfn_base::queue_limit::parse_whole;
use lfn_base::time::Instant;
use lfn_base::units::Bytes;

use super::TransmitLine;
use super::backlog::Backlog;
use super::codel::{CoDel, CoDelQueue, HeadPacket, QueueSettings};
use super::drop_tail::QueuedRange;
use super::error::{DisciplineError, MAX_FLOWS, MAX_QUANTUM, MIN_QUANTUM};
use crate::outbox::Outbox;
use crate::packet::Packet;
use crate::setting::{Parts, SettingError};

/// Parameters of the FQ-CoDel discipline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FqCoDel {
    /// Parameters of every flow's queue.
    pub codel: CoDel,
    /// Number of queues. Flows are hashed to the queues.
    pub flows: u32,
    /// Bytes that a flow may send in its turn, with the overhead of the line. With a larger quantum, more packets of a
    /// super-packet stay together.
    pub quantum: Bytes,
}

impl Default for FqCoDel {
    /// Returns 1,024 queues and a quantum of one Ethernet packet (RFC 8290 §5.2).
    fn default() -> Self {
        FqCoDel { codel: CoDel::default(), flows: 1024, quantum: Bytes(1514) }
    }
}

impl FqCoDel {
    pub(super) const FORM: &'static str = "fq-codel:flows=1024:quantum=1514:target=5ms:interval=100ms";

    pub(super) fn parse(parts: &mut Parts) -> Result<Self, SettingError> {
        let default = FqCoDel::default();
        let flows = |text: &str| parse_whole(text, text, "number of flows", "1024");
        Ok(FqCoDel {
            codel: CoDel::parse(parts)?,
            flows: parts.optional_key("flows", flows)?.unwrap_or(default.flows),
            quantum: parts.optional_key("quantum", str::parse)?.unwrap_or(default.quantum),
        })
    }

    pub(super) fn check(&self) -> Result<(), DisciplineError> {
        if !(1..=MAX_FLOWS).contains(&self.flows) {
            return Err(DisciplineError::FlowQueues(self.flows));
        }
        if !(MIN_QUANTUM..=MAX_QUANTUM).contains(&self.quantum) {
            return Err(DisciplineError::Quantum(self.quantum));
        }
        self.codel.check()
    }
}

impl fmt::Display for FqCoDel {
    /// Writes each parameter that differs from the default after a colon.
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

/// Queues of all flows.
#[derive(Debug)]
pub(super) struct FlowQueues {
    flows: Vec<FlowQueue>,
    /// Flows with packets that have had no turn yet, in the order of their turns.
    new: VecDeque<usize>,
    /// Other flows that have packets or recently had packets.
    old: VecDeque<usize>,
    quantum: i64,
    /// Number of waiting virtual packets.
    waiting: u64,
}

#[derive(Debug, Default)]
struct FlowQueue {
    queue: CoDelQueue,
    /// Bytes that the flow may send before its turn is over.
    deficit: i64,
    /// Whether the flow is in one of the lists.
    is_listed: bool,
}

impl FlowQueues {
    pub(super) fn new(settings: &FqCoDel) -> Self {
        let flows = std::iter::repeat_with(FlowQueue::default).take(settings.flows as usize).collect();
        let mut flows = FlowQueues { flows, new: VecDeque::new(), old: VecDeque::new(), quantum: 0, waiting: 0 };
        flows.set(settings);
        flows
    }

    /// Applies other settings with the same number of queues.
    pub(super) fn set(&mut self, settings: &FqCoDel) {
        self.quantum = i64::try_from(settings.quantum.0).unwrap_or(i64::MAX);
    }

    pub(super) fn count(&self) -> usize {
        self.flows.len()
    }

    /// Reports whether both packets belong to flows that share a queue.
    pub(super) fn share_queue(&self, one: &Packet, other: &Packet) -> bool {
        self.index(one) == self.index(other)
    }

    pub(super) fn push(&mut self, waiting: QueuedRange, settings: &QueueSettings) {
        let index = self.index(&waiting.packet);
        self.waiting += u64::from(waiting.packet.count);
        let flow = &mut self.flows[index];
        flow.queue.push(waiting, settings.overhead);
        if !flow.is_listed {
            flow.is_listed = true;
            flow.deficit = self.quantum;
            self.new.push_back(index);
        }
    }

    /// Returns a range that was [taken](Self::take_slice) and not started to its queue.
    pub(super) fn put_back(&mut self, waiting: QueuedRange) {
        let index = self.index(&waiting.packet);
        self.waiting += u64::from(waiting.packet.count);
        self.flows[index].queue.put_back(waiting);
    }

    /// Takes the next slice when the line is free.
    pub(super) fn take_slice(
        &mut self,
        line: &mut TransmitLine,
        settings: &QueueSettings,
        backlog: &mut Backlog,
        out: &mut Outbox,
    ) -> Option<(HeadPacket, QueuedRange)> {
        let now = line.free_point().at();
        loop {
            let index = self.next_flow()?;
            let flow = &mut self.flows[index];
            let before = backlog.packets;
            let head = flow.queue.dequeue(now, settings, backlog, out);
            self.waiting -= before - backlog.packets;
            let Some(head) = head else {
                self.end_turn(index);
                continue;
            };
            flow.deficit -= head.bytes as i64;
            let max = line.slice_packets(head.bytes).min(flow.queue.packets_before_drop(head, line, settings));
            let max = max.min(self.packets_in_turn(index, head));
            let waiting = self.flows[index].queue.pop(if head.is_marked { 1 } else { max })?;
            self.waiting -= u64::from(waiting.packet.count);
            return Some((head, waiting));
        }
    }

    /// Starts the next virtual packet of the taken range after a wait of `waited`.
    pub(super) fn on_packet_start(
        &mut self,
        packet: &Packet,
        now: Instant,
        waited: Duration,
        bytes: u64,
        settings: &QueueSettings,
    ) {
        let turn = self.next_flow();
        let index = self.index(packet);
        debug_assert_eq!(turn, Some(index), "a slice was longer than its flow's turn");
        let flow = &mut self.flows[index];
        flow.deficit -= bytes as i64;
        flow.queue.on_packet_start(now, waited, bytes, settings);
    }

    /// Drops the first packet of the flow with the most bytes because the queue is full.
    pub(super) fn drop_from_fattest(&mut self, settings: &QueueSettings) -> Option<(Packet, u64)> {
        let listed = self.new.iter().chain(&self.old).copied();
        let fattest = listed.max_by_key(|index| (self.flows[*index].queue.bytes(), Reverse(*index)))?;
        let dropped = self.flows[fattest].queue.drop_first(settings.overhead)?;
        self.waiting -= 1;
        Some(dropped)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Empties the lists of flows, because no packet waited when the line was free.
    pub(super) fn on_idle(&mut self) {
        for index in self.new.drain(..).chain(self.old.drain(..)) {
            self.flows[index].queue.on_idle();
            self.flows[index].is_listed = false;
        }
    }

    /// Removes all waiting packets in order of arrival, for another queue.
    pub(super) fn drain(&mut self) -> Vec<QueuedRange> {
        self.waiting = 0;
        let mut all: Vec<QueuedRange> = self.flows.iter_mut().flat_map(|flow| flow.queue.drain()).collect();
        all.sort_by_key(|waiting| waiting.arrived_at);
        all
    }

    /// Returns the flow that sends next (RFC 8290 §4.2).
    fn next_flow(&mut self) -> Option<usize> {
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

    /// Ends the turn of a flow with nothing to send. A flow from the new list moves to the old list; otherwise its next
    /// packet would make it a new flow again, ahead of all others.
    fn end_turn(&mut self, index: usize) {
        if self.new.pop_front().is_some() {
            self.old.push_back(index);
        } else {
            self.old.pop_front();
            self.flows[index].is_listed = false;
        }
    }

    /// Returns how many virtual packets of the size of `head`, including `head`, the flow may send before its turn
    /// ends.
    fn packets_in_turn(&self, index: usize, head: HeadPacket) -> u32 {
        if self.new.len() + self.old.len() == 1 {
            return u32::MAX;
        }
        let left = u64::try_from(self.flows[index].deficit).unwrap_or(0);
        u32::try_from(left.div_ceil(head.bytes)).unwrap_or(u32::MAX).saturating_add(1)
    }

    fn index(&self, packet: &Packet) -> usize {
        // Fibonacci hashing spreads neighbouring flow numbers. The upper half, scaled, never reaches the length.
        let hash = u64::from(packet.flow.wrapping_mul(0x9e37_79b1));
        ((hash * self.flows.len() as u64) >> 32) as usize
    }
}
