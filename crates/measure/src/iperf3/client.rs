//! A client for stock iperf3 servers that returns the report of `lfn`'s own tests.
//!
//! The server's figures come from its results: bytes and time of each stream, processor time, retransmissions. The
//! report has no fields that the protocol does not carry: kernel, buffers, `TCP_INFO` and intervals of the server. For
//! a server that receives TCP, the intervals are the bytes that its kernel acknowledged, as seen by this end.

mod report;
mod settings;
mod streams;

pub use report::{IperfOutcome, request};
pub use settings::{IperfTest, Login};

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lfn_base::tcp_info::TcpInfo;
use lfn_results::evidence::EndReason;
use lfn_results::iperf3_report::LoadProtocol;
use lfn_results::measure::{Interval, TestDirection};
use lfn_session::dial::BindAddress;
use lfn_session::join_host_port;
use lfn_session::limits::rate_limiter::RateLimiter;
use lfn_session::transport::tcp::TcpConnection;
use lfn_sys::clock;
use lfn_sys::names::lookup;
use socket2::{Domain, Socket, Type};

use super::Error;
use super::control::IperfControl;
use super::figures::{IntervalFigures, IperfFigures};
use crate::proto::iperf3::auth::IperfCredentials;
use crate::proto::iperf3::{COOKIE_LENGTH, Cookie, ErrorCode, Parameters, Results, TestEnd, TestState, frame};
use streams::bind;

/// Progress of a running test.
#[derive(Debug)]
pub enum IperfProgress<'a> {
    /// The test starts; the RTT of the control connection.
    Connected(Duration),
    /// An interval of one direction: this end's figures, and the known figures of the server's end.
    Interval(TestDirection, &'a Interval, Option<&'a Interval>),
}

/// Interval at which a running test is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Time in which a stock server reads acknowledged data from its kernel before the end of the test. At the end it
/// discards unread data.
const READ_TIME: Duration = Duration::from_millis(100);

/// Runs one test on `host`; `watch` receives its progress.
pub fn run(
    host: &str,
    port: u16,
    test: &IperfTest,
    watch: &mut dyn FnMut(IperfProgress<'_>),
) -> Result<IperfOutcome, Error> {
    let mut parameters = test.parameters.clone();
    if let Some(login) = &test.login {
        parameters.token = Some(auth_token(login)?);
    }
    let (mut control, address) = connect(host, port, test.step_timeout, test.bind_addresses.first())?;
    let rtt = control.handle().min_rtt();
    let cookie = new_cookie()?;
    control.write(cookie.wire(), "during the handshake")?;
    expect_state(&mut control, TestState::ParamExchange, test.step_timeout, "after the cookie")?;
    control.send_json(&parameters.write(), frame::MAX_PARAMETERS, "while the parameters were sent")?;
    expect_state(&mut control, TestState::CreateStreams, test.queue_timeout, "after the parameters")?;
    let streams = streams::open(address, &cookie, &parameters, test)?;
    expect_state(&mut control, TestState::TestStart, test.step_timeout, "after the streams")?;
    let figures = IperfFigures::new(&parameters, &RateLimiter::unlimited(), streams, test.interval);
    expect_state(&mut control, TestState::TestRunning, test.step_timeout, "before the test")?;
    watch(IperfProgress::Connected(rtt));
    control.set_interrupt_flag(test.stop.clone());
    let (timeout, stop) = (test.step_timeout, test.stop.clone());
    IperfTestClient {
        parameters,
        control,
        figures,
        intervals: Vec::new(),
        timeout,
        rtt,
        watch,
        stop,
        ended: EndReason::Completed,
    }
    .run()
}

/// A running test with open streams.
struct IperfTestClient<'a> {
    parameters: Parameters,
    control: IperfControl,
    figures: IperfFigures,
    intervals: Vec<IntervalFigures>,
    timeout: Duration,
    rtt: Duration,
    watch: &'a mut dyn FnMut(IperfProgress<'_>),
    stop: Arc<AtomicBool>,
    ended: EndReason,
}

impl IperfTestClient<'_> {
    fn run(mut self) -> Result<IperfOutcome, Error> {
        if self.parameters.omit.is_zero() {
            self.limit_bytes();
        }
        self.figures.start_streams()?;
        while !self.is_over()? {
            self.poll()?;
        }
        if self.ended == EndReason::Completed {
            self.wait_for_acks()?;
        }
        if let Some(interval) = self.figures.finish() {
            self.add_interval(interval);
        }
        self.figures.stop_sending();
        self.control.send(TestState::TestEnd, "at the end")?;
        expect_state(&mut self.control, TestState::ExchangeResults, self.timeout, "after the test")?;
        self.figures.stop(true);
        self.figures.stop(false);
        let near = self.figures.results();
        self.control.send_json(&near.write(), frame::MAX_SERVER_OUTPUT, "while the results were sent")?;
        let value = self.control.json(frame::MAX_SERVER_OUTPUT, self.timeout, "before its results")?;
        let far = Results::read(&value, &self.figures.ids())?;
        expect_state(&mut self.control, TestState::DisplayResults, self.timeout, "after the results")?;
        self.control.send(TestState::IperfDone, "at the end")?;
        let mut outcome = report::outcome(&self.parameters, self.rtt, &self.figures, &self.intervals, &near, &far);
        outcome.runs.iter_mut().for_each(|evidence| evidence.ended = self.ended);
        Ok(outcome)
    }

    /// Limits the bytes to send, for a test of a fixed amount.
    fn limit_bytes(&self) {
        if let Some(bytes) = self.requested_bytes() {
            self.figures.limit_bytes(bytes);
        }
    }

    fn requested_bytes(&self) -> Option<u64> {
        match self.parameters.end {
            TestEnd::Bytes(bytes) => Some(bytes),
            TestEnd::Blocks(blocks) => Some(blocks.saturating_mul(self.parameters.length.0)),
            TestEnd::Time(_) | TestEnd::Unlimited => None,
        }
    }

    /// Returns whether the load is complete.
    fn is_over(&mut self) -> Result<bool, Error> {
        self.figures.check_streams()?;
        if self.figures.has_any_ended(false) && self.parameters.protocol == LoadProtocol::Tcp {
            return Err(Error::Closed { peer: "the iperf3 server", step: "on a data stream" });
        }
        if self.stop.load(Ordering::Relaxed) {
            self.ended = EndReason::Interrupted;
            return Ok(true);
        }
        if self.figures.is_warming_up() {
            return Ok(false);
        }
        Ok(match (self.parameters.end, self.requested_bytes()) {
            (TestEnd::Time(time), _) => self.figures.now() >= time,
            (_, Some(bytes)) => self.figures.have_all_ended(true) || self.figures.bytes(false) >= bytes,
            _ => false,
        })
    }

    /// Handles one wake-up: due intervals, and states of the server.
    fn poll(&mut self) -> Result<(), Error> {
        let omitting = self.figures.is_warming_up();
        while let Some(interval) = self.figures.close_due_interval() {
            self.add_interval(interval);
        }
        if omitting && !self.figures.is_warming_up() {
            self.limit_bytes();
        }
        let left = match self.parameters.end {
            TestEnd::Time(time) if !self.figures.is_warming_up() => time.saturating_sub(self.figures.now()),
            _ => POLL_INTERVAL,
        };
        let poll_limit = if self.requested_bytes().is_some() { Duration::from_millis(2) } else { POLL_INTERVAL };
        let idle = self.figures.time_to_next_event().min(left).min(poll_limit).max(Duration::from_millis(1));
        match self.control.poll(idle, "during the test") {
            Ok(None) => Ok(()),
            Ok(Some(state)) => Err(state_error(&mut self.control, state, self.timeout, "during the test")),
            Err(error) => Err(error),
        }
    }

    /// Waits until all sent bytes are acknowledged, as long as acknowledgements arrive.
    fn wait_for_acks(&mut self) -> Result<(), Error> {
        if self.requested_bytes().is_none() || self.parameters.protocol == LoadProtocol::Udp {
            return Ok(());
        }
        let (mut last_progress, mut before) = (Instant::now(), u64::MAX);
        loop {
            let senders = self.figures.streams().filter(|stream| stream.sends);
            let infos = senders.filter_map(|stream| stream.stream.handle.info());
            let left: u64 = infos.map(|info| u64::from(info.unacked_segments) + unsent(&info)).sum();
            if left == 0 {
                break;
            }
            if std::mem::replace(&mut before, left) != left {
                last_progress = Instant::now();
            } else if last_progress.elapsed() > self.timeout {
                return Err(Error::Timeout {
                    peer: "the iperf3 server",
                    after: self.timeout,
                    step: "while the last bytes were acknowledged",
                });
            }
            if self.stop.load(Ordering::Relaxed) {
                self.ended = EndReason::Interrupted;
                return Ok(());
            }
            self.poll()?;
        }
        if self.figures.streams().all(|stream| !stream.sends) {
            return Ok(());
        }
        self.figures.mark_delivered();
        let deadline = Instant::now() + READ_TIME + self.rtt;
        while Instant::now() < deadline {
            self.poll()?;
        }
        Ok(())
    }

    fn add_interval(&mut self, interval: IntervalFigures) {
        // The report starts after the warm-up, like the results.
        if interval.omitted {
            return;
        }
        for sends in [true, false] {
            if let Some(near) = report::near_interval(&self.figures, &interval, sends) {
                let far = report::far_interval(&self.figures, self.intervals.last(), &interval, sends);
                let direction = if sends { TestDirection::Forward } else { TestDirection::Reverse };
                (self.watch)(IperfProgress::Interval(direction, &near, far.as_ref()));
            }
        }
        self.intervals.push(interval);
    }
}

fn unsent(info: &TcpInfo) -> u64 {
    info.notsent_bytes.map_or(0, u64::from)
}

/// Reads the next state. Another state than the expected one is an error, which may explain the reason.
fn expect_state(
    control: &mut IperfControl,
    expected: TestState,
    timeout: Duration,
    step: &'static str,
) -> Result<(), Error> {
    let state = control.state(timeout, step)?;
    if state == expected { Ok(()) } else { Err(state_error(control, state, timeout, step)) }
}

/// Converts an unexpected state to an error.
fn state_error(control: &mut IperfControl, state: TestState, timeout: Duration, step: &'static str) -> Error {
    match state {
        TestState::AccessDenied => Error::Busy,
        TestState::ServerTerminate => Error::Stopped,
        TestState::ServerError => {
            let mut number = || {
                let mut bytes = [0; 4];
                // Some versions send only the first number before they close.
                let read = control.read(&mut bytes, timeout.min(Duration::from_secs(2)), step);
                read.map(|()| i32::from_be_bytes(bytes))
            };
            match number() {
                Ok(code) => Error::Refused { code: ErrorCode(code), errno: number().unwrap_or(0) },
                Err(error) => error,
            }
        }
        state => Error::Unexpected { peer: "the iperf3 server", state, step },
    }
}

fn auth_token(login: &Login) -> Result<String, Error> {
    let since = clock::since_1970();
    let time = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    let claim = IperfCredentials { user: login.user.clone(), password: login.password.clone(), time };
    Ok(login.key.encrypt_claim(&claim, login.padding)?)
}

fn new_cookie() -> Result<Cookie, Error> {
    let mut random = [0; COOKIE_LENGTH - 1];
    getrandom::fill(&mut random)
        .map_err(|error| Error::Option { option: "randomness".into(), source: io::Error::other(error) })?;
    Ok(Cookie::from_random(random))
}

/// Connects to the first address of the host that answers.
fn connect(
    host: &str,
    port: u16,
    timeout: Duration,
    from: Option<&BindAddress>,
) -> Result<(IperfControl, SocketAddr), Error> {
    let name = join_host_port(host, port);
    let failed = |source| Error::Connect { address: name.clone(), source };
    let unknown = |source| Error::UnknownHost { host: host.to_owned(), source };
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in lookup(host, port).map_err(unknown)? {
        if from.is_some_and(|from| !from.reaches(&address)) {
            last = io::Error::other("the source address has another IP version");
            continue;
        }
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).map_err(failed)?;
        bind(&socket, from)?;
        match TcpConnection::connect_socket(socket, address, timeout) {
            Ok(connection) => return Ok((IperfControl::new(connection, "the iperf3 server")?, address)),
            Err(error) => last = error,
        }
    }
    Err(failed(last))
}
