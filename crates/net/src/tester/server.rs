//! The server's conversation: the far end of one test.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use lfn_core::units::show_duration;
use lfn_core::wire::test::{ClientMessage, Direction, Kernel, Load, Ready, ServerMessage, TestRequest};
use lfn_core::wire::{Refusal, RefusalCode};

use super::TestError;
use super::clock::{self, Answers};
use super::host::HostWatch;
use super::load::{self, Counter, Event, Shared, Stream};
use super::meter::Meter;
use super::options::{self, Options};
use super::probe::Echo;
use crate::server::{Limits, ServerSession};
use crate::session::{DataStream, SessionError};

/// How long the client may take to open its data streams.
const STREAMS_WITHIN: Duration = Duration::from_secs(20);

/// How long streams may go on beyond their time if nobody ends them: more than the threads of a busy host take.
const SLACK: Duration = Duration::from_secs(2);

/// How long a message may wait for room, beside the time of a test that has one.
const ROOM_WITHIN: Duration = Duration::from_secs(10);

/// Serves one test. A failure of the test itself becomes a refusal, so that the client learns of it.
pub(crate) fn serve(session: &mut ServerSession, request: &TestRequest) -> Result<(), SessionError> {
    test(session, request).map_err(|error| match error {
        TestError::Session(error) => error,
        other => SessionError::Refused(Refusal::from(&other)),
    })
}

fn test(session: &mut ServerSession, request: &TestRequest) -> Result<(), TestError> {
    request.check()?;
    within_limits(request, &session.limits()).map_err(SessionError::Refused)?;
    // A client that does not read is as good as one that says nothing.
    session.control.waits_for_room(session.limits().silence);
    if request.udp.is_some() {
        return super::udp::serve(session, request);
    }
    let _echo = Echo::of(session, request)?;
    // Aside, as in `HostWatch::towards`.
    let kernel = thread::scope(|scope| scope.spawn(options::kernel).join()).unwrap_or_default();
    let sends = request.direction == Direction::Reverse;
    let options = Arc::new(Options::new(&request.socket, sends, &kernel)?);
    let port = match request.apart() {
        true => Some(session.listen_apart(request.socket.mptcp, |socket| options.apply(socket, 0))?),
        false => None,
    };
    session.control.send(&ServerMessage::Ready(Box::new(Ready {
        port,
        kernel: kernel.clone(),
        rate_limit: session.rate_limit(),
    })))?;
    let watch = HostWatch::begin(session.control.socket());
    if request.latency.is_some() {
        probed(session)?;
    }
    let streams = session.data_streams(request.streams, STREAMS_WITHIN.min(session.limits().silence))?;
    let origin = streams.iter().map(DataStream::opened).min().unwrap_or_else(Instant::now);
    let shared = Shared::new(request, sends, origin, session.throttle(), Some(longest(request, &session.limits())));
    let (sender, events) = channel();
    let mut meter = Meter::new(request, sends, shared.clone(), options.clone(), events);
    meter.limit(session.allowed().rate);
    meter.watch_host(watch);
    if !sends {
        meter.start_at_origin();
    }
    for stream in streams {
        start(stream, sends, &shared, &options, &sender)?;
    }
    load(session, request, &mut meter)?;
    finish(session, &mut meter, kernel)
}

/// Until the client has probed the path without load.
fn probed(session: &mut ServerSession) -> Result<(), TestError> {
    let within = STREAMS_WITHIN.min(session.limits().silence);
    let deadline = Instant::now() + within;
    let mut answers = Answers::new();
    while Instant::now() < deadline {
        match session.control.poll(Duration::from_millis(100), "before the load")? {
            Some(ClientMessage::Opened) => return Ok(()),
            Some(ClientMessage::Ping { number }) => answers.answer(&mut session.control, number)?,
            _ => {}
        }
    }
    let (peer, while_doing) = ("the client", "to probe the path");
    Err(SessionError::Timeout { peer, after: within, while_doing }.into())
}

/// How long the streams may move data, whatever the client does.
fn longest(request: &TestRequest, limits: &Limits) -> Duration {
    let time = match request.load {
        Load::TimeSeconds(time) => time.min(limits.test_time),
        Load::Records(_) | Load::Bytes(_) => limits.test_time,
    };
    time.saturating_add(SLACK)
}

fn within_limits(request: &TestRequest, limits: &Limits) -> Result<(), Refusal> {
    if request.streams > limits.streams {
        let text = format!("{} streams asked for, the server allows {}", request.streams, limits.streams);
        return Err(Refusal::new(RefusalCode::Limit, text).hint(format!("use --streams {} or fewer", limits.streams)));
    }
    match request.time() {
        Some(time) if time > limits.test_time => {
            Err(too_long(&format!("a test of {} asked for", show_duration(time)), limits))
        }
        _ => Ok(()),
    }
}

pub(super) fn too_long(what: &str, limits: &Limits) -> Refusal {
    let most = show_duration(limits.test_time);
    Refusal::new(RefusalCode::Limit, format!("{what}, the server allows {most}"))
        .hint(format!("use --time {} or less, or fewer records", limits.test_time.as_secs()))
}

/// Puts a thread on one stream.
fn start(
    data: DataStream,
    sends: bool,
    shared: &Arc<Shared>,
    options: &Options,
    events: &Sender<Event>,
) -> Result<(), TestError> {
    let number = data.stream();
    let failed = |source| TestError::Stream { stream: number, source };
    let socket = data.socket().try_clone().map_err(failed)?;
    // Those of a listener were inherited; the send buffer and the congestion control still take effect.
    options.apply(&socket, number).map_err(failed)?;
    let granted = options.report(&socket, number).map_err(failed)?;
    let counter = Arc::new(Counter::default());
    let stream = Stream { number, socket, counter: counter.clone(), opened: data.opened(), granted };
    // The meter that listens lives as long as this session.
    let _ = events.send(Event::Opened(Box::new(stream)));
    let (shared, events) = (shared.clone(), events.clone());
    let work = move || load::run(data, sends, &shared, &counter, &events);
    let thread = thread::Builder::new().name(format!("stream {number}")).stack_size(load::STACK);
    thread.spawn(work).map_err(failed)?;
    Ok(())
}

/// Until the test is over at this end and, where only the client can know, at the other.
fn load(session: &mut ServerSession, request: &TestRequest, meter: &mut Meter) -> Result<(), TestError> {
    let sends = request.direction == Direction::Reverse;
    let limits = session.limits();
    let (longest, begun) = (longest(request, &limits), Instant::now());
    let (mut received, mut heard, mut answers) = (false, begun, Answers::new());
    if let Load::TimeSeconds(time) = request.load {
        session.control.waits_for_room(time.saturating_add(ROOM_WITHIN).min(limits.silence));
    }
    loop {
        session.check()?;
        meter.collect()?;
        if let Some(interval) = meter.tell() {
            if let (1, Some(at_nanos)) = (meter.ticked(), meter.started()) {
                session.control.send(&ServerMessage::Started { at_nanos })?;
            }
            session.control.send(&ServerMessage::Interval(Box::new(interval)))?;
        }
        let over = match request.load {
            Load::TimeSeconds(_) => meter.time_over(),
            Load::Records(_) | Load::Bytes(_) => meter.all_ended() && (received || !sends),
        };
        if over || meter.stopped() {
            return Ok(());
        }
        if begun.elapsed() > longest {
            return Err(SessionError::Refused(too_long("the test takes too long", &limits)).into());
        }
        let message = session.control.poll(meter.idle(), "during the test")?;
        heard = if message.is_some() { Instant::now() } else { heard };
        is_silent(heard, &limits)?;
        match message {
            Some(ClientMessage::Received) => received = true,
            Some(ClientMessage::Ping { number }) => answers.answer(&mut session.control, number)?,
            Some(ClientMessage::Stop) => meter.end_now(),
            // Of tests whose streams are datagrams.
            Some(_) | None => {}
        }
    }
}

/// An error, if the client has said nothing for too long; it asks something every second.
pub(super) fn is_silent(heard: Instant, limits: &Limits) -> Result<(), SessionError> {
    let (peer, while_doing) = ("the client", "during the test");
    match heard.elapsed() > limits.silence + clock::LATER {
        true => Err(SessionError::Timeout { peer, after: limits.silence + clock::LATER, while_doing }),
        false => Ok(()),
    }
}

/// Tells the figures, and waits for the client to end the session.
fn finish(session: &mut ServerSession, meter: &mut Meter, kernel: Kernel) -> Result<(), TestError> {
    let mut report = meter.finish(kernel)?;
    report.rate_limit = session.rate_limit();
    session.control.send(&ServerMessage::Report(Box::new(report)))?;
    until_closed(session)
}

/// Waits for the client to end the session, which it does once it has the figures.
pub(super) fn until_closed(session: &mut ServerSession) -> Result<(), TestError> {
    let silence = session.limits().silence;
    let deadline = Instant::now() + silence;
    while Instant::now() < deadline {
        match session.control.poll::<ClientMessage>(silence, "after the test") {
            Ok(_) => {}
            Err(SessionError::Closed { .. }) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
