//! Queue in front of a line: admission, order of sending, early drops and marks.
//!
//! The queue has no clock. The line in `rate` reports arrivals, takes the next packets at the moment it is free, and
//! reports the start and the end of each transmission. The backlog is every admitted virtual packet whose last bit was
//! not sent, including the packet on the line. A store-and-forward device holds those bytes too, so the maximum wait is
//! the limit divided by the rate. Bytes include the overhead of the layer of the line (as `tc` counts a backlog with
//! `stab`). Each discipline has its own file; the shared limit and the statistics are in this one.

mod backlog;
mod codel;
mod drop_tail;
mod error;
mod fq_codel;
mod red;
mod settings;

use backlog::Backlog;
pub use codel::CoDel;
use codel::{CoDelQueue, QueueSettings};
pub(super) use drop_tail::QueuedRange;
use drop_tail::{Admission, Fifo, admit_at_most};
pub use error::DisciplineError;
use fq_codel::FlowQueues;
pub use fq_codel::FqCoDel;
pub use lfn_base::queue_limit::QueueLimit;
pub use red::Red;
use red::{RedAverage, RedDecision};
pub use settings::Discipline;

use lfn_base::framing::Layer;
use lfn_base::time::Instant;
use lfn_base::units::{BitRate, Bytes};
use lfn_packet::Ecn;

use super::line::{FramingOverhead, TransmitLine};
use super::ranges::split_by_outcome;
use crate::hop_context::HopContext;
use crate::outbox::Outbox;
use crate::packet::{DropCause, Packet};
use crate::timetable::Timetable;

/// Settings of a line and of the queue in front of it.
#[derive(Clone)]
pub(super) struct LineSettings {
    pub(super) rate: Timetable<BitRate>,
    pub(super) layer: Layer,
    pub(super) queue: QueueLimit,
    pub(super) discipline: Discipline,
    pub(super) ecn: bool,
}

/// Packets that wait for a line.
pub(super) struct Queue {
    limit: QueueLimit,
    settings: QueueSettings,
    backlog: Backlog,
    peak: u64,
    state: DisciplineState,
}

/// Waiting packets in the order of a discipline.
enum DisciplineState {
    DropTail(Fifo),
    CoDel(Box<CoDelQueue>),
    FqCoDel(Box<FlowQueues>),
    Red(Fifo, Box<RedAverage>),
}

impl Queue {
    pub(super) fn new(settings: &LineSettings, context: &HopContext) -> Self {
        Queue {
            limit: settings.queue,
            settings: queue_settings(settings, context),
            backlog: Backlog::default(),
            peak: 0,
            state: DisciplineState::new(settings, context, context.epoch),
        }
    }

    /// Applies new settings. Waiting packets stay, even if they exceed the new limit. Under another discipline they
    /// keep their order of arrival. `sending` is on the line and part of the backlog.
    pub(super) fn set(&mut self, settings: &LineSettings, context: &HopContext, sending: Option<Packet>, now: Instant) {
        let waiting = self.state.drain();
        self.limit = settings.queue;
        self.settings = queue_settings(settings, context);
        if !self.state.set(settings) {
            self.state = DisciplineState::new(settings, context, now);
        }
        self.backlog =
            sending.iter().fold(Backlog::default(), |backlog, packet| backlog.with(packet, self.settings.overhead));
        for waiting in waiting {
            self.backlog = self.backlog.with(&waiting.packet, self.settings.overhead);
            self.state.push(waiting, &self.settings);
        }
    }

    /// Admits the virtual packets of `packet` in order, as far as the discipline allows, and drops others to make room.
    pub(super) fn admit(&mut self, packet: Packet, now: Instant, rate: BitRate, out: &mut Outbox) {
        match &self.state {
            DisciplineState::DropTail(_) | DisciplineState::CoDel(_) => self.admit_if_room(packet, now, out),
            DisciplineState::FqCoDel(_) => self.admit_dropping_fattest(packet, now, out),
            DisciplineState::Red(..) => self.admit_by_red(packet, now, rate, out),
        }
    }

    /// Reports whether admitting `packet` may change the packet after the virtual packet on the line, which belongs to
    /// `sending`.
    pub(super) fn changes_order(&self, packet: &Packet, sending: &Packet) -> bool {
        match &self.state {
            DisciplineState::FqCoDel(flows) => !flows.share_queue(packet, sending) || !self.has_room(packet),
            _ => false,
        }
    }

    /// Reports whether the first virtual packet must be on the line, where it cannot be dropped, before the others
    /// arrive.
    pub(super) fn must_send_first(&self, packet: &Packet) -> bool {
        matches!(self.state, DisciplineState::FqCoDel(_)) && packet.count > 1 && !self.has_room(packet)
    }

    /// Takes the next slice when the line is free and starts its first virtual packet. Its bytes stay in the backlog
    /// until [`on_sent`](Self::on_sent).
    pub(super) fn take_slice(&mut self, line: &mut TransmitLine, out: &mut Outbox) -> Option<QueuedRange> {
        let Queue { settings, backlog, .. } = self;
        let (head, mut waiting) = match &mut self.state {
            DisciplineState::DropTail(fifo) | DisciplineState::Red(fifo, _) => {
                let front = &fifo.front()?.packet;
                let max = if front.count == 1 {
                    1
                } else {
                    line.slice_packets(settings.overhead.packet_bytes(front.wire_len))
                };
                return fifo.pop(max);
            }
            DisciplineState::CoDel(queue) => {
                let head = queue.dequeue(line.free_point().at(), settings, backlog, out)?;
                let max = line.slice_packets(head.bytes).min(queue.packets_before_drop(head, line, settings));
                (head, queue.pop(if head.is_marked { 1 } else { max })?)
            }
            DisciplineState::FqCoDel(flows) => flows.take_slice(line, settings, backlog, out)?,
        };
        if head.is_marked {
            mark(&mut waiting.packet);
        }
        Some(waiting)
    }

    /// Reports whether the discipline needs a call for every virtual packet that starts.
    pub(super) fn tracks_packets(&self) -> bool {
        matches!(self.state, DisciplineState::CoDel(_) | DisciplineState::FqCoDel(_))
    }

    /// Starts the next virtual packet of `slice`, which arrived at `arrived_at`.
    pub(super) fn on_packet_start(&mut self, slice: &Packet, arrived_at: Instant, now: Instant, bytes: u64) {
        let waited = now.saturating_since(arrived_at);
        match &mut self.state {
            DisciplineState::CoDel(queue) => queue.on_packet_start(now, waited, bytes, &self.settings),
            DisciplineState::FqCoDel(flows) => flows.on_packet_start(slice, now, waited, bytes, &self.settings),
            DisciplineState::DropTail(_) | DisciplineState::Red(..) => {}
        }
    }

    /// Returns packets that were taken but will not be sent now to the queue.
    pub(super) fn put_back(&mut self, waiting: QueuedRange) {
        match &mut self.state {
            DisciplineState::DropTail(fifo) | DisciplineState::Red(fifo, _) => fifo.push_front(waiting),
            DisciplineState::CoDel(queue) => queue.put_back(waiting),
            DisciplineState::FqCoDel(flows) => flows.put_back(waiting),
        }
    }

    /// Removes packets whose last bit was sent at `now` from the backlog.
    pub(super) fn on_sent(&mut self, packets: u32, bytes: u64, now: Instant) {
        self.backlog.remove(u64::from(packets), bytes);
        if self.backlog.packets == 0
            && let DisciplineState::Red(_, average) = &mut self.state
        {
            average.on_idle(now);
        }
    }

    /// Notes that the line is free and no packet waits.
    pub(super) fn on_idle(&mut self) {
        match &mut self.state {
            DisciplineState::DropTail(_) | DisciplineState::Red(..) => {}
            DisciplineState::CoDel(queue) => queue.on_idle(),
            DisciplineState::FqCoDel(flows) => flows.on_idle(),
        }
    }

    /// Reports whether no packet waits. A packet may be on the line.
    pub(super) fn is_empty(&self) -> bool {
        match &self.state {
            DisciplineState::DropTail(fifo) | DisciplineState::Red(fifo, _) => fifo.is_empty(),
            DisciplineState::CoDel(queue) => queue.is_empty(),
            DisciplineState::FqCoDel(flows) => flows.is_empty(),
        }
    }

    pub(super) fn overhead(&self) -> FramingOverhead {
        self.settings.overhead
    }

    pub(super) fn bytes(&self) -> Bytes {
        Bytes(self.backlog.bytes)
    }

    pub(super) fn peak(&self) -> Bytes {
        Bytes(self.peak)
    }

    fn admit_if_room(&mut self, packet: Packet, now: Instant, out: &mut Outbox) {
        let bytes = self.settings.overhead.range_bytes(&packet);
        if self.backlog.has_room(u64::from(packet.count), bytes, self.limit) {
            return self.enqueue_bytes(packet, bytes, now);
        }
        let Admission { head, is_last_admitted } =
            admit_at_most(&packet, &self.backlog, self.limit, self.settings.overhead);
        let refused = packet.count - head - u32::from(is_last_admitted);
        if head > 0 {
            self.enqueue(packet.part(0, head), now);
        }
        if is_last_admitted {
            self.enqueue(packet.part(packet.count - 1, 1), now);
        }
        out.drop(packet.part(head, refused), DropCause::Queue, now);
    }

    /// Admits all packets and then drops from the flow with the most bytes, but never more bytes than were admitted.
    fn admit_dropping_fattest(&mut self, packet: Packet, now: Instant, out: &mut Outbox) {
        if self.has_room(&packet) {
            return self.enqueue(packet, now);
        }
        let DisciplineState::FqCoDel(flows) = &mut self.state else { return };
        let overhead = self.settings.overhead;
        let mut run: Option<Packet> = None;
        for index in 0..packet.count {
            let single = packet.part(index, 1);
            let bytes = overhead.packet_bytes(single.last_wire_len);
            let mut owed = if self.backlog.packets == 0 { 0 } else { bytes };
            self.backlog.add(1, bytes);
            flows.push(QueuedRange { packet: single, arrived_at: now }, &self.settings);
            while owed > 0 && !self.backlog.is_within(self.limit) {
                let Some((dropped, bytes)) = flows.drop_from_fattest(&self.settings) else { break };
                self.backlog.remove(1, bytes);
                owed = owed.saturating_sub(bytes);
                if let Some(before) = join(&mut run, dropped) {
                    out.drop(before, DropCause::Queue, now);
                }
            }
            self.peak = self.peak.max(self.backlog.bytes);
        }
        if let Some(last) = run {
            out.drop(last, DropCause::Queue, now);
        }
    }

    /// Admits each virtual packet by the average queue at its arrival. Packets with the same outcome stay together.
    fn admit_by_red(&mut self, packet: Packet, now: Instant, rate: BitRate, out: &mut Outbox) {
        let DisciplineState::Red(fifo, average) = &mut self.state else { return };
        let (backlog, limit, overhead) = (&mut self.backlog, self.limit, self.settings.overhead);
        let may_mark = self.settings.ecn && packet.ecn != Ecn::NotCapable;
        let decide = |left: u32| {
            let outcome = match average.on_arrival(backlog, now, rate) {
                RedDecision::Pass => AdmissionOutcome::Admitted,
                RedDecision::Signal if may_mark => AdmissionOutcome::Marked,
                RedDecision::Signal | RedDecision::Drop => return (AdmissionOutcome::Dropped(DropCause::Aqm), 1),
            };
            let bytes = overhead.packet_bytes(if left == 1 { packet.last_wire_len } else { packet.wire_len });
            if !backlog.has_room(1, bytes, limit) {
                return (AdmissionOutcome::Dropped(DropCause::Queue), 1);
            }
            backlog.add(1, bytes);
            (outcome, 1)
        };
        split_by_outcome(packet, decide, |outcome, mut packet| {
            match outcome {
                AdmissionOutcome::Dropped(cause) => return out.drop(packet, cause, now),
                AdmissionOutcome::Marked => mark(&mut packet),
                AdmissionOutcome::Admitted => {}
            }
            fifo.push(QueuedRange { packet, arrived_at: now });
        });
        self.peak = self.peak.max(self.backlog.bytes);
    }

    fn enqueue(&mut self, packet: Packet, now: Instant) {
        self.enqueue_bytes(packet, self.settings.overhead.range_bytes(&packet), now);
    }

    fn enqueue_bytes(&mut self, packet: Packet, bytes: u64, now: Instant) {
        self.backlog.add(u64::from(packet.count), bytes);
        self.peak = self.peak.max(self.backlog.bytes);
        self.state.push(QueuedRange { packet, arrived_at: now }, &self.settings);
    }

    fn has_room(&self, packet: &Packet) -> bool {
        self.backlog.has_room(u64::from(packet.count), self.settings.overhead.range_bytes(packet), self.limit)
    }
}

/// Outcome of virtual packets that arrived together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AdmissionOutcome {
    Admitted,
    Marked,
    Dropped(DropCause),
}

impl DisciplineState {
    fn new(line: &LineSettings, context: &HopContext, now: Instant) -> Self {
        match &line.discipline {
            Discipline::DropTail => DisciplineState::DropTail(Fifo::default()),
            Discipline::CoDel(_) => DisciplineState::CoDel(Box::default()),
            Discipline::FqCoDel(settings) => DisciplineState::FqCoDel(Box::new(FlowQueues::new(settings))),
            Discipline::Red(settings) => {
                DisciplineState::Red(Fifo::default(), Box::new(RedAverage::new(settings, line.queue, context, now)))
            }
        }
    }

    /// Applies other settings of the same discipline; returns false for another discipline.
    fn set(&mut self, line: &LineSettings) -> bool {
        match (self, &line.discipline) {
            (DisciplineState::DropTail(_), Discipline::DropTail)
            | (DisciplineState::CoDel(_), Discipline::CoDel(_)) => {}
            (DisciplineState::FqCoDel(flows), Discipline::FqCoDel(settings))
                if flows.count() == settings.flows as usize =>
            {
                flows.set(settings);
            }
            (DisciplineState::Red(_, average), Discipline::Red(settings)) => average.set(settings, line.queue),
            _ => return false,
        }
        true
    }

    fn push(&mut self, waiting: QueuedRange, settings: &QueueSettings) {
        match self {
            DisciplineState::DropTail(fifo) | DisciplineState::Red(fifo, _) => fifo.push(waiting),
            DisciplineState::CoDel(queue) => queue.push(waiting, settings.overhead),
            DisciplineState::FqCoDel(flows) => flows.push(waiting, settings),
        }
    }

    /// Removes all waiting packets in order of arrival.
    fn drain(&mut self) -> Vec<QueuedRange> {
        match self {
            DisciplineState::DropTail(fifo) | DisciplineState::Red(fifo, _) => fifo.drain().collect(),
            DisciplineState::CoDel(queue) => queue.drain().collect(),
            DisciplineState::FqCoDel(flows) => flows.drain(),
        }
    }
}

/// Appends `next` to `run` if they belong together. Otherwise starts a new run and returns the old one.
fn join(run: &mut Option<Packet>, next: Packet) -> Option<Packet> {
    match run {
        Some(before) if before.is_followed_by(&next) => {
            before.append(&next);
            None
        }
        _ => run.replace(next),
    }
}

/// Sets CE. A packet that was already marked does not count as marked by this link.
fn mark(packet: &mut Packet) {
    packet.changes.is_marked |= packet.ecn == Ecn::Capable;
    packet.ecn = Ecn::Congested;
}

fn queue_settings(settings: &LineSettings, context: &HopContext) -> QueueSettings {
    let codel = match settings.discipline {
        Discipline::CoDel(codel) => codel,
        Discipline::FqCoDel(FqCoDel { codel, .. }) => codel,
        Discipline::DropTail | Discipline::Red(_) => CoDel::default(),
    };
    let overhead = FramingOverhead(settings.layer);
    let largest = u32::try_from(context.largest_packet.0).unwrap_or(u32::MAX);
    QueueSettings { codel, largest: overhead.packet_bytes(largest), ecn: settings.ecn, overhead }
}
