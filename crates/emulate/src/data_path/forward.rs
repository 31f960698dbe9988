//! The forwarder: one thread for each direction, from a packet socket through the link model to the other packet
//! socket.
//!
//! The thread takes frames from the ring that it shares with the kernel, passes them with their arrival times to the
//! link, and sends the packets that the link releases. The arrival time is the kernel's timestamp, not the time of
//! reading. A delayed thread therefore sends late, which the accuracy report shows, but the model still sees the exact
//! arrivals. For the same reason the thread may leave arrivals unread for a while, and wakes up when a packet is due
//! ([`wakeup`](super::wakeup)). Receiving and sending are both done in batches, so that neither starves the other.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;
use std::{fmt, hint};

use lfn_base::time::Instant;
use lfn_link::{Link, LinkConfig, LinkEvent, Packet};
use lfn_packet::{PacketRange, VnetHeader};
use lfn_session::clock::now;
use lfn_sys::{clock, process};

use super::control_channel::{Command, Commands, ControlChannel, Snapshot, channel};
use super::observer::{Frame, Observer, UnmodelledDrop};
use super::port::{Port, RxFrame, RxQueue, RxSlot};
use super::ring::{PacketRing, bytes_in_link, ring_size};
use super::tally::LinkTally;
use super::timestamps::{ArrivalTime, ClockSample, KernelTimestamps};
use super::wakeup::{Wait, WakeupScheduler};
use crate::accuracy::DirectionReport;
use crate::error::{EmulateError, system_error};

/// Maximum number of frames received, or sent, before the other has its turn.
const BATCH: usize = 16;
/// Interval at which a busy thread checks for commands.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Sleep of a thread that cannot wait for packets, because the ring has no room for the frames in the slots.
const RING_FULL_SLEEP: Duration = Duration::from_micros(100);
/// Maximum number of attempts to read both clocks without interruption.
const MAX_CLOCK_SAMPLES: usize = 4;
/// Longer than two undisturbed clock readings take.
const MAX_SAMPLE_TIME: Duration = Duration::from_micros(20);

/// Forwarder of one direction of the path.
pub(crate) struct Forwarder<'a> {
    from: &'a Port,
    to: &'a Port,
    link: Link,
    ring: PacketRing<RxQueue<'a>>,
    scheduler: WakeupScheduler,
    /// Time of the last check for commands.
    last_poll: Instant,
    timestamps: KernelTimestamps,
    headers: Vec<u8>,
    tally: LinkTally,
    channel: ControlChannel,
    commands: Commands,
    observer: Option<Box<dyn Observer>>,
    /// Latency from interface to interface beyond the time in the link.
    idle_latency: Duration,
    /// Amount by which arrival times are shifted back before the link gets them: `idle_latency`, limited by the delay.
    arrival_shift: Duration,
}

impl<'a> Forwarder<'a> {
    /// Allocates everything that can fail or takes time, before the first packet.
    pub(crate) fn new(hops: &[LinkConfig], from: &'a Port, to: &'a Port) -> Result<Self, EmulateError> {
        let link = Link::chain(hops).map_err(|error| EmulateError::Link(error.to_string()))?;
        let size = usize::try_from(ring_size(hops)).map_err(|e| system_error("size a ring")(io::Error::other(e)))?;
        let rx_queue = from.open_rx_queue(bytes_in_link(hops)).map_err(system_error("create a receive ring"))?;
        let ring =
            PacketRing::new(rx_queue, size).map_err(system_error("allocate a ring for the packets in flight"))?;
        let (channel, commands) = channel(hops).map_err(system_error("create an event descriptor"))?;
        Ok(Forwarder {
            from,
            to,
            scheduler: WakeupScheduler::new(link.min_delay(), now()),
            last_poll: now(),
            timestamps: KernelTimestamps::new(sample_clocks()),
            link,
            ring,
            headers: Vec::new(),
            tally: LinkTally::new()?,
            channel,
            commands,
            observer: None,
            idle_latency: Duration::ZERO,
            arrival_shift: Duration::ZERO,
        })
    }

    /// Returns the channel that controls this direction while it runs.
    pub(crate) fn channel(&self) -> ControlChannel {
        self.channel.clone()
    }

    /// Sets the observer of this direction.
    pub(crate) fn set_observer(&mut self, observer: Box<dyn Observer>) {
        self.observer = Some(observer);
    }

    /// Subtracts the latency outside the link from the time in the link.
    pub(crate) fn compensate_idle_latency(&mut self, idle_latency: Duration) {
        self.idle_latency = idle_latency;
        self.arrival_shift = idle_latency.min(self.link.min_delay());
    }

    /// Forwards until the other end of `stop` is closed or forwarding fails. The report covers the time until then.
    pub(crate) fn run(mut self, stop: BorrowedFd) -> io::Result<(DirectionReport, Option<io::Error>)> {
        let failure = self.forward(stop).and_then(|()| self.finish()).err();
        Ok((self.report()?, failure))
    }

    fn forward(&mut self, stop: BorrowedFd) -> io::Result<()> {
        process::set_exact_timers()?;
        // Optional. The accuracy report shows if the priority was needed.
        let _ = process::raise_priority();
        loop {
            let batch = self.receive()?;
            let sent = self.send_due(batch.until);
            self.ring.move_frames_if_needed();
            let now = now();
            let wait = match self.link.next_event_at() {
                due if batch.is_last && sent < BATCH => self.scheduler.next_wait(now, due, batch.frames > 0, sent > 0),
                _ => Wait::Continue,
            };
            let is_sleep = matches!(wait, Wait::SleepOrPacket(_));
            if !is_sleep {
                self.wait(wait);
            }
            if (is_sleep || now.saturating_since(self.last_poll) > POLL_INTERVAL) && self.poll_commands(wait, stop)? {
                return Ok(());
            }
        }
    }

    fn wait(&mut self, wait: Wait) {
        match wait {
            Wait::Continue | Wait::SleepOrPacket(_) => {}
            Wait::Spin(until) => {
                while now() < until {
                    hint::spin_loop();
                }
            }
            Wait::Sleep(until) => {
                clock::sleep_until(until.as_nanos());
                self.scheduler.record_wakeup(until, now());
            }
        }
    }

    /// Handles commands. If `wait` is a sleep, also waits for commands and packets. Returns true if the thread must
    /// stop.
    fn poll_commands(&mut self, wait: Wait, stop: BorrowedFd) -> io::Result<bool> {
        // A packet socket is readable as long as its newest frame is in its slot. So all frames must move first.
        let until = match wait {
            Wait::SleepOrPacket(until) if self.ring.move_all_frames() => until,
            Wait::SleepOrPacket(_) => Some(now() + RING_FULL_SLEEP),
            _ => Some(Instant::ZERO),
        };
        let timeout = until.map(|until| clock::early_timeout(until.saturating_since(now())));
        let [short, long] = self.ring.slots.poll_fds();
        let fds = [short, long, self.commands.as_fd(), stop];
        let [short, long, has_commands, stopped] = clock::wait_readable(fds, timeout)?;
        self.last_poll = now();
        if (short || long) && !self.ring.slots.has_frame() {
            self.ring.slots.check()?;
        }
        if let Some(until) = until
            && !(short || long || has_commands)
            && self.last_poll > until
            && matches!(wait, Wait::SleepOrPacket(_))
        {
            self.scheduler.record_wakeup(until, self.last_poll);
        }
        if has_commands {
            let at = self.receive_pending()?;
            self.commands.take_all().into_iter().for_each(|command| self.apply(command, at));
            self.scheduler.set_min_delay(self.link.min_delay());
            self.compensate_idle_latency(self.idle_latency);
        }
        Ok(stopped)
    }

    /// Receives all packets that have arrived so far, because new settings do not apply to them. Returns the time from
    /// which the settings apply.
    fn receive_pending(&mut self) -> io::Result<Instant> {
        let started = now();
        loop {
            let batch = self.receive()?;
            self.send_due(batch.until);
            self.ring.move_frames_if_needed();
            if batch.is_last || batch.until >= started {
                return Ok(batch.until);
            }
        }
    }

    fn apply(&mut self, command: Command, at: Instant) {
        match command {
            Command::Set { hop, config, arena, done } => {
                if let Some(arena) = arena {
                    self.ring.switch_arena(arena);
                }
                // The channel has already rejected settings that the link would reject.
                let _ = self.link.set(hop, &config, at);
                // The requester may have stopped waiting.
                let _ = done.send(());
            }
            Command::Snapshot(reply) => {
                let cpu = process::thread_cpu_time().unwrap_or_default();
                let _ = reply.send(Snapshot { stats: self.link.stats(), tally: self.tally.clone(), cpu });
            }
        }
    }

    /// Receives at most one batch of arrived frames.
    fn receive(&mut self) -> io::Result<ReceivedBatch> {
        let mut batch = ReceivedBatch { frames: 0, is_last: true, until: now() };
        while let Some(frame) = self.ring.slots.take()? {
            if batch.frames == 0 {
                self.timestamps.add_sample(sample_clocks());
            }
            let arrived = self.arrival_time(frame.timestamp);
            self.push_frame(frame, arrived);
            batch.frames += 1;
            if batch.frames == BATCH {
                return Ok(ReceivedBatch { is_last: false, until: arrived.before(self.arrival_shift), ..batch });
            }
        }
        self.timestamps.batch_done();
        Ok(batch)
    }

    fn arrival_time(&mut self, timestamp: u64) -> Instant {
        match self.timestamps.arrival_time(timestamp, now()) {
            ArrivalTime::Known(arrived) => arrived,
            ArrivalTime::Unknown(arrived) => {
                self.tally.unmodelled.arrival_time_unknown += 1;
                arrived
            }
        }
    }

    /// Passes an arrived frame to the link.
    fn push_frame(&mut self, RxFrame { slot, is_complete, .. }: RxFrame, arrived: Instant) {
        if !is_complete {
            return self.drop_frame(slot, arrived);
        }
        let Some((vnet, frame)) = split_vnet_header(self.ring.slots.bytes(slot)) else {
            return self.ring.slots.give_back(slot);
        };
        let segments = lfn_packet::inspect(frame, &vnet);
        if !self.ring.free_slots() {
            return self.drop_frame(slot, arrived);
        }
        let id = self.ring.store(slot, &segments);
        let packet = Packet::from_segments(&segments, id);
        if let Some(observer) = &mut self.observer
            && let Some((vnet, frame)) = self.ring.frame(id).and_then(split_vnet_header)
        {
            observer.on_arrival(&packet, Frame { vnet, parts: [&[], frame] }, arrived);
        }
        self.tally.record_arrival(arrived);
        self.link.push(packet, arrived.before(self.arrival_shift));
    }

    /// Drops an arrived frame because there is no room: in the ring, or in its slot. A slot holds any length that the
    /// IP header can express. A longer frame (BIG TCP) is incomplete, and counts as one packet.
    fn drop_frame(&mut self, slot: RxSlot, arrived: Instant) {
        if let Some((vnet, frame)) = split_vnet_header(self.ring.slots.bytes(slot)) {
            let segments = lfn_packet::inspect(frame, &vnet);
            self.tally.unmodelled.ring_full += u64::from(segments.count);
            if let Some(observer) = &mut self.observer {
                let frame = Frame { vnet, parts: [&[], frame] };
                observer.on_unmodelled_drop(
                    &Packet::from_segments(&segments, u64::MAX),
                    frame,
                    UnmodelledDrop::RingFull,
                    arrived,
                );
            }
        }
        self.ring.slots.give_back(slot);
    }

    /// Sends at most one batch of packets that are due at `until`. Returns the number of frames sent.
    fn send_due(&mut self, until: Instant) -> usize {
        let mut sent = 0;
        while sent < BATCH {
            let Some(event) = self.link.poll(until) else { break };
            match event {
                LinkEvent::Forward { packet, due } => {
                    self.send(&packet, due, &event);
                    sent += 1;
                }
                LinkEvent::Drop { packet, reply_mtu, .. } => {
                    self.notify_observer(&packet, &event, until);
                    if let Some(mtu) = reply_mtu {
                        self.send_too_big(&packet, mtu);
                    }
                    self.ring.release(&packet);
                }
                LinkEvent::Duplicate { packet, .. } => {
                    self.notify_observer(&packet, &event, until);
                    self.ring.retain(&packet);
                }
            }
        }
        sent
    }

    fn send(&mut self, packet: &Packet, due: Instant, event: &LinkEvent) {
        let now = now();
        self.tally.record_departure(packet, due, now);
        let sent = match self.ring.frame(packet.id).and_then(split_vnet_header) {
            Some((vnet, frame)) => {
                let range = PacketRange { first: packet.first, count: packet.count };
                let cut = lfn_packet::write(frame, &vnet, &range, &packet.changes, &mut self.headers);
                let payload = frame.get(cut.payload).unwrap_or_default();
                let parts = [&self.headers[..], payload];
                let head = cut.vnet.encode();
                let sent = self.to.send(&[IoSlice::new(&head), IoSlice::new(parts[0]), IoSlice::new(parts[1])]);
                if let Some(observer) = &mut self.observer {
                    let frame = Frame { vnet: cut.vnet, parts };
                    match &sent {
                        Ok(()) => observer.on_event(event, frame, now),
                        Err(_) => observer.on_unmodelled_drop(packet, frame, UnmodelledDrop::SendFailed, now),
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

    /// Sends an ICMP "too big" packet to the sender. It leaves at once, as from a router at this end of the path, even
    /// if the packet is too big for a later hop.
    fn send_too_big(&mut self, packet: &Packet, mtu: u16) {
        let Some((vnet, frame)) = self.ring.frame(packet.id).and_then(split_vnet_header) else { return };
        if lfn_packet::write_too_big_reply(frame, &vnet, packet.first, mtu, &mut self.headers) {
            let sent = self.from.send(&[IoSlice::new(&VnetHeader::default().encode()), IoSlice::new(&self.headers)]);
            // A lost ICMP packet is harmless, as on real paths: the next packet that is too big causes another one.
            if let (Ok(()), Some(observer)) = (sent, &mut self.observer) {
                observer.on_icmp_reply(packet, mtu, &self.headers, now());
            }
        }
    }

    fn notify_observer(&mut self, packet: &Packet, event: &LinkEvent, now: Instant) {
        if let Some(observer) = &mut self.observer
            && let Some((vnet, frame)) = self.ring.frame(packet.id).and_then(split_vnet_header)
        {
            observer.on_event(event, Frame { vnet, parts: [&[], frame] }, now);
        }
    }

    /// Receives all arrived packets, so that the report is complete. Packets in the link stay there.
    fn finish(&mut self) -> io::Result<()> {
        while self.receive()?.frames > 0 {}
        while self.send_due(now()) > 0 {}
        Ok(())
    }

    fn report(mut self) -> io::Result<DirectionReport> {
        self.tally.unmodelled.socket_buffer_full = self.from.take_dropped()?;
        let cpu = process::thread_cpu_time()?.as_secs_f64();
        Ok(DirectionReport { cpu, ..self.tally.report(&self.link.stats()) })
    }
}

impl fmt::Debug for Forwarder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forwarder").finish_non_exhaustive()
    }
}

/// Result of receiving one batch.
struct ReceivedBatch {
    frames: usize,
    /// False if more frames may be waiting.
    is_last: bool,
    /// All packets that arrived before this time were received. The link does not advance beyond it, so its decisions
    /// depend on all arrivals, however late the thread is.
    until: Instant,
}

/// Reads the kernel's timestamp clock and the model's clock together, if possible without an interruption between them.
fn sample_clocks() -> ClockSample {
    let sample = || {
        let begun = now();
        let (wall, model) = (clock::wall_nanos(), now());
        (model - begun, ClockSample { wall, model })
    };
    let mut best = sample();
    for _ in 1..MAX_CLOCK_SAMPLES {
        if best.0 <= MAX_SAMPLE_TIME {
            break;
        }
        best = std::cmp::min_by_key(best, sample(), |(took, _)| *took);
    }
    best.1
}

/// Splits the bytes of a slot into virtio-net header and frame.
fn split_vnet_header(bytes: &[u8]) -> Option<(VnetHeader, &[u8])> {
    Some((VnetHeader::parse(bytes)?, bytes.get(VnetHeader::LEN..)?))
}
