//! The server's conversation of a test of datagrams.

use std::time::{Duration, Instant};

use lfn_core::units::BitRate;
use lfn_core::wire::test::{Bounded, ClientMessage, Direction, Ready, ServerMessage, TestRequest};

use super::end::End;
use super::steps::{Awaited, Climb, Turns};
use crate::server::{Datagrams, ServerSession};
use crate::session::round_trip;
use crate::session::{DatagramStream, SessionError};
use crate::tester::clock::Answers;
use crate::tester::probe::Echo;
use crate::tester::server::{is_silent, too_long, until_closed};
use crate::tester::{TestError, options};

/// How long the client may take to open its streams.
const STREAMS_WITHIN: Duration = Duration::from_secs(20);
/// How long a stream whose hello was answered may be on its way to its session.
const HANDED_OVER_WITHIN: Duration = Duration::from_secs(2);

/// Serves one test of datagrams.
pub(in crate::tester) fn serve(session: &mut ServerSession, request: &TestRequest) -> Result<(), TestError> {
    let sends = request.direction == Direction::Reverse;
    let datagrams = session.expect_datagrams(0..request.streams);
    let _echo = Echo::of(session, request)?;
    let limit = session.allowed().rate;
    let ready = Ready { port: None, kernel: options::kernel(), rate_limit: session.rate_limit() };
    session.control.send(&ServerMessage::Ready(Box::new(ready)))?;
    let streams = opened(session, &datagrams, request.streams)?;
    let end = End::start(streams, request, &request.socket, sends, &session.throttle(), share(limit, request.streams))?;
    let rtt = round_trip(session.control.socket());
    let answers = Answers::new();
    let turns = Turns::of(request, end.datagram(), session.limits().silence);
    let mut far = Far {
        session,
        request,
        sends,
        end,
        rtt,
        climb: None,
        turns,
        awaited: None,
        sent: None,
        halted: false,
        answers,
    };
    far.begin();
    far.load()?;
    far.finish()
}

/// What one stream gets of the session's limit.
pub(super) fn share(limit: Option<BitRate>, streams: u16) -> Option<BitRate> {
    limit.map(|limit| BitRate(limit.0 / u64::from(streams.max(1))))
}

/// The client's streams, once it has them all: it may take its time for probes first.
fn opened(session: &mut ServerSession, datagrams: &Datagrams, count: u16) -> Result<Vec<DatagramStream>, TestError> {
    let within = STREAMS_WITHIN.min(session.limits().silence);
    let deadline = Instant::now() + within;
    let (mut streams, mut answers) = (Vec::new(), Answers::new());
    while Instant::now() < deadline {
        streams.extend(datagrams.next(Duration::ZERO));
        streams.iter().for_each(DatagramStream::answer_again);
        match session.control.poll(Duration::from_millis(20), "before the test")? {
            Some(ClientMessage::Opened) => {
                // The answer to a hello may be faster to the client and back than the stream is to this thread.
                let handed_over = std::iter::from_fn(|| datagrams.next(HANDED_OVER_WITHIN));
                streams.extend(handed_over.take(usize::from(count) - streams.len().min(count.into())));
                streams.sort_by_key(DatagramStream::stream);
                if streams.len() == usize::from(count) {
                    return Ok(streams);
                }
                return Err(TestError::Streams { opened: streams.len(), asked: count });
            }
            Some(ClientMessage::Ping { number }) => answers.answer(&mut session.control, number)?,
            _ => {}
        }
    }
    let (peer, while_doing) = ("the client", "to open its streams of datagrams");
    Err(SessionError::Timeout { peer, after: within, while_doing }.into())
}

struct Far<'a> {
    session: &'a mut ServerSession,
    request: &'a TestRequest,
    sends: bool,
    end: End,
    rtt: Duration,
    climb: Option<Climb>,
    turns: Turns,
    awaited: Option<Awaited>,
    /// How much the client sent on each stream, and when it said so.
    sent: Option<(Vec<u64>, Instant)>,
    /// The client wants no more to be sent.
    halted: bool,
    answers: Answers,
}

impl Far<'_> {
    fn begin(&mut self) {
        let ramp = self.request.udp.as_ref().and_then(|udp| udp.ramp).filter(|_| self.sends);
        let datagram = self.end.datagram();
        self.climb = ramp.map(|ramp| Climb::begin(ramp, datagram, &mut self.end));
    }

    /// Until all was sent, or all that will come has come.
    fn load(&mut self) -> Result<(), TestError> {
        let limits = self.session.limits();
        let most = self.request.time().map_or(limits.test_time, |time| time.min(limits.test_time));
        let begun = Instant::now();
        let mut heard = begun;
        while !self.is_over() {
            self.session.check()?;
            self.end.collect()?;
            if let Some(interval) = self.end.tell() {
                self.session.control.send(&ServerMessage::Interval(Box::new(interval)))?;
            }
            self.tell()?;
            if begun.elapsed() > most + limits.silence {
                return Err(SessionError::Refused(too_long("the test takes too long", &limits)).into());
            }
            if let Some(Bounded(message)) = self.session.control.poll(self.end.idle(), "during the test")? {
                heard = Instant::now();
                self.hear(message)?;
            }
            is_silent(heard, &limits)?;
            self.turns.check("the client")?;
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        match (&self.climb, &self.sent) {
            // Its thread waits for the next step, and would not end by itself.
            (Some(climb), _) => climb.is_over() || self.halted,
            (None, _) if self.sends => self.end.all_ended(),
            (None, Some((sent, since))) => self.end.settled(sent, *since, self.rtt),
            (None, None) => false,
        }
    }

    fn tell(&mut self) -> Result<(), TestError> {
        if let Some(ramp) = self.climb.as_mut().and_then(Climb::just_begun) {
            self.session.control.send(&ServerMessage::StepBegun(Box::new(ramp)))?;
        }
        if let Some((step, datagrams)) = self.climb.as_mut().and_then(|climb| climb.just_sent(&mut self.end)) {
            self.turns.taken();
            self.session.control.send(&ServerMessage::StepSent { step, datagrams })?;
        }
        if let Some(seen) = self.awaited.as_ref().and_then(|awaited| awaited.seen(&self.end, self.rtt)) {
            self.awaited = None;
            self.turns.taken();
            self.session.control.send(&ServerMessage::Step(seen))?;
        }
        Ok(())
    }

    fn hear(&mut self, message: ClientMessage) -> Result<(), TestError> {
        match message {
            ClientMessage::Ping { number } => self.answers.answer(&mut self.session.control, number)?,
            ClientMessage::Stop => {
                self.halted = self.sends;
                self.end.halt();
            }
            ClientMessage::Sent { datagrams } => self.sent = Some((datagrams, Instant::now())),
            ClientMessage::StepSent { step, datagrams } => {
                self.turns.taken();
                self.awaited = Some(Awaited::new(step, datagrams));
            }
            ClientMessage::Step(seen) => {
                self.turns.taken();
                // A step that was cut off says nothing of its rate.
                if let Some(climb) = self.climb.as_mut().filter(|_| !self.halted) {
                    climb.hear(&seen, &mut self.end);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Tells the figures, and waits for the client to end the session.
    fn finish(mut self) -> Result<(), TestError> {
        let ramp = self.climb.as_ref().map(Climb::report);
        let sent = self.sent.as_ref().map(|(sent, _)| sent.as_slice());
        let mut report = self.end.finish(sent, ramp, options::kernel())?;
        report.rate_limit = self.session.rate_limit();
        self.session.control.send(&ServerMessage::Report(Box::new(report)))?;
        until_closed(self.session)
    }
}
