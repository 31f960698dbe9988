//! Server end of a TCP test.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use lfn_base::units::show_duration;
use lfn_results::measure::{ClientMessage, Kernel, Ready, ServerMessage, TestDirection, TestLoad, TestRequest};
use lfn_session::server::{ServerSession, SessionLimits};
use lfn_session::wire::{Refusal, RefusalCode};
use lfn_session::{DataStream, SessionError};

use super::TestError;
use super::clock::ClockReplies;
use super::meter::{self, Meter};
use super::options::{self, SocketOptions};
use super::probe::ProbeEcho;
use super::server_end::{check_silence, too_long_refusal, wait_for_close};
use crate::load::{HostWatch, LoadState, LoadStream, STACK_SIZE, StreamCounter, StreamEvent, run_blocks};

/// Maximum time in which the client must open its data streams.
const STREAMS_TIMEOUT: Duration = Duration::from_secs(20);

/// Time that streams may exceed their limit if the client does not end them. The value is longer than thread delays on
/// a busy host.
const OVERRUN: Duration = Duration::from_secs(2);

/// Maximum time that a message waits for space in the send buffer, in addition to the duration of a timed test.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves one test. An error of the test becomes a refusal, so that the client receives the reason.
#[inline(never)]
pub fn serve(session: &mut ServerSession, request: &TestRequest) -> Result<(), SessionError> {
    run_test(session, request).map_err(|error| match error {
        TestError::Session(error) => error,
        other => SessionError::Refused(Refusal::from(&other)),
    })
}

fn run_test(session: &mut ServerSession, request: &TestRequest) -> Result<(), TestError> {
    request.check()?;
    check_limits(request, &session.limits()).map_err(SessionError::Refused)?;
    // A client that does not read counts as silent.
    session.control.set_send_timeout(session.limits().silence_timeout);
    if request.udp.is_some() {
        return super::udp::serve(session, request);
    }
    let _echo = ProbeEcho::of(session, request)?;
    // In a thread of its own, for the reason in `HostWatch::for_destination`.
    let kernel = thread::scope(|scope| scope.spawn(options::read_kernel).join()).unwrap_or_default();
    let sends = request.direction == TestDirection::Reverse;
    let options = Arc::new(SocketOptions::new(&request.socket, sends, &kernel)?);
    let port = if request.needs_own_listener() {
        Some(session.open_listener(request.socket.mptcp, |socket| options.apply(socket, 0))?)
    } else {
        None
    };
    session.control.send(&ServerMessage::Ready(Box::new(Ready {
        port,
        kernel: kernel.clone(),
        rate_limit: session.rate_limit(),
        lockstep: request.lockstep,
    })))?;
    let watch = HostWatch::begin(&**session.control.handle());
    if request.latency.is_some() {
        wait_for_probes(session)?;
    }
    let streams = session.data_streams(request.streams, STREAMS_TIMEOUT.min(session.limits().silence_timeout))?;
    let origin = streams.iter().map(DataStream::opened).min().unwrap_or_else(Instant::now);
    let max_time = max_duration(request, &session.limits());
    let load = meter::new_load(request, sends, origin, session.rate_limiter(), Some(max_time));
    let mut meter = Meter::new(request, load.clone(), options.clone());
    meter.set_rate_limit(session.allowed().rate);
    meter.set_host_watch(watch);
    if !sends {
        meter.start_at_origin();
    }
    for stream in streams {
        start_stream(stream, &load, &options, meter.sender())?;
    }
    run_load(session, request, &mut meter)?;
    finish(session, &mut meter, kernel)
}

/// Waits until the client has probed the idle path.
fn wait_for_probes(session: &mut ServerSession) -> Result<(), TestError> {
    let timeout = STREAMS_TIMEOUT.min(session.limits().silence_timeout);
    let deadline = Instant::now() + timeout;
    let mut clock_replies = ClockReplies::new();
    while Instant::now() < deadline {
        match session.control.poll(Duration::from_millis(100), "before the load")? {
            Some(ClientMessage::Opened) => return Ok(()),
            Some(ClientMessage::Ping { number }) => clock_replies.reply(&mut session.control, number)?,
            _ => {}
        }
    }
    let (peer, while_doing) = ("the client", "while it probed the path");
    Err(SessionError::Timeout { peer, after: timeout, while_doing }.into())
}

/// Returns the maximum time that the streams may move data, independent of the client.
fn max_duration(request: &TestRequest, limits: &SessionLimits) -> Duration {
    let time = match request.load {
        TestLoad::TimeSeconds(time) => time.min(limits.max_test_time),
        TestLoad::Records(_) | TestLoad::Bytes(_) => limits.max_test_time,
    };
    time.saturating_add(OVERRUN)
}

fn check_limits(request: &TestRequest, limits: &SessionLimits) -> Result<(), Refusal> {
    if request.streams > limits.max_streams {
        let text = format!("{} streams requested; the server allows {}", request.streams, limits.max_streams);
        return Err(
            Refusal::new(RefusalCode::Limit, text).hint(format!("use --streams {} or fewer", limits.max_streams))
        );
    }
    match request.time() {
        Some(time) if time > limits.max_test_time => {
            Err(too_long_refusal(&format!("a test of {} requested", show_duration(time)), limits))
        }
        _ => Ok(()),
    }
}

/// Starts the thread of one stream.
fn start_stream(
    data: DataStream,
    load: &Arc<LoadState>,
    options: &SocketOptions,
    events: Sender<StreamEvent>,
) -> Result<(), TestError> {
    let number = data.stream();
    let failed = |source| TestError::Stream { stream: number, source };
    let handle = data.handle().clone();
    // The sockets inherited the listener's options; the send buffer and the congestion control take effect only here.
    if let Some(socket) = handle.socket() {
        options.apply(socket, number).map_err(failed)?;
    }
    let granted = handle.socket().map(|socket| options.report(socket, number)).transpose().map_err(failed)?;
    let counter = Arc::new(StreamCounter::default());
    let stream = LoadStream { number, handle, counter: counter.clone(), opened: data.opened(), granted };
    // The meter receives events for the life of this session.
    let _ = events.send(StreamEvent::Opened(Box::new(stream)));
    let load = load.clone();
    let work = move || run_blocks(data, &load, &counter, &events);
    let thread = thread::Builder::new().name(format!("stream {number}")).stack_size(STACK_SIZE);
    thread.spawn(work).map_err(failed)?;
    Ok(())
}

/// Runs until the test is over at this end and, if only the client can know, at the client's end.
fn run_load(session: &mut ServerSession, request: &TestRequest, meter: &mut Meter) -> Result<(), TestError> {
    let sends = request.direction == TestDirection::Reverse;
    let limits = session.limits();
    let (max_duration, started_at) = (max_duration(request, &limits), Instant::now());
    let (mut client_done, mut last_message_at, mut clock_replies) = (false, started_at, ClockReplies::new());
    if let TestLoad::TimeSeconds(time) = request.load {
        session.control.set_send_timeout(time.saturating_add(SEND_TIMEOUT).min(limits.silence_timeout));
    }
    loop {
        session.check()?;
        meter.collect()?;
        if let Some(interval) = meter.take_interval() {
            if let (1, Some(at_nanos)) = (meter.closed_intervals(), meter.started_nanos()) {
                session.control.send(&ServerMessage::Started { at_nanos })?;
            }
            session.control.send(&ServerMessage::Interval(Box::new(interval)))?;
        }
        let is_over = match request.load {
            TestLoad::TimeSeconds(_) => meter.is_time_over(),
            TestLoad::Records(_) | TestLoad::Bytes(_) => meter.have_all_ended() && (client_done || !sends),
        };
        if is_over || meter.is_stopped() {
            return Ok(());
        }
        if started_at.elapsed() > max_duration {
            return Err(SessionError::Refused(too_long_refusal("the test takes too long", &limits)).into());
        }
        let message = session.control.poll(meter.time_to_next_event(), "during the test")?;
        last_message_at = if message.is_some() { Instant::now() } else { last_message_at };
        check_silence(last_message_at, &limits)?;
        match message {
            Some(ClientMessage::Received) => client_done = true,
            Some(ClientMessage::Ping { number }) => clock_replies.reply(&mut session.control, number)?,
            Some(ClientMessage::Stop) => meter.stop_load(),
            // Messages of tests with datagram streams.
            Some(_) | None => {}
        }
    }
}

/// Sends the report, and waits for the client to close the session.
fn finish(session: &mut ServerSession, meter: &mut Meter, kernel: Kernel) -> Result<(), TestError> {
    let mut report = meter.finish(kernel)?;
    report.rate_limit = session.rate_limit();
    session.control.send(&ServerMessage::Report(Box::new(report)))?;
    wait_for_close(session)
}
