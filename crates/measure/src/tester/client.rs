//! Client end of a TCP test: dials all connections at once, runs this end, and receives the server's reports.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use lfn_base::path::PathProfile;
use lfn_base::plan::{self, PlanOptions};
use lfn_base::units::Bytes;
use lfn_results::block_timing::{ReceivedBlocks, SenderStart};
use lfn_results::evidence::{EndReason, Evidence};
use lfn_results::measure::{
    Bounded, ClientMessage, EndReport, Interval, Kernel, Ready, ReportedTotals, ServerMessage, SocketRequest,
    TestDirection, TestLoad, TestRequest,
};
use lfn_results::stopping_rule::StoppingRule;
use lfn_session::dial::{self, ServerConnection, Target};
use lfn_session::limits::rate_limiter::RateLimiter;
use lfn_session::wire::Request;
use lfn_session::{Control, Protection, SessionError, SessionId, queue};

use super::TestError;
use super::client_end::{server_reason, unexpected_message};
use super::clock::{self, ClockProbes};
use super::convergence::ConvergenceBarrier;
use super::deadline::{INTERRUPT_TIMEOUT, ReportDeadline};
use super::measurement::{Test, TestProgress};
use super::meter::{self, Meter};
use super::options::{self, SocketOptions};
use super::probe::LatencyProbes;
use crate::load::{HostWatch, LoadState, LoadStream, StreamCounter, StreamEvent, run_blocks};

/// Maximum sleep of the client, so that it notices an interrupt soon.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Runs one test to its end. `watch` receives its progress.
pub fn run(target: &Target, test: &Test, watch: &mut dyn FnMut(TestProgress<'_>)) -> Result<Evidence, TestError> {
    run_with_barrier(target, test, watch, ConvergenceBarrier::alone())
}

/// Runs one test next to another one. If both measure until their goodput converges, they end together.
pub(super) fn run_with_barrier(
    target: &Target,
    test: &Test,
    watch: &mut dyn FnMut(TestProgress<'_>),
    barrier: ConvergenceBarrier,
) -> Result<Evidence, TestError> {
    test.request.check()?;
    let evidence = match test.request.udp {
        Some(_) => super::udp::run(target, test, watch),
        None => run_tcp(target, test, watch, barrier),
    }?;
    Ok(Evidence { path: test.path, omit: test.omit, near_socket: test.near_socket.clone(), ..evidence })
}

fn run_tcp(
    target: &Target,
    test: &Test,
    watch: &mut dyn FnMut(TestProgress<'_>),
    barrier: ConvergenceBarrier,
) -> Result<Evidence, TestError> {
    let kernel = options::read_kernel();
    let (request, near, dialled, mut control) = match test.path.filter(|_| test.tuned) {
        Some(path) if path.base_rtt.is_zero() => {
            let connection = ServerConnection::connect(target)?;
            let path = PathProfile { base_rtt: connection.min_rtt(), ..path };
            let (mut request, near) = apply_plan(test, &path, &kernel);
            request.interval = test.interval(path.base_rtt);
            let dialled = dial_streams(target, dial::new_session_id()?, &request, &near, &kernel)?;
            let control =
                connection.open_control(target, dialled.1.session, Request::Test(Box::new(request.clone())))?;
            (request, near, dialled, control)
        }
        known => {
            let (mut request, near) = match known {
                Some(path) => apply_plan(test, &path, &kernel),
                None => (test.request.clone(), test.near_socket.clone()),
            };
            let mut dialled = dial_streams(target, dial::new_session_id()?, &request, &near, &kernel)?;
            let connection = ServerConnection::connect(target)?;
            request.interval = test.interval(connection.min_rtt());
            dialled.0.set_interval(request.interval);
            let control =
                connection.open_control(target, dialled.1.session, Request::Test(Box::new(request.clone())))?;
            (request, near, dialled, control)
        }
    };
    let mut dialled = Some(dialled);
    let turn =
        queue::wait_for_admission(&mut control, &target.queue, target.connect_timeout, Some(&test.stop), || {
            drop(dialled.take())
        })?;
    if test.stop.load(Ordering::Relaxed) {
        return Err(TestError::Stopped);
    }
    let (meter, dialer) = match (turn, dialled) {
        (Some(session), _) => dial_streams(target, session, &request, &near, &kernel)?,
        (None, Some(dialled)) => dialled,
        (None, None) => return Err(unexpected_message()),
    };
    let new = TcpTestClient::new(test, target.silence_timeout, request, control, meter, watch);
    TcpTestClient { barrier, ..new }.run(target, dialer, kernel)
}

/// Returns the request and this end's socket options with the plan's buffer sizes.
///
/// A limit of the receive window keeps a sender based on loss from filling the queue. BBR limits itself, and after a
/// loss needs the window for the data behind the lost segment: with loss of 0.1 % over 80 ms, a limit of 1.5 BDP costs
/// 12 % of the goodput.
fn apply_plan(test: &Test, path: &PathProfile, kernel: &Kernel) -> (TestRequest, SocketRequest) {
    let plan_options = PlanOptions { streams: Some(test.request.streams.into()), ..PlanOptions::default() };
    // Without a valid plan the kernel's defaults stay.
    let buffer = plan::plan(path, &plan_options).ok().map(|plan| plan.buffer);
    let sender = match test.request.direction {
        TestDirection::Forward => &test.near_socket,
        TestDirection::Reverse => &test.request.socket,
    };
    let congestion = match (sender.congestion_of(0), test.request.direction) {
        (Some(request), _) => request.name(),
        (None, TestDirection::Forward) => kernel.congestion.as_str(),
        (None, TestDirection::Reverse) => "",
    };
    let most = path
        .queue
        .filter(|_| !congestion.starts_with("bbr"))
        .map(|queue| Bytes((path.bdp().0 + queue.0 / 2) / u64::from(test.request.streams)));
    let with = |request: &SocketRequest| SocketRequest { planned: buffer, planned_max: most, ..request.clone() };
    (TestRequest { socket: with(&test.request.socket), ..test.request.clone() }, with(&test.near_socket))
}

/// Opens this end's streams at once, without a wait for the control connection, unless the server must listen first.
fn dial_streams(
    target: &Target,
    session: SessionId,
    request: &TestRequest,
    near: &SocketRequest,
    kernel: &Kernel,
) -> Result<(Meter, StreamDialer), TestError> {
    let sends = request.direction == TestDirection::Forward;
    let options = Arc::new(SocketOptions::new(near, sends, kernel)?);
    let load = meter::new_load(request, sends, Instant::now(), RateLimiter::unlimited(), None);
    let mut meter = Meter::new(request, load.clone(), options.clone());
    if let Some(address) = target.first_address() {
        meter.set_host_watch(HostWatch::for_destination(address.ip(), None));
    }
    let dialer = StreamDialer { target: target.clone(), session, load, options, events: meter.sender() };
    // Latency probes run first, on an idle path.
    if !request.needs_own_listener() && request.latency.is_none() {
        dialer.dial(request.streams, None)?;
    }
    Ok((meter, dialer))
}

/// Client end of one running test.
struct TcpTestClient<'a> {
    request: TestRequest,
    control: Control,
    meter: Meter,
    watch: &'a mut dyn FnMut(TestProgress<'_>),
    rtt: Duration,
    /// Time at which the server was ready.
    ready: Instant,
    deadline: ReportDeadline,
    far_intervals: Vec<Interval>,
    /// Start of the server's intervals, on the server's clock, nanoseconds.
    far_started: Option<u64>,
    far_totals: ReportedTotals,
    clock_probes: ClockProbes,
    latency_probes: Option<LatencyProbes>,
    report: Option<EndReport>,
    stop: Arc<AtomicBool>,
    stopping_rule: Option<StoppingRule>,
    /// Convergence of this test and of the parallel test.
    barrier: ConvergenceBarrier,
    /// Received intervals, for the stopping rule.
    received: Vec<Interval>,
    /// Number of intervals that the stopping rule has seen.
    checked_intervals: usize,
    ended: EndReason,
}

impl<'a> TcpTestClient<'a> {
    fn new(
        test: &Test,
        silence: Duration,
        request: TestRequest,
        control: Control,
        mut meter: Meter,
        watch: &'a mut dyn FnMut(TestProgress<'_>),
    ) -> Self {
        meter.confirm_interface(&**control.handle());
        let (rtt, now) = (control.handle().min_rtt(), Instant::now());
        TcpTestClient {
            far_totals: ReportedTotals::of(&request),
            deadline: ReportDeadline::new(silence + request.interval, rtt, now),
            request,
            control,
            meter,
            watch,
            rtt,
            ready: now,
            far_intervals: Vec::new(),
            far_started: None,
            clock_probes: ClockProbes::new(),
            latency_probes: None,
            report: None,
            stop: test.stop.clone(),
            stopping_rule: test.target_precision.map(|wanted| StoppingRule::new(wanted, test.omit)),
            barrier: ConvergenceBarrier::alone(),
            received: Vec::new(),
            checked_intervals: 0,
            ended: EndReason::Completed,
        }
    }

    fn run(mut self, target: &Target, dialer: StreamDialer, kernel: Kernel) -> Result<Evidence, TestError> {
        let ready = match self.control.recv(target.connect_timeout, "before the test")? {
            Bounded(ServerMessage::Ready(ready)) => *ready,
            _ => return Err(unexpected_message()),
        };
        if self.request.lockstep && !ready.lockstep {
            return Err(TestError::NoLockstep);
        }
        self.ready = Instant::now();
        self.deadline.message_received(self.ready);
        (self.watch)(TestProgress::Connected(self.rtt, &ready.kernel));
        self.meter.set_rate_limit(ready.rate_limit);
        self.probe(target, dialer.session)?;
        if self.request.needs_own_listener() {
            dialer.dial(self.request.streams, Some(port(&ready)?))?;
        } else if self.request.latency.is_some() {
            dialer.dial(self.request.streams, None)?;
        }
        drop(dialer);
        if let TestLoad::TimeSeconds(time) = self.request.load {
            // The streams may take one silence time-out to start.
            self.deadline
                .expect_report(time.saturating_add(target.silence_timeout + self.request.interval), self.ready);
        }
        self.run_load()?;
        self.deadline.expect_report(Duration::ZERO, Instant::now());
        let near = self.finish_near(kernel)?;
        while self.report.is_none() {
            self.receive_message(self.meter.time_to_next_event())?;
        }
        let start = self.sender_start();
        let latency =
            self.latency_probes.take().map(|latency_probes| latency_probes.finish(&near, self.request.interval));
        let TcpTestClient { request, control, meter, rtt, far_intervals, clock_probes, report, ended, .. } = self;
        // The sockets close first, so that the server's end of them is over when it sees the end of the session.
        drop(meter);
        control.close();
        let mut far = EndReport { intervals: far_intervals, ..report.unwrap_or_default() };
        let clock = clock_probes.alignment();
        clock::align_clocks(&near, &mut far, clock.as_ref());
        let mut evidence = Evidence { clock, latency, ended, ..Evidence::of_test(request, rtt, near, far) };
        let streams = evidence.receiver().streams.iter().filter_map(|stream| stream.blocks.as_ref());
        evidence.blocks = ReceivedBlocks::from_streams(streams, start);
        check_complete(&evidence)?;
        Ok(evidence)
    }

    /// Returns the sender's start on the clock of the receiver's block times. The one-way delay is taken as half the
    /// RTT.
    fn sender_start(&self) -> SenderStart {
        if self.request.direction == TestDirection::Forward {
            // The server's clock starts when the first hello arrives; the data follows the hello at once.
            return SenderStart::Before(self.rtt / 2);
        }
        // The server starts when it has sent its readiness and its first stream has arrived.
        let origin = self.meter.origin();
        let ready_at = self.ready.checked_sub(self.rtt / 2).unwrap_or(origin);
        let first_stream_at = self.meter.opened().unwrap_or(origin) + self.rtt / 2;
        SenderStart::After(ready_at.max(first_stream_at).saturating_duration_since(origin))
    }

    /// Probes the idle path, if requested. The server waits for the message that ends this phase.
    fn probe(&mut self, target: &Target, session: SessionId) -> Result<(), TestError> {
        let Some(latency) = self.request.latency else { return Ok(()) };
        let mut latency_probes = LatencyProbes::begin(latency, target, &mut self.control, session, self.rtt)?;
        self.control.send(&ClientMessage::Opened)?;
        latency_probes.mark_load_start();
        self.latency_probes = Some(latency_probes);
        Ok(())
    }

    /// Returns the time that the server has had for its intervals. The server may start before its first message
    /// arrives here.
    fn time_since_ready(&self) -> Duration {
        self.ready.elapsed() + 2 * self.rtt
    }

    /// Runs this end until it has nothing more to do.
    fn run_load(&mut self) -> Result<(), TestError> {
        let sends = self.request.direction == TestDirection::Forward;
        let timed = matches!(self.request.load, TestLoad::TimeSeconds(_));
        loop {
            self.clock_probes.send_due(&mut self.control)?;
            if let Some(latency_probes) = &mut self.latency_probes {
                latency_probes.send_due(&mut self.control)?;
            }
            if let Err(error) = self.meter.collect() {
                return Err(server_reason(&mut self.control, self.rtt, error));
            }
            if let Some(interval) = self.meter.close_due_interval() {
                if !sends && self.stopping_rule.is_some() {
                    self.received.push(goodput_only(interval));
                }
                (self.watch)(TestProgress::Near(interval));
            }
            if self.should_end() {
                return self.end_early();
            }
            let is_over = match (timed, sends) {
                (true, _) => self.meter.is_time_over(),
                // Only the receiver knows whether the sent data has arrived.
                (false, true) => self.meter.have_all_ended() && self.report.is_some(),
                (false, false) => self.meter.have_all_ended(),
            };
            if is_over {
                return Ok(());
            }
            let probes = self.latency_probes.as_ref().map_or(Duration::MAX, LatencyProbes::time_to_next);
            self.receive_message(
                self.meter.time_to_next_event().min(self.clock_probes.time_to_next()).min(probes).min(POLL_INTERVAL),
            )?;
        }
    }

    /// Ends the load here and at the server. After an interrupt the report must arrive soon.
    fn end_early(&mut self) -> Result<(), TestError> {
        self.meter.stop_load();
        if self.ended == EndReason::Interrupted {
            self.deadline.interrupted(Instant::now());
            self.control.set_send_timeout(INTERRUPT_TIMEOUT);
        }
        Ok(self.control.send(&ClientMessage::Stop)?)
    }

    /// Returns whether the load must end early.
    fn should_end(&mut self) -> bool {
        if self.stop.load(Ordering::Relaxed) {
            self.ended = EndReason::Interrupted;
        } else if self.is_converged() {
            self.ended = EndReason::Converged;
        }
        self.ended != EndReason::Completed
    }

    /// Evaluates new intervals once. Returns whether all tests that end together have converged.
    fn is_converged(&mut self) -> bool {
        let Some(rule) = &mut self.stopping_rule else { return false };
        if std::mem::replace(&mut self.checked_intervals, self.received.len()) != self.received.len() {
            self.barrier.report(rule.is_met(&self.received));
        }
        self.barrier.is_complete()
    }

    fn finish_near(&mut self, kernel: Kernel) -> Result<EndReport, TestError> {
        let near = self.meter.finish(kernel)?;
        if let Some(interval) = near.intervals.get(self.meter.closed_intervals()) {
            (self.watch)(TestProgress::Near(interval));
        }
        let counted = !matches!(self.request.load, TestLoad::TimeSeconds(_));
        if counted && self.ended == EndReason::Completed && self.request.direction == TestDirection::Reverse {
            self.control.send(&ClientMessage::Received)?;
        }
        Ok(near)
    }

    /// Handles the server's next message, if one arrives within `timeout`.
    fn receive_message(&mut self, timeout: Duration) -> Result<(), TestError> {
        match self.control.poll(timeout, "during the test")?.map(|Bounded(message)| message) {
            Some(ServerMessage::Started { at_nanos }) => {
                self.deadline.message_received(Instant::now());
                self.far_started = Some(at_nanos);
            }
            Some(ServerMessage::Interval(mut interval)) => {
                self.deadline.message_received(Instant::now());
                self.align_interval(&mut interval);
                self.far_totals.add(&interval, self.time_since_ready())?;
                (self.watch)(TestProgress::Far(&interval));
                if self.request.direction == TestDirection::Forward && self.stopping_rule.is_some() {
                    self.received.push(goodput_only(&interval));
                }
                self.far_intervals.push(*interval);
            }
            Some(ServerMessage::Report(mut report)) => {
                self.deadline.message_received(Instant::now());
                self.far_started = report.started;
                report.intervals.iter_mut().for_each(|interval| self.align_interval(interval));
                let since = self.time_since_ready();
                report.intervals.iter().try_for_each(|rest| self.far_totals.add(rest, since))?;
                if let Some(rest) = report.intervals.last() {
                    (self.watch)(TestProgress::Far(rest));
                }
                self.far_intervals.extend(report.intervals.iter().cloned());
                self.report = Some(*report);
            }
            // A reply proves that the server runs, but not that the test does.
            Some(ServerMessage::Pong { number, received_nanos, sent_nanos }) => {
                self.clock_probes.record_reply(number, received_nanos, sent_nanos);
                if let Some(latency_probes) = &mut self.latency_probes {
                    latency_probes.record_reply(number, received_nanos, sent_nanos);
                }
            }
            Some(
                ServerMessage::Ready(_)
                | ServerMessage::Step(_)
                | ServerMessage::StepSent { .. }
                | ServerMessage::StepBegun(_),
            ) => return Err(unexpected_message()),
            None => {}
        }
        if self.report.is_none() {
            self.deadline.check(Instant::now())?;
        }
        Ok(())
    }

    /// Converts the times of a server's interval to this end's clock, with the best estimate of the clock offset so
    /// far.
    fn align_interval(&self, interval: &mut Interval) {
        clock::align_interval(
            interval,
            self.meter.started_nanos(),
            self.far_started,
            self.clock_probes.alignment().as_ref(),
        );
    }
}

/// Opens each data stream in a thread of its own, which then moves the data.
struct StreamDialer {
    target: Target,
    session: SessionId,
    load: Arc<LoadState>,
    options: Arc<SocketOptions>,
    events: Sender<StreamEvent>,
}

impl StreamDialer {
    fn dial(&self, streams: u16, port: Option<u16>) -> Result<(), TestError> {
        for number in 0..streams {
            let (target, session) = (self.target.clone(), self.session);
            let (load, options, events) = (self.load.clone(), self.options.clone(), self.events.clone());
            let work = move || {
                let opened = dial::open_data(&target, session, number, Protection::Clear, port, |socket| {
                    options.apply(socket, number)
                })
                .and_then(|data| {
                    let failed = |source| SessionError::Io { peer: "the server", source };
                    let handle = data.handle().clone();
                    let granted = handle.socket().map(|socket| options.report(socket, number));
                    let granted = granted.transpose().map_err(failed)?;
                    let (counter, opened) = (Arc::new(StreamCounter::default()), data.opened());
                    Ok((data, LoadStream { number, handle, counter, opened, granted }))
                });
                match opened {
                    Ok((data, stream)) => {
                        let counter = stream.counter.clone();
                        // After a failure elsewhere the receiver is gone.
                        let _ = events.send(StreamEvent::Opened(Box::new(stream)));
                        run_blocks(data, &load, &counter, &events);
                    }
                    Err(error) => drop(events.send(StreamEvent::Failed(Box::new(error)))),
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

/// Returns only the fields that the stopping rule needs.
fn goodput_only(interval: &Interval) -> Interval {
    let Interval { start, end, bytes, slices: ref parts, .. } = *interval;
    Interval { start, end, bytes, slices: parts.clone(), ..Interval::default() }
}

fn port(ready: &Ready) -> Result<u16, TestError> {
    ready.port.filter(|&port| port != 0).ok_or_else(unexpected_message)
}

/// A test of a fixed amount must move every byte.
fn check_complete(evidence: &Evidence) -> Result<(), TestError> {
    if evidence.ended != EndReason::Completed {
        return Ok(());
    }
    let request = &evidence.request;
    let Some(sent) = request.load.bytes(request.record) else { return Ok(()) };
    let received = evidence.receiver().bytes;
    if sent == received { Ok(()) } else { Err(TestError::Incomplete { sent, received }) }
}
