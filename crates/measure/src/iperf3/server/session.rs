//! Test of one client, from its parameters to its end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use lfn_base::units::{BitRate, Bytes, show_duration};
use lfn_results::iperf3_report::LoadProtocol;
use lfn_session::SessionError;
use lfn_session::limits::ResourceRequest;
use lfn_session::limits::admission::{AdmissionOutcome, Grant};
use lfn_session::limits::connection_table::ConnectionSlot;
use lfn_session::server::ServerEvent;
use lfn_session::server::event::SessionInfo;
use lfn_session::wire::{Refusal, RefusalCode};
use lfn_sys::clock;

use super::super::Error;
use super::super::control::IperfControl;
use super::super::figures::IperfFigures;
use super::super::options::{self, UnknownCongestion};
use super::super::rsa::{self, AUTH_RESPONSE_TIME};
use super::super::stream::OpenStream;
use super::IperfServerState;
use super::output::OutputRecorder;
use crate::proto::iperf3::{Cookie, Parameters, Results, TestEnd, TestState, frame, stream_id};

/// Interval at which the limits and the silence of a running test are checked.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum wait for streams before the control connection is checked.
const STREAM_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// After the client's end of the test, data in flight is read until no data arrives for this time.
const QUIET_TIME: Duration = Duration::from_millis(500);
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// A control connection that has sent its cookie.
pub(super) struct IperfSession {
    shared: Arc<IperfServerState>,
    control: IperfControl,
    peer: SocketAddr,
    cookie: Cookie,
    slot: ConnectionSlot,
    /// Slots of the TCP streams.
    stream_slots: Vec<ConnectionSlot>,
}

impl IperfSession {
    pub(super) fn new(
        shared: Arc<IperfServerState>,
        control: IperfControl,
        peer: SocketAddr,
        cookie: Cookie,
        slot: ConnectionSlot,
    ) -> Self {
        IperfSession { shared, control, peer, cookie, slot, stream_slots: Vec::new() }
    }

    /// Serves the test to its end. Returns errors that occur before the request for a test; later errors are logged
    /// here.
    pub(super) fn run(mut self) -> Result<(), Error> {
        let parameters = match self.parameters() {
            Ok(parameters) => parameters,
            Err(error) => {
                self.send_error(&error);
                return Err(error);
            }
        };
        let info = self.session_info(&parameters);
        let arrived_at = Instant::now();
        let grant = match self.admit(&info) {
            Ok(grant) => grant,
            Err(error) => {
                self.send_error(&error);
                match &error {
                    Error::Limit(refusal) => (self.shared.log)(ServerEvent::Denied(&info, refusal)),
                    _ => (self.shared.log)(ServerEvent::LeftQueue(&info, arrived_at.elapsed())),
                }
                return Ok(());
            }
        };
        (self.shared.log)(ServerEvent::Opened(&info, grant.allowed(), arrived_at.elapsed()));
        let (started_at, rate_limiter) = (Instant::now(), grant.rate_limiter());
        let result = self.run_test(&parameters, &grant);
        if let Err(error) = &result {
            self.send_error(error);
        }
        // The slot is free before the log entry appears.
        drop(grant);
        let error = result.err().map(|error| SessionError::Refused(Refusal::new(RefusalCode::Io, error.to_string())));
        let (bytes, time) = (rate_limiter.bytes_moved(), started_at.elapsed());
        (self.shared.log)(ServerEvent::Ended { info: &info, bytes, time, error: error.as_ref(), copy_summary: None });
        Ok(())
    }

    fn session_info(&self, parameters: &Parameters) -> SessionInfo {
        let (sends, receives) = parameters.server_streams();
        let streams = sends + receives;
        let asked = parameters.rate.into_iter().chain(parameters.pacing).min();
        let requested = ResourceRequest {
            streams,
            time: parameters.time(),
            bytes: match parameters.end {
                TestEnd::Bytes(bytes) => Some(Bytes(bytes)),
                TestEnd::Blocks(blocks) => Some(Bytes(blocks.saturating_mul(parameters.length.0))),
                TestEnd::Time(_) | TestEnd::Unlimited => None,
            },
            rate: asked.map(|rate| BitRate(rate.0.saturating_mul(streams.into()))),
            grace: self.shared.config.timeouts.end_grace,
            ..ResourceRequest::default()
        };
        let (token, paths) = Default::default();
        SessionInfo { client: self.peer, session: None, token, verb: "iperf3", paths, requested, sends: sends > 0 }
    }

    /// Sends the error to the client, which may be gone.
    fn send_error(&mut self, error: &Error) {
        let step = "while the error was sent";
        let _ = match (error, error.code()) {
            (Error::Stopped, _) => self.control.send(TestState::ServerTerminate, step),
            (Error::Limit(refusal), _) if matches!(refusal.code, RefusalCode::Full | RefusalCode::Stopped) => {
                self.control.send(TestState::AccessDenied, step)
            }
            (_, Some((code, errno))) => {
                let numbers = [code.0.to_be_bytes(), errno.to_be_bytes()].concat();
                self.control.write(&[&[TestState::ServerError.wire()], &numbers[..]].concat(), step)
            }
            _ => Ok(()),
        };
    }

    fn parameters(&mut self) -> Result<Parameters, Error> {
        let step = self.shared.config.timeouts.step_timeout;
        self.control.send(TestState::ParamExchange, "before its parameters")?;
        let value = self.control.json(frame::MAX_PARAMETERS, step, "before its parameters")?;
        let arrived_at = Instant::now();
        let parameters = Parameters::read(&value)?;
        if let Some(authentication) = &self.shared.config.users {
            let claim = parameters.token.as_ref().and_then(|token| {
                let claim = authentication.key.decrypt_claim(token, authentication.also_pkcs1)?;
                let recent = claim.is_recent(seconds_since_1970(), authentication.skew);
                (rsa::is_authorized(&authentication.users, &claim) & recent).then_some(claim)
            });
            // Every answer comes after the same time.
            thread::sleep(AUTH_RESPONSE_TIME.saturating_sub(arrived_at.elapsed()));
            if claim.is_none() {
                return Err(Error::Denied("wrong user, password or token time"));
            }
        }
        Ok(parameters)
    }

    /// Waits for the admission of the session.
    fn admit(&mut self, info: &SessionInfo) -> Result<Grant, Error> {
        // From now on the admission control limits the number of sessions.
        if !self.slot.authenticate() {
            return Err(Error::Busy);
        }
        let mut waiting = match self.shared.config.admission.request(self.peer.ip(), info.requested) {
            AdmissionOutcome::Granted(grant) => return Ok(grant),
            AdmissionOutcome::Refused(refusal) => return Err(Error::Limit(refusal)),
            AdmissionOutcome::Queued(waiting) => waiting,
        };
        (self.shared.log)(ServerEvent::Queued(info, waiting.position()));
        let timeout = self.shared.config.timeouts.queue_timeout;
        let deadline = Instant::now() + timeout;
        while Instant::now() < deadline {
            if let Some(outcome) = waiting.wait(None, POLL_INTERVAL) {
                return outcome.map_err(Error::Limit);
            }
            self.check_quiet("while it waited in the queue")?;
        }
        let text = format!("still full after {} in the queue", show_duration(timeout));
        Err(Error::Limit(Refusal::new(RefusalCode::Full, text).hint("try again later")))
    }

    /// Returns an error if the client sends a state at a time when none is valid.
    fn check_quiet(&mut self, step: &'static str) -> Result<(), Error> {
        if self.shared.stopping.load(Ordering::SeqCst) {
            return Err(Error::Stopped);
        }
        match self.control.poll(Duration::ZERO, step)? {
            None => Ok(()),
            Some(TestState::ClientTerminate) => Err(Error::ClientStopped),
            Some(state) => Err(Error::Unexpected { peer: "the client", state, step }),
        }
    }

    fn run_test(&mut self, parameters: &Parameters, grant: &Grant) -> Result<(), Error> {
        let (sends, receives) = parameters.server_streams();
        let streams = match parameters.protocol {
            LoadProtocol::Tcp => self.tcp_streams(parameters, usize::from(receives), usize::from(sends + receives))?,
            LoadProtocol::Udp => self.udp_streams(parameters, usize::from(receives), usize::from(sends + receives))?,
        };
        let mut output =
            OutputRecorder::new(parameters, &self.cookie, self.peer, self.shared.config.json_output, &streams);
        self.control.send(TestState::TestStart, "at the start")?;
        let mut figures = IperfFigures::new(parameters, &grant.rate_limiter(), streams, Duration::from_secs(1));
        limit_bytes(&figures, parameters);
        self.control.send(TestState::TestRunning, "at the start")?;
        figures.start_streams()?;
        self.run_load(parameters, grant, &mut figures, &mut output)?;
        self.exchange_results(parameters, &mut figures, output)
    }

    /// Waits for the streams. The client opens those on which it sends first: `receives` streams.
    fn tcp_streams(
        &mut self,
        parameters: &Parameters,
        receives: usize,
        count: usize,
    ) -> Result<Vec<OpenStream>, Error> {
        let shared = self.shared.clone();
        let Some(mut expected) = shared.arrivals.expect(self.cookie, self.peer.ip(), count) else {
            return Err(Error::Denied("another test uses the same cookie"));
        };
        self.control.send(TestState::CreateStreams, "before its streams")?;
        let timeout = self.shared.config.timeouts.step_timeout;
        let deadline = Instant::now() + timeout;
        loop {
            let arrived = expected.wait(count, deadline.min(Instant::now() + STREAM_POLL_INTERVAL));
            if arrived == count {
                break;
            }
            self.check_quiet("before its streams")?;
            if Instant::now() >= deadline {
                return Err(Error::Streams { arrived, expected: count, timeout });
            }
        }
        let (sockets, paths): (Vec<_>, _) = expected.take().into_iter().unzip();
        self.stream_slots = paths;
        for socket in &sockets {
            options::apply(socket, parameters, UnknownCongestion::KeepsDefault)?;
        }
        let sockets = sockets.into_iter().enumerate();
        Ok(sockets.map(|(index, socket)| OpenStream::tcp(stream_id(index), index >= receives, socket)).collect())
    }

    fn udp_streams(
        &mut self,
        parameters: &Parameters,
        receives: usize,
        count: usize,
    ) -> Result<Vec<OpenStream>, Error> {
        let shared = self.shared.clone();
        let timeout = self.shared.config.timeouts.step_timeout;
        // Earlier tests of this address may take as long as this one.
        let turn = shared.udp.turn(self.peer.ip(), parameters, Instant::now() + 2 * timeout);
        let Some(turn) = turn else { return Err(Error::Streams { arrived: 0, expected: count, timeout }) };
        self.control.send(TestState::CreateStreams, "before its streams")?;
        let deadline = Instant::now() + timeout;
        let mut streams = Vec::new();
        while streams.len() < count {
            match turn.wait(deadline.min(Instant::now() + STREAM_POLL_INTERVAL))? {
                Some(socket) => {
                    let index = streams.len();
                    streams.push(OpenStream::udp(stream_id(index), index >= receives, socket));
                }
                None => {
                    self.check_quiet("before its streams")?;
                    if Instant::now() >= deadline {
                        return Err(Error::Streams { arrived: streams.len(), expected: count, timeout });
                    }
                }
            }
        }
        Ok(streams)
    }

    /// Runs until the client ends the test.
    fn run_load(
        &mut self,
        parameters: &Parameters,
        grant: &Grant,
        figures: &mut IperfFigures,
        output: &mut OutputRecorder,
    ) -> Result<(), Error> {
        let timeouts = self.shared.config.timeouts;
        let max_time = parameters.time().or(grant.allowed().time).map(|time| time + timeouts.end_grace);
        let started_at = Instant::now();
        let (mut last_data, mut before) = (started_at, 0);
        loop {
            while let Some(interval) = figures.close_due_interval() {
                output.add_interval(&interval);
            }
            match self.control.poll(figures.time_to_next_event().min(POLL_INTERVAL), "during the test")? {
                Some(TestState::TestEnd) => return Ok(()),
                Some(TestState::ClientTerminate) => return Err(Error::ClientStopped),
                Some(state) => return Err(Error::Unexpected { peer: "the client", state, step: "during the test" }),
                None => {}
            }
            if self.shared.stopping.load(Ordering::SeqCst) {
                return Err(Error::Stopped);
            }
            grant.check().map_err(Error::Limit)?;
            figures.check_streams()?;
            let bytes = figures.all_bytes();
            if std::mem::replace(&mut before, bytes) != bytes {
                last_data = Instant::now();
            }
            if last_data.elapsed() > timeouts.silence_timeout {
                return Err(Error::Silence(timeouts.silence_timeout));
            }
            if let Some(max_time) = max_time.filter(|&max_time| started_at.elapsed() > max_time) {
                return Err(Error::Expired(max_time));
            }
        }
    }

    /// Exchanges the results of both ends.
    fn exchange_results(
        &mut self,
        parameters: &Parameters,
        figures: &mut IperfFigures,
        mut output: OutputRecorder,
    ) -> Result<(), Error> {
        let step = self.shared.config.timeouts.step_timeout;
        if let Some(interval) = figures.finish() {
            output.add_interval(&interval);
        }
        figures.stop(true);
        self.control.send(TestState::ExchangeResults, "before its results")?;
        let value = self.control.json(frame::MAX_RESULTS, step, "before its results")?;
        let client_results = Results::read(&value, &figures.ids())?;
        if parameters.omit.is_zero() {
            drain(figures, &client_results);
        }
        figures.stop(false);
        let mut results = figures.results();
        results.output = output.finish(&results, &client_results);
        let value = results.write();
        let sent = self.control.send_json(&value, frame::MAX_SERVER_OUTPUT, "while the results were sent");
        if let Err(Error::Frame(_)) = sent {
            results.output = None;
            self.control.send_json(&results.write(), frame::MAX_SERVER_OUTPUT, "while the results were sent")?;
        } else {
            sent?;
        }
        self.control.send(TestState::DisplayResults, "while the results were sent")?;
        match self.control.state(step, "at the end") {
            Ok(TestState::IperfDone) | Err(Error::Closed { .. }) => Ok(()),
            Ok(state) => Err(Error::Unexpected { peer: "the client", state, step: "at the end" }),
            Err(error) => Err(error),
        }
    }
}

/// Limits the bytes of a reverse TCP test to the client's request, so that both ends count the same. Other tests end
/// when the client ends the test: datagrams may be lost, the size of a block is the client's, and clients differ in the
/// start of the count after a warm-up.
fn limit_bytes(figures: &IperfFigures, parameters: &Parameters) {
    let counted = parameters.protocol == LoadProtocol::Tcp && parameters.omit.is_zero();
    if let (true, TestEnd::Bytes(bytes)) = (counted, parameters.end) {
        figures.limit_bytes(bytes);
    }
}

/// Reads until all bytes have arrived that the client reports as sent, or until no more arrive.
fn drain(figures: &mut IperfFigures, client_results: &Results) {
    let receivers = figures.streams().filter(|stream| !stream.sends);
    let sent: u64 = receivers.filter_map(|stream| client_results.stream(stream.id())).map(|stream| stream.bytes).sum();
    let started_at = Instant::now();
    let (mut last_data, mut before) = (started_at, 0);
    while figures.bytes(false) < sent && started_at.elapsed() < DRAIN_TIMEOUT {
        let bytes = figures.bytes(false);
        if std::mem::replace(&mut before, bytes) != bytes {
            last_data = Instant::now();
        } else if last_data.elapsed() > QUIET_TIME {
            break;
        }
        thread::sleep(Duration::from_millis(2));
    }
    figures.include_late_arrivals();
}

fn seconds_since_1970() -> i64 {
    let since = clock::since_1970();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
