//! The data path: one thread a direction, from a packet socket through the link model to the other packet socket.
//!
//! The thread takes frames out of the ring it shares with the kernel, tells the link what came and when, and sends what
//! the link says is due. When it arrived is the kernel's stamp, not the time of reading: a thread that was kept waiting
//! is late with what it sends, and the ledger shows that, but the model's view of the traffic stays exact. So it may also
//! leave arrivals unread for a while, and wakes when something is to be sent ([`pace`](super::pace)). Neither receiving
//! nor sending may starve the other: both go in batches.

use std::fmt;
use std::hint;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use lfn_core::link::segment::{self, VnetHeader};
use lfn_core::link::{Event, Link, LinkConfig, Packet};
use lfn_core::time::Instant;
use lfn_sys::{clock, process};

use super::dates::{Date, Dates, Look};
use super::mailbox::{Letters, Mailbox, Order, Snapshot, mailbox};
use super::observer::{Frame, Observer, Unforeseen};
use super::pace::{Pace, Wait};
use super::port::{Arrival, Intake, Port, Slot};
use super::ring::{PacketRing, held, ring_size};
use super::tally::Tally;
use crate::emulator::ledger::DirectionLedger;
use crate::emulator::{EmulateError, now, system};

/// Frames received, and frames sent, before the other has its turn.
const BATCH: usize = 16;
/// How long a thread with traffic goes without looking whether it was told something.
const LOOK_AROUND: Duration = Duration::from_millis(2);
/// How long a thread sleeps that cannot be woken by a packet, for want of room to take it away.
const NO_ROOM: Duration = Duration::from_micros(100);
/// Looks at the two clocks one after the other, at most, until nothing came between.
const LOOKS: usize = 4;
/// Longer than it takes to read a clock twice.
const UNDISTURBED: Duration = Duration::from_micros(20);

/// One direction of the emulated path.
pub(in crate::emulator) struct Forwarder<'a> {
    from: &'a Port,
    to: &'a Port,
    link: Link,
    ring: PacketRing<Intake<'a>>,
    pace: Pace,
    /// When it was last looked for word.
    looked: Instant,
    dates: Dates,
    headers: Vec<u8>,
    tally: Tally,
    mailbox: Mailbox,
    letters: Letters,
    observer: Option<Box<dyn Observer>>,
    /// What a packet takes from interface to interface beyond its time in the link.
    idle: Duration,
    /// How much earlier than they came the link is told that packets came: `idle`, as far as the delay makes up for it.
    ahead: Duration,
}

impl<'a> Forwarder<'a> {
    /// Makes everything that can fail or takes time, before the first packet.
    pub(in crate::emulator) fn new(hops: &[LinkConfig], from: &'a Port, to: &'a Port) -> Result<Self, EmulateError> {
        let link = Link::chain(hops).map_err(|error| EmulateError::Link(error.to_string()))?;
        let size = usize::try_from(ring_size(hops)).map_err(|e| system("size a ring")(io::Error::other(e)))?;
        let intake = from.intake(held(hops)).map_err(system("make a receive ring"))?;
        let ring = PacketRing::new(intake, size).map_err(system("allocate a ring for the packets in flight"))?;
        let (mailbox, letters) = mailbox(hops).map_err(system("make an event descriptor"))?;
        Ok(Forwarder {
            from,
            to,
            pace: Pace::new(link.least(), now()),
            looked: now(),
            dates: Dates::new(look_at_clocks()),
            link,
            ring,
            headers: Vec::new(),
            tally: Tally::new()?,
            mailbox,
            letters,
            observer: None,
            idle: Duration::ZERO,
            ahead: Duration::ZERO,
        })
    }

    /// Where to leave word for this direction while it runs.
    pub(in crate::emulator) fn mailbox(&self) -> Mailbox {
        self.mailbox.clone()
    }

    /// Has this direction watched.
    pub(in crate::emulator) fn watch(&mut self, observer: Box<dyn Observer>) {
        self.observer = Some(observer);
    }

    /// Takes what a packet takes on the way to the link and from it off the time it spends there.
    pub(in crate::emulator) fn take_off(&mut self, idle: Duration) {
        self.idle = idle;
        self.ahead = idle.min(self.link.least());
    }

    /// Forwards until the other end of `stop` is closed, or it cannot go on; the account is of what came before.
    pub(in crate::emulator) fn run(mut self, stop: BorrowedFd) -> io::Result<(DirectionLedger, Option<io::Error>)> {
        let failure = self.forward(stop).and_then(|()| self.finish()).err();
        Ok((self.account()?, failure))
    }

    fn forward(&mut self, stop: BorrowedFd) -> io::Result<()> {
        process::exact_timers()?;
        // A wish; the ledger tells whether it was needed.
        let _ = process::run_first();
        loop {
            let taken = self.receive()?;
            let sent = self.send_due(taken.up_to);
            self.ring.tidy();
            let now = now();
            let wait = match self.link.next() {
                due if taken.is_all && sent < BATCH => self.pace.wait(now, due, taken.frames > 0, sent > 0),
                _ => Wait::Go,
            };
            let is_rest = matches!(wait, Wait::Rest(_));
            if !is_rest {
                self.wait(wait);
            }
            if (is_rest || now.saturating_since(self.looked) > LOOK_AROUND) && self.look_around(wait, stop)? {
                return Ok(());
            }
        }
    }

    fn wait(&mut self, wait: Wait) {
        match wait {
            Wait::Go | Wait::Rest(_) => {}
            Wait::Spin(until) => {
                while now() < until {
                    hint::spin_loop();
                }
            }
            Wait::Nap(until) => {
                clock::sleep_until(until.as_nanos());
                self.pace.woke(until, now());
            }
        }
    }

    /// Looks for word; if it is time to rest, waits for that and for packets. True if it is to stop.
    fn look_around(&mut self, wait: Wait, stop: BorrowedFd) -> io::Result<bool> {
        // A socket can be waited on only if what came last has been taken away.
        let until = match wait {
            Wait::Rest(until) if self.ring.empty_slots() => until,
            Wait::Rest(_) => Some(now() + NO_ROOM),
            _ => Some(Instant::ZERO),
        };
        let timeout = until.map(|until| clock::most_of(until.saturating_since(now())));
        let [short, long] = self.ring.slots.files();
        let files = [short, long, self.letters.as_fd(), stop];
        let [short, long, has_mail, stopped] = clock::wait_readable(files, timeout)?;
        self.looked = now();
        if (short || long) && !self.ring.slots.has_some() {
            self.ring.slots.check()?;
        }
        if let Some(until) = until
            && !(short || long || has_mail)
            && self.looked > until
            && matches!(wait, Wait::Rest(_))
        {
            self.pace.woke(until, self.looked);
        }
        if has_mail {
            let at = self.catch_up()?;
            self.letters.take().into_iter().for_each(|order| self.obey(order, at));
            self.pace.set_least(self.link.least());
            self.take_off(self.idle);
        }
        Ok(stopped)
    }

    /// Takes in what has come so far: what is told now does not hold for it. Says since when it will.
    fn catch_up(&mut self) -> io::Result<Instant> {
        let told = now();
        loop {
            let taken = self.receive()?;
            self.send_due(taken.up_to);
            self.ring.tidy();
            if taken.is_all || taken.up_to >= told {
                return Ok(taken.up_to);
            }
        }
    }

    fn obey(&mut self, order: Order, at: Instant) {
        match order {
            Order::Set { hop, config, room, done } => {
                if let Some(arena) = room {
                    self.ring.move_on(arena);
                }
                // The mailbox has refused what the link would.
                let _ = self.link.set(hop, &config, at);
                // Whoever asked may have given up.
                let _ = done.send(());
            }
            Order::Report(reply) => {
                let cpu = process::thread_cpu_time().unwrap_or_default();
                let _ = reply.send(Snapshot { stats: self.link.stats(), tally: self.tally.clone(), cpu });
            }
        }
    }

    /// Takes in what has arrived, a batch at most.
    fn receive(&mut self) -> io::Result<Taken> {
        let mut taken = Taken { frames: 0, is_all: true, up_to: now() };
        while let Some(arrival) = self.ring.slots.take()? {
            if taken.frames == 0 {
                self.dates.look(look_at_clocks());
            }
            let arrived = self.date(arrival.stamp);
            self.take_in(arrival, arrived);
            taken.frames += 1;
            if taken.frames == BATCH {
                return Ok(Taken { is_all: false, up_to: arrived.before(self.ahead), ..taken });
            }
        }
        self.dates.caught_up();
        Ok(taken)
    }

    fn date(&mut self, stamp: u64) -> Instant {
        match self.dates.date(stamp, now()) {
            Date::At(arrived) => arrived,
            Date::Unknown(arrived) => {
                self.tally.unmodelled.undated += 1;
                arrived
            }
        }
    }

    /// Gives the link a frame that has come.
    fn take_in(&mut self, Arrival { slot, is_whole, .. }: Arrival, arrived: Instant) {
        if !is_whole {
            return self.refuse(slot, arrived);
        }
        let Some((vnet, frame)) = split(self.ring.slots.bytes(slot)) else { return self.ring.slots.give_back(slot) };
        let segments = segment::inspect(frame, &vnet);
        if !self.ring.make_room() {
            return self.refuse(slot, arrived);
        }
        let id = self.ring.keep(slot, &segments);
        let packet = segments.packet(id);
        if let Some(observer) = &mut self.observer
            && let Some((vnet, frame)) = self.ring.frame(id).and_then(split)
        {
            observer.arrived(&packet, Frame { vnet, parts: [&[], frame] }, arrived);
        }
        self.tally.arrived(arrived);
        self.link.push(packet, arrived.before(self.ahead));
    }

    /// Loses a frame that has come, for want of room: in the ring, or in the slot itself, which holds all that IP's own
    /// lengths can say. Of a longer one (BIG TCP) only the start is there, and it counts as one packet.
    fn refuse(&mut self, slot: Slot, arrived: Instant) {
        if let Some((vnet, frame)) = split(self.ring.slots.bytes(slot)) {
            let segments = segment::inspect(frame, &vnet);
            self.tally.unmodelled.no_room += u64::from(segments.count);
            if let Some(observer) = &mut self.observer {
                let frame = Frame { vnet, parts: [&[], frame] };
                observer.lost(&segments.packet(u64::MAX), frame, Unforeseen::NoRoom, arrived);
            }
        }
        self.ring.slots.give_back(slot);
    }

    /// Sends what was due by `up_to`, a batch at most; says how many frames that were.
    fn send_due(&mut self, up_to: Instant) -> usize {
        let mut sent = 0;
        while sent < BATCH {
            let Some(event) = self.link.poll(up_to) else { break };
            match event {
                Event::Forward { packet, due } => {
                    self.send(&packet, due, &event);
                    sent += 1;
                }
                Event::Drop { packet, reply_mtu, .. } => {
                    self.tell_happened(&packet, &event, up_to);
                    if let Some(mtu) = reply_mtu {
                        self.answer(&packet, mtu);
                    }
                    self.ring.release(&packet);
                }
                Event::Duplicate { packet, .. } => {
                    self.tell_happened(&packet, &event, up_to);
                    self.ring.retain(&packet);
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
        self.ring.release(packet);
    }

    /// Tells the sender of a packet what would have passed. At once, as if the router stood at this end of the path, also
    /// if it is a later hop that the packet was too big for.
    fn answer(&mut self, packet: &Packet, mtu: u16) {
        let Some((vnet, frame)) = self.ring.frame(packet.id).and_then(split) else { return };
        if segment::too_big(frame, &vnet, packet, mtu, &mut self.headers) {
            let sent = self.from.send(&[IoSlice::new(&VnetHeader::default().encode()), IoSlice::new(&self.headers)]);
            // If it gets lost: so it does on real paths, and the next packet that is too big brings another.
            if let (Ok(()), Some(observer)) = (sent, &mut self.observer) {
                observer.answered(packet, mtu, &self.headers, now());
            }
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
        while self.receive()?.frames > 0 {}
        while self.send_due(now()) > 0 {}
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

/// What was received in one go.
struct Taken {
    frames: usize,
    /// False if there may be more.
    is_all: bool,
    /// Whatever came before this was taken. The link is not moved on beyond it: what it decides is then decided by all
    /// that had come, however late the thread is.
    up_to: Instant,
}

/// The clock of the kernel's stamps and the clock of the model, read together: with nothing in between, if that can be.
fn look_at_clocks() -> Look {
    let look = || {
        let begun = now();
        let (wall, model) = (clock::wall_nanos(), now());
        (model - begun, Look { wall, model })
    };
    let mut best = look();
    for _ in 1..LOOKS {
        if best.0 <= UNDISTURBED {
            break;
        }
        best = std::cmp::min_by_key(best, look(), |(took, _)| *took);
    }
    best.1
}

/// Header and frame, as they lie one behind the other.
fn split(bytes: &[u8]) -> Option<(VnetHeader, &[u8])> {
    Some((VnetHeader::parse(bytes)?, bytes.get(VnetHeader::LEN..)?))
}
