//! Server end of a test with datagrams.

use std::time::{Duration, Instant};

use lfn_base::units::BitRate;
use lfn_results::measure::{Bounded, ClientMessage, Ready, ServerMessage, TestDirection, TestRequest};
use lfn_session::server::{DatagramStreams, ServerSession};
use lfn_session::{DatagramStream, SessionError};

use super::end::UdpEnd;
use super::ramp_steps::{PendingStep, RampSender, StepTimeout};
use crate::tester::clock::ClockReplies;
use crate::tester::probe::ProbeEcho;
use crate::tester::server_end::{check_silence, too_long_refusal, wait_for_close};
use crate::tester::{TestError, options};

/// Maximum time in which the client must open its streams.
const STREAMS_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum time between the answer to a stream's hello and the stream's arrival at the session's thread.
const HANDOVER_TIMEOUT: Duration = Duration::from_secs(2);

/// Serves one test with datagrams. Not inlined, so that the stack of a test of TCP has no room for its state.
#[inline(never)]
pub(in crate::tester) fn serve(session: &mut ServerSession, request: &TestRequest) -> Result<(), TestError> {
    let sends = request.direction == TestDirection::Reverse;
    let datagrams = session.expect_datagrams(0..request.streams);
    let _echo = ProbeEcho::of(session, request)?;
    let limit = session.allowed().rate;
    let ready = Ready { port: None, kernel: options::read_kernel(), rate_limit: session.rate_limit(), lockstep: false };
    session.control.send(&ServerMessage::Ready(Box::new(ready)))?;
    let streams = receive_streams(session, &datagrams, request.streams)?;
    let end = UdpEnd::start(
        streams,
        request,
        &request.socket,
        sends,
        &session.rate_limiter(),
        rate_share(limit, request.streams),
    )?;
    let rtt = session.control.handle().min_rtt();
    let clock_replies = ClockReplies::new();
    let step_timeout = StepTimeout::of(request, end.datagram(), session.limits().silence_timeout);
    let mut server = UdpTestServer {
        session,
        request,
        sends,
        end,
        rtt,
        ramp_sender: None,
        step_timeout,
        pending_step: None,
        sent: None,
        is_halted: false,
        clock_replies,
    };
    server.start_ramp();
    server.run()?;
    server.finish()
}

/// Returns one stream's share of the session's rate limit.
pub(super) fn rate_share(limit: Option<BitRate>, streams: u16) -> Option<BitRate> {
    limit.map(|limit| BitRate(limit.0 / u64::from(streams.max(1))))
}

/// Returns the client's streams when all are open. The client may run latency probes first.
fn receive_streams(
    session: &mut ServerSession,
    datagrams: &DatagramStreams,
    count: u16,
) -> Result<Vec<DatagramStream>, TestError> {
    let timeout = STREAMS_TIMEOUT.min(session.limits().silence_timeout);
    let deadline = Instant::now() + timeout;
    let (mut streams, mut clock_replies) = (Vec::new(), ClockReplies::new());
    while Instant::now() < deadline {
        streams.extend(datagrams.next(Duration::ZERO));
        streams.iter().for_each(DatagramStream::answer_repeated_hellos);
        match session.control.poll(Duration::from_millis(20), "before the test")? {
            Some(ClientMessage::Opened) => {
                // The answer to a hello may reach the client, and the client's message this end, before the stream
                // reaches this thread.
                let handed_over = std::iter::from_fn(|| datagrams.next(HANDOVER_TIMEOUT));
                streams.extend(handed_over.take(usize::from(count) - streams.len().min(count.into())));
                streams.sort_by_key(DatagramStream::stream);
                if streams.len() == usize::from(count) {
                    return Ok(streams);
                }
                return Err(TestError::MissingStreams { opened: streams.len(), requested: count });
            }
            Some(ClientMessage::Ping { number }) => clock_replies.reply(&mut session.control, number)?,
            _ => {}
        }
    }
    let (peer, while_doing) = ("the client", "while it opened its datagram streams");
    Err(SessionError::Timeout { peer, after: timeout, while_doing }.into())
}

struct UdpTestServer<'a> {
    session: &'a mut ServerSession,
    request: &'a TestRequest,
    sends: bool,
    end: UdpEnd,
    rtt: Duration,
    ramp_sender: Option<RampSender>,
    step_timeout: StepTimeout,
    pending_step: Option<PendingStep>,
    /// Number of datagrams that the client sent on each stream, and the time of that message.
    sent: Option<(Vec<u64>, Instant)>,
    /// The client has requested the end of sending.
    is_halted: bool,
    clock_replies: ClockReplies,
}

impl UdpTestServer<'_> {
    fn start_ramp(&mut self) {
        let ramp = self.request.udp.as_ref().and_then(|udp| udp.ramp.clone()).filter(|_| self.sends);
        let datagram = self.end.datagram();
        self.ramp_sender = ramp.map(|ramp| RampSender::begin(ramp, datagram, &mut self.end));
    }

    /// Runs until everything is sent, or until all datagrams have arrived that will arrive.
    fn run(&mut self) -> Result<(), TestError> {
        let limits = self.session.limits();
        let max_time = self.request.time().map_or(limits.max_test_time, |time| time.min(limits.max_test_time));
        let started_at = Instant::now();
        let mut last_message_at = started_at;
        while !self.is_over() {
            self.session.check()?;
            self.end.collect()?;
            if let Some(interval) = self.end.take_interval() {
                self.session.control.send(&ServerMessage::Interval(Box::new(interval)))?;
            }
            self.send_due()?;
            if started_at.elapsed() > max_time + limits.silence_timeout {
                return Err(SessionError::Refused(too_long_refusal("the test takes too long", &limits)).into());
            }
            if let Some(Bounded(message)) =
                self.session.control.poll(self.end.time_to_next_event(), "during the test")?
            {
                last_message_at = Instant::now();
                self.handle_message(message)?;
            }
            check_silence(last_message_at, &limits)?;
            self.step_timeout.check("the client")?;
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        match (&self.ramp_sender, &self.sent) {
            // The thread of a ramp waits for its next step and does not end by itself.
            (Some(ramp_sender), _) => ramp_sender.is_over() || self.is_halted,
            (None, _) if self.sends => self.end.have_all_ended(),
            (None, Some((sent, since))) => self.end.has_settled(sent, *since, self.rtt),
            (None, None) => false,
        }
    }

    fn send_due(&mut self) -> Result<(), TestError> {
        if let Some(ramp) = self.ramp_sender.as_mut().and_then(RampSender::take_started) {
            self.session.control.send(&ServerMessage::StepBegun(Box::new(ramp)))?;
        }
        if let Some((step, datagrams)) =
            self.ramp_sender.as_mut().and_then(|ramp_sender| ramp_sender.take_sent(&mut self.end))
        {
            self.step_timeout.step_progress();
            self.session.control.send(&ServerMessage::StepSent { step, datagrams })?;
        }
        if let Some(result) =
            self.pending_step.as_ref().and_then(|pending_step| pending_step.result(&self.end, self.rtt))
        {
            self.pending_step = None;
            self.step_timeout.step_progress();
            self.session.control.send(&ServerMessage::Step(result))?;
        }
        Ok(())
    }

    fn handle_message(&mut self, message: ClientMessage) -> Result<(), TestError> {
        match message {
            ClientMessage::Ping { number } => self.clock_replies.reply(&mut self.session.control, number)?,
            ClientMessage::Stop => {
                self.is_halted = self.sends;
                self.end.stop_sending();
            }
            ClientMessage::Sent { datagrams } => self.sent = Some((datagrams, Instant::now())),
            ClientMessage::StepSent { step, datagrams } => {
                self.step_timeout.step_progress();
                self.pending_step = Some(PendingStep::new(step, datagrams));
            }
            ClientMessage::Step(result) => {
                self.step_timeout.step_progress();
                // An interrupted step has no valid result for its rate.
                if let Some(ramp_sender) = self.ramp_sender.as_mut().filter(|_| !self.is_halted) {
                    ramp_sender.judge_step(&result, &mut self.end);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Sends the report, and waits for the client to close the session.
    fn finish(mut self) -> Result<(), TestError> {
        let ramp = self.ramp_sender.as_ref().map(RampSender::report);
        let sent = self.sent.as_ref().map(|(sent, _)| sent.as_slice());
        let mut report = self.end.finish(sent, ramp, options::read_kernel())?;
        report.rate_limit = self.session.rate_limit();
        self.session.control.send(&ServerMessage::Report(Box::new(report)))?;
        wait_for_close(self.session)
    }
}
