//! A proxy between a client and its server: relays everything, and injects a fault at one message.

#![allow(clippy::disallowed_types, reason = "the other end of the path uses plain sockets")]

mod tls_side;

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use lfn_session::hello;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use serde_json::Value;

use tls_side::TlsSide;

/// The sender of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Client,
    Server,
    /// A data stream in either direction, after this number of bytes.
    Data(u64),
}

/// The place of a fault: a message of one side that contains this text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultPoint {
    pub side: Side,
    text: &'static str,
    /// The number of such messages that pass before.
    after: u64,
}

impl FaultPoint {
    pub const fn client(text: &'static str) -> FaultPoint {
        FaultPoint { side: Side::Client, text, after: 0 }
    }

    pub const fn server(text: &'static str) -> FaultPoint {
        FaultPoint { side: Side::Server, text, after: 0 }
    }

    /// Returns the place after this number of bytes of a data stream.
    pub const fn data(bytes: u64) -> FaultPoint {
        FaultPoint { side: Side::Data(bytes), text: "", after: 0 }
    }

    /// Returns the place behind this number of such messages.
    #[allow(dead_code, reason = "not all tests use it")]
    pub const fn after(self, after: u64) -> FaultPoint {
        FaultPoint { after, ..self }
    }

    pub fn is_any_of(&self, messages: &[&str]) -> bool {
        messages.iter().any(|message| self.text.contains(message))
    }
}

/// The fault of the message.
#[allow(dead_code, reason = "no test does all of it")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Both connections are closed instead.
    Close,
    /// Both connections are closed after half of the message.
    Truncate,
    /// No more messages pass. The connection to the server stays open after the client has disconnected.
    Stall,
    /// The message is lost.
    Drop,
    /// The message is delayed.
    Delay,
    /// The text is overwritten.
    Garble,
    /// The length field claims 4 GiB.
    FalseLength,
    /// The kind of the message does not exist.
    UnknownKind,
    /// A well-formed message without a meaning.
    Meaningless,
    /// A message of the queue, although the session is not queued.
    Queue,
    /// A refusal.
    Refuse,
    /// A refusal that contains [`CONTROL_CHARACTERS`].
    RefuseWithControlCharacters,
    /// The names in the message contain [`CONTROL_CHARACTERS`].
    ControlCharacters,
    /// Large integers become the maximum value.
    HugeIntegers,
    /// Fractional numbers become huge.
    HugeFloats,
    /// Fractional numbers become negative.
    Negative,
    /// The lists become empty.
    EmptyLists,
    /// A long message arrives instead, one byte at a time and never completely.
    Trickle,
    /// The message is repeated without end.
    Repeat,
}

/// Characters that control a terminal: a title, the cursor, the text direction, and line breaks.
pub const CONTROL_CHARACTERS: &str = "\u{1b}]0;x\u{7}\u{9b}2J\u{202e}gnp\u{2066}\u{7f}\t\r\nlfn: all is well";

/// The fault of the datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatagramFault {
    Pass,
    /// The first datagrams of each client's socket are lost.
    LoseHellos(u32),
    /// The first answers to each socket are lost.
    LoseAnswers(u32),
    /// No datagram passes.
    Filtered,
    /// The UDP port is closed.
    Closed,
}

pub struct FaultProxy {
    pub port: u16,
    state: Arc<State>,
}

struct State {
    server: SocketAddr,
    point: FaultPoint,
    fault: Fault,
    datagram_fault: DatagramFault,
    triggered: AtomicBool,
    /// Messages that fit the point.
    matches: AtomicU64,
    over: AtomicBool,
    data: AtomicU64,
    /// Open data streams.
    open: Mutex<Vec<TcpStream>>,
    /// The connection to the server after a stall.
    open_server: Mutex<Option<TlsSide>>,
}

impl FaultProxy {
    /// Relays all messages, and the datagrams with this fault.
    pub fn with_datagrams(server: u16, datagrams: DatagramFault) -> FaultProxy {
        FaultProxy::new(server, FaultPoint::client("no message says this"), Fault::Close, datagrams)
    }

    pub fn start(server: u16, point: FaultPoint, fault: Fault) -> FaultProxy {
        FaultProxy::new(server, point, fault, DatagramFault::Pass)
    }

    fn new(server: u16, point: FaultPoint, fault: Fault, datagram_fault: DatagramFault) -> FaultProxy {
        let (listener, datagrams) = loop {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            if let Ok(datagrams) = UdpSocket::bind(listener.local_addr().unwrap()) {
                break (listener, datagrams);
            }
        };
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State {
            server: SocketAddr::from(([127, 0, 0, 1], server)),
            point,
            fault,
            datagram_fault,
            triggered: AtomicBool::new(false),
            matches: AtomicU64::new(0),
            over: AtomicBool::new(false),
            data: AtomicU64::new(0),
            open: Mutex::default(),
            open_server: Mutex::default(),
        });
        let (acceptor, relay) = (state.clone(), state.clone());
        listener.set_nonblocking(true).unwrap();
        thread::spawn(move || acceptor.accept(&listener));
        if datagram_fault != DatagramFault::Closed {
            thread::spawn(move || relay.pass_datagrams(&datagrams));
        }
        FaultProxy { port, state }
    }

    pub fn was_triggered(&self) -> bool {
        self.state.triggered.load(Ordering::SeqCst)
    }

    /// Waits until the server closes the connection that was left open.
    pub fn wait_for_server_close(&self, within: Duration) -> Result<(), String> {
        let deadline = Instant::now() + within;
        while Instant::now() < deadline {
            let mut open_server = self.state.open_server.lock().unwrap();
            let Some(side) = open_server.as_mut() else { return Ok(()) };
            if side.read().is_err() {
                return Ok(());
            }
            drop(open_server);
            thread::sleep(Duration::from_millis(20));
        }
        Err("the server still holds its connection".into())
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.state.over.store(true, Ordering::SeqCst);
    }
}

impl State {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    fn accept(self: Arc<Self>, listener: &TcpListener) {
        while !self.is_over() {
            let timeout = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
            let _ = poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&timeout));
            let Ok((client, _)) = listener.accept() else { continue };
            let state = self.clone();
            // Both sides see the end of the connection if an error occurs here.
            thread::spawn(move || drop(state.pass(client)));
        }
    }

    fn pass(&self, client: TcpStream) -> io::Result<()> {
        client.set_nonblocking(false)?;
        let mut first = [0];
        if client.peek(&mut first)? == 0 {
            return Ok(());
        }
        let server = TcpStream::connect(self.server)?;
        if first[0] == hello::FIRST_BYTE {
            self.open.lock().unwrap().extend([client.try_clone()?, server.try_clone()?]);
            let (up, down) = ((client.try_clone()?, server.try_clone()?), (server, client));
            return thread::scope(|scope| {
                scope.spawn(|| self.pass_data(up.0, up.1));
                self.pass_data(down.0, down.1)
            });
        }
        self.pass_messages(TlsSide::client(client), TlsSide::server(server))
    }

    fn pass_data(&self, mut from: TcpStream, mut to: TcpStream) -> io::Result<()> {
        let mut buffer = [0; 16 * 1024];
        loop {
            let length = from.read(&mut buffer)?;
            let before = self.data.fetch_add(length as u64, Ordering::SeqCst);
            if let Side::Data(at) = self.point.side
                && (before..before + length as u64).contains(&at)
            {
                self.triggered.store(true, Ordering::SeqCst);
                let at = (at - before) as usize;
                if self.fault == Fault::Garble {
                    buffer[at] ^= 0x55;
                } else {
                    to.write_all(&buffer[..at])?;
                    return self.cut_data();
                }
            }
            if length == 0 {
                return to.shutdown(Shutdown::Write);
            }
            to.write_all(&buffer[..length])?;
        }
    }

    fn cut_data(&self) -> io::Result<()> {
        self.open.lock().unwrap().drain(..).try_for_each(|socket| socket.shutdown(Shutdown::Both))
    }

    /// Relays a control connection, message by message.
    fn pass_messages(&self, mut client: TlsSide, mut server: TlsSide) -> io::Result<()> {
        while !self.is_over() {
            let timeout = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
            let mut both = [PollFd::new(&client.socket, PollFlags::IN), PollFd::new(&server.socket, PollFlags::IN)];
            let _ = poll(&mut both, Some(&timeout));
            for (side, from, to) in [(Side::Client, 0, 1), (Side::Server, 1, 0)] {
                let sides = [&mut client, &mut server];
                let ended = sides[from].read().is_err();
                while let Some(frame) = sides[from].take_frame() {
                    if !self.forward(side, frame, sides[to])? {
                        let stalls = self.fault == Fault::Stall;
                        return if stalls { self.stall(client, server) } else { Ok(()) };
                    }
                }
                if ended {
                    sides[to].close();
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Relays a frame. Returns false if the connection ends with it.
    fn forward(&self, side: Side, mut frame: Vec<u8>, to: &mut TlsSide) -> io::Result<bool> {
        let text = String::from_utf8_lossy(&frame[5..]).into_owned();
        let fits = side == self.point.side && text.contains(self.point.text);
        let is_target = fits && self.matches.fetch_add(1, Ordering::SeqCst) >= self.point.after;
        if !is_target || self.triggered.swap(true, Ordering::SeqCst) {
            to.write(&frame)?;
            return Ok(true);
        }
        let framed = |kind: u8, text: &str| {
            let length = u32::try_from(text.len()).unwrap().to_be_bytes();
            [&[kind], &length[..], text.as_bytes()].concat()
        };
        match self.fault {
            Fault::Close | Fault::Stall => return Ok(false),
            Fault::Truncate => {
                to.write(&frame[..frame.len() / 2])?;
                return Ok(false);
            }
            Fault::Drop => return Ok(true),
            Fault::Trickle => {
                let long = framed(frame[0], &format!("{{\"x\":\"{}\"}}", "x".repeat(15_000)));
                self.trickle(&to.encrypt(&long)?, &mut to.socket)?;
                return Ok(false);
            }
            Fault::Repeat => {
                while !self.is_over() {
                    to.write(&frame)?;
                }
                return Ok(false);
            }
            Fault::Delay => thread::sleep(Duration::from_millis(400)),
            Fault::Garble => frame[5..].fill(b'x'),
            Fault::FalseLength => frame[1..5].fill(0xff),
            Fault::UnknownKind => frame[0] = b'Z',
            Fault::Meaningless => frame = framed(b'M', r#"{"message":"sing","connection":"bagpipe"}"#),
            Fault::Queue => frame = framed(b'Q', r#"{"queue":"somewhere"}"#),
            Fault::HugeIntegers | Fault::HugeFloats | Fault::Negative | Fault::EmptyLists => {
                let mut message = serde_json::from_str(&text).unwrap();
                falsify(&mut message, self.fault);
                frame = framed(frame[0], &message.to_string());
            }
            Fault::ControlCharacters => {
                let mut message = serde_json::from_str(&text).unwrap();
                add_control_characters(&mut message, "");
                frame = framed(frame[0], &message.to_string());
            }
            Fault::RefuseWithControlCharacters => {
                let refusal =
                    serde_json::json!({"code": "limit", "message": CONTROL_CHARACTERS, "hint": CONTROL_CHARACTERS});
                frame = framed(b'R', &refusal.to_string());
            }
            Fault::Refuse => frame = framed(b'R', r#"{"code":"limit","message":"not today","hint":"tomorrow"}"#),
        }
        to.write(&frame)?;
        Ok(true)
    }

    /// Sends the bytes slowly, for minutes unless the peer closes the connection.
    fn trickle(&self, bytes: &[u8], to: &mut TcpStream) -> io::Result<()> {
        for byte in bytes {
            if self.is_over() {
                break;
            }
            to.write_all(&[*byte])?;
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Relays nothing any more. Keeps the connection to the server after the client has disconnected.
    fn stall(&self, mut client: TlsSide, mut server: TlsSide) -> io::Result<()> {
        while !self.is_over() && client.read().is_ok() {
            // Reading from the server prevents its kernel from noticing.
            let _ = server.read();
            thread::sleep(Duration::from_millis(10));
        }
        *self.open_server.lock().unwrap() = Some(server);
        Ok(())
    }

    /// Relays datagrams, with one socket towards the server for each socket of a client.
    fn pass_datagrams(self: Arc<Self>, port: &UdpSocket) {
        // The client's address, its socket, and the number of datagrams in each direction.
        let mut clients: Vec<(SocketAddr, UdpSocket, u32, u32)> = Vec::new();
        let mut buffer = [0; 65_536];
        while !self.is_over() {
            let mut idle = true;
            port.set_read_timeout(Some(Duration::from_millis(2))).unwrap();
            if let Ok((length, from)) = port.recv_from(&mut buffer) {
                idle = false;
                let known = clients.iter().position(|(client, ..)| *client == from);
                let index = known.unwrap_or_else(|| {
                    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
                    socket.connect(self.server).unwrap();
                    socket.set_nonblocking(true).unwrap();
                    clients.push((from, socket, 0, 0));
                    clients.len() - 1
                });
                let (_, socket, sent, _) = &mut clients[index];
                *sent += 1;
                match self.datagram_fault {
                    DatagramFault::Filtered => {}
                    DatagramFault::LoseHellos(lost) if *sent <= lost => {}
                    _ => drop(socket.send(&buffer[..length])),
                }
            }
            for (client, socket, _, received) in &mut clients {
                while let Ok(length) = socket.recv(&mut buffer) {
                    idle = false;
                    *received += 1;
                    if !matches!(self.datagram_fault, DatagramFault::LoseAnswers(lost) if *received <= lost) {
                        let _ = port.send_to(&buffer[..length], *client);
                    }
                }
            }
            if idle && clients.is_empty() {
                thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

/// Replaces numbers by impossible ones.
fn falsify(value: &mut Value, fault: Fault) {
    match value {
        Value::Array(list) if fault == Fault::EmptyLists => list.clear(),
        Value::Array(list) => list.iter_mut().for_each(|value| falsify(value, fault)),
        Value::Object(map) => map.iter_mut().for_each(|(_, value)| falsify(value, fault)),
        Value::Number(number) => match (fault, number.is_u64()) {
            // Small numbers stay: they would become invalid for their type.
            (Fault::HugeIntegers, true) if number.as_u64() > Some(1000) => *value = u64::MAX.into(),
            (Fault::HugeFloats, false) => *value = 1e300.into(),
            (Fault::Negative, false) => *value = (-1.0).into(),
            _ => {}
        },
        _ => {}
    }
}

/// Appends control characters to free texts.
fn add_control_characters(value: &mut Value, name: &str) {
    const FREE: [&str; 7] = ["host", "release", "lfn_version", "congestion", "name", "handle", "parent"];
    match value {
        Value::String(text) if FREE.contains(&name) => *text += CONTROL_CHARACTERS,
        Value::Array(list) => list.iter_mut().for_each(|value| add_control_characters(value, name)),
        Value::Object(map) => map.iter_mut().for_each(|(name, value)| add_control_characters(value, name)),
        _ => {}
    }
}
