//! The client's conversation: dials everything at once, runs its end, listens to the far one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use lfn_core::blocks::{Caught, Start};
use lfn_core::path::PathProfile;
use lfn_core::plan::{self, Wishes};
use lfn_core::report::Ended;
use lfn_core::session::SessionId;
use lfn_core::units::Bytes;
use lfn_core::stopping_rule::{self, Until};
use lfn_core::wire::Request;
use lfn_core::wire::test::{
    Bounded, ClientMessage, Direction, EndReport, Interval, Kernel, Load, ServerMessage, SocketWish, Sum,
};
use lfn_core::wire::test::{Ready, TestRequest};

use super::TestError;
use super::clock::{self, Questions};
use super::deadline::{AFTER_STOP, Deadline};
use super::host::HostWatch;
use super::load::{self, Counter, Event, Shared, Stream};
use super::measurement::{Measurement, Progress, Test};
use super::meter::Meter;
use super::options::{self, Options};
use super::pair::Narrow;
use super::probe::Probing;
use crate::server::throttle::Throttle;
use crate::session::dial::{self, Line, Target};
use crate::session::queue::{self, Entered};
use crate::session::{Control, Protection, SessionError, round_trip};

/// How long the client sleeps at most, so that it notices soon that it is to stop.
const LOOK_UP: Duration = Duration::from_millis(100);

/// Runs one test to its end; `watch` is told what happens as it does.
pub fn run(target: &Target, test: &Test, watch: &mut dyn FnMut(Progress<'_>)) -> Result<Measurement, TestError> {
    run_beside(target, test, watch, Narrow::alone())
}

/// The same beside another, with which it ends where both go on until their goodputs are known.
pub(super) fn run_beside(
    target: &Target,
    test: &Test,
    watch: &mut dyn FnMut(Progress<'_>),
    narrow: Narrow,
) -> Result<Measurement, TestError> {
    test.request.check()?;
    if test.request.udp.is_some() {
        return super::udp::run(target, test, watch);
    }
    let kernel = options::kernel();
    let (request, near, dialled, mut control) = match test.path {
        Some(path) if path.base_rtt.is_zero() => {
            let line = Line::connect(target)?;
            let path = PathProfile { base_rtt: line.round_trip(), ..path };
            let (mut request, near) = planned(test, &path);
            request.interval = test.interval(path.base_rtt);
            let dialled = prepare(target, dial::new_session_id()?, &request, &near, &kernel)?;
            let control = line.control(target, dialled.1.session, Request::Test(Box::new(request.clone())))?;
            (request, near, dialled, control)
        }
        known => {
            let (mut request, near) = match known {
                Some(path) => planned(test, &path),
                None => (test.request.clone(), test.near.clone()),
            };
            let mut dialled = prepare(target, dial::new_session_id()?, &request, &near, &kernel)?;
            let line = Line::connect(target)?;
            request.interval = test.interval(line.round_trip());
            dialled.0.set_interval(request.interval);
            let control = line.control(target, dialled.1.session, Request::Test(Box::new(request.clone())))?;
            (request, near, dialled, control)
        }
    };
    let mut dialled = Some(dialled);
    let entered =
        queue::enter(&mut control, &target.patience, target.within, Some(&test.stop), || drop(dialled.take()))?;
    if test.stop.load(Ordering::Relaxed) {
        return Err(TestError::Stopped);
    }
    let (meter, dialler) = match (entered, dialled) {
        (Entered::After(session), _) => prepare(target, session, &request, &near, &kernel)?,
        (Entered::AtOnce, Some(dialled)) => dialled,
        (Entered::AtOnce, None) => return Err(unexpected()),
    };
    let new = Conversation::new(test, target.silence, request, control, meter, watch);
    Conversation { narrow, ..new }.run(target, dialler, kernel)
}

/// What is asked of each end, with the plan's buffers among it.
fn planned(test: &Test, path: &PathProfile) -> (TestRequest, SocketWish) {
    let wishes = Wishes { streams: Some(test.request.streams.into()), ..Wishes::default() };
    // A path no plan can be made for is left to the kernel.
    let buffer = plan::plan(path, &wishes).ok().map(|plan| plan.buffer);
    let most = path.queue.map(|queue| Bytes((path.bdp().0 + queue.0 / 2) / u64::from(test.request.streams)));
    let with = |wish: &SocketWish| SocketWish { planned: buffer, planned_most: most, ..wish.clone() };
    (TestRequest { socket: with(&test.request.socket), ..test.request.clone() }, with(&test.near))
}

/// This end's streams: dialled at once, with no wait for the control connection, unless the server must listen first.
fn prepare(
    target: &Target,
    session: SessionId,
    request: &TestRequest,
    near: &SocketWish,
    kernel: &Kernel,
) -> Result<(Meter, Dialler), TestError> {
    let sends = request.direction == Direction::Forward;
    let options = Arc::new(Options::new(near, sends, kernel)?);
    let shared = Shared::new(request, sends, Instant::now(), Throttle::none(), None);
    let (sender, events) = channel();
    let mut meter = Meter::new(request, sends, shared.clone(), options.clone(), events);
    if let Some(address) = target.first_address() {
        meter.watch_host(HostWatch::towards(address.ip(), None));
    }
    let dialler = Dialler { target: target.clone(), session, sends, shared, options, events: sender };
    // Probes come first, on a path without load.
    if !request.apart() && request.latency.is_none() {
        dialler.dial(request.streams, None)?;
    }
    Ok((meter, dialler))
}

/// The client's end of one running test.
struct Conversation<'a> {
    request: TestRequest,
    control: Control,
    meter: Meter,
    watch: &'a mut dyn FnMut(Progress<'_>),
    rtt: Duration,
    /// When the server was ready.
    ready: Instant,
    deadline: Deadline,
    far_intervals: Vec<Interval>,
    /// When the server's intervals began to count, on its clock.
    far_started: Option<u64>,
    far_sum: Sum,
    questions: Questions,
    probing: Option<Probing>,
    report: Option<EndReport>,
    stop: Arc<AtomicBool>,
    until: Option<Until>,
    /// How it stands with the tests that end together by that.
    narrow: Narrow,
    omit: Option<Duration>,
    /// What the receiver got, for [`Conversation::until`].
    received: Vec<Interval>,
    /// How much of that was looked at.
    looked: usize,
    ended: Ended,
}

impl<'a> Conversation<'a> {
    fn new(
        test: &Test,
        silence: Duration,
        request: TestRequest,
        control: Control,
        mut meter: Meter,
        watch: &'a mut dyn FnMut(Progress<'_>),
    ) -> Self {
        meter.confirm_host(control.socket());
        let (rtt, now) = (round_trip(control.socket()), Instant::now());
        Conversation {
            far_sum: Sum::of(&request),
            deadline: Deadline::new(silence + request.interval, rtt, now),
            request,
            control,
            meter,
            watch,
            rtt,
            ready: now,
            far_intervals: Vec::new(),
            far_started: None,
            questions: Questions::new(),
            probing: None,
            report: None,
            stop: test.stop.clone(),
            until: test.until.map(|wanted| Until::new(wanted, test.omit)),
            narrow: Narrow::alone(),
            omit: test.omit,
            received: Vec::new(),
            looked: 0,
            ended: Ended::Done,
        }
    }

    fn run(mut self, target: &Target, dialler: Dialler, kernel: Kernel) -> Result<Measurement, TestError> {
        let ready = match self.control.recv(target.within, "before the test")? {
            Bounded(ServerMessage::Ready(ready)) => *ready,
            _ => return Err(unexpected()),
        };
        self.ready = Instant::now();
        self.deadline.heard(self.ready);
        (self.watch)(Progress::Connected(self.rtt, &ready.kernel));
        self.meter.limit(ready.rate_limit);
        self.probe(target, dialler.session)?;
        if self.request.apart() {
            dialler.dial(self.request.streams, Some(port(&ready)?))?;
        } else if self.request.latency.is_some() {
            dialler.dial(self.request.streams, None)?;
        }
        drop(dialler);
        if let Load::TimeSeconds(time) = self.request.load {
            // Its streams may take as long as a silence to begin.
            self.deadline.report_within(time.saturating_add(target.silence + self.request.interval), self.ready);
        }
        self.load()?;
        self.deadline.report_within(Duration::ZERO, Instant::now());
        let near = self.finish_near(kernel)?;
        while self.report.is_none() {
            self.listen(self.meter.idle())?;
        }
        let start = self.sender_start();
        let latency = self.probing.take().map(|probing| probing.finish(&near, self.request.interval));
        let Conversation { request, control, meter, rtt, far_intervals, questions, report, ended, omit, .. } = self;
        // The sockets go first, so that the server's end of them is over when it sees the session end.
        drop(meter);
        control.close();
        let mut far = EndReport { intervals: far_intervals, ..report.unwrap_or_default() };
        let clock = questions.alignment();
        clock::lay_side_by_side(&near, &mut far, clock.as_ref());
        let mut measurement = Measurement { clock, latency, ended, ..Measurement::new(request, rtt, near, far) };
        let streams = measurement.receiver().streams.iter().filter_map(|stream| stream.blocks.as_ref());
        measurement.blocks = Caught::of(streams, start);
        measurement.estimate = stopping_rule::estimate(&measurement.receiver().intervals, omit);
        check_complete(&measurement)?;
        Ok(measurement)
    }

    /// When the sender started, on the clock the receiver's blocks are told by. A way is taken to be half the round trip.
    fn sender_start(&self) -> Start {
        if self.request.direction == Direction::Forward {
            // The server's clock starts as the first hello arrives, behind which the data follows at once.
            return Start::Before(self.rtt / 2);
        }
        // The server starts once it has said that it is ready and its first stream has come.
        let origin = self.meter.origin();
        let said = self.ready.checked_sub(self.rtt / 2).unwrap_or(origin);
        let came = self.meter.opened().unwrap_or(origin) + self.rtt / 2;
        Start::After(said.max(came).saturating_duration_since(origin))
    }

    /// Probes the path before the load, if that was asked for; the server then waits for the word that it is over.
    fn probe(&mut self, target: &Target, session: SessionId) -> Result<(), TestError> {
        let Some(latency) = self.request.latency else { return Ok(()) };
        let mut probing = Probing::begin(latency, target, &mut self.control, session, self.rtt)?;
        self.control.send(&ClientMessage::Opened)?;
        probing.load_begins();
        self.probing = Some(probing);
        Ok(())
    }

    /// How long the server has had for its intervals; it may have begun before its first word was here.
    fn since(&self) -> Duration {
        self.ready.elapsed() + 2 * self.rtt
    }

    /// Until this end has nothing more to do.
    fn load(&mut self) -> Result<(), TestError> {
        let sends = self.request.direction == Direction::Forward;
        let timed = matches!(self.request.load, Load::TimeSeconds(_));
        loop {
            self.questions.ask(&mut self.control)?;
            if let Some(probing) = &mut self.probing {
                probing.ask(&mut self.control)?;
            }
            if let Err(error) = self.meter.collect() {
                return Err(reason(&mut self.control, self.rtt, error));
            }
            if let Some(interval) = self.meter.tick() {
                if !sends && self.until.is_some() {
                    self.received.push(bare(interval));
                }
                (self.watch)(Progress::Near(interval));
            }
            if self.is_enough() {
                return self.end_early();
            }
            let over = match (timed, sends) {
                (true, _) => self.meter.time_over(),
                // Sent is not arrived: only the receiver knows.
                (false, true) => self.meter.all_ended() && self.report.is_some(),
                (false, false) => self.meter.all_ended(),
            };
            if over {
                return Ok(());
            }
            let probes = self.probing.as_ref().map_or(Duration::MAX, Probing::idle);
            self.listen(self.meter.idle().min(self.questions.idle()).min(probes).min(LOOK_UP))?;
        }
    }

    /// Ends the load here, and tells the server; whoever interrupted it does not wait long.
    fn end_early(&mut self) -> Result<(), TestError> {
        self.meter.end_now();
        if self.ended == Ended::Interrupted {
            self.deadline.stopped(Instant::now());
            self.control.waits_for_room(AFTER_STOP);
        }
        Ok(self.control.send(&ClientMessage::Stop)?)
    }

    /// Whether the load is to end before it is done.
    fn is_enough(&mut self) -> bool {
        if self.stop.load(Ordering::Relaxed) {
            self.ended = Ended::Interrupted;
        } else if self.is_narrow() {
            self.ended = Ended::Narrow;
        }
        self.ended != Ended::Done
    }

    /// Looks once at what has come since the last look; whether all tests that end together know enough.
    fn is_narrow(&mut self) -> bool {
        let Some(until) = &mut self.until else { return false };
        if std::mem::replace(&mut self.looked, self.received.len()) != self.received.len() {
            self.narrow.tell(until.enough(&self.received));
        }
        self.narrow.all()
    }

    fn finish_near(&mut self, kernel: Kernel) -> Result<EndReport, TestError> {
        let near = self.meter.finish(kernel)?;
        if let Some(interval) = near.intervals.get(self.meter.ticked()) {
            (self.watch)(Progress::Near(interval));
        }
        let counted = !matches!(self.request.load, Load::TimeSeconds(_));
        if counted && self.ended == Ended::Done && self.request.direction == Direction::Reverse {
            self.control.send(&ClientMessage::Received)?;
        }
        Ok(near)
    }

    /// Takes the server's next message, if one comes in time.
    fn listen(&mut self, within: Duration) -> Result<(), TestError> {
        match self.control.poll(within, "during the test")?.map(|Bounded(message)| message) {
            Some(ServerMessage::Started { at_nanos }) => {
                self.deadline.heard(Instant::now());
                self.far_started = Some(at_nanos);
            }
            Some(ServerMessage::Interval(mut interval)) => {
                self.deadline.heard(Instant::now());
                self.place(&mut interval);
                self.far_sum.add(&interval, self.since())?;
                (self.watch)(Progress::Far(&interval));
                if self.request.direction == Direction::Forward && self.until.is_some() {
                    self.received.push(bare(&interval));
                }
                self.far_intervals.push(*interval);
            }
            Some(ServerMessage::Report(mut report)) => {
                self.deadline.heard(Instant::now());
                self.far_started = report.started;
                report.intervals.iter_mut().for_each(|interval| self.place(interval));
                let since = self.since();
                report.intervals.iter().try_for_each(|rest| self.far_sum.add(rest, since))?;
                if let Some(rest) = report.intervals.last() {
                    (self.watch)(Progress::Far(rest));
                }
                self.far_intervals.extend(report.intervals.iter().cloned());
                self.report = Some(*report);
            }
            // A sign of life, but no word of the test: a server that only answers has lost it.
            Some(ServerMessage::Pong { number, received_nanos, sent_nanos }) => {
                self.questions.hear(number, received_nanos, sent_nanos);
                if let Some(probing) = &mut self.probing {
                    probing.hear(number, received_nanos, sent_nanos);
                }
            }
            Some(
                ServerMessage::Ready(_)
                | ServerMessage::Step(_)
                | ServerMessage::StepSent { .. }
                | ServerMessage::StepBegun(_),
            ) => return Err(unexpected()),
            None => {}
        }
        if self.report.is_none() {
            self.deadline.check(Instant::now())?;
        }
        Ok(())
    }

    /// Lays one of the server's intervals beside this end's, by what the clocks' questions have shown so far.
    fn place(&self, interval: &mut Interval) {
        clock::place(interval, self.meter.started(), self.far_started, self.questions.alignment().as_ref());
    }
}

/// Opens the data streams, each from its own thread, which then moves the data.
struct Dialler {
    target: Target,
    session: SessionId,
    sends: bool,
    shared: Arc<Shared>,
    options: Arc<Options>,
    events: Sender<Event>,
}

impl Dialler {
    fn dial(&self, streams: u16, port: Option<u16>) -> Result<(), TestError> {
        for number in 0..streams {
            let (target, session, sends) = (self.target.clone(), self.session, self.sends);
            let (shared, options, events) = (self.shared.clone(), self.options.clone(), self.events.clone());
            let work = move || {
                let opened = dial::data(&target, session, number, Protection::Clear, port, |socket| {
                    options.apply(socket, number)
                })
                .and_then(|data| {
                    let failed = |source| SessionError::Io { peer: "the server", source };
                    let socket = data.socket().try_clone().map_err(failed)?;
                    let granted = options.report(&socket, number).map_err(failed)?;
                    let (counter, opened) = (Arc::new(Counter::default()), data.opened());
                    Ok((data, Stream { number, socket, counter, opened, granted }))
                });
                match opened {
                    Ok((data, stream)) => {
                        let counter = stream.counter.clone();
                        // Nobody listens any more after a failure elsewhere.
                        let _ = events.send(Event::Opened(Box::new(stream)));
                        load::run(data, sends, &shared, &counter, &events);
                    }
                    Err(error) => drop(events.send(Event::Failed(Box::new(error)))),
                }
            };
            thread::Builder::new()
                .name(format!("stream {number}"))
                .spawn(work)
                .map_err(|source| TestError::Stream { stream: number, source })?;
        }
        Ok(())
    }
}

/// Why a stream failed: best what the server has to say of it, if it comes soon.
pub(super) fn reason(control: &mut Control, rtt: Duration, error: TestError) -> TestError {
    let deadline = Instant::now() + Duration::from_secs(1) + 2 * rtt;
    while Instant::now() < deadline {
        let left = deadline.saturating_duration_since(Instant::now());
        if let Err(said) = control.poll::<ServerMessage>(left, "during the test") {
            return said.into();
        }
    }
    error
}

/// What of an interval says how well the goodput is known.
fn bare(interval: &Interval) -> Interval {
    let Interval { start, end, bytes, ref parts, .. } = *interval;
    Interval { start, end, bytes, parts: parts.clone(), ..Interval::default() }
}

fn port(ready: &Ready) -> Result<u16, TestError> {
    ready.port.filter(|&port| port != 0).ok_or_else(unexpected)
}

pub(super) fn unexpected() -> TestError {
    let source = std::io::Error::new(std::io::ErrorKind::InvalidData, "a message that makes no sense here");
    SessionError::Io { peer: "the server", source }.into()
}

/// A counted test moves what was asked, every byte.
fn check_complete(measurement: &Measurement) -> Result<(), TestError> {
    if measurement.ended != Ended::Done {
        return Ok(());
    }
    let request = &measurement.request;
    let Some(sent) = request.load.bytes(request.record) else { return Ok(()) };
    let received = measurement.receiver().bytes;
    if sent == received { Ok(()) } else { Err(TestError::Incomplete { sent, received }) }
}
