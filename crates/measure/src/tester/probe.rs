//! Latency probes during a load: small datagrams that the server echoes, from some time before the load to its end.
//!
//! A thread of the client sends probes at a fixed interval and receives the echoes. A thread of the server returns each
//! probe at once, with the time that the probe spent at the server. Arrival times come from the kernel where it has
//! time stamps. If no datagram passes the path, pings on the control connection replace the datagrams.
//! `lfn_results::latency` computes the figures.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lfn_results::latency::{Latency, LatencyRequest, Probe, ProbeTransport};
use lfn_results::measure::{ClientMessage, EndReport, ServerMessage, TestRequest};
use lfn_session::dial::{self, Target};
use lfn_session::server::{DatagramStreams, ServerSession};
use lfn_session::transport::Handle;
use lfn_session::{Control, DatagramStream, SessionError, SessionId, datagram as streams};
use lfn_sys::clock::{monotonic_nanos, wall_nanos};
use lfn_sys::udp;
use lfn_sys::udp::batch::ReceiveBuffers;
use parking_lot::Mutex;

use crate::proto::udp::datagram::{self, DatagramHeader, DatagramKind};

/// Number of probes before the load.
const IDLE_PROBES: usize = 20;
/// Interval of the probes before the load, unless the requested interval is shorter.
const IDLE_INTERVAL: Duration = Duration::from_millis(10);
/// Maximum duration of the probes before the load, plus two round trips.
const MAX_IDLE_TIME: Duration = Duration::from_secs(1);
/// Maximum time to open the probe stream, plus two round trips; then TCP replaces it.
const OPEN_TIMEOUT: Duration = Duration::from_secs(2);
/// Time after which a missing echo counts as lost, plus two round trips.
const LAST_PROBE_TIMEOUT: Duration = Duration::from_millis(500);
/// Number of the first ping that is a latency probe; lower numbers compare clocks.
const FIRST_PROBE_NUMBER: u32 = 1 << 30;
/// Maximum number of stored probes: days at the usual interval.
const MAX_PROBES: usize = 2_000_000;

/// Departure time of each probe on this end's monotonic clock, and its RTT.
type Probes = Vec<(u64, Option<Duration>)>;

/// Latency probes of one test.
pub(super) struct LatencyProbes {
    channel: ProbeChannel,
    pace: Duration,
    rtt: Duration,
    /// Start of the load, monotonic nanoseconds.
    load_started: Option<u64>,
}

enum ProbeChannel {
    Udp(UdpProber),
    Tcp { probes: Probes, next: Instant },
}

impl LatencyProbes {
    /// Opens the probe stream, and probes the idle path until enough is known. If the path blocks UDP, the control
    /// connection carries the probes.
    pub(super) fn begin(
        request: LatencyRequest,
        target: &Target,
        control: &mut Control,
        session: SessionId,
        rtt: Duration,
    ) -> Result<LatencyProbes, SessionError> {
        let stream = open_stream(target, &**control.handle(), session, rtt);
        let channel = match stream {
            Ok(stream) => ProbeChannel::Udp(UdpProber::start(stream, request.pace)?),
            Err(SessionError::NoDatagrams { .. }) => ProbeChannel::Tcp { probes: Vec::new(), next: Instant::now() },
            Err(error) => return Err(error),
        };
        let mut latency_probes = LatencyProbes { channel, pace: request.pace, rtt, load_started: None };
        latency_probes.probe_idle_path(control)?;
        Ok(latency_probes)
    }

    /// Records the start of the load; probes use their normal interval from now on.
    pub(super) fn mark_load_start(&mut self) {
        self.load_started = Some(monotonic_nanos());
        if let ProbeChannel::Udp(prober) = &self.channel {
            prober.shared.is_loaded.store(true, Ordering::Relaxed);
        }
    }

    /// Sends a ping on the control connection, if TCP is in use and a probe is due.
    pub(super) fn send_due(&mut self, control: &mut Control) -> Result<(), SessionError> {
        let pace = if self.load_started.is_some() { self.pace } else { IDLE_INTERVAL };
        let ProbeChannel::Tcp { probes, next } = &mut self.channel else { return Ok(()) };
        if Instant::now() < *next || probes.len() >= MAX_PROBES {
            return Ok(());
        }
        *next = Instant::now() + pace;
        let number = FIRST_PROBE_NUMBER + u32::try_from(probes.len()).unwrap_or(0);
        probes.push((monotonic_nanos(), None));
        control.send(&ClientMessage::Ping { number })
    }

    /// Returns the time until [`LatencyProbes::send_due`] has something to do.
    pub(super) fn time_to_next(&self) -> Duration {
        match &self.channel {
            ProbeChannel::Udp(_) => Duration::MAX,
            ProbeChannel::Tcp { next, .. } => {
                next.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
            }
        }
    }

    /// Records a reply, if it belongs to a probe.
    pub(super) fn record_reply(&mut self, number: u32, received: u64, answered: u64) {
        let ProbeChannel::Tcp { probes, .. } = &mut self.channel else { return };
        let index = number.checked_sub(FIRST_PROBE_NUMBER).map(|index| index as usize);
        let Some((sent, rtt)) = index.and_then(|index| probes.get_mut(index)) else { return };
        let held_at_peer = answered.saturating_sub(received);
        *rtt = Some(Duration::from_nanos(monotonic_nanos().saturating_sub(*sent).saturating_sub(held_at_peer)));
    }

    /// Returns the latency figures for this end's report. Probes that left after [`LatencyProbes::mark_load_start`] and
    /// before the first data, while streams were dialled, do not count, either for the idle path or for the load.
    pub(super) fn finish(self, near: &EndReport, interval: Duration) -> Latency {
        let ready = self.load_started.unwrap_or_else(monotonic_nanos);
        let origin = near.started.unwrap_or(ready);
        let (transport, stamps, probes) = match self.channel {
            ProbeChannel::Udp(prober) => {
                prober.wait_for_echoes(LAST_PROBE_TIMEOUT + 2 * self.rtt);
                let (probes, stamps) = prober.stop();
                (ProbeTransport::Udp, stamps, probes)
            }
            ProbeChannel::Tcp { probes, .. } => (ProbeTransport::Tcp, false, probes),
        };
        let since = |sent: u64| sent.cast_signed().saturating_sub(origin.cast_signed());
        let counts = |sent: u64| sent < ready || sent >= origin;
        let probes = probes.into_iter().filter(|(sent, _)| counts(*sent));
        let probes: Vec<Probe> = probes.map(|(sent, rtt)| Probe { sent: since(sent), rtt }).collect();
        Latency { kernel_timestamps: stamps, ..Latency::new(transport, self.pace, &probes, near.elapsed, interval) }
    }

    fn probe_idle_path(&mut self, control: &mut Control) -> Result<(), SessionError> {
        let deadline = Instant::now() + MAX_IDLE_TIME + 2 * self.rtt;
        while Instant::now() < deadline && self.answered_count() < IDLE_PROBES {
            match &self.channel {
                ProbeChannel::Udp(_) => thread::sleep(Duration::from_millis(2)),
                ProbeChannel::Tcp { .. } => {
                    self.send_due(control)?;
                    if let Some(ServerMessage::Pong { number, received_nanos, sent_nanos }) =
                        control.poll(self.time_to_next(), "before the load")?
                    {
                        self.record_reply(number, received_nanos, sent_nanos);
                    }
                }
            }
        }
        Ok(())
    }

    fn answered_count(&self) -> usize {
        match &self.channel {
            ProbeChannel::Udp(prober) => prober.shared.answered.load(Ordering::Relaxed) as usize,
            ProbeChannel::Tcp { probes, .. } => probes.iter().filter(|(_, rtt)| rtt.is_some()).count(),
        }
    }
}

fn open_stream(
    target: &Target,
    control: &dyn Handle,
    session: SessionId,
    rtt: Duration,
) -> Result<DatagramStream, SessionError> {
    dial::open_datagrams(target, control, session, streams::PROBE_STREAM, OPEN_TIMEOUT + 2 * rtt)
}

/// Thread of the client that sends probes over UDP.
struct UdpProber {
    shared: Arc<ProberState>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct ProberState {
    stop: AtomicBool,
    /// Send no more probes, but receive echoes.
    is_draining: AtomicBool,
    is_loaded: AtomicBool,
    answered: AtomicU64,
    kernel_stamps: AtomicBool,
    probes: Mutex<Probes>,
}

impl UdpProber {
    fn start(stream: DatagramStream, pace: Duration) -> Result<UdpProber, SessionError> {
        let failed = |source| SessionError::Io { peer: "the kernel", source };
        // Without kernel time stamps the thread's own clock is used.
        let _ = udp::enable_timestamps(stream.socket());
        let shared = Arc::new(ProberState::default());
        let work = shared.clone();
        let run = move || work.run(&stream, pace);
        let thread = thread::Builder::new().name("probes".into()).spawn(run).map_err(failed)?;
        Ok(UdpProber { shared, thread: Some(thread) })
    }

    /// Waits for the last echoes.
    fn wait_for_echoes(&self, timeout: Duration) {
        self.shared.is_draining.store(true, Ordering::Relaxed);
        let deadline = Instant::now() + timeout;
        let missing = || {
            let probes = self.shared.probes.lock();
            probes.iter().rev().take(200).any(|(_, rtt)| rtt.is_none())
        };
        while missing() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn stop(mut self) -> (Probes, bool) {
        self.end();
        let probes = std::mem::take(&mut *self.shared.probes.lock());
        (probes, self.shared.kernel_stamps.load(Ordering::Relaxed))
    }

    fn end(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

impl Drop for UdpProber {
    fn drop(&mut self) {
        self.end();
    }
}

impl ProberState {
    fn run(&self, stream: &DatagramStream, pace: Duration) {
        udp::set_exact_timers();
        let mut inbox = ReceiveBuffers::new(8, 2048);
        let mut next = Instant::now();
        while !self.stop.load(Ordering::Relaxed) {
            let pace = if self.is_loaded.load(Ordering::Relaxed) { pace } else { pace.min(IDLE_INTERVAL) };
            if Instant::now() >= next {
                next = (next + pace).max(Instant::now() + pace / 2);
                self.send(stream);
            }
            let wait = next.saturating_duration_since(Instant::now()).max(Duration::from_micros(50));
            if stream.socket().set_read_timeout(Some(wait)).is_ok() && inbox.receive(stream.socket()).is_ok() {
                self.take(stream, &inbox);
            } else {
                // An immediate error must not make the loop spin.
                thread::sleep(next.saturating_duration_since(Instant::now()).min(Duration::from_millis(1)));
            }
        }
    }

    fn send(&self, stream: &DatagramStream) {
        if self.is_draining.load(Ordering::Relaxed) {
            return;
        }
        let mut probes = self.probes.lock();
        if probes.len() >= MAX_PROBES {
            return;
        }
        let mut probe = [0; datagram::HEADER_LENGTH];
        let sequence = probes.len() as u64;
        probes.push((monotonic_nanos(), None));
        DatagramHeader { kind: DatagramKind::Probe, tag: stream.tag(), sequence, sent: wall_nanos(), extra: 0 }
            .write(&mut probe);
        // A probe that cannot be sent counts as lost.
        let _ = stream.socket().send(&probe);
    }

    fn take(&self, stream: &DatagramStream, inbox: &ReceiveBuffers) {
        let (now, wall) = (monotonic_nanos(), wall_nanos());
        for message in inbox.messages() {
            let Ok(head) = DatagramHeader::read(message.bytes, stream.tag()) else { continue };
            if head.kind != DatagramKind::Echo {
                continue;
            }
            self.kernel_stamps.fetch_or(message.timestamp.is_some(), Ordering::Relaxed);
            let mut probes = self.probes.lock();
            let index = usize::try_from(head.sequence).unwrap_or(usize::MAX);
            let Some((sent, rtt)) = probes.get_mut(index).filter(|(_, rtt)| rtt.is_none()) else { continue };
            let queued = wall.saturating_sub(message.timestamp.unwrap_or(wall));
            *rtt = Some(probe_rtt(*sent, now, queued, head.extra));
            self.answered.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Returns the RTT of a probe that left at `sent` and was read at `now`, after `queued` nanoseconds in this host's
/// receive queue and `held_at_peer` microseconds at the server. Both times come from this end's monotonic clock.
fn probe_rtt(sent: u64, now: u64, queued: u64, held_at_peer: u32) -> Duration {
    let away = now.saturating_sub(sent);
    // The kernel's time stamps use the wall clock; a stamp from before a clock step is ignored.
    let queued = if queued < away { queued } else { 0 };
    Duration::from_nanos((away - queued).saturating_sub(u64::from(held_at_peer) * 1000))
}

/// Server's end: echoes probes until it is dropped.
pub(super) struct ProbeEcho {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl ProbeEcho {
    /// Waits for the client's probe stream, if the test has one.
    pub(super) fn of(session: &ServerSession, request: &TestRequest) -> Result<Option<ProbeEcho>, SessionError> {
        if request.latency.is_none() {
            return Ok(None);
        }
        let datagrams = session.expect_datagrams(streams::PROBE_STREAM..streams::PROBE_STREAM + 1);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let work = move || echo_probes(&datagrams, &stopped);
        let failed = |source| SessionError::Io { peer: "the kernel", source };
        let thread = thread::Builder::new().name("echo".into()).spawn(work).map_err(failed)?;
        Ok(Some(ProbeEcho { stop, thread: Some(thread) }))
    }
}

impl Drop for ProbeEcho {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

const POLL_INTERVAL: Duration = Duration::from_millis(50);

fn echo_probes(datagrams: &DatagramStreams, stop: &AtomicBool) {
    let stopped = || stop.load(Ordering::Relaxed);
    let stream = loop {
        match datagrams.next(POLL_INTERVAL) {
            Some(stream) => break stream,
            None if stopped() => return,
            None => {}
        }
    };
    let _ = udp::enable_timestamps(stream.socket());
    if stream.socket().set_read_timeout(Some(POLL_INTERVAL)).is_err() {
        return;
    }
    let mut inbox = ReceiveBuffers::new(8, 2048);
    while !stopped() {
        if inbox.receive(stream.socket()).is_err() {
            // Usually a time-out; another error must not make the loop spin.
            thread::sleep(Duration::from_millis(1));
            continue;
        }
        for message in inbox.messages() {
            match DatagramHeader::read(message.bytes, stream.tag()) {
                Ok(head) if head.kind == DatagramKind::Probe => answer(&stream, head, message.timestamp),
                _ => drop(stream.is_repeated_hello(message.bytes)),
            }
        }
    }
}

fn answer(stream: &DatagramStream, head: DatagramHeader, stamp: Option<u64>) {
    let now = wall_nanos();
    let held_at_peer = now.saturating_sub(stamp.unwrap_or(now)) / 1000;
    let mut bytes = [0; datagram::HEADER_LENGTH];
    let extra = u32::try_from(held_at_peer).unwrap_or(u32::MAX);
    DatagramHeader { kind: DatagramKind::Echo, extra, ..head }.write(&mut bytes);
    let _ = stream.socket().send(&bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rtt_uses_the_monotonic_clock() {
        let trip = |queued, held_at_peer| probe_rtt(1_000_000, 41_000_000, queued, held_at_peer);
        assert_eq!(trip(0, 0), Duration::from_millis(40));
        assert_eq!(trip(3_000_000, 2000), Duration::from_millis(35));
        assert_eq!(trip(u64::MAX, 0), Duration::from_millis(40), "the wall clock was set meanwhile");
        assert_eq!(trip(0, u32::MAX), Duration::ZERO, "implausible time at the server");
    }

    #[test]
    fn probes_between_phases_do_not_count() {
        let ms = |n: u64| n * 1_000_000;
        let rtt = Some(Duration::from_millis(5));
        let probes: Probes = (0..10).map(|n| (ms(100 + 10 * n), rtt)).collect();
        let channel = ProbeChannel::Tcp { probes, next: Instant::now() };
        let pace = Duration::from_millis(10);
        let latency_probes = LatencyProbes { channel, pace, rtt: Duration::ZERO, load_started: Some(ms(125)) };
        let near = EndReport { started: Some(ms(145)), elapsed: Duration::from_millis(30), ..EndReport::default() };
        let latency = latency_probes.finish(&near, Duration::from_millis(10));
        // Idle: 100, 110, 120; dialling: 130, 140; loaded: 150, 160, 170; over: 180, 190.
        assert_eq!((latency.idle.sent, latency.loaded.sent, latency.intervals.len()), (3, 3, 3));
    }
}
