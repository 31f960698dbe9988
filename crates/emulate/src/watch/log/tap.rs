//! Observer of the packet log in the data path. Remembers arrival times and copies the data that the log needs.
//!
//! The tap never waits. If there is no room for a record, the record is counted as missed, and the packet is forwarded
//! as usual.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::thread;
use std::time::Duration;

use lfn_base::time::Instant;
use lfn_link::{LinkDirection, LinkEvent, Packet};
use lfn_packet::{endpoints, extract_headers};

use super::files::LogFormat;
use super::record::{
    CapturePoint, CapturedFrame, DropReason, FrameArrival, FrameNote, IcmpReply, OutcomeKind, PacketOutcome, Record,
    SNAP_LENGTH, TapPoint,
};
use crate::data_path::{Frame, Observer, UnmodelledDrop};

/// Observer of one direction for the packet log.
pub(super) struct LogTap {
    format: LogFormat,
    path: usize,
    direction: LinkDirection,
    arrivals: ArrivalTable,
    out: RecordQueue,
    /// Buffer for the headers of a dropped range.
    headers: Vec<u8>,
    /// Arrival of the packet of the last event. An ICMP reply follows directly after the drop that causes it.
    last: Option<FrameArrival>,
}

/// Channel to the log writer.
#[derive(Clone)]
pub(super) struct RecordQueue {
    pub(super) records: SyncSender<Record>,
    /// Records without room in the channel, by capture point.
    pub(super) missed: Arc<[AtomicU64]>,
}

impl LogTap {
    pub(super) fn new(format: LogFormat, path: usize, direction: LinkDirection, out: RecordQueue) -> Self {
        LogTap { format, path, direction, arrivals: ArrivalTable::default(), out, headers: Vec::new(), last: None }
    }

    fn log_outcome(&self, arrival: FrameArrival, kind: OutcomeKind) {
        let outcome = PacketOutcome { path: self.path, direction: self.direction, arrival, kind };
        self.out.try_send(Record::Outcome(Box::new(outcome)), self.capture_point(TapPoint::entrance(self.direction)));
    }

    fn log_frame(
        &self,
        point: TapPoint,
        is_inbound: bool,
        arrival: FrameArrival,
        frame: [&[u8]; 2],
        at: Instant,
        note: FrameNote,
    ) {
        let capture_point = self.capture_point(point);
        let (captured, bytes) = snap(frame);
        let captured_frame = CapturedFrame {
            capture_point,
            is_inbound,
            serial: arrival.serial,
            direction: self.direction,
            at,
            note,
            length: frame.iter().map(|part| part.len()).sum(),
            captured,
            bytes,
        };
        self.out.try_send(Record::Frame(Box::new(captured_frame)), capture_point);
    }

    /// Logs a dropped range of a frame at the point for dropped packets.
    fn log_dropped_frame(
        &mut self,
        packet: &Packet,
        arrival: FrameArrival,
        frame: Frame<'_>,
        at: Instant,
        drop: DropReason,
    ) {
        let Frame { vnet, parts: [_, frame_bytes] } = frame;
        let mut headers = std::mem::take(&mut self.headers);
        let cut = extract_headers(frame_bytes, &vnet, packet.first, packet.count, &mut headers);
        let parts = [&headers[..], frame_bytes.get(cut.payload).unwrap_or_default()];
        let note =
            FrameNote { drop: Some((drop, packet.count)), is_copy: packet.changes.is_copy, ..FrameNote::default() };
        self.log_frame(TapPoint::Dropped, false, arrival, parts, at, note);
        self.headers = headers;
    }

    fn capture_point(&self, point: TapPoint) -> CapturePoint {
        CapturePoint { path: self.path, point }
    }
}

impl Observer for LogTap {
    fn on_arrival(&mut self, packet: &Packet, frame: Frame<'_>, at: Instant) {
        match self.format {
            LogFormat::JsonLines => {
                self.arrivals
                    .enter(packet, FrameArrival { endpoints: endpoints(frame.parts[1]), ..self.arrivals.next(at) });
            }
            LogFormat::Pcapng => {
                let arrival = self.arrivals.next(at);
                self.arrivals.enter(packet, arrival);
                let entrance = TapPoint::entrance(self.direction);
                self.log_frame(entrance, true, arrival, frame.parts, at, FrameNote::default());
            }
        }
    }

    fn on_event(&mut self, event: &LinkEvent, frame: Frame<'_>, now: Instant) {
        self.last = self.arrivals.on_event(event);
        let Some(arrival) = self.last else { return };
        match (self.format, *event) {
            (LogFormat::JsonLines, event) => self.log_outcome(arrival, OutcomeKind::LinkEvent(event, now)),
            (LogFormat::Pcapng, LinkEvent::Forward { packet, .. }) => {
                let note = FrameNote {
                    is_marked: packet.changes.is_marked,
                    is_corrupted: packet.changes.corruption.is_some(),
                    is_copy: packet.changes.is_copy,
                    ..FrameNote::default()
                };
                self.log_frame(TapPoint::exit(self.direction), false, arrival, frame.parts, now, note);
            }
            (LogFormat::Pcapng, LinkEvent::Drop { packet, cause, at, .. }) => {
                self.log_dropped_frame(&packet, arrival, frame, at, DropReason::Link(cause));
            }
            // Logged when the copy leaves.
            (LogFormat::Pcapng, LinkEvent::Duplicate { .. }) => {}
        }
    }

    fn on_icmp_reply(&mut self, packet: &Packet, mtu: u16, frame: &[u8], now: Instant) {
        let Some(arrival) = self.last else { return };
        match self.format {
            LogFormat::JsonLines => {
                let reply = IcmpReply { mtu, bytes: frame.len() };
                let arrival = FrameArrival { endpoints: endpoints(frame), ..arrival };
                self.log_outcome(arrival, OutcomeKind::IcmpReply(*packet, reply, now));
            }
            LogFormat::Pcapng => {
                let note = FrameNote { reply_mtu: Some(mtu), ..FrameNote::default() };
                self.log_frame(TapPoint::entrance(self.direction), false, arrival, [&[], frame], now, note);
            }
        }
    }

    fn on_unmodelled_drop(&mut self, packet: &Packet, frame: Frame<'_>, why: UnmodelledDrop, now: Instant) {
        let arrival = match why {
            UnmodelledDrop::SendFailed => self.arrivals.leave(packet),
            UnmodelledDrop::RingFull => {
                let frame_bytes = frame.parts[1];
                Some(FrameArrival { endpoints: endpoints(frame_bytes), ..self.arrivals.count_unqueued(now) })
            }
        };
        let Some(arrival) = arrival else { return };
        match self.format {
            LogFormat::JsonLines => self.log_outcome(arrival, OutcomeKind::UnmodelledDrop(*packet, why, now)),
            LogFormat::Pcapng => {
                let note = FrameNote { drop: Some((DropReason::Emulator(why), packet.count)), ..FrameNote::default() };
                self.log_frame(TapPoint::Dropped, false, arrival, frame.parts, now, note);
            }
        }
    }
}

/// Logs the packets that are still in the link.
impl Drop for LogTap {
    fn drop(&mut self) {
        if self.format == LogFormat::JsonLines {
            let capture_point = self.capture_point(TapPoint::entrance(self.direction));
            for (arrival, packets_left) in self.arrivals.take_all() {
                let kind = OutcomeKind::InFlight(packets_left);
                let outcome = PacketOutcome { path: self.path, direction: self.direction, arrival, kind };
                self.out.send_with_retries(Record::Outcome(Box::new(outcome)), capture_point);
            }
        }
    }
}

impl RecordQueue {
    fn try_send(&self, record: Record, capture_point: CapturePoint) {
        if self.records.try_send(record).is_err() {
            self.count_missed(capture_point);
        }
    }

    /// Waits for room, for a limited time. Only for use after the run.
    fn send_with_retries(&self, mut record: Record, capture_point: CapturePoint) {
        const TRIES: u32 = 100;
        for _ in 0..TRIES {
            match self.records.try_send(record) {
                Ok(()) => return,
                Err(TrySendError::Full(same)) => record = same,
                Err(TrySendError::Disconnected(_)) => break,
            }
            thread::sleep(Duration::from_millis(1));
        }
        self.count_missed(capture_point);
    }

    fn count_missed(&self, capture_point: CapturePoint) {
        if let Some(count) = self.missed.get(capture_point.index()) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Arrival times of the super-packets in the link.
#[derive(Default)]
struct ArrivalTable {
    /// By the packet id of the link, which may be reused for a later packet.
    in_link: HashMap<u64, InLink>,
    frames: u64,
    packets: u64,
}

struct InLink {
    arrival: FrameArrival,
    /// Virtual packets still in the link.
    packets_left: u32,
}

impl ArrivalTable {
    fn next(&self, at: Instant) -> FrameArrival {
        FrameArrival { serial: self.frames, packets_before: self.packets, at, endpoints: None }
    }

    fn enter(&mut self, packet: &Packet, arrival: FrameArrival) {
        self.frames += 1;
        self.packets += u64::from(packet.count);
        self.in_link.insert(packet.id, InLink { arrival, packets_left: packet.count });
    }

    /// Counts a frame that did not enter the link.
    fn count_unqueued(&mut self, at: Instant) -> FrameArrival {
        let arrival = self.next(at);
        self.frames += 1;
        arrival
    }

    fn on_event(&mut self, event: &LinkEvent) -> Option<FrameArrival> {
        match event {
            LinkEvent::Forward { packet, .. } | LinkEvent::Drop { packet, .. } => self.leave(packet),
            LinkEvent::Duplicate { packet, .. } => {
                let in_link = self.in_link.get_mut(&packet.id)?;
                in_link.packets_left = in_link.packets_left.saturating_add(packet.count);
                Some(in_link.arrival)
            }
        }
    }

    fn leave(&mut self, packet: &Packet) -> Option<FrameArrival> {
        let in_link = self.in_link.get_mut(&packet.id)?;
        in_link.packets_left = in_link.packets_left.saturating_sub(packet.count);
        let (arrival, packets_left) = (in_link.arrival, in_link.packets_left);
        if packets_left == 0 {
            self.in_link.remove(&packet.id);
        }
        Some(arrival)
    }

    /// Removes and returns all entries, in order of arrival.
    fn take_all(&mut self) -> Vec<(FrameArrival, u32)> {
        let mut all: Vec<_> =
            self.in_link.drain().map(|(_, in_link)| (in_link.arrival, in_link.packets_left)).collect();
        all.sort_by_key(|(arrival, _)| arrival.serial);
        all
    }
}

/// Returns the number of copied bytes, and the first bytes of a frame in two parts.
fn snap([head, tail]: [&[u8]; 2]) -> (usize, [u8; SNAP_LENGTH]) {
    let mut bytes = [0; SNAP_LENGTH];
    let head = &head[..head.len().min(SNAP_LENGTH)];
    let tail = &tail[..tail.len().min(SNAP_LENGTH - head.len())];
    bytes[..head.len()].copy_from_slice(head);
    bytes[head.len()..head.len() + tail.len()].copy_from_slice(tail);
    (head.len() + tail.len(), bytes)
}
