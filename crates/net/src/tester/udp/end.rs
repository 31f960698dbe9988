//! One end of a test of datagrams: its threads, its clock, its intervals, and the report when it is over.
//!
//! It knows nothing of messages; the two conversations ask it what there is to tell.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender as Tell, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lfn_core::host::remarks;
use lfn_core::udp::figures::{UdpFigures, UdpSample};
use lfn_core::udp::ramp::{RampReport, StepSeen, StepSent};
use lfn_core::units::BitRate;
use lfn_core::wire::test::{Cpu, EndReport, Interval, Kernel, Load, SocketWish};
use lfn_core::wire::test::{StreamReport, StreamSample, TestRequest, UdpRequest};
use lfn_sys::clock::monotonic_nanos;
use lfn_sys::tcp;

use super::lane::Lane;
use super::receiver;
use super::sender::{Sender, Until};
use crate::server::throttle::Throttle;
use crate::session::DatagramStream;
use crate::tester::TestError;
use crate::tester::host::HostWatch;
use crate::tester::meter::next_multiple;

/// How long the control thread sleeps at most.
const LOOK_UP: Duration = Duration::from_millis(20);

/// When nothing has come for this long and a round trip, what is still missing is lost.
const QUIET: Duration = Duration::from_millis(200);

/// What is this late is lost, whatever still comes.
const LATEST: Duration = Duration::from_secs(5);

/// A step of a ramp to be sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    pub(super) number: u32,
    pub(super) rate: BitRate,
    pub(super) time: Duration,
}

/// What a thread says.
enum Event {
    Stepped(StepSent),
    Ended { stream: u16, cpu: Cpu, result: io::Result<()> },
}

/// Streams of one end while they run.
pub(super) struct End {
    lanes: Vec<Arc<Lane>>,
    threads: Vec<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
    events: Receiver<Event>,
    /// To the sender of a ramp.
    steps: Option<Tell<Step>>,
    stepped: Option<StepSent>,
    sends: bool,
    /// The highest rate the server allows.
    most: Option<BitRate>,
    interval: Duration,
    ended: usize,
    host: Option<HostWatch>,
    cpu: Cpu,
    told: Vec<Told>,
    until: Duration,
    intervals: Vec<Interval>,
    ticked: usize,
}

/// What earlier intervals counted of a stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Told {
    bytes: u64,
    datagrams: u64,
    lost: u64,
    reordered: u64,
    duplicates: u64,
}

impl End {
    /// Sets the sockets and starts a thread on each stream. `most` is the highest rate of each that is allowed.
    pub(super) fn start(
        streams: Vec<DatagramStream>,
        request: &TestRequest,
        wish: &SocketWish,
        sends: bool,
        throttle: &Arc<Throttle>,
        most: Option<BitRate>,
    ) -> Result<End, TestError> {
        let udp = request.udp.as_deref().copied().unwrap_or_default();
        let (tell, events) = channel();
        let mut end = End::empty(request, sends, events);
        end.most = most;
        end.host = streams.first().map(|stream| {
            let local = stream.socket().local_addr().ok().map(|address| address.ip());
            HostWatch::towards(stream.peer().ip(), local)
        });
        let highest = udp.ramp.map_or(udp.rate, |ramp| ramp.to);
        let limited = most.filter(|most| sends && *most < highest).map(|most| (highest, most));
        let left = Arc::new(AtomicU64::new(match request.load {
            Load::Records(count) => count,
            _ => 0,
        }));
        for stream in streams {
            let number = stream.stream();
            let failed = |source| TestError::Stream { stream: number, source };
            let mut lane = Lane::new(stream, wish, &udp, sends).map_err(failed)?;
            lane.limited = limited;
            let lane = Arc::new(lane);
            if let (Load::Bytes(bytes), true) = (request.load, end.lanes.is_empty()) {
                left.store(bytes.0.div_ceil(lane.datagram as u64), Ordering::Relaxed);
            }
            let job = Job {
                lane: lane.clone(),
                throttle: throttle.clone(),
                stop: end.stop.clone(),
                tell: tell.clone(),
                rate: most.map_or(udp.rate, |most| udp.rate.min(most)),
                load: request.load,
                left: left.clone(),
            };
            let steps = end.steps_of(&udp);
            let work = move || job.run(sends, steps);
            end.threads.push(thread::Builder::new().name(format!("stream {number}")).spawn(work).map_err(failed)?);
            end.lanes.push(lane);
            end.told.push(Told::default());
        }
        Ok(end)
    }

    fn empty(request: &TestRequest, sends: bool, events: Receiver<Event>) -> End {
        End {
            lanes: Vec::new(),
            threads: Vec::new(),
            stop: Arc::default(),
            events,
            steps: None,
            stepped: None,
            sends,
            most: None,
            interval: request.interval,
            ended: 0,
            host: None,
            cpu: Cpu::default(),
            told: Vec::new(),
            until: Duration::ZERO,
            intervals: Vec::new(),
            ticked: 0,
        }
    }

    fn steps_of(&mut self, udp: &UdpRequest) -> Option<Receiver<Step>> {
        udp.ramp.filter(|_| self.sends)?;
        let (tell, steps) = channel();
        self.steps = Some(tell);
        Some(steps)
    }

    /// Takes in what threads have to tell; an error if one failed.
    pub(super) fn collect(&mut self) -> Result<(), TestError> {
        while let Ok(event) = self.events.try_recv() {
            match event {
                Event::Stepped(sent) => self.stepped = Some(sent),
                Event::Ended { stream, cpu, result } => {
                    self.ended += 1;
                    self.cpu.user += cpu.user;
                    self.cpu.system += cpu.system;
                    result.map_err(|source| TestError::Stream { stream, source })?;
                }
            }
        }
        Ok(())
    }

    /// Whether every thread has come to its own end.
    pub(super) fn all_ended(&self) -> bool {
        self.ended == self.lanes.len()
    }

    /// Payload of each datagram sent.
    pub(super) fn datagram(&self) -> u64 {
        self.lanes.first().map_or(1, |lane| lane.datagram as u64)
    }

    /// Ends the sending now.
    pub(super) fn halt(&self) {
        if self.sends {
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    /// The highest rate the server allows a stream.
    pub(super) fn most(&self) -> Option<BitRate> {
        self.most
    }

    /// Has the sender of a ramp make a step.
    pub(super) fn step(&mut self, step: Step) {
        if let Some(steps) = &self.steps {
            let _ = steps.send(step);
        }
    }

    /// The step that was sent, once.
    pub(super) fn take_stepped(&mut self) -> Option<StepSent> {
        self.stepped.take()
    }

    /// What came of a step by now.
    pub(super) fn seen(&self, step: u32) -> StepSeen {
        let meter = self.lanes.first().map(|lane| lane.incoming().step).unwrap_or_default();
        if meter.step() == step { meter.seen() } else { StepSeen { step, ..StepSeen::default() } }
    }

    /// How many datagrams each stream sent.
    pub(super) fn sent(&self) -> Vec<u64> {
        self.lanes.iter().map(|lane| lane.outgoing().datagrams).collect()
    }

    /// Whether everything came that was sent, or nothing more is to be waited for; `since` is when that was told.
    pub(super) fn settled(&self, sent: &[u64], since: Instant, rtt: Duration) -> bool {
        let all = self.lanes.iter().zip(sent).all(|(lane, &sent)| lane.incoming().account.received() >= sent);
        all || self.is_quiet(since, rtt)
    }

    /// The same of a step.
    pub(super) fn step_settled(&self, step: u32, datagrams: u64, since: Instant, rtt: Duration) -> bool {
        self.seen(step).datagrams >= datagrams || self.is_quiet(since, rtt)
    }

    fn is_quiet(&self, since: Instant, rtt: Duration) -> bool {
        let last = self.lanes.iter().map(|lane| lane.incoming().last).max().unwrap_or(0);
        let silent = Duration::from_nanos(monotonic_nanos().saturating_sub(last)).min(since.elapsed());
        silent > QUIET + rtt || since.elapsed() > LATEST + rtt
    }

    /// How long until there is something to do.
    pub(super) fn idle(&self) -> Duration {
        let Some(now) = self.now() else { return LOOK_UP };
        self.next_boundary().saturating_sub(now).min(LOOK_UP).max(Duration::from_millis(1))
    }

    /// The interval that is over by now, if one is.
    pub(super) fn tick(&mut self) -> Option<&Interval> {
        let now = self.now()?;
        if now < self.next_boundary() {
            return None;
        }
        self.close_interval(now);
        self.ticked += 1;
        self.intervals.last()
    }

    /// The same for who tells it at once: it is not kept.
    pub(super) fn tell(&mut self) -> Option<Interval> {
        self.tick()?;
        self.intervals.pop()
    }

    /// How many intervals [`End::tick`] gave.
    pub(super) fn ticked(&self) -> usize {
        self.ticked
    }

    /// Time since the first datagram.
    pub(super) fn now(&self) -> Option<Duration> {
        Some(Duration::from_nanos(monotonic_nanos().saturating_sub(self.first()?)))
    }

    /// Stops the threads and gives the figures; a receiver is told how many were sent on each stream.
    pub(super) fn finish(
        &mut self,
        sent: Option<&[u64]>,
        ramp: Option<RampReport>,
        kernel: Kernel,
    ) -> Result<EndReport, TestError> {
        self.stop();
        self.collect()?;
        for (lane, &sent) in self.lanes.iter().zip(sent.unwrap_or(&[])) {
            lane.incoming().account.finish(sent);
        }
        let elapsed = self.elapsed();
        if elapsed > self.until || self.ticked == 0 {
            self.close_interval(elapsed.max(self.until));
        } else if self.is_more() {
            self.close_interval(self.now().unwrap_or(self.until));
        }
        let streams: Vec<StreamReport> = self.lanes.iter().map(|lane| self.report(lane, ramp.clone())).collect();
        let (host, mut notes) = self.host.as_mut().map(HostWatch::finish).unwrap_or_default();
        notes.extend(remarks(&streams, host.as_ref()));
        Ok(EndReport {
            host,
            notes,
            elapsed,
            bytes: streams.iter().map(|stream| stream.bytes).sum(),
            cpu: Some(self.cpu),
            kernel: Some(kernel),
            lfn_version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            started: self.first(),
            streams,
            intervals: std::mem::take(&mut self.intervals),
            ..EndReport::default()
        })
    }

    fn stop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.steps = None;
        for thread in self.threads.drain(..) {
            // It looks up twenty times a second, and a send waits a second at most.
            let _ = thread.join();
        }
    }

    /// When the first datagram left or came.
    fn first(&self) -> Option<u64> {
        let first = |lane: &Arc<Lane>| if self.sends { lane.outgoing().first } else { lane.incoming().first };
        self.lanes.iter().filter_map(first).min()
    }

    /// From the first datagram until the one after the last would have been due.
    fn elapsed(&self) -> Duration {
        let end = |lane: &Arc<Lane>| match self.sends {
            true => {
                let out = lane.outgoing();
                end_of(out.first, out.last, out.datagrams)
            }
            false => {
                let incoming = lane.incoming();
                end_of(incoming.first, incoming.last, incoming.account.received())
            }
        };
        let end = self.lanes.iter().map(end).max().unwrap_or(0);
        Duration::from_nanos(end.saturating_sub(self.first().unwrap_or(end)))
    }

    fn next_boundary(&self) -> Duration {
        next_multiple(self.until, self.interval)
    }

    fn close_interval(&mut self, now: Duration) {
        let sends = self.sends;
        let streams: Vec<_> = self
            .lanes
            .iter()
            .zip(&mut self.told)
            .map(|(lane, told)| sample(lane, told, sends, self.host.as_mut()))
            .collect();
        let bytes = streams.iter().map(|sample| sample.bytes).sum();
        let host = self.host.as_mut().and_then(HostWatch::sample);
        self.intervals.push(Interval { start: self.until, end: now, bytes, streams, host, ..Interval::default() });
        self.until = now;
    }

    /// Whether there is anything that no interval has told yet: the last datagrams are known to be lost only now.
    fn is_more(&self) -> bool {
        let more = |(lane, told): (&Arc<Lane>, &Told)| now(lane, told, self.sends) != *told;
        self.lanes.iter().zip(&self.told).any(more)
    }

    fn report(&self, lane: &Lane, ramp: Option<RampReport>) -> StreamReport {
        let figures = match self.sends {
            true => UdpFigures { sent: Some(lane.sent()), ramp, ..UdpFigures::default() },
            false => UdpFigures { received: Some(lane.received()), ..UdpFigures::default() },
        };
        StreamReport {
            stream: lane.stream.stream(),
            thread: self
                .host
                .as_ref()
                .and_then(|host| host.whole_thread(lane.stream.stream(), lane.thread.load(Ordering::Relaxed))),
            bytes: if self.sends { lane.outgoing().bytes } else { lane.incoming().bytes },
            socket: Some(lane.socket.clone()),
            udp: Some(Box::new(figures)),
            ..StreamReport::default()
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What a stream's thread is to do.
struct Job {
    lane: Arc<Lane>,
    throttle: Arc<Throttle>,
    stop: Arc<AtomicBool>,
    tell: Tell<Event>,
    rate: BitRate,
    load: Load,
    left: Arc<AtomicU64>,
}

impl Job {
    fn run(self, sends: bool, steps: Option<Receiver<Step>>) {
        self.lane.thread.store(lfn_sys::process::thread_id(), Ordering::Relaxed);
        let before = tcp::thread_cpu();
        let result = match (sends, steps) {
            (false, _) => receiver::run(&self.lane, &self.throttle, &self.stop),
            (true, None) => self.send(),
            (true, Some(steps)) => self.ramp(&steps),
        };
        let after = tcp::thread_cpu();
        let cpu =
            Cpu { user: after.user.saturating_sub(before.user), system: after.system.saturating_sub(before.system) };
        let _ = self.tell.send(Event::Ended { stream: self.lane.stream.stream(), cpu, result });
    }

    fn send(&self) -> io::Result<()> {
        let until = match self.load {
            Load::TimeSeconds(time) => Until::Time(time),
            _ => Until::Count(&self.left),
        };
        Sender::new(&self.lane, &self.throttle, &self.stop)?.run(self.rate, 0, until).map(|_| ())
    }

    fn ramp(&self, steps: &Receiver<Step>) -> io::Result<()> {
        let mut sender = Sender::new(&self.lane, &self.throttle, &self.stop)?;
        // Ends when there are no more steps to come.
        while let Ok(step) = steps.recv() {
            let sent = sender.run(step.rate, step.number, Until::Time(step.time))?;
            let _ = self.tell.send(Event::Stepped(sent));
        }
        Ok(())
    }
}

/// When a stream of so many datagrams was over: a mean gap after the last. From the first to the last there is a gap
/// fewer than datagrams, and over that time alone few datagrams would make a goodput above the rate they were sent at.
fn end_of(first: Option<u64>, last: u64, datagrams: u64) -> u64 {
    let span = last.saturating_sub(first.unwrap_or(last));
    let gap = span.checked_div(datagrams.saturating_sub(1)).unwrap_or(0);
    last.saturating_add(gap)
}

/// What has been counted of a stream by now.
fn now(lane: &Lane, told: &Told, sends: bool) -> Told {
    match sends {
        true => {
            let out = lane.outgoing();
            Told { bytes: out.bytes, datagrams: out.datagrams, ..Told::default() }
        }
        false => {
            let incoming = lane.incoming();
            let account = &incoming.account;
            Told {
                bytes: incoming.bytes,
                datagrams: account.received(),
                // What came late after all is not taken back from the interval that missed it.
                lost: account.missing().max(told.lost),
                reordered: account.reordered(),
                duplicates: account.duplicates(),
            }
        }
    }
}

fn sample(lane: &Lane, told: &mut Told, sends: bool, host: Option<&mut HostWatch>) -> StreamSample {
    let now = now(lane, told, sends);
    let before = std::mem::replace(told, now);
    let udp = UdpSample {
        datagrams: now.datagrams - before.datagrams,
        lost: now.lost - before.lost,
        reordered: now.reordered - before.reordered,
        duplicates: now.duplicates - before.duplicates,
        jitter: (!sends).then(|| lane.incoming().account.jitter().smoothed()),
    };
    let bytes = now.bytes - before.bytes;
    let stream = lane.stream.stream();
    let thread = host.and_then(|host| host.thread(stream, lane.thread.load(Ordering::Relaxed)));
    StreamSample { stream, bytes, thread, udp: Some(udp), ..StreamSample::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_gaps_are_counted_as_datagrams() {
        // Nine datagrams, one every 100 ms from 50 ms on: 0.9 s of them.
        let ms = 1_000_000;
        assert_eq!(end_of(Some(50 * ms), 850 * ms, 9), 950 * ms);
        assert_eq!(end_of(Some(50 * ms), 50 * ms, 1), 50 * ms);
        assert_eq!(end_of(None, 0, 0), 0);
    }
}
