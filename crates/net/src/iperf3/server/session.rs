//! One client's test, from its parameters to its goodbye.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use lfn_core::iperf3::{Cookie, End, Parameters, Protocol, Results, State, frame, stream_id};
use lfn_core::units::{BitRate, Bytes, show_duration};
use lfn_core::wire::{Refusal, RefusalCode};

use super::super::Error;
use super::super::control::Control;
use super::super::figures::Figures;
use super::super::flow::{Flow, Load, Socket};
use super::super::options::{self, Unknown};
use super::super::rsa::{self, ANSWER_AFTER};
use super::Shared;
use super::output::ServerOutput;
use crate::server::Event;
use crate::server::admission::{Ask, Entry, Grant};
use crate::server::doors::Watch;
use crate::server::event::Who;
use crate::session::SessionError;

/// How often a running test is looked at: its limits, its silence.
const LOOK_UP: Duration = Duration::from_millis(100);

/// How long its streams are waited for at once, before the control connection is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// What is still on its way when the client has ended its test is waited for, as long as it keeps coming.
const QUIET: Duration = Duration::from_millis(500);
const DRAIN_WITHIN: Duration = Duration::from_secs(5);

/// A control connection that has shown its cookie.
pub(super) struct Session {
    shared: Arc<Shared>,
    control: Control,
    peer: SocketAddr,
    cookie: Cookie,
    watch: Watch,
    /// Places of its TCP streams.
    streams: Vec<Watch>,
}

impl Session {
    pub(super) fn new(shared: Arc<Shared>, control: Control, peer: SocketAddr, cookie: Cookie, watch: Watch) -> Self {
        Session { shared, control, peer, cookie, watch, streams: Vec::new() }
    }

    /// Serves it to its end. An error before anything was asked for is returned; of all else the log has been told.
    pub(super) fn run(mut self) -> Result<(), Error> {
        let parameters = match self.parameters() {
            Ok(parameters) => parameters,
            Err(error) => {
                self.tell(&error);
                return Err(error);
            }
        };
        let who = self.who(&parameters);
        let came = Instant::now();
        let grant = match self.admit(&who) {
            Ok(grant) => grant,
            Err(error) => {
                self.tell(&error);
                match &error {
                    Error::Limit(refusal) => (self.shared.log)(Event::Denied(&who, refusal)),
                    _ => (self.shared.log)(Event::Left(&who, came.elapsed())),
                }
                return Ok(());
            }
        };
        (self.shared.log)(Event::Opened(&who, grant.allowed(), came.elapsed()));
        let (begun, throttle) = (Instant::now(), grant.throttle());
        let result = self.test(&parameters, &grant);
        if let Err(error) = &result {
            self.tell(error);
        }
        // The place is free when the log says so.
        drop(grant);
        let error = result.err().map(|error| SessionError::Refused(Refusal::new(RefusalCode::Io, error.to_string())));
        let (bytes, time) = (throttle.moved(), begun.elapsed());
        (self.shared.log)(Event::Ended { who: &who, bytes, time, error: error.as_ref(), copied: None });
        Ok(())
    }

    fn who(&self, parameters: &Parameters) -> Who {
        let (sends, receives) = parameters.server_streams();
        let streams = sends + receives;
        let asked = parameters.rate.into_iter().chain(parameters.pacing).min();
        let ask = Ask {
            streams,
            time: parameters.time(),
            bytes: match parameters.end {
                End::Bytes(bytes) => Some(Bytes(bytes)),
                End::Blocks(blocks) => Some(Bytes(blocks.saturating_mul(parameters.length.0))),
                End::Time(_) | End::Open => None,
            },
            rate: asked.map(|rate| BitRate(rate.0.saturating_mul(streams.into()))),
            grace: self.shared.config.patience.grace,
            ..Ask::default()
        };
        let (token, places) = Default::default();
        Who { client: self.peer, session: None, token, verb: "iperf3", places, ask, sends: sends > 0 }
    }

    /// Says what went wrong, where the client may still be listening; it may be gone.
    fn tell(&mut self, error: &Error) {
        let doing = "while it was told";
        let _ = match (error, error.code()) {
            (Error::Stopped, _) => self.control.send(State::ServerTerminate, doing),
            (Error::Limit(refusal), _) if matches!(refusal.code, RefusalCode::Full | RefusalCode::Stopped) => {
                self.control.send(State::AccessDenied, doing)
            }
            (_, Some((code, errno))) => {
                let numbers = [code.0.to_be_bytes(), errno.to_be_bytes()].concat();
                self.control.write(&[&[State::ServerError.wire()], &numbers[..]].concat(), doing)
            }
            _ => Ok(()),
        };
    }

    fn parameters(&mut self) -> Result<Parameters, Error> {
        let step = self.shared.config.patience.step;
        self.control.send(State::ParamExchange, "before its parameters")?;
        let value = self.control.json(frame::PARAMETERS_LIMIT, step, "before its parameters")?;
        let came = Instant::now();
        let parameters = Parameters::read(&value)?;
        if let Some(authentication) = &self.shared.config.users {
            let claim = parameters.token.as_ref().and_then(|token| {
                let claim = authentication.key.claim(token, authentication.also_pkcs1)?;
                let recent = claim.is_recent(seconds_since_1970(), authentication.skew);
                (rsa::admits(&authentication.users, &claim) & recent).then_some(claim)
            });
            // Whatever it was, it is said after the same time.
            thread::sleep(ANSWER_AFTER.saturating_sub(came.elapsed()));
            if claim.is_none() {
                return Err(Error::Denied("user, password or time of the token is wrong"));
            }
        }
        Ok(parameters)
    }

    /// Waits for a place.
    fn admit(&mut self, who: &Who) -> Result<Grant, Error> {
        // From here on it is the admission's to say how many there may be.
        if !self.watch.known() {
            return Err(Error::Busy);
        }
        let mut ticket = match self.shared.config.admission.enter(self.peer.ip(), who.ask) {
            Entry::Granted(grant) => return Ok(grant),
            Entry::Refused(refusal) => return Err(Error::Limit(refusal)),
            Entry::Queued(ticket) => ticket,
        };
        (self.shared.log)(Event::Queued(who, ticket.expected()));
        let patience = self.shared.config.patience.queue;
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            if let Some(turn) = ticket.wait(LOOK_UP) {
                return turn.map_err(Error::Limit);
            }
            self.look("while it waited for a place")?;
        }
        let text = format!("no place became free within {}", show_duration(patience));
        Err(Error::Limit(Refusal::new(RefusalCode::Full, text).hint("try again later")))
    }

    /// Nothing should be said now: whatever comes ends the test.
    fn look(&mut self, doing: &'static str) -> Result<(), Error> {
        if self.shared.stopping.load(Ordering::SeqCst) {
            return Err(Error::Stopped);
        }
        match self.control.poll(Duration::ZERO, doing)? {
            None => Ok(()),
            Some(State::ClientTerminate) => Err(Error::ClientStopped),
            Some(state) => Err(Error::Unexpected { peer: "the client", state, doing }),
        }
    }

    fn test(&mut self, parameters: &Parameters, grant: &Grant) -> Result<(), Error> {
        let (sends, receives) = parameters.server_streams();
        let load = Load::new(parameters, parameters.rate, grant.throttle());
        let sockets = match parameters.protocol {
            Protocol::Tcp => self.tcp_streams(parameters, usize::from(sends + receives))?,
            Protocol::Udp => self.udp_streams(parameters, usize::from(sends + receives))?,
        };
        // A client makes first those it sends on.
        let flows = sockets
            .into_iter()
            .enumerate()
            .map(|(index, socket)| Flow::new(stream_id(index), index >= usize::from(receives), socket, load.clone()));
        let flows: Vec<Flow> = flows.collect();
        let mut output = ServerOutput::new(parameters, &self.cookie, self.peer, self.shared.config.json_output, &flows);
        self.control.send(State::TestStart, "at the start")?;
        let mut figures = Figures::new(load.clone(), flows, parameters.omit, Duration::from_secs(1));
        limit(&load, parameters);
        self.control.send(State::TestRunning, "at the start")?;
        for flow in &mut figures.flows {
            flow.start()?;
        }
        self.running(parameters, grant, &mut figures, &mut output)?;
        self.results(parameters, &mut figures, output)
    }

    fn tcp_streams(&mut self, parameters: &Parameters, count: usize) -> Result<Vec<Socket>, Error> {
        let shared = self.shared.clone();
        let Some(mut expected) = shared.arrivals.expect(self.cookie, self.peer.ip(), count) else {
            return Err(Error::Denied("another test has the same cookie"));
        };
        self.control.send(State::CreateStreams, "before its streams")?;
        let within = self.shared.config.patience.step;
        let deadline = Instant::now() + within;
        loop {
            let came = expected.wait(count, deadline.min(Instant::now() + LOOK));
            if came == count {
                break;
            }
            self.look("before its streams")?;
            if Instant::now() >= deadline {
                return Err(Error::Streams { came, expected: count, within });
            }
        }
        let (sockets, places): (Vec<_>, _) = expected.take().into_iter().unzip();
        self.streams = places;
        for socket in &sockets {
            options::apply(socket, parameters, Unknown::KeepsDefault)?;
        }
        Ok(sockets.into_iter().map(Socket::Tcp).collect())
    }

    fn udp_streams(&mut self, parameters: &Parameters, count: usize) -> Result<Vec<Socket>, Error> {
        let shared = self.shared.clone();
        let within = self.shared.config.patience.step;
        // Those before it may take as long as it may itself.
        let turn = shared.udp.turn(self.peer.ip(), parameters, Instant::now() + 2 * within);
        let Some(turn) = turn else { return Err(Error::Streams { came: 0, expected: count, within }) };
        self.control.send(State::CreateStreams, "before its streams")?;
        let deadline = Instant::now() + within;
        let mut sockets = Vec::new();
        while sockets.len() < count {
            match turn.wait(deadline.min(Instant::now() + LOOK))? {
                Some(socket) => sockets.push(Socket::Udp(socket)),
                None => {
                    self.look("before its streams")?;
                    if Instant::now() >= deadline {
                        return Err(Error::Streams { came: sockets.len(), expected: count, within });
                    }
                }
            }
        }
        Ok(sockets)
    }

    /// Until the client ends it.
    fn running(
        &mut self,
        parameters: &Parameters,
        grant: &Grant,
        figures: &mut Figures,
        output: &mut ServerOutput,
    ) -> Result<(), Error> {
        let patience = self.shared.config.patience;
        let most = parameters.time().or(grant.allowed().time).map(|time| time + patience.grace);
        let begun = Instant::now();
        let (mut heard, mut before) = (begun, 0);
        loop {
            while let Some(slice) = figures.tick() {
                output.slice(&slice);
            }
            match self.control.poll(figures.idle().min(LOOK_UP), "during the test")? {
                Some(State::TestEnd) => return Ok(()),
                Some(State::ClientTerminate) => return Err(Error::ClientStopped),
                Some(state) => return Err(Error::Unexpected { peer: "the client", state, doing: "during the test" }),
                None => {}
            }
            if self.shared.stopping.load(Ordering::SeqCst) {
                return Err(Error::Stopped);
            }
            grant.check().map_err(Error::Limit)?;
            for flow in &figures.flows {
                flow.ended()?;
            }
            let bytes = figures.flows.iter().map(|flow| flow.counter().bytes()).sum();
            if std::mem::replace(&mut before, bytes) != bytes {
                heard = Instant::now();
            }
            if heard.elapsed() > patience.silence {
                return Err(Error::Silence(patience.silence));
            }
            if let Some(most) = most.filter(|&most| begun.elapsed() > most) {
                return Err(Error::Expired(most));
            }
        }
    }

    /// Both ends tell what they counted.
    fn results(
        &mut self,
        parameters: &Parameters,
        figures: &mut Figures,
        mut output: ServerOutput,
    ) -> Result<(), Error> {
        let step = self.shared.config.patience.step;
        if let Some(slice) = figures.finish() {
            output.slice(&slice);
        }
        figures.stop(true);
        self.control.send(State::ExchangeResults, "before its results")?;
        let value = self.control.json(frame::RESULTS_LIMIT, step, "before its results")?;
        let ids: Vec<u32> = figures.flows.iter().map(|flow| flow.id).collect();
        let theirs = Results::read(&value, &ids)?;
        if parameters.omit.is_zero() {
            drain(figures, &theirs);
        }
        figures.stop(false);
        let mut results = figures.results();
        results.output = output.finish(&results, &theirs);
        let value = results.write();
        let sent = self.control.send_json(&value, frame::OUTPUT_LIMIT, "while it was told the results");
        if let Err(Error::Frame(_)) = sent {
            results.output = None;
            self.control.send_json(&results.write(), frame::OUTPUT_LIMIT, "while it was told the results")?;
        } else {
            sent?;
        }
        self.control.send(State::DisplayResults, "while it was told the results")?;
        match self.control.state(step, "at the end") {
            Ok(State::IperfDone) | Err(Error::Closed { .. }) => Ok(()),
            Ok(state) => Err(Error::Unexpected { peer: "the client", state, doing: "at the end" }),
            Err(error) => Err(error),
        }
    }
}

/// A reverse test over TCP ends when the client has what it wanted: more is not sent, so that both ends count the same.
/// Datagrams get lost, blocks are what the client calls one, and some clients count from the end of the warm-up and some
/// do not: there, it says when it is enough.
fn limit(load: &Load, parameters: &Parameters) {
    let counted = parameters.protocol == Protocol::Tcp && parameters.omit.is_zero();
    if let (true, End::Bytes(bytes)) = (counted, parameters.end) {
        load.send_only(bytes);
    }
}

/// Reads on until all is there that the client says it sent, or no more comes.
fn drain(figures: &mut Figures, theirs: &Results) {
    let receivers = || figures.flows.iter().filter(|flow| !flow.sends);
    let sent: u64 = receivers().filter_map(|flow| theirs.stream(flow.id)).map(|stream| stream.bytes).sum();
    let begun = Instant::now();
    let (mut heard, mut before) = (begun, 0);
    while figures.bytes(false) < sent && begun.elapsed() < DRAIN_WITHIN {
        let bytes = figures.bytes(false);
        if std::mem::replace(&mut before, bytes) != bytes {
            heard = Instant::now();
        } else if heard.elapsed() > QUIET {
            break;
        }
        thread::sleep(Duration::from_millis(2));
    }
    figures.extend();
}

fn seconds_since_1970() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
