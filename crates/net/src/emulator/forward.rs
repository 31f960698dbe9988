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

use lfn_core::link::segment::{self, Segments, VnetHeader};
use lfn_core::link::{Event, Link, LinkConfig, Packet};
use lfn_core::time::Instant;
use lfn_sys::packet::{MAX_FRAME, PacketSocket};
use lfn_sys::{clock, process};

use super::ledger::DirectionLedger;
use super::mailbox::{Letters, Mailbox, Order, Snapshot, mailbox};
use super::observer::{Frame, Observer, Unforeseen};
use super::ring::PacketRing;
use super::tally::Tally;
use super::{EmulateError, now, system};

/// Frames received, and frames sent, before the other has its turn.
const BATCH: usize = 32;
/// Batches without a pause after which a busy thread looks whether it was told something.
const BATCHES: u32 = 32;
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
    tally: Tally,
    mailbox: Mailbox,
    letters: Letters,
    observer: Option<Box<dyn Observer>>,
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
        let scrap = vec![0; MAX_FRAME];
        let (mailbox, letters) = mailbox(hops).map_err(system("make an event descriptor"))?;
        Ok(Forwarder {
            from,
            to,
            link,
            ring,
            headers: Vec::new(),
            scrap,
            tally: Tally::new()?,
            mailbox,
            letters,
            observer: None,
        })
    }

    /// Where to leave word for this direction while it runs.
    pub(super) fn mailbox(&self) -> Mailbox {
        self.mailbox.clone()
    }

    /// Has this direction watched.
    pub(super) fn watch(&mut self, observer: Box<dyn Observer>) {
        self.observer = Some(observer);
    }

    /// Forwards until the other end of `stop` is closed, or it cannot go on; the account is of what came before.
    pub(super) fn run(mut self, stop: BorrowedFd) -> io::Result<(DirectionLedger, Option<io::Error>)> {
        let failure = self.forward(stop).and_then(|()| self.finish()).err();
        Ok((self.account()?, failure))
    }

    fn forward(&mut self, stop: BorrowedFd) -> io::Result<()> {
        process::exact_timers()?;
        // Refused to an ordinary user; the ledger tells whether it was needed.
        let _ = process::run_first();
        let mut without_a_look = 0;
        loop {
            let received = self.receive()?;
            let sent = self.send_due();
            let timeout = match self.link.next() {
                _ if received == BATCH || sent == BATCH => Some(Duration::ZERO),
                due => due.map(|due| due.saturating_since(now())),
            };
            if timeout == Some(Duration::ZERO) && without_a_look < BATCHES {
                without_a_look += 1;
                continue;
            }
            without_a_look = 0;
            let files = [self.from.as_fd(), self.letters.as_fd(), stop];
            let [_, has_mail, stopped] = clock::wait_readable(files, timeout.map(clock::most_of))?;
            if has_mail {
                self.letters.take().into_iter().for_each(|order| self.obey(order));
            }
            if stopped {
                return Ok(());
            }
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Set { hop, config, room, done } => {
                if let Some(arena) = room {
                    self.ring.move_on(arena);
                }
                // The mailbox has refused what the link would.
                let _ = self.link.set(hop, &config, now());
                // Whoever asked may have given up.
                let _ = done.send(());
            }
            Order::Report(reply) => {
                let _ = reply.send(Snapshot { stats: self.link.stats(), tally: self.tally.clone() });
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
                self.take_in(frame.length, &segments, arrived);
            } else {
                self.tally.unmodelled.no_room += u64::from(segments.count);
                if let Some(observer) = &mut self.observer {
                    let frame = Frame { vnet, parts: [&[], bytes] };
                    observer.lost(&segments.packet(u64::MAX), frame, Unforeseen::NoRoom, arrived);
                }
            }
        }
        Ok(BATCH)
    }

    /// Gives the link the frame that was received last.
    fn take_in(&mut self, length: usize, segments: &Segments, arrived: Instant) {
        let id = self.ring.keep(length, segments.count);
        let packet = segments.packet(id);
        if let Some(observer) = &mut self.observer
            && let Some((vnet, frame)) = self.ring.frame(id).and_then(split)
        {
            observer.arrived(&packet, Frame { vnet, parts: [&[], frame] }, arrived);
        }
        self.tally.arrived(arrived);
        self.link.push(packet, arrived);
    }

    /// Sends what is due, a batch at most; says how many frames that were.
    fn send_due(&mut self) -> usize {
        let now = now();
        let mut sent = 0;
        while sent < BATCH {
            let Some(event) = self.link.poll(now) else { break };
            match event {
                Event::Forward { packet, due } => {
                    self.send(&packet, due, &event);
                    sent += 1;
                }
                Event::Drop { packet, reply_mtu, .. } => {
                    self.tell_happened(&packet, &event, now);
                    if let Some(mtu) = reply_mtu {
                        self.answer(&packet, mtu);
                    }
                    self.ring.release(packet.id, packet.count);
                }
                Event::Duplicate { packet, .. } => {
                    self.tell_happened(&packet, &event, now);
                    self.ring.retain(packet.id, packet.count);
                }
            }
        }
        sent
    }

    fn send(&mut self, packet: &Packet, due: Instant, event: &Event) {
        let now = now();
        self.tally.left(packet, due, now);
        let sent = match self.ring.frame(packet.id).and_then(split) {
            Some((vnet, frame)) => {
                let cut = segment::write(frame, &vnet, packet, &mut self.headers);
                let payload = frame.get(cut.payload).unwrap_or_default();
                let parts = [&self.headers[..], payload];
                let head = cut.vnet.encode();
                let sent = self.to.send(&[IoSlice::new(&head), IoSlice::new(parts[0]), IoSlice::new(parts[1])]);
                if let Some(observer) = &mut self.observer {
                    let frame = Frame { vnet: cut.vnet, parts };
                    match &sent {
                        Ok(()) => observer.happened(event, frame, now),
                        Err(_) => observer.lost(packet, frame, Unforeseen::SendFailed, now),
                    }
                }
                sent
            }
            None => Err(io::Error::other("the frame is gone")),
        };
        if sent.is_err() {
            self.tally.unmodelled.send_failed += u64::from(packet.count);
        }
        self.ring.release(packet.id, packet.count);
    }

    /// Tells the sender of a packet what would have passed. At once, as if the router stood at this end of the path, also
    /// if it is a later hop that the packet was too big for.
    fn answer(&mut self, packet: &Packet, mtu: u16) {
        let Some((vnet, frame)) = self.ring.frame(packet.id).and_then(split) else { return };
        if segment::too_big(frame, &vnet, packet, mtu, &mut self.headers) {
            // If it gets lost: so it does on real paths, and the next packet that is too big brings another.
            let _ = self.from.send(&[IoSlice::new(&VnetHeader::default().encode()), IoSlice::new(&self.headers)]);
        }
    }

    fn tell_happened(&mut self, packet: &Packet, event: &Event, now: Instant) {
        if let Some(observer) = &mut self.observer
            && let Some((vnet, frame)) = self.ring.frame(packet.id).and_then(split)
        {
            observer.happened(event, Frame { vnet, parts: [&[], frame] }, now);
        }
    }

    /// Takes in what had arrived, so that the account is whole; what is in the link stays there.
    fn finish(&mut self) -> io::Result<()> {
        while self.receive()? > 0 {}
        while self.send_due() > 0 {}
        Ok(())
    }

    fn account(mut self) -> io::Result<DirectionLedger> {
        self.tally.unmodelled.kernel = self.from.take_dropped()?;
        let cpu = process::thread_cpu_time()?.as_secs_f64();
        Ok(DirectionLedger { cpu, ..self.tally.ledger(&self.link.stats()) })
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
