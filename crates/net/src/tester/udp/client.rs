//! The client's conversation of a test of datagrams.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lfn_core::report::Ended;
use lfn_core::session::SessionId;
use lfn_core::udp::datagram;
use lfn_core::udp::ramp::MOST_STEPS;
use lfn_core::units::{BitRate, Bytes};
use lfn_core::wire::Request;
use lfn_core::wire::test::{
    Bounded, ClientMessage, Direction, EndReport, Interval, Load, ServerMessage, Sum, TestRequest,
};

use super::end::End;
use super::server::share;
use super::steps::{Awaited, Climb, Turns};
use crate::server::throttle::Throttle;
use crate::session::dial::{self, Line, Target};
use crate::session::queue::{self, Entered};
use crate::session::{Control, DatagramStream, SessionError};
use crate::tester::client::{reason, unexpected};
use crate::tester::clock::{self, Questions};
use crate::tester::deadline::{AFTER_STOP, Deadline};
use crate::tester::probe::Probing;
use crate::tester::{Measurement, Progress, Test, TestError, options};

/// How long the client sleeps at most, so that it notices soon that it is to stop.
const LOOK_UP: Duration = Duration::from_millis(100);

/// How long the streams may take to open, beside a few round trips.
const OPEN_WITHIN: Duration = Duration::from_secs(5);

/// Runs one test of datagrams to its end.
pub(in crate::tester) fn run(
    target: &Target,
    test: &Test,
    watch: &mut dyn FnMut(Progress<'_>),
) -> Result<Measurement, TestError> {
    let line = Line::connect(target)?;
    let rtt = line.round_trip();
    let request = TestRequest { interval: test.interval(rtt), ..test.request.clone() };
    let mut session = dial::new_session_id()?;
    let mut control = line.control(target, session, Request::Test(Box::new(request.clone())))?;
    if let Entered::After(other) = queue::enter(&mut control, &target.patience, target.within, Some(&test.stop), || {})?
    {
        session = other;
    }
    if test.stop.load(Ordering::Relaxed) {
        return Err(TestError::Stopped);
    }
    let ready = match control.recv(target.within, "before the test")? {
        Bounded(ServerMessage::Ready(ready)) => *ready,
        _ => return Err(unexpected()),
    };
    watch(Progress::Connected(rtt, &ready.kernel));
    let mut probing = match request.latency {
        Some(latency) => Some(Probing::begin(latency, target, &mut control, session, rtt)?),
        None => None,
    };
    let streams = open(target, &control, session, request.streams, OPEN_WITHIN + 4 * rtt)?;
    let sends = request.direction == Direction::Forward;
    let mut end =
        End::start(streams, &request, &test.near, sends, &Throttle::none(), share(ready.rate_limit, request.streams))?;
    control.send(&ClientMessage::Opened)?;
    if let Some(probing) = &mut probing {
        probing.load_begins();
    }
    let ramp = request.udp.as_ref().and_then(|udp| udp.ramp).filter(|_| sends);
    let climb = ramp.map(|ramp| Climb::begin(ramp, end.datagram(), &mut end));
    let limit = share(ready.rate_limit, request.streams);
    let silence = target.silence + request.interval + longest_quiet(&request, limit);
    let time = match request.load {
        Load::TimeSeconds(time) if request.udp.as_ref().is_some_and(|udp| udp.ramp.is_none()) => Some(time),
        _ => None,
    };
    let turns = Turns::of(&request, end.datagram(), target.silence);
    let mut conversation = Conversation {
        far_sum: Sum::of(&request),
        begun: Instant::now(),
        deadline: Deadline::new(silence, rtt, Instant::now()),
        request,
        control,
        end,
        climb,
        probing,
        rtt,
        watch,
        turns,
        awaited: None,
        far_steps: 0,
        said: false,
        far_intervals: Vec::new(),
        questions: Questions::new(),
        report: None,
        stop: test.stop.clone(),
        ended: Ended::Done,
    };
    if let Some(time) = time {
        conversation.deadline.report_within(time, Instant::now());
    }
    conversation.run()
}

/// How long a server may have nothing to tell where no datagram arrives: as long as they are sent.
fn longest_quiet(request: &TestRequest, limit: Option<BitRate>) -> Duration {
    let udp = request.udp.as_deref().copied().unwrap_or_default();
    let datagram = udp.datagram_bytes.unwrap_or(datagram::LONGEST as u32).into();
    let rate = limit.map_or(udp.rate, |limit| limit.min(udp.rate)).as_f64().max(1.0);
    match (udp.ramp, request.load) {
        (Some(ramp), _) => ramp.step.max(Climb::least(datagram, ramp.from)),
        (None, Load::TimeSeconds(time)) => time,
        (None, load) => {
            let bytes = load.bytes(Bytes(datagram)).unwrap_or(0) as f64;
            Duration::try_from_secs_f64(bytes * 8.0 / rate).unwrap_or(Duration::from_secs(u32::MAX.into()))
        }
    }
}

/// All at the same time: each takes a round trip.
fn open(
    target: &Target,
    control: &Control,
    session: SessionId,
    count: u16,
    within: Duration,
) -> Result<Vec<DatagramStream>, SessionError> {
    let control = control.socket();
    thread::scope(|scope| {
        let opening: Vec<_> = (0..count)
            .map(|number| scope.spawn(move || dial::datagrams(target, control, session, number, within)))
            .collect();
        let lost = || SessionError::Io { peer: "the kernel", source: std::io::Error::other("a thread that ended") };
        opening.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(lost()))).collect()
    })
}

struct Conversation<'a> {
    request: TestRequest,
    control: Control,
    end: End,
    climb: Option<Climb>,
    probing: Option<Probing>,
    rtt: Duration,
    watch: &'a mut dyn FnMut(Progress<'_>),
    turns: Turns,
    /// A step of the server's ramp.
    awaited: Option<Awaited>,
    /// How many steps of its ramp the server has begun.
    far_steps: usize,
    /// The server knows how much was sent.
    said: bool,
    deadline: Deadline,
    begun: Instant,
    far_intervals: Vec<Interval>,
    far_sum: Sum,
    questions: Questions,
    report: Option<EndReport>,
    stop: Arc<AtomicBool>,
    ended: Ended,
}

impl Conversation<'_> {
    fn run(mut self) -> Result<Measurement, TestError> {
        let sends = self.request.direction == Direction::Forward;
        while self.report.is_none() {
            if let Err(error) = self.end.collect() {
                return Err(reason(&mut self.control, self.rtt, error));
            }
            if let Some(interval) = self.end.tick() {
                (self.watch)(Progress::Near(interval));
            }
            self.look_up()?;
            self.tell(sends)?;
            self.listen()?;
        }
        let far = self.report.take().unwrap_or_default();
        let near = self.finish(sends, &far)?;
        let latency = self.probing.take().map(|probing| probing.finish(&near, self.request.interval));
        let Conversation { request, control, end, rtt, far_intervals, questions, ended, .. } = self;
        drop(end);
        control.close();
        let mut far = EndReport { intervals: far_intervals, ..far };
        let clock = questions.alignment();
        clock::lay_side_by_side(&near, &mut far, clock.as_ref());
        Ok(Measurement { clock, latency, ended, ..Measurement::new(request, rtt, near, far) })
    }

    /// How long the server has had for its intervals; it may have begun before its first word was here.
    fn since(&self) -> Duration {
        self.begun.elapsed() + 2 * self.rtt
    }

    /// Ends the sending at whichever end it is done, once that is wanted; what is on its way still counts.
    fn look_up(&mut self) -> Result<(), TestError> {
        if self.ended == Ended::Done && self.stop.load(Ordering::Relaxed) {
            self.ended = Ended::Interrupted;
            self.end.halt();
            self.deadline.stopped(Instant::now());
            self.control.waits_for_room(AFTER_STOP);
            self.control.send(&ClientMessage::Stop)?;
        }
        Ok(())
    }

    /// Says what the server has to know by now, and whoever watches.
    fn tell(&mut self, sends: bool) -> Result<(), TestError> {
        if let Some(ramp) = self.climb.as_mut().and_then(Climb::just_begun) {
            (self.watch)(Progress::Step(&ramp));
        }
        self.questions.ask(&mut self.control)?;
        if let Some(probing) = &mut self.probing {
            probing.ask(&mut self.control)?;
        }
        if let Some((step, datagrams)) = self.climb.as_mut().and_then(|climb| climb.just_sent(&mut self.end)) {
            self.turns.taken();
            self.control.send(&ClientMessage::StepSent { step, datagrams })?;
        }
        // A ramp's thread waits for its next step, and would not end by itself.
        let halted = self.ended == Ended::Interrupted;
        let over = self.climb.as_ref().map_or_else(|| self.end.all_ended(), |climb| climb.is_over() || halted);
        if sends && over && !self.said {
            self.said = true;
            self.deadline.report_within(Duration::ZERO, Instant::now());
            self.control.send(&ClientMessage::Sent { datagrams: self.end.sent() })?;
        }
        if let Some(seen) = self.awaited.as_ref().and_then(|awaited| awaited.seen(&self.end, self.rtt)) {
            self.awaited = None;
            self.turns.taken();
            self.control.send(&ClientMessage::Step(seen))?;
        }
        Ok(())
    }

    /// Takes the server's next message, if one comes in time.
    fn listen(&mut self) -> Result<(), TestError> {
        let probes = self.probing.as_ref().map_or(Duration::MAX, Probing::idle);
        let within = self.end.idle().min(self.questions.idle()).min(probes).min(LOOK_UP);
        let message = self.control.poll(within, "during the test")?;
        self.deadline.check(Instant::now())?;
        if !self.deadline.is_set() {
            self.turns.check("the server")?;
        }
        let Some(Bounded(message)) = message else { return Ok(()) };
        // An answer to a question is a sign of life, but no word of the test.
        if !matches!(message, ServerMessage::Pong { .. }) {
            self.deadline.heard(Instant::now());
        }
        match message {
            ServerMessage::Interval(interval) => {
                self.far_sum.add(&interval, self.since())?;
                (self.watch)(Progress::Far(&interval));
                self.far_intervals.push(*interval);
            }
            ServerMessage::Report(report) => {
                let since = self.since();
                report.intervals.iter().try_for_each(|rest| self.far_sum.add(rest, since))?;
                report.intervals.iter().for_each(|interval| (self.watch)(Progress::Far(interval)));
                self.far_intervals.extend(report.intervals.iter().cloned());
                self.report = Some(*report);
            }
            ServerMessage::Pong { number, received_nanos, sent_nanos } => {
                self.questions.hear(number, received_nanos, sent_nanos);
                if let Some(probing) = &mut self.probing {
                    probing.hear(number, received_nanos, sent_nanos);
                }
            }
            ServerMessage::StepSent { step, datagrams } => {
                self.turns.taken();
                self.awaited = Some(Awaited::new(step, datagrams));
            }
            // Each step once: a server that tells of others would fill whatever they are kept in.
            ServerMessage::StepBegun(ramp) if ramp.steps.len() == self.far_steps && self.far_steps < MOST_STEPS => {
                self.far_steps += 1;
                (self.watch)(Progress::Step(&ramp));
            }
            ServerMessage::Step(seen) => {
                self.turns.taken();
                // A step that was cut off says nothing of its rate.
                if let Some(climb) = self.climb.as_mut().filter(|_| self.ended == Ended::Done) {
                    climb.hear(&seen, &mut self.end);
                }
            }
            _ => return Err(unexpected()),
        }
        Ok(())
    }

    /// The figures of this end, once what is still on its way has come.
    fn finish(&mut self, sends: bool, far: &EndReport) -> Result<EndReport, TestError> {
        let sent: Vec<u64> =
            far.streams.iter().filter_map(|s| s.udp.as_ref()?.sent.as_ref()).map(|s| s.datagrams).collect();
        let since = Instant::now();
        while !sends && !self.end.settled(&sent, since, self.rtt) {
            thread::sleep(Duration::from_millis(2));
        }
        let ramp = self.climb.as_ref().map(Climb::report);
        let near = self.end.finish((!sends).then_some(&sent), ramp, options::kernel())?;
        near.intervals.iter().skip(self.end.ticked()).for_each(|interval| (self.watch)(Progress::Near(interval)));
        Ok(near)
    }
}
