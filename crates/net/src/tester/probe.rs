//! Probes beside a load: small datagrams echoed by the far end, from some time before the load to its end.
//!
//! The client's thread sends one every so often and takes the echoes; the server's sends each back at once with the time
//! it held it. Times of arrival are the kernel's where it stamps. Where no datagram gets through, questions on the
//! control connection take their place. The figures are made by `lfn_core::latency`.

use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lfn_core::latency::{Latency, LatencyRequest, Probe, Transport};
use lfn_core::session::SessionId;
use lfn_core::udp::datagram::{self, Head, Kind};
use lfn_core::wire::test::{ClientMessage, EndReport, ServerMessage, TestRequest};
use lfn_sys::clock::{monotonic_nanos, wall_nanos};
use lfn_sys::udp;
use lfn_sys::udp::batch::Inbox;

use crate::server::{Datagrams, ServerSession};
use crate::session::dial::{self, Target};
use crate::session::{Control, DatagramStream, SessionError, datagram as streams};

/// Probes before the load.
const IDLE_PROBES: usize = 20;
/// They are sent closer together than under load, but no closer than this.
const IDLE_PACE: Duration = Duration::from_millis(10);
/// They end after this and two round trips, however few came back.
const IDLE_FOR: Duration = Duration::from_secs(1);
/// How long the probes' stream is tried for, beside two round trips, before TCP takes its place.
const OPEN_WITHIN: Duration = Duration::from_secs(2);
/// What has not come back after this and two round trips is lost.
const LAST_WAIT: Duration = Duration::from_millis(500);
/// Numbers of questions on the control connection that are probes; lower ones compare clocks.
const FIRST_QUESTION: u32 = 1 << 30;
/// Most probes kept: days at the usual pace.
const MOST: usize = 2_000_000;

/// When each probe left on this end's monotonic clock, and its round trip.
type Probes = Vec<(u64, Option<Duration>)>;

/// Probes of one test.
pub(super) struct Probing {
    way: Way,
    pace: Duration,
    rtt: Duration,
    /// When the load began.
    load: Option<u64>,
}

enum Way {
    Udp(Prober),
    Tcp { probes: Probes, next: Instant },
}

impl Probing {
    /// Opens the stream, and probes the path until enough is known of it without load. A path that lets no datagram
    /// through is probed over the control connection.
    pub(super) fn begin(
        request: LatencyRequest,
        target: &Target,
        control: &mut Control,
        session: SessionId,
        rtt: Duration,
    ) -> Result<Probing, SessionError> {
        let stream = open(target, control.socket(), session, rtt);
        let way = match stream {
            Ok(stream) => Way::Udp(Prober::start(stream, request.pace)?),
            Err(SessionError::NoDatagrams { .. }) => Way::Tcp { probes: Vec::new(), next: Instant::now() },
            Err(error) => return Err(error),
        };
        let mut probing = Probing { way, pace: request.pace, rtt, load: None };
        probing.idle_phase(control)?;
        Ok(probing)
    }

    /// The load begins now: probes are sent at their usual pace.
    pub(super) fn load_begins(&mut self) {
        self.load = Some(monotonic_nanos());
        if let Way::Udp(prober) = &self.way {
            prober.shared.loaded.store(true, Ordering::Relaxed);
        }
    }

    /// Asks over the control connection, if that is the way and it is time to.
    pub(super) fn ask(&mut self, control: &mut Control) -> Result<(), SessionError> {
        let pace = if self.load.is_some() { self.pace } else { IDLE_PACE };
        let Way::Tcp { probes, next } = &mut self.way else { return Ok(()) };
        if Instant::now() < *next || probes.len() >= MOST {
            return Ok(());
        }
        *next = Instant::now() + pace;
        let number = FIRST_QUESTION + u32::try_from(probes.len()).unwrap_or(0);
        probes.push((monotonic_nanos(), None));
        control.send(&ClientMessage::Ping { number })
    }

    /// How long until [`Probing::ask`] has something to do.
    pub(super) fn idle(&self) -> Duration {
        match &self.way {
            Way::Udp(_) => Duration::MAX,
            Way::Tcp { next, .. } => next.saturating_duration_since(Instant::now()).max(Duration::from_millis(1)),
        }
    }

    /// Takes an answer, if it is one to a probe.
    pub(super) fn hear(&mut self, number: u32, received: u64, answered: u64) {
        let Way::Tcp { probes, .. } = &mut self.way else { return };
        let index = number.checked_sub(FIRST_QUESTION).map(|index| index as usize);
        let Some((sent, rtt)) = index.and_then(|index| probes.get_mut(index)) else { return };
        let held = answered.saturating_sub(received);
        *rtt = Some(Duration::from_nanos(monotonic_nanos().saturating_sub(*sent).saturating_sub(held)));
    }

    /// The figures beside the load that this end reports. Probes that left after [`Probing::load_begins`] and before the
    /// load itself, while its streams were dialled, are neither of an idle path nor of a loaded one.
    pub(super) fn finish(self, near: &EndReport, interval: Duration) -> Latency {
        let ready = self.load.unwrap_or_else(monotonic_nanos);
        let origin = near.started.unwrap_or(ready);
        let (transport, stamps, probes) = match self.way {
            Way::Udp(prober) => {
                prober.settle(LAST_WAIT + 2 * self.rtt);
                let (probes, stamps) = prober.stop();
                (Transport::Udp, stamps, probes)
            }
            Way::Tcp { probes, .. } => (Transport::Tcp, false, probes),
        };
        let since = |sent: u64| sent.cast_signed().saturating_sub(origin.cast_signed());
        let counts = |sent: u64| sent < ready || sent >= origin;
        let probes = probes.into_iter().filter(|(sent, _)| counts(*sent));
        let probes: Vec<Probe> = probes.map(|(sent, rtt)| Probe { sent: since(sent), rtt }).collect();
        Latency { kernel_stamps: stamps, ..Latency::new(transport, self.pace, &probes, near.elapsed, interval) }
    }

    fn idle_phase(&mut self, control: &mut Control) -> Result<(), SessionError> {
        let deadline = Instant::now() + IDLE_FOR + 2 * self.rtt;
        while Instant::now() < deadline && self.answered() < IDLE_PROBES {
            match &self.way {
                Way::Udp(_) => thread::sleep(Duration::from_millis(2)),
                Way::Tcp { .. } => {
                    self.ask(control)?;
                    if let Some(ServerMessage::Pong { number, received_nanos, sent_nanos }) =
                        control.poll(self.idle(), "before the load")?
                    {
                        self.hear(number, received_nanos, sent_nanos);
                    }
                }
            }
        }
        Ok(())
    }

    fn answered(&self) -> usize {
        match &self.way {
            Way::Udp(prober) => prober.shared.answered.load(Ordering::Relaxed) as usize,
            Way::Tcp { probes, .. } => probes.iter().filter(|(_, rtt)| rtt.is_some()).count(),
        }
    }
}

fn open(
    target: &Target,
    control: &TcpStream,
    session: SessionId,
    rtt: Duration,
) -> Result<DatagramStream, SessionError> {
    dial::datagrams(target, control, session, streams::PROBES, OPEN_WITHIN + 2 * rtt)
}

/// The client's thread.
struct Prober {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// No more probes, but echoes are still taken.
    enough: AtomicBool,
    loaded: AtomicBool,
    answered: AtomicU64,
    kernel_stamps: AtomicBool,
    probes: Mutex<Probes>,
}

impl Prober {
    fn start(stream: DatagramStream, pace: Duration) -> Result<Prober, SessionError> {
        let failed = |source| SessionError::Io { peer: "the kernel", source };
        // Without stamps the thread's own clock has to do.
        let _ = udp::set_stamps(stream.socket());
        let shared = Arc::new(Shared::default());
        let work = shared.clone();
        let run = move || work.run(&stream, pace);
        let thread = thread::Builder::new().name("probes".into()).spawn(run).map_err(failed)?;
        Ok(Prober { shared, thread: Some(thread) })
    }

    /// Waits for the last echoes.
    fn settle(&self, within: Duration) {
        self.shared.enough.store(true, Ordering::Relaxed);
        let deadline = Instant::now() + within;
        let missing = || {
            let probes = self.shared.probes.lock().unwrap_or_else(PoisonError::into_inner);
            probes.iter().rev().take(200).any(|(_, rtt)| rtt.is_none())
        };
        while missing() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn stop(mut self) -> (Probes, bool) {
        self.end();
        let probes = std::mem::take(&mut *self.shared.probes.lock().unwrap_or_else(PoisonError::into_inner));
        (probes, self.shared.kernel_stamps.load(Ordering::Relaxed))
    }

    fn end(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn run(&self, stream: &DatagramStream, pace: Duration) {
        udp::wake_on_time();
        let mut inbox = Inbox::new(8, 2048);
        let mut next = Instant::now();
        while !self.stop.load(Ordering::Relaxed) {
            let pace = if self.loaded.load(Ordering::Relaxed) { pace } else { pace.min(IDLE_PACE) };
            if Instant::now() >= next {
                next = (next + pace).max(Instant::now() + pace / 2);
                self.send(stream);
            }
            let wait = next.saturating_duration_since(Instant::now()).max(Duration::from_micros(50));
            if stream.socket().set_read_timeout(Some(wait)).is_ok() && inbox.receive(stream.socket()).is_ok() {
                self.take(stream, &inbox);
            } else {
                // An error that comes at once must not make this spin.
                thread::sleep(next.saturating_duration_since(Instant::now()).min(Duration::from_millis(1)));
            }
        }
    }

    fn send(&self, stream: &DatagramStream) {
        if self.enough.load(Ordering::Relaxed) {
            return;
        }
        let mut probes = self.probes.lock().unwrap_or_else(PoisonError::into_inner);
        if probes.len() >= MOST {
            return;
        }
        let mut probe = [0; datagram::LENGTH];
        let sequence = probes.len() as u64;
        probes.push((monotonic_nanos(), None));
        Head { kind: Kind::Probe, tag: stream.tag(), sequence, sent: wall_nanos(), extra: 0 }.write(&mut probe);
        // One that cannot be sent is lost.
        let _ = stream.socket().send(&probe);
    }

    fn take(&self, stream: &DatagramStream, inbox: &Inbox) {
        let (now, wall) = (monotonic_nanos(), wall_nanos());
        for message in inbox.messages() {
            let Ok(head) = Head::read(message.bytes, stream.tag()) else { continue };
            if head.kind != Kind::Echo {
                continue;
            }
            self.kernel_stamps.fetch_or(message.stamp.is_some(), Ordering::Relaxed);
            let mut probes = self.probes.lock().unwrap_or_else(PoisonError::into_inner);
            let index = usize::try_from(head.sequence).unwrap_or(usize::MAX);
            let Some((sent, rtt)) = probes.get_mut(index).filter(|(_, rtt)| rtt.is_none()) else { continue };
            let unread = wall.saturating_sub(message.stamp.unwrap_or(wall));
            *rtt = Some(round_trip(*sent, now, unread, head.extra));
            self.answered.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The round trip of a probe that left at `sent` and was read at `now`, after it lay here `unread` nanoseconds and at
/// the far end `held` microseconds. Both times are this end's own, of a clock that nobody sets.
fn round_trip(sent: u64, now: u64, unread: u64, held: u32) -> Duration {
    let away = now.saturating_sub(sent);
    // The kernel's stamps are of the clock that is set: one from before it was says nothing.
    let unread = if unread < away { unread } else { 0 };
    Duration::from_nanos((away - unread).saturating_sub(u64::from(held) * 1000))
}

/// The server's end: echoes as long as it is kept.
pub(super) struct Echo {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Echo {
    /// Waits for the client's stream, if the test has one.
    pub(super) fn of(session: &ServerSession, request: &TestRequest) -> Result<Option<Echo>, SessionError> {
        if request.latency.is_none() {
            return Ok(None);
        }
        let datagrams = session.expect_datagrams(streams::PROBES..streams::PROBES + 1);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let work = move || echo(&datagrams, &stopped);
        let failed = |source| SessionError::Io { peer: "the kernel", source };
        let thread = thread::Builder::new().name("echo".into()).spawn(work).map_err(failed)?;
        Ok(Some(Echo { stop, thread: Some(thread) }))
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

const LOOK_UP: Duration = Duration::from_millis(50);

fn echo(datagrams: &Datagrams, stop: &AtomicBool) {
    let stopped = || stop.load(Ordering::Relaxed);
    let stream = loop {
        match datagrams.next(LOOK_UP) {
            Some(stream) => break stream,
            None if stopped() => return,
            None => {}
        }
    };
    let _ = udp::set_stamps(stream.socket());
    if stream.socket().set_read_timeout(Some(LOOK_UP)).is_err() {
        return;
    }
    let mut inbox = Inbox::new(8, 2048);
    while !stopped() {
        if inbox.receive(stream.socket()).is_err() {
            // A time-out mostly; anything else must not make this spin.
            thread::sleep(Duration::from_millis(1));
            continue;
        }
        for message in inbox.messages() {
            match Head::read(message.bytes, stream.tag()) {
                Ok(head) if head.kind == Kind::Probe => answer(&stream, head, message.stamp),
                _ => drop(stream.is_opening(message.bytes)),
            }
        }
    }
}

fn answer(stream: &DatagramStream, head: Head, stamp: Option<u64>) {
    let now = wall_nanos();
    let held = now.saturating_sub(stamp.unwrap_or(now)) / 1000;
    let mut bytes = [0; datagram::LENGTH];
    let extra = u32::try_from(held).unwrap_or(u32::MAX);
    Head { kind: Kind::Echo, extra, ..head }.write(&mut bytes);
    let _ = stream.socket().send(&bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_trip_is_by_our_own_clock() {
        let trip = |unread, held| round_trip(1_000_000, 41_000_000, unread, held);
        assert_eq!(trip(0, 0), Duration::from_millis(40));
        assert_eq!(trip(3_000_000, 2000), Duration::from_millis(35));
        assert_eq!(trip(u64::MAX, 0), Duration::from_millis(40), "the clock was set meanwhile");
        assert_eq!(trip(0, u32::MAX), Duration::ZERO, "a far end that says nonsense");
    }

    #[test]
    fn probes_while_streams_are_dialled_are_of_neither_phase() {
        let ms = |n: u64| n * 1_000_000;
        let rtt = Some(Duration::from_millis(5));
        let probes: Probes = (0..10).map(|n| (ms(100 + 10 * n), rtt)).collect();
        let way = Way::Tcp { probes, next: Instant::now() };
        let pace = Duration::from_millis(10);
        let probing = Probing { way, pace, rtt: Duration::ZERO, load: Some(ms(125)) };
        let near = EndReport { started: Some(ms(145)), elapsed: Duration::from_millis(30), ..EndReport::default() };
        let latency = probing.finish(&near, Duration::from_millis(10));
        // Idle: 100, 110, 120; dialling: 130, 140; loaded: 150, 160, 170; over: 180, 190.
        assert_eq!((latency.idle.sent, latency.loaded.sent, latency.intervals.len()), (3, 3, 3));
    }
}
