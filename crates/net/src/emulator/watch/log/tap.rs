//! The part of the log that stands in the data path: remembers when packets came, and copies what the log needs.
//!
//! It never waits. A record that finds no room is counted as missed, and the packet goes on all the same.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::thread;
use std::time::Duration;

use lfn_core::link::segment::{cut_headers, endpoints};
use lfn_core::link::{Direction, Event, Packet};
use lfn_core::time::Instant;

use super::LogFormat;
use super::record::{Answer, Arrival, Fate, Gone, Note, Place, Point, Record, SNAP, Sight, What};
use crate::emulator::data_path::{Frame, Observer, Unforeseen};

/// Watches one direction for the log.
pub(super) struct Tap {
    format: LogFormat,
    path: usize,
    direction: Direction,
    arrivals: Arrivals,
    out: Out,
    /// The headers of a range that was dropped.
    headers: Vec<u8>,
    /// Whose packets something happened to last: an answer comes right after the drop that it is of.
    last: Option<Arrival>,
}

/// The way to the writer.
#[derive(Clone)]
pub(super) struct Out {
    pub(super) records: SyncSender<Record>,
    /// Records that found no room, by place.
    pub(super) missed: Arc<[AtomicU64]>,
}

impl Tap {
    pub(super) fn new(format: LogFormat, path: usize, direction: Direction, out: Out) -> Self {
        Tap { format, path, direction, arrivals: Arrivals::default(), out, headers: Vec::new(), last: None }
    }

    fn fate(&self, arrival: Arrival, what: What) {
        let fate = Fate { path: self.path, direction: self.direction, arrival, what };
        self.out.try_send(Record::Fate(Box::new(fate)), self.place(Point::entrance(self.direction)));
    }

    fn sight(&self, point: Point, inbound: bool, arrival: Arrival, frame: [&[u8]; 2], at: Instant, note: Note) {
        let place = self.place(point);
        let (kept, bytes) = start_of(frame);
        let sight = Sight {
            place,
            inbound,
            serial: arrival.serial,
            direction: self.direction,
            at,
            note,
            length: frame.iter().map(|part| part.len()).sum(),
            kept,
            bytes,
        };
        self.out.try_send(Record::Sight(Box::new(sight)), place);
    }

    /// Shows where the link puts what it drops a range of a frame as it came.
    fn sight_of_gone(&mut self, packet: &Packet, arrival: Arrival, frame: Frame<'_>, at: Instant, gone: Gone) {
        let Frame { vnet, parts: [_, whole] } = frame;
        let mut headers = std::mem::take(&mut self.headers);
        let cut = cut_headers(whole, &vnet, packet.first, packet.count, &mut headers);
        let parts = [&headers[..], whole.get(cut.payload).unwrap_or_default()];
        let note = Note { gone: Some((gone, packet.count)), is_copy: packet.changes.is_copy, ..Note::default() };
        self.sight(Point::Dropped, false, arrival, parts, at, note);
        self.headers = headers;
    }

    fn place(&self, point: Point) -> Place {
        Place { path: self.path, point }
    }
}

impl Observer for Tap {
    fn arrived(&mut self, packet: &Packet, frame: Frame<'_>, at: Instant) {
        match self.format {
            LogFormat::JsonLines => {
                self.arrivals.enter(packet, Arrival { endpoints: endpoints(frame.parts[1]), ..self.arrivals.next(at) });
            }
            LogFormat::Pcapng => {
                let arrival = self.arrivals.next(at);
                self.arrivals.enter(packet, arrival);
                let entrance = Point::entrance(self.direction);
                self.sight(entrance, true, arrival, frame.parts, at, Note::default());
            }
        }
    }

    fn happened(&mut self, event: &Event, frame: Frame<'_>, now: Instant) {
        self.last = self.arrivals.settle(event);
        let Some(arrival) = self.last else { return };
        match (self.format, *event) {
            (LogFormat::JsonLines, event) => self.fate(arrival, What::Happened(event, now)),
            (LogFormat::Pcapng, Event::Forward { packet, .. }) => {
                let note = Note {
                    marked: packet.changes.congestion,
                    damaged: packet.changes.damage.is_some(),
                    is_copy: packet.changes.is_copy,
                    ..Note::default()
                };
                self.sight(Point::exit(self.direction), false, arrival, frame.parts, now, note);
            }
            (LogFormat::Pcapng, Event::Drop { packet, cause, at, .. }) => {
                self.sight_of_gone(&packet, arrival, frame, at, Gone::Dropped(cause));
            }
            // Shows when it leaves.
            (LogFormat::Pcapng, Event::Duplicate { .. }) => {}
        }
    }

    fn answered(&mut self, packet: &Packet, mtu: u16, frame: &[u8], now: Instant) {
        let Some(arrival) = self.last else { return };
        match self.format {
            LogFormat::JsonLines => {
                let answer = Answer { mtu, bytes: frame.len() };
                let arrival = Arrival { endpoints: endpoints(frame), ..arrival };
                self.fate(arrival, What::Answered(*packet, answer, now));
            }
            LogFormat::Pcapng => {
                let note = Note { answer: Some(mtu), ..Note::default() };
                self.sight(Point::entrance(self.direction), false, arrival, [&[], frame], now, note);
            }
        }
    }

    fn lost(&mut self, packet: &Packet, frame: Frame<'_>, why: Unforeseen, now: Instant) {
        let arrival = match why {
            Unforeseen::SendFailed => self.arrivals.leave(packet),
            Unforeseen::NoRoom => {
                let whole = frame.parts[1];
                Some(Arrival { endpoints: endpoints(whole), ..self.arrivals.pass_by(now) })
            }
        };
        let Some(arrival) = arrival else { return };
        match self.format {
            LogFormat::JsonLines => self.fate(arrival, What::Lost(*packet, why, now)),
            LogFormat::Pcapng => {
                let note = Note { gone: Some((Gone::Lost(why), packet.count)), ..Note::default() };
                self.sight(Point::Dropped, false, arrival, frame.parts, now, note);
            }
        }
    }
}

/// Whatever is in the link still has a fate.
impl Drop for Tap {
    fn drop(&mut self) {
        if self.format == LogFormat::JsonLines {
            let place = self.place(Point::entrance(self.direction));
            for (arrival, left) in self.arrivals.take_all() {
                let what = What::InFlight(left);
                let fate = Fate { path: self.path, direction: self.direction, arrival, what };
                self.out.send_soon(Record::Fate(Box::new(fate)), place);
            }
        }
    }
}

impl Out {
    fn try_send(&self, record: Record, place: Place) {
        if self.records.try_send(record).is_err() {
            self.miss(place);
        }
    }

    /// Waits for room as long as the writer is at work: only after the run.
    fn send_soon(&self, mut record: Record, place: Place) {
        const TRIES: u32 = 100;
        for _ in 0..TRIES {
            match self.records.try_send(record) {
                Ok(()) => return,
                Err(TrySendError::Full(same)) => record = same,
                Err(TrySendError::Disconnected(_)) => break,
            }
            thread::sleep(Duration::from_millis(1));
        }
        self.miss(place);
    }

    fn miss(&self, place: Place) {
        if let Some(count) = self.missed.get(place.index()) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// When the super-packets that are in the link came.
#[derive(Default)]
struct Arrivals {
    /// By the id that the link knows them by, which may be given again to a later one.
    inside: HashMap<u64, Inside>,
    frames: u64,
    packets: u64,
}

struct Inside {
    arrival: Arrival,
    /// Virtual packets still in the link.
    left: u32,
}

impl Arrivals {
    fn next(&self, at: Instant) -> Arrival {
        Arrival { serial: self.frames, packets_before: self.packets, at, endpoints: None }
    }

    fn enter(&mut self, packet: &Packet, arrival: Arrival) {
        self.frames += 1;
        self.packets += u64::from(packet.count);
        self.inside.insert(packet.id, Inside { arrival, left: packet.count });
    }

    /// Something came that the link was not given.
    fn pass_by(&mut self, at: Instant) -> Arrival {
        let arrival = self.next(at);
        self.frames += 1;
        arrival
    }

    fn settle(&mut self, event: &Event) -> Option<Arrival> {
        match event {
            Event::Forward { packet, .. } | Event::Drop { packet, .. } => self.leave(packet),
            Event::Duplicate { packet, .. } => {
                let inside = self.inside.get_mut(&packet.id)?;
                inside.left = inside.left.saturating_add(packet.count);
                Some(inside.arrival)
            }
        }
    }

    fn leave(&mut self, packet: &Packet) -> Option<Arrival> {
        let inside = self.inside.get_mut(&packet.id)?;
        inside.left = inside.left.saturating_sub(packet.count);
        let (arrival, left) = (inside.arrival, inside.left);
        if left == 0 {
            self.inside.remove(&packet.id);
        }
        Some(arrival)
    }

    /// Everything that is inside, in the order in which it came.
    fn take_all(&mut self) -> Vec<(Arrival, u32)> {
        let mut all: Vec<_> = self.inside.drain().map(|(_, inside)| (inside.arrival, inside.left)).collect();
        all.sort_by_key(|(arrival, _)| arrival.serial);
        all
    }
}

/// The first bytes of a frame in two parts, and how many that are.
fn start_of([head, tail]: [&[u8]; 2]) -> (usize, [u8; SNAP]) {
    let mut bytes = [0; SNAP];
    let head = &head[..head.len().min(SNAP)];
    let tail = &tail[..tail.len().min(SNAP - head.len())];
    bytes[..head.len()].copy_from_slice(head);
    bytes[head.len()..head.len() + tail.len()].copy_from_slice(tail);
    (head.len() + tail.len(), bytes)
}
