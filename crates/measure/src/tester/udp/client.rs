//! Client end of a test with datagrams.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lfn_base::units::{BitRate, Bytes};
use lfn_results::evidence::{EndReason, Evidence};
use lfn_results::measure::{
    Bounded, ClientMessage, EndReport, Interval, ReportedTotals, ServerMessage, TestDirection, TestLoad, TestRequest,
};
use lfn_results::udp::ramp::MAX_STEPS;
use lfn_session::dial::{self, ServerConnection, Target};
use lfn_session::limits::rate_limiter::RateLimiter;
use lfn_session::wire::Request;
use lfn_session::{Control, DatagramStream, SessionError, SessionId, queue};

use super::end::UdpEnd;
use super::ramp_steps::{PendingStep, RampSender, StepTimeout};
use super::server::rate_share;
use crate::proto::udp::datagram;
use crate::tester::client_end::{server_reason, unexpected_message};
use crate::tester::clock::{self, ClockProbes};
use crate::tester::deadline::{INTERRUPT_TIMEOUT, ReportDeadline};
use crate::tester::probe::LatencyProbes;
use crate::tester::{Test, TestError, TestProgress, options};

/// Maximum sleep of the client, so that it notices an interrupt soon.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum time in which the streams must open, plus four round trips.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs one test with datagrams to its end.
pub(in crate::tester) fn run(
    target: &Target,
    test: &Test,
    watch: &mut dyn FnMut(TestProgress<'_>),
) -> Result<Evidence, TestError> {
    let connection = ServerConnection::connect(target)?;
    let rtt = connection.min_rtt();
    let request = TestRequest { interval: test.interval(rtt), ..test.request.clone() };
    let mut session = dial::new_session_id()?;
    let mut control = connection.open_control(target, session, Request::Test(Box::new(request.clone())))?;
    if let Some(turn) =
        queue::wait_for_admission(&mut control, &target.queue, target.connect_timeout, Some(&test.stop), || {})?
    {
        session = turn;
    }
    if test.stop.load(Ordering::Relaxed) {
        return Err(TestError::Stopped);
    }
    let ready = match control.recv(target.connect_timeout, "before the test")? {
        Bounded(ServerMessage::Ready(ready)) => *ready,
        _ => return Err(unexpected_message()),
    };
    watch(TestProgress::Connected(rtt, &ready.kernel));
    let mut latency_probes = match request.latency {
        Some(latency) => Some(LatencyProbes::begin(latency, target, &mut control, session, rtt)?),
        None => None,
    };
    let streams = open(target, &control, session, request.streams, OPEN_TIMEOUT + 4 * rtt)?;
    let sends = request.direction == TestDirection::Forward;
    let mut end = UdpEnd::start(
        streams,
        &request,
        &test.near_socket,
        sends,
        &RateLimiter::unlimited(),
        rate_share(ready.rate_limit, request.streams),
    )?;
    control.send(&ClientMessage::Opened)?;
    if let Some(latency_probes) = &mut latency_probes {
        latency_probes.mark_load_start();
    }
    let ramp = request.udp.as_ref().and_then(|udp| udp.ramp.clone()).filter(|_| sends);
    let ramp_sender = ramp.map(|ramp| RampSender::begin(ramp, end.datagram(), &mut end));
    let limit = rate_share(ready.rate_limit, request.streams);
    let silence = target.silence_timeout + request.interval + max_quiet_time(&request, limit);
    let time = match request.load {
        TestLoad::TimeSeconds(time) if request.udp.as_ref().is_some_and(|udp| udp.ramp.is_none()) => Some(time),
        _ => None,
    };
    let step_timeout = StepTimeout::of(&request, end.datagram(), target.silence_timeout);
    let mut client = UdpTestClient {
        far_totals: ReportedTotals::of(&request),
        started_at: Instant::now(),
        deadline: ReportDeadline::new(silence, rtt, Instant::now()),
        request,
        control,
        end,
        ramp_sender,
        latency_probes,
        rtt,
        watch,
        step_timeout,
        pending_step: None,
        far_steps: 0,
        sent_reported: false,
        far_intervals: Vec::new(),
        clock_probes: ClockProbes::new(),
        report: None,
        stop: test.stop.clone(),
        ended: EndReason::Completed,
    };
    if let Some(time) = time {
        client.deadline.expect_report(time, Instant::now());
    }
    client.run()
}

/// Returns the maximum time without reports of the server, if no datagram arrives: the time that sending takes.
fn max_quiet_time(request: &TestRequest, limit: Option<BitRate>) -> Duration {
    let udp = request.udp.as_deref().cloned().unwrap_or_default();
    let datagram = udp.datagram_bytes.unwrap_or(datagram::MAX_LENGTH as u32).into();
    let rate = limit.map_or(udp.rate, |limit| limit.min(udp.rate)).as_f64().max(1.0);
    match (&udp.ramp, request.load) {
        (Some(ramp), _) => ramp.step.max(RampSender::min_duration(datagram, ramp.from)),
        (None, TestLoad::TimeSeconds(time)) => time,
        (None, load) => {
            let bytes = load.bytes(Bytes(datagram)).unwrap_or(0) as f64;
            Duration::try_from_secs_f64(bytes * 8.0 / rate).unwrap_or(Duration::from_secs(u32::MAX.into()))
        }
    }
}

/// Opens all streams in parallel; each one takes a round trip.
fn open(
    target: &Target,
    control: &Control,
    session: SessionId,
    count: u16,
    timeout: Duration,
) -> Result<Vec<DatagramStream>, SessionError> {
    let control = &**control.handle();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..count)
            .map(|number| scope.spawn(move || dial::open_datagrams(target, control, session, number, timeout)))
            .collect();
        let lost = || SessionError::Io { peer: "the kernel", source: std::io::Error::other("the thread panicked") };
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(lost()))).collect()
    })
}

struct UdpTestClient<'a> {
    request: TestRequest,
    control: Control,
    end: UdpEnd,
    ramp_sender: Option<RampSender>,
    latency_probes: Option<LatencyProbes>,
    rtt: Duration,
    watch: &'a mut dyn FnMut(TestProgress<'_>),
    step_timeout: StepTimeout,
    /// A sent step of the server's ramp with datagrams that still arrive.
    pending_step: Option<PendingStep>,
    /// Number of ramp steps that the server has started.
    far_steps: usize,
    /// The server has received the number of sent datagrams.
    sent_reported: bool,
    deadline: ReportDeadline,
    started_at: Instant,
    far_intervals: Vec<Interval>,
    far_totals: ReportedTotals,
    clock_probes: ClockProbes,
    report: Option<EndReport>,
    stop: Arc<AtomicBool>,
    ended: EndReason,
}

impl UdpTestClient<'_> {
    fn run(mut self) -> Result<Evidence, TestError> {
        let sends = self.request.direction == TestDirection::Forward;
        while self.report.is_none() {
            if let Err(error) = self.end.collect() {
                return Err(server_reason(&mut self.control, self.rtt, error));
            }
            if let Some(interval) = self.end.close_due_interval() {
                (self.watch)(TestProgress::Near(interval));
            }
            self.handle_interrupt()?;
            self.send_due(sends)?;
            self.receive_message()?;
        }
        let far = self.report.take().unwrap_or_default();
        let near = self.finish(sends, &far)?;
        let latency =
            self.latency_probes.take().map(|latency_probes| latency_probes.finish(&near, self.request.interval));
        let UdpTestClient { request, control, end, rtt, far_intervals, clock_probes, ended, .. } = self;
        drop(end);
        control.close();
        let mut far = EndReport { intervals: far_intervals, ..far };
        let clock = clock_probes.alignment();
        clock::align_clocks(&near, &mut far, clock.as_ref());
        Ok(Evidence { clock, latency, ended, ..Evidence::of_test(request, rtt, near, far) })
    }

    /// Returns the time that the server has had for its intervals. The server may start before its first message
    /// arrives here.
    fn time_since_start(&self) -> Duration {
        self.started_at.elapsed() + 2 * self.rtt
    }

    /// Ends the sending at either end after an interrupt. Datagrams in flight still count.
    fn handle_interrupt(&mut self) -> Result<(), TestError> {
        if self.ended == EndReason::Completed && self.stop.load(Ordering::Relaxed) {
            self.ended = EndReason::Interrupted;
            self.end.stop_sending();
            self.deadline.interrupted(Instant::now());
            self.control.set_send_timeout(INTERRUPT_TIMEOUT);
            self.control.send(&ClientMessage::Stop)?;
        }
        Ok(())
    }

    /// Sends the due messages to the server, and reports ramp steps to the watch.
    fn send_due(&mut self, sends: bool) -> Result<(), TestError> {
        if let Some(ramp) = self.ramp_sender.as_mut().and_then(RampSender::take_started) {
            (self.watch)(TestProgress::Step(&ramp));
        }
        self.clock_probes.send_due(&mut self.control)?;
        if let Some(latency_probes) = &mut self.latency_probes {
            latency_probes.send_due(&mut self.control)?;
        }
        if let Some((step, datagrams)) =
            self.ramp_sender.as_mut().and_then(|ramp_sender| ramp_sender.take_sent(&mut self.end))
        {
            self.step_timeout.step_progress();
            self.control.send(&ClientMessage::StepSent { step, datagrams })?;
        }
        // The thread of a ramp waits for its next step and does not end by itself.
        let is_halted = self.ended == EndReason::Interrupted;
        let over = self
            .ramp_sender
            .as_ref()
            .map_or_else(|| self.end.have_all_ended(), |ramp_sender| ramp_sender.is_over() || is_halted);
        if sends && over && !self.sent_reported {
            self.sent_reported = true;
            self.deadline.expect_report(Duration::ZERO, Instant::now());
            self.control.send(&ClientMessage::Sent { datagrams: self.end.sent() })?;
        }
        if let Some(result) =
            self.pending_step.as_ref().and_then(|pending_step| pending_step.result(&self.end, self.rtt))
        {
            self.pending_step = None;
            self.step_timeout.step_progress();
            self.control.send(&ClientMessage::Step(result))?;
        }
        Ok(())
    }

    /// Handles the server's next message, if one arrives in time.
    fn receive_message(&mut self) -> Result<(), TestError> {
        let probes = self.latency_probes.as_ref().map_or(Duration::MAX, LatencyProbes::time_to_next);
        let timeout =
            self.end.time_to_next_event().min(self.clock_probes.time_to_next()).min(probes).min(POLL_INTERVAL);
        let message = self.control.poll(timeout, "during the test")?;
        self.deadline.check(Instant::now())?;
        if !self.deadline.is_report_due() {
            self.step_timeout.check("the server")?;
        }
        let Some(Bounded(message)) = message else { return Ok(()) };
        // A reply proves that the server runs, but not that the test does.
        if !matches!(message, ServerMessage::Pong { .. }) {
            self.deadline.message_received(Instant::now());
        }
        match message {
            ServerMessage::Interval(interval) => {
                self.far_totals.add(&interval, self.time_since_start())?;
                (self.watch)(TestProgress::Far(&interval));
                self.far_intervals.push(*interval);
            }
            ServerMessage::Report(report) => {
                let since = self.time_since_start();
                report.intervals.iter().try_for_each(|rest| self.far_totals.add(rest, since))?;
                report.intervals.iter().for_each(|interval| (self.watch)(TestProgress::Far(interval)));
                self.far_intervals.extend(report.intervals.iter().cloned());
                self.report = Some(*report);
            }
            ServerMessage::Pong { number, received_nanos, sent_nanos } => {
                self.clock_probes.record_reply(number, received_nanos, sent_nanos);
                if let Some(latency_probes) = &mut self.latency_probes {
                    latency_probes.record_reply(number, received_nanos, sent_nanos);
                }
            }
            ServerMessage::StepSent { step, datagrams } => {
                self.step_timeout.step_progress();
                self.pending_step = Some(PendingStep::new(step, datagrams));
            }
            // Each step is reported once, so that a server cannot fill this end's memory with reports.
            ServerMessage::StepBegun(ramp) if ramp.steps.len() == self.far_steps && self.far_steps < MAX_STEPS => {
                self.far_steps += 1;
                (self.watch)(TestProgress::Step(&ramp));
            }
            ServerMessage::Step(result) => {
                self.step_timeout.step_progress();
                // An interrupted step has no valid result for its rate.
                if let Some(ramp_sender) = self.ramp_sender.as_mut().filter(|_| self.ended == EndReason::Completed) {
                    ramp_sender.judge_step(&result, &mut self.end);
                }
            }
            _ => return Err(unexpected_message()),
        }
        Ok(())
    }

    /// Returns the report of this end, after the datagrams in flight have arrived.
    fn finish(&mut self, sends: bool, far: &EndReport) -> Result<EndReport, TestError> {
        let sent: Vec<u64> =
            far.streams.iter().filter_map(|s| s.udp.as_ref()?.sent.as_ref()).map(|s| s.datagrams).collect();
        let since = Instant::now();
        while !sends && !self.end.has_settled(&sent, since, self.rtt) {
            thread::sleep(Duration::from_millis(2));
        }
        let ramp = self.ramp_sender.as_ref().map(RampSender::report);
        let near = self.end.finish((!sends).then_some(&sent), ramp, options::read_kernel())?;
        near.intervals
            .iter()
            .skip(self.end.closed_intervals())
            .for_each(|interval| (self.watch)(TestProgress::Near(interval)));
        Ok(near)
    }
}
