//! The data path: one thread a direction, from a packet socket through the link model to the other packet socket.
//!
//! The thread receives into its ring, tells the link what came and when, and sends what the link says is due. When it
//! arrived is the kernel's stamp, not the time of reading: a thread that was kept waiting is late with what it sends,
//! and the ledger shows that, but the model's view of the traffic stays exact. Neither receiving nor sending may starve
//! the other, so both go in batches.

use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use hdrhistogram::Histogram;
use lfn_core::link::segment::{self, VnetHeader};
use lfn_core::link::{DropCause, Event, Link, LinkConfig, Packet};
use lfn_core::time::Instant;
use lfn_sys::packet::{MAX_FRAME, PacketSocket};
use lfn_sys::{clock, process};

use super::ledger::{DirectionLedger, Lateness, Unmodelled};
use super::ring::PacketRing;
use super::{EmulateError, now, system};

/// Frames received, and frames sent, before the other has its turn.
const BATCH: usize = 32;
/// Room of a ring beyond what the link holds: what arrives while the thread does something else.
const SLACK: u64 = 4 << 20;
/// Super-packets that the kernel may hold until they are read, bytes. More than `net.core.rmem_max` if allowed.
const RECEIVE_BUFFER: u32 = 64 << 20;
/// A receive stamp further from now than this is no stamp of this packet's arrival.
const BELIEVABLE: Duration = Duration::from_secs(1);

/// One direction of the emulated path.
pub(super) struct Forwarder<'a> {
    from: &'a PacketSocket,
    to: &'a PacketSocket,
    link: Link,
    ring: PacketRing,
    headers: Vec<u8>,
    scrap: Vec<u8>,
    lateness: Histogram<u64>,
    unmodelled: Unmodelled,
}

/// What the hops hold, and a quarter for the bookkeeping of small packets.
pub(super) fn ring_size(hops: &[LinkConfig]) -> u64 {
    let held = hops.iter().map(|hop| Link::memory_needed(hop).0).fold(0, u64::saturating_add);
    held.saturating_add(held / 4).saturating_add(SLACK)
}

impl<'a> Forwarder<'a> {
    /// Makes everything that can fail or takes time, before the first packet.
    pub(super) fn new(hops: &[LinkConfig], from: &'a PacketSocket, to: &'a PacketSocket) -> Result<Self, EmulateError> {
        let link = Link::chain(hops).map_err(|error| EmulateError::Link(error.to_string()))?;
        let size = usize::try_from(ring_size(hops)).map_err(|e| system("size a ring")(io::Error::other(e)))?;
        let ring = PacketRing::new(size).map_err(system("allocate a ring for the packets in flight"))?;
        from.set_receive_buffer(RECEIVE_BUFFER).map_err(system("set a receive buffer"))?;
        let lateness = Histogram::new_with_bounds(1, 60_000_000_000, 3)
            .map_err(|e| system("make a histogram")(io::Error::other(e)))?;
        let scrap = vec![0; MAX_FRAME];
        Ok(Forwarder { from, to, link, ring, headers: Vec::new(), scrap, lateness, unmodelled: Unmodelled::default() })
    }

    /// Forwards until the other end of `stop` is closed.
    pub(super) fn run(mut self, stop: BorrowedFd) -> io::Result<DirectionLedger> {
        process::exact_timers()?;
        // Refused to an ordinary user; the ledger tells whether it was needed.
        let _ = process::run_first();
        loop {
            let received = self.receive()?;
            let sent = self.send_due();
            if received == BATCH || sent == BATCH {
                continue;
            }
            let due = self.link.next();
            let timeout = due.map(|due| due.saturating_since(now()));
            if timeout == Some(Duration::ZERO) {
                continue;
            }
            let [_, stopped] = clock::wait_readable([self.from.as_fd(), stop], timeout.map(clock::most_of))?;
            if stopped {
                return self.finish();
            }
        }
    }

    /// Takes in what has arrived, a batch at most; says how many frames that were.
    fn receive(&mut self) -> io::Result<usize> {
        let clocks = Clocks::read();
        for received in 0..BATCH {
            let (buffer, has_room) = match self.ring.room() {
                Some(room) => (room, true),
                None => (&mut self.scrap[..], false),
            };
            let Some(frame) = self.from.receive(buffer)? else { return Ok(received) };
            let arrived = clocks.arrival(frame.stamp);
            let Some((vnet, bytes)) = split(&buffer[..frame.length]) else { continue };
            let segments = segment::inspect(bytes, &vnet);
            if has_room {
                let id = self.ring.keep(frame.length, segments.count);
                self.link.push(segments.packet(id), arrived);
            } else {
                self.unmodelled.no_room += u64::from(segments.count);
            }
        }
        Ok(BATCH)
    }

    /// Sends what is due, a batch at most; says how many frames that were.
    fn send_due(&mut self) -> usize {
        let now = now();
        let mut sent = 0;
        while sent < BATCH {
            match self.link.poll(now) {
                Some(Event::Forward { packet, due }) => {
                    self.send(&packet, due);
                    sent += 1;
                }
                Some(Event::Drop { packet, .. }) => self.ring.release(packet.id, packet.count),
                Some(Event::Duplicate { packet, .. }) => self.ring.retain(packet.id, packet.count),
                None => break,
            }
        }
        sent
    }

    fn send(&mut self, packet: &Packet, due: Instant) {
        let late = now().saturating_since(due);
        self.lateness.saturating_record_n(u64::try_from(late.as_nanos()).unwrap_or(u64::MAX), u64::from(packet.count));
        let sent = match self.ring.frame(packet.id).and_then(split) {
            Some((vnet, frame)) => {
                let cut = segment::cut_headers(frame, &vnet, packet.first, packet.count, &mut self.headers);
                let payload = frame.get(cut.payload).unwrap_or_default();
                self.to.send(&[IoSlice::new(&cut.vnet.encode()), IoSlice::new(&self.headers), IoSlice::new(payload)])
            }
            None => Err(io::Error::other("the frame is gone")),
        };
        if sent.is_err() {
            self.unmodelled.send_failed += u64::from(packet.count);
        }
        self.ring.release(packet.id, packet.count);
    }

    /// Takes in what had arrived, so that the account is whole; what is in the link stays there.
    fn finish(mut self) -> io::Result<DirectionLedger> {
        while self.receive()? > 0 {}
        while self.send_due() > 0 {}
        self.account()
    }

    fn account(mut self) -> io::Result<DirectionLedger> {
        self.unmodelled.kernel = self.from.take_dropped()?;
        let stats = self.link.stats();
        let made = stats.offered.packets + stats.duplicated.packets;
        let dropped = DropCause::ALL.map(|cause| (cause, stats.dropped[cause].packets));
        Ok(DirectionLedger {
            offered: stats.offered.packets,
            duplicated: stats.duplicated.packets,
            forwarded: stats.forwarded.packets - self.unmodelled.send_failed,
            dropped: dropped.into_iter().filter(|(_, count)| *count > 0).collect(),
            in_flight: made - stats.forwarded.packets - stats.dropped.total().packets,
            queue_peak: stats.queue_peak,
            lateness: Lateness::from(&self.lateness),
            cpu: process::thread_cpu_time()?.as_secs_f64(),
            unmodelled: self.unmodelled,
        })
    }
}

impl fmt::Debug for Forwarder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forwarder").finish_non_exhaustive()
    }
}

/// The clock of the kernel's stamps and the clock of the model, read together.
struct Clocks {
    wall: u64,
    monotonic: Instant,
}

impl Clocks {
    fn read() -> Self {
        Clocks { wall: clock::wall_nanos(), monotonic: now() }
    }

    /// When a packet came that was stamped so. Packets that come while a batch is read are stamped after these clocks.
    fn arrival(&self, stamp: Option<u64>) -> Instant {
        let Some(stamp) = stamp else { return now() };
        let age = i128::from(self.wall) - i128::from(stamp);
        let at = i128::from(self.monotonic.as_nanos()) - age;
        match u64::try_from(at) {
            Ok(at) if age.unsigned_abs() < BELIEVABLE.as_nanos() => Instant::from_nanos(at).min(now()),
            _ => now(),
        }
    }
}

/// Header and frame, as they lie one behind the other.
fn split(bytes: &[u8]) -> Option<(VnetHeader, &[u8])> {
    Some((VnetHeader::parse(bytes)?, bytes.get(VnetHeader::LEN..)?))
}
