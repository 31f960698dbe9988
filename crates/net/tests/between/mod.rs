//! Who stands between a client and its server: passes everything on, but for one message.

mod leg;

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use lfn_core::session::hello;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use serde_json::Value;

use leg::Leg;

/// Who says something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Client,
    Server,
    /// A data stream, either way.
    Data(u64),
}

/// Where a fault strikes: the first message of a side that has these words in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    pub side: Side,
    words: &'static str,
}

impl Point {
    pub const fn client(words: &'static str) -> Point {
        Point { side: Side::Client, words }
    }

    pub const fn server(words: &'static str) -> Point {
        Point { side: Side::Server, words }
    }

    /// After so many bytes of a data stream.
    pub const fn data(bytes: u64) -> Point {
        Point { side: Side::Data(bytes), words: "" }
    }

    pub fn is_any_of(&self, messages: &[&str]) -> bool {
        messages.iter().any(|message| self.words.contains(message))
    }
}

/// What is done with the message.
#[allow(dead_code, reason = "no test does all of it")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Both connections are closed in its stead.
    Close,
    /// The same, behind half of it.
    Half,
    /// From here on nothing passes; the server's connection stays open when the client has gone.
    Stall,
    /// This one does not pass.
    Drop,
    /// It comes later.
    Delay,
    /// Its text is overwritten.
    Garble,
    /// It claims to be 4 GiB long.
    Lie,
    /// It is of a kind that does not exist.
    Kind,
    /// Well formed, and of no meaning.
    Other,
    /// A word of the queue, in which nobody is.
    Queue,
    /// A refusal.
    Refuse,
    /// The same, with [`ODD`] in it.
    RefuseOddly,
    /// Its names have [`ODD`] in them.
    Odd,
    /// Its whole numbers are the largest there are.
    Integers,
    /// Its broken numbers are larger than anything.
    Floats,
    /// They are negative.
    Negative,
    /// Its lists are empty.
    Empty,
    /// One that is long comes in its stead, a byte at a time, and the rest of it never.
    Trickle,
    /// It comes again and again.
    Repeat,
}

/// Characters that move a terminal: a title, the cursor, the direction of the text, lines of its own.
pub const ODD: &str = "\u{1b}]0;x\u{7}\u{9b}2J\u{202e}gnp\u{2066}\u{7f}\t\r\nlfn: all is well";

/// What becomes of datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Datagrams {
    Pass,
    /// The first so many of each client's socket are lost.
    LoseHellos(u32),
    /// The first so many answers to each.
    LoseAnswers(u32),
    /// None passes.
    Filtered,
    /// Nobody listens.
    Closed,
}

pub struct Between {
    pub port: u16,
    state: Arc<State>,
}

struct State {
    server: SocketAddr,
    point: Point,
    fault: Fault,
    datagrams: Datagrams,
    struck: AtomicBool,
    over: AtomicBool,
    data: AtomicU64,
    /// Data streams, to be cut.
    open: Mutex<Vec<TcpStream>>,
    /// What was left open towards the server.
    left: Mutex<Option<Leg>>,
}

impl Between {
    /// Passes all messages on, and of datagrams what it says.
    pub fn beside(server: u16, datagrams: Datagrams) -> Between {
        Between::of(server, Point::client("no message says this"), Fault::Close, datagrams)
    }

    pub fn start(server: u16, point: Point, fault: Fault) -> Between {
        Between::of(server, point, fault, Datagrams::Pass)
    }

    fn of(server: u16, point: Point, fault: Fault, way: Datagrams) -> Between {
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
            datagrams: way,
            struck: AtomicBool::new(false),
            over: AtomicBool::new(false),
            data: AtomicU64::new(0),
            open: Mutex::default(),
            left: Mutex::default(),
        });
        let (accepts, passes) = (state.clone(), state.clone());
        listener.set_nonblocking(true).unwrap();
        thread::spawn(move || accepts.accept(&listener));
        if way != Datagrams::Closed {
            thread::spawn(move || passes.pass_datagrams(&datagrams));
        }
        Between { port, state }
    }

    pub fn struck(&self) -> bool {
        self.state.struck.load(Ordering::SeqCst)
    }

    /// Whether the server closes what was left open, in this time.
    pub fn server_closes(&self, within: Duration) -> Result<(), String> {
        let deadline = Instant::now() + within;
        while Instant::now() < deadline {
            let mut left = self.state.left.lock().unwrap();
            let Some(leg) = left.as_mut() else { return Ok(()) };
            if leg.read().is_err() {
                return Ok(());
            }
            drop(left);
            thread::sleep(Duration::from_millis(20));
        }
        Err("the server still holds its connection".into())
    }
}

impl Drop for Between {
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
            let waits = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
            let _ = poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&waits));
            let Ok((client, _)) = listener.accept() else { continue };
            let state = self.clone();
            // Whatever fails here, the two sides see the end of it.
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
        self.pass_messages(Leg::client(client), Leg::server(server))
    }

    fn pass_data(&self, mut from: TcpStream, mut to: TcpStream) -> io::Result<()> {
        let mut buffer = [0; 16 * 1024];
        loop {
            let length = from.read(&mut buffer)?;
            let before = self.data.fetch_add(length as u64, Ordering::SeqCst);
            if let Side::Data(at) = self.point.side
                && (before..before + length as u64).contains(&at)
            {
                self.struck.store(true, Ordering::SeqCst);
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

    /// A control connection, message by message.
    fn pass_messages(&self, mut client: Leg, mut server: Leg) -> io::Result<()> {
        while !self.is_over() {
            let waits = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
            let mut both = [PollFd::new(&client.socket, PollFlags::IN), PollFd::new(&server.socket, PollFlags::IN)];
            let _ = poll(&mut both, Some(&waits));
            for (side, from, to) in [(Side::Client, 0, 1), (Side::Server, 1, 0)] {
                let legs = [&mut client, &mut server];
                let ended = legs[from].read().is_err();
                while let Some(frame) = legs[from].frame() {
                    if !self.forward(side, frame, legs[to])? {
                        let stalls = self.fault == Fault::Stall;
                        return if stalls { self.stall(client, server) } else { Ok(()) };
                    }
                }
                if ended {
                    legs[to].close();
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Passes a frame on; false where that is the end.
    fn forward(&self, side: Side, mut frame: Vec<u8>, to: &mut Leg) -> io::Result<bool> {
        let text = String::from_utf8_lossy(&frame[5..]).into_owned();
        let here = side == self.point.side && text.contains(self.point.words);
        if !here || self.struck.swap(true, Ordering::SeqCst) {
            to.write(&frame)?;
            return Ok(true);
        }
        let framed = |kind: u8, text: &str| {
            let length = u32::try_from(text.len()).unwrap().to_be_bytes();
            [&[kind], &length[..], text.as_bytes()].concat()
        };
        match self.fault {
            Fault::Close | Fault::Stall => return Ok(false),
            Fault::Half => {
                to.write(&frame[..frame.len() / 2])?;
                return Ok(false);
            }
            Fault::Drop => return Ok(true),
            Fault::Trickle => {
                let long = framed(frame[0], &format!("{{\"x\":\"{}\"}}", "x".repeat(15_000)));
                self.trickle(&to.record(&long)?, &mut to.socket)?;
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
            Fault::Lie => frame[1..5].fill(0xff),
            Fault::Kind => frame[0] = b'Z',
            Fault::Other => frame = framed(b'M', r#"{"message":"sing","connection":"bagpipe"}"#),
            Fault::Queue => frame = framed(b'Q', r#"{"queue":"somewhere"}"#),
            Fault::Integers | Fault::Floats | Fault::Negative | Fault::Empty => {
                let mut message = serde_json::from_str(&text).unwrap();
                lie(&mut message, self.fault);
                frame = framed(frame[0], &message.to_string());
            }
            Fault::Odd => {
                let mut message = serde_json::from_str(&text).unwrap();
                odden(&mut message, "");
                frame = framed(frame[0], &message.to_string());
            }
            Fault::RefuseOddly => {
                let refusal = serde_json::json!({"code": "limit", "message": ODD, "hint": ODD});
                frame = framed(b'R', &refusal.to_string());
            }
            Fault::Refuse => frame = framed(b'R', r#"{"code":"limit","message":"not today","hint":"tomorrow"}"#),
        }
        to.write(&frame)?;
        Ok(true)
    }

    /// For minutes, unless whoever reads it closes.
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

    /// Nothing passes any more. When the client has gone, the server's side is left to whoever looks at it.
    fn stall(&self, mut client: Leg, mut server: Leg) -> io::Result<()> {
        while !self.is_over() && client.read().is_ok() {
            // The server is heard, so that its kernel is not what notices.
            let _ = server.read();
            thread::sleep(Duration::from_millis(10));
        }
        *self.left.lock().unwrap() = Some(server);
        Ok(())
    }

    /// Datagrams, each client's socket by a socket of its own towards the server.
    fn pass_datagrams(self: Arc<Self>, port: &UdpSocket) {
        // Each client's socket, and how many datagrams went and came by it.
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
                let (_, socket, went, _) = &mut clients[index];
                *went += 1;
                match self.datagrams {
                    Datagrams::Filtered => {}
                    Datagrams::LoseHellos(lost) if *went <= lost => {}
                    _ => drop(socket.send(&buffer[..length])),
                }
            }
            for (client, socket, _, came) in &mut clients {
                while let Ok(length) = socket.recv(&mut buffer) {
                    idle = false;
                    *came += 1;
                    if !matches!(self.datagrams, Datagrams::LoseAnswers(lost) if *came <= lost) {
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

/// Makes figures what no honest end tells.
fn lie(value: &mut Value, fault: Fault) {
    match value {
        Value::Array(list) if fault == Fault::Empty => list.clear(),
        Value::Array(list) => list.iter_mut().for_each(|value| lie(value, fault)),
        Value::Object(map) => map.iter_mut().for_each(|(_, value)| lie(value, fault)),
        Value::Number(number) => match (fault, number.is_u64()) {
            // What counts little stays: it would only be no number of its kind.
            (Fault::Integers, true) if number.as_u64() > Some(1000) => *value = u64::MAX.into(),
            (Fault::Floats, false) => *value = 1e300.into(),
            (Fault::Negative, false) => *value = (-1.0).into(),
            _ => {}
        },
        _ => {}
    }
}

/// Writes odd characters behind the texts that may be any.
fn odden(value: &mut Value, name: &str) {
    const FREE: [&str; 7] = ["host", "release", "lfn_version", "congestion", "name", "handle", "parent"];
    match value {
        Value::String(text) if FREE.contains(&name) => *text += ODD,
        Value::Array(list) => list.iter_mut().for_each(|value| odden(value, name)),
        Value::Object(map) => map.iter_mut().for_each(|(name, value)| odden(value, name)),
        _ => {}
    }
}
