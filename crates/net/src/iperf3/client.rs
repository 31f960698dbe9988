//! A client for stock iperf3 servers, with the report of our own tests.
//!
//! The server's figures are those of its results: bytes and time of each stream, processor time, retransmissions. What
//! the protocol does not carry (its kernel, its buffers, its `TCP_INFO`, its intervals) is absent from its report. The
//! intervals of a server that receives TCP are what its kernel acknowledged, as seen from here.

mod report;
mod streams;

pub use report::{Outcome, request};

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use lfn_core::iperf3::auth::Claim;
use lfn_core::iperf3::{COOKIE_LENGTH, Code, Cookie, End, Parameters, Protocol, Results, State, frame, stream_id};
use lfn_core::report::Ended;
use lfn_core::tcp_info::TcpInfo;
use lfn_core::wire::test::{Direction, Interval};
use socket2::{Domain, Socket, Type};

use super::Error;
use super::control::Control;
use super::figures::{Figures, Slice};
use super::flow::Load;
use super::rsa::{Padding, PublicKey};
use crate::server::throttle::Throttle;
use crate::session::dial::Place;
use crate::session::{SessionError, round_trip};

/// What a server is asked to do, and how long it may take.
#[derive(Debug, Clone)]
pub struct Test {
    /// What it is asked.
    pub parameters: Parameters,
    /// Who asks, of a server that wants to know.
    pub login: Option<Login>,
    /// Length of this end's intervals.
    pub interval: Duration,
    /// How long one step of the conversation may take.
    pub within: Duration,
    /// How long the server may take before it asks for streams: one that serves many lets some wait.
    pub queue: Duration,
    /// Where connections are dialled from: the control connection from the first place, stream n from the nth, beginning
    /// again after the last. None of them leaves it to the routes.
    pub from: Vec<Place>,
    /// Set to end the load early, with its figures.
    pub stop: Arc<AtomicBool>,
}

/// A user of the server's.
#[derive(Clone)]
pub struct Login {
    /// Who.
    pub user: String,
    /// The password.
    pub password: String,
    /// The server's public key.
    pub key: PublicKey,
    /// How it is to be encrypted.
    pub padding: Padding,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Login({})", self.user)
    }
}

/// What a running test tells.
#[derive(Debug)]
pub enum Progress<'a> {
    /// The test begins: the round-trip time of the connection.
    Connected(Duration),
    /// An interval of a direction: as this end saw it, and what is known of the server's end, if anything is.
    Interval(Direction, &'a Interval, Option<&'a Interval>),
}

/// How often a running test is looked at.
const LOOK_UP: Duration = Duration::from_millis(50);

/// A stock server forgets what it has not read when it is told that the test is over. What was acknowledged lies in its
/// kernel, and so long it gets to read it.
const READ_WITHIN: Duration = Duration::from_millis(100);

/// Runs one test on `host`; `watch` is told what happens as it does.
pub fn run(host: &str, port: u16, test: &Test, watch: &mut dyn FnMut(Progress<'_>)) -> Result<Outcome, Error> {
    let mut parameters = test.parameters.clone();
    if let Some(login) = &test.login {
        parameters.token = Some(token(login)?);
    }
    let (mut control, address) = connect(host, port, test.within, test.from.first())?;
    let rtt = round_trip(control.socket());
    let cookie = new_cookie()?;
    control.write(cookie.wire(), "at the beginning")?;
    expect(&mut control, State::ParamExchange, test.within, "after the cookie")?;
    control.send_json(&parameters.write(), frame::PARAMETERS_LIMIT, "while it was told the parameters")?;
    expect(&mut control, State::CreateStreams, test.queue, "after the parameters")?;
    let load = Load::new(&parameters, parameters.rate, Throttle::none());
    let flows = streams::open(address, &cookie, &parameters, &load, test)?;
    expect(&mut control, State::TestStart, test.within, "after the streams")?;
    let figures = Figures::new(load.clone(), flows, parameters.omit, test.interval);
    expect(&mut control, State::TestRunning, test.within, "before the test")?;
    watch(Progress::Connected(rtt));
    control.stops_at(test.stop.clone());
    let (within, stop) = (test.within, test.stop.clone());
    Conversation {
        parameters,
        control,
        load,
        figures,
        slices: Vec::new(),
        within,
        rtt,
        watch,
        stop,
        ended: Ended::Done,
    }
    .run()
}

/// A test whose streams are open.
struct Conversation<'a> {
    parameters: Parameters,
    control: Control,
    load: Arc<Load>,
    figures: Figures,
    slices: Vec<Slice>,
    within: Duration,
    rtt: Duration,
    watch: &'a mut dyn FnMut(Progress<'_>),
    stop: Arc<AtomicBool>,
    ended: Ended,
}

impl Conversation<'_> {
    fn run(mut self) -> Result<Outcome, Error> {
        if self.parameters.omit.is_zero() {
            self.bound();
        }
        for flow in &mut self.figures.flows {
            flow.start()?;
        }
        while !self.is_over()? {
            self.look()?;
        }
        if self.ended == Ended::Done {
            self.settle()?;
        }
        if let Some(slice) = self.figures.finish() {
            self.keep(slice);
        }
        self.load.stop_sending();
        self.control.send(State::TestEnd, "at the end")?;
        expect(&mut self.control, State::ExchangeResults, self.within, "after the test")?;
        self.figures.stop(true);
        self.figures.stop(false);
        let near = self.figures.results();
        self.control.send_json(&near.write(), frame::OUTPUT_LIMIT, "while it was told the results")?;
        let value = self.control.json(frame::OUTPUT_LIMIT, self.within, "before its results")?;
        let ids: Vec<u32> = self.figures.flows.iter().map(|flow| flow.id).collect();
        let far = Results::read(&value, &ids)?;
        expect(&mut self.control, State::DisplayResults, self.within, "after the results")?;
        self.control.send(State::IperfDone, "at the end")?;
        let mut outcome = report::outcome(&self.parameters, self.rtt, &self.figures, &self.slices, &near, &far);
        outcome.runs.iter_mut().for_each(|(run, _)| run.ended = self.ended);
        Ok(outcome)
    }

    /// What is to be sent, where it is counted.
    fn bound(&self) {
        if let Some(bytes) = self.wanted() {
            self.load.send_only(bytes);
        }
    }

    fn wanted(&self) -> Option<u64> {
        match self.parameters.end {
            End::Bytes(bytes) => Some(bytes),
            End::Blocks(blocks) => Some(blocks.saturating_mul(self.parameters.length.0)),
            End::Time(_) | End::Open => None,
        }
    }

    /// Whether what was to be done is done.
    fn is_over(&mut self) -> Result<bool, Error> {
        let mut senders = 0;
        let mut ended = 0;
        for flow in &self.figures.flows {
            let over = flow.ended()?;
            senders += usize::from(flow.sends);
            ended += usize::from(over && flow.sends);
            if over && !flow.sends && self.parameters.protocol == Protocol::Tcp {
                return Err(Error::Closed { peer: "the iperf3 server", doing: "on a data stream" });
            }
        }
        if self.stop.load(Ordering::Relaxed) {
            self.ended = Ended::Interrupted;
            return Ok(true);
        }
        if self.figures.omitting() {
            return Ok(false);
        }
        Ok(match (self.parameters.end, self.wanted()) {
            (End::Time(time), _) => self.figures.now() >= time,
            (_, Some(bytes)) => (senders > 0 && ended == senders) || self.figures.bytes(false) >= bytes,
            _ => false,
        })
    }

    /// One look at the clock and at the server.
    fn look(&mut self) -> Result<(), Error> {
        let omitting = self.figures.omitting();
        while let Some(slice) = self.figures.tick() {
            self.keep(slice);
        }
        if omitting && !self.figures.omitting() {
            self.bound();
        }
        let left = match self.parameters.end {
            End::Time(time) if !self.figures.omitting() => time.saturating_sub(self.figures.now()),
            _ => LOOK_UP,
        };
        let counted = if self.wanted().is_some() { Duration::from_millis(2) } else { LOOK_UP };
        let idle = self.figures.idle().min(left).min(counted).max(Duration::from_millis(1));
        match self.control.poll(idle, "during the test") {
            Ok(None) => Ok(()),
            Ok(Some(state)) => Err(refusal(&mut self.control, state, self.within, "during the test")),
            Err(error) => Err(error),
        }
    }

    /// What was sent to the last byte is waited for, as long as it keeps being acknowledged.
    fn settle(&mut self) -> Result<(), Error> {
        if self.wanted().is_none() || self.parameters.protocol == Protocol::Udp {
            return Ok(());
        }
        let (mut heard, mut before) = (Instant::now(), u64::MAX);
        loop {
            let infos = self.figures.flows.iter().filter(|flow| flow.sends).filter_map(|flow| flow.socket.info());
            let left: u64 = infos.map(|info| u64::from(info.unacked_segments) + unsent(&info)).sum();
            if left == 0 {
                break;
            }
            if std::mem::replace(&mut before, left) != left {
                heard = Instant::now();
            } else if heard.elapsed() > self.within {
                return Err(Error::Timeout {
                    peer: "the iperf3 server",
                    after: self.within,
                    doing: "while the last bytes were sent",
                });
            }
            if self.stop.load(Ordering::Relaxed) {
                self.ended = Ended::Interrupted;
                return Ok(());
            }
            self.look()?;
        }
        if self.figures.flows.iter().all(|flow| !flow.sends) {
            return Ok(());
        }
        self.figures.settle();
        let deadline = Instant::now() + READ_WITHIN + self.rtt;
        while Instant::now() < deadline {
            self.look()?;
        }
        Ok(())
    }

    fn keep(&mut self, slice: Slice) {
        // The report begins where the results begin: after the warm-up.
        if slice.omitted {
            return;
        }
        for sends in [true, false] {
            if let Some(near) = report::interval(&self.figures, &slice, sends) {
                let far = report::far_interval(&self.figures, self.slices.last(), &slice, sends);
                let direction = if sends { Direction::Forward } else { Direction::Reverse };
                (self.watch)(Progress::Interval(direction, &near, far.as_ref()));
            }
        }
        self.slices.push(slice);
    }
}

fn unsent(info: &TcpInfo) -> u64 {
    info.notsent_bytes.map_or(0, u64::from)
}

/// The state that must come now; any other is an error, and some of those say why.
fn expect(control: &mut Control, wanted: State, within: Duration, doing: &'static str) -> Result<(), Error> {
    let state = control.state(within, doing)?;
    if state == wanted { Ok(()) } else { Err(refusal(control, state, within, doing)) }
}

/// What a state means that nobody waited for.
fn refusal(control: &mut Control, state: State, within: Duration, doing: &'static str) -> Error {
    match state {
        State::AccessDenied => Error::Busy,
        State::ServerTerminate => Error::Stopped,
        State::ServerError => {
            let mut number = || {
                let mut bytes = [0; 4];
                // Some versions send the first number alone, and close.
                let read = control.read(&mut bytes, within.min(Duration::from_secs(2)), doing);
                read.map(|()| i32::from_be_bytes(bytes))
            };
            match number() {
                Ok(code) => Error::Refused { code: Code(code), errno: number().unwrap_or(0) },
                Err(error) => error,
            }
        }
        state => Error::Unexpected { peer: "the iperf3 server", state, doing },
    }
}

fn token(login: &Login) -> Result<String, Error> {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let time = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    let claim = Claim { user: login.user.clone(), password: login.password.clone(), time };
    Ok(login.key.token(&claim, login.padding)?)
}

fn new_cookie() -> Result<Cookie, Error> {
    let mut random = [0; COOKIE_LENGTH - 1];
    getrandom::fill(&mut random)
        .map_err(|error| Error::Option { what: "randomness".into(), source: io::Error::other(error) })?;
    Ok(Cookie::from_random(random))
}

/// The first of the host's addresses that answers.
fn connect(host: &str, port: u16, within: Duration, from: Option<&Place>) -> Result<(Control, SocketAddr), Error> {
    let name = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let failed = |source| Error::Connect { address: name.clone(), source };
    let unknown = |source| Error::UnknownHost { host: host.to_owned(), source };
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in (host, port).to_socket_addrs().map_err(unknown)? {
        if from.is_some_and(|from| !from.reaches(&address)) {
            last = io::Error::other("the address to dial from is of the other IP version");
            continue;
        }
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).map_err(failed)?;
        bind(&socket, from)?;
        match socket.connect_timeout(&address.into(), within) {
            Ok(()) => return Ok((Control::new(socket.into(), "the iperf3 server")?, address)),
            Err(error) => last = error,
        }
    }
    Err(failed(last))
}

/// Binds a socket to where it is to be dialled from.
fn bind(socket: &Socket, from: Option<&Place>) -> Result<(), Error> {
    let Some(from) = from else { return Ok(()) };
    from.bind(socket).map_err(|error| match error {
        SessionError::From { place, source } => Error::Option { what: format!("dialling from {place}"), source },
        other => Error::Option { what: "dialling from there".into(), source: io::Error::other(other) },
    })
}

/// Streams of the test, by identifier, and whether this end sends on them.
fn numbered(parameters: &Parameters) -> Vec<(u32, bool)> {
    let (reverse, forward) = parameters.server_streams();
    // Those this end sends on come first.
    (0..usize::from(forward + reverse)).map(|index| (stream_id(index), index < usize::from(forward))).collect()
}
