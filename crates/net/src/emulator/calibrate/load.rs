//! What forwarding costs: as much as can be sent in a short time, once in single packets and once in super-packets.
//!
//! A flood of datagrams that nobody reads, and a TCP stream. What counts is the processor time of the forwarding threads
//! and of the threads that send and receive, as the kernel accounts for it; that is nearly the same on a busy machine.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use lfn_core::link::Count;
use lfn_core::units::Bytes;
use lfn_sys::{clock, process};

use super::{Cost, Costs};
use crate::emulator::data_path::{Mailbox, Snapshot};
use crate::emulator::place::{End, SideName, SideNet};
use crate::emulator::{EmulateError, start, system};

/// How long is sent.
const FLOOD: Duration = Duration::from_millis(80);
const STREAM: Duration = Duration::from_millis(150);
/// Fewer packets, or fewer bytes, and the machine was too busy to tell.
const FEW_PACKETS: u64 = 200;
const FEW_BYTES: u64 = 10_000_000;
/// UDP payload of a packet of 1,500 bytes.
const DATAGRAM: usize = 1472;
/// Bytes of one write of the stream.
const RECORD: usize = 256 << 10;
const PORT: u16 = 9;
const PATIENCE: Duration = Duration::from_secs(2);

/// Measures both.
pub(super) fn costs(sides: &[SideNet; 2], mailboxes: &[Mailbox; 2]) -> Result<Costs, EmulateError> {
    let mut meter = Meter::new(mailboxes)?;
    let sender = thread::scope(|scope| start(scope, || flood(sides)).map(ended))?;
    let (spent, forwarded) = meter.since(sender.map_err(system("send datagrams"))?)?;
    let packet = spent.per(forwarded.packets, FEW_PACKETS)?;
    let ends = stream(sides)?.map_err(system("send over TCP"))?;
    let (spent, forwarded) = meter.since(ends)?;
    let gigabyte = spent.per(forwarded.bytes.0, FEW_BYTES)?;
    let gigabyte = Cost { thread: gigabyte.thread * 1e9, all: gigabyte.all * 1e9 };
    let processors = thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX));
    Ok(Costs { packet, gigabyte, processors })
}

/// Reads what both directions have done, from one time to the next.
struct Meter<'a> {
    mailboxes: &'a [Mailbox; 2],
    forth: Snapshot,
    back: Snapshot,
}

/// Processor time of the forwarding thread, and of all.
struct Spent {
    thread: Duration,
    all: Duration,
}

impl<'a> Meter<'a> {
    fn new(mailboxes: &'a [Mailbox; 2]) -> Result<Self, EmulateError> {
        let [forth, back] = mailboxes;
        Ok(Meter { mailboxes, forth: forth.snapshot()?, back: back.snapshot()? })
    }

    /// What was spent on what was forwarded since the last time, when sender and receiver spent so much.
    fn since(&mut self, ends: Duration) -> Result<(Spent, Count), EmulateError> {
        let now = Meter::new(self.mailboxes)?;
        let thread = now.forth.cpu.saturating_sub(self.forth.cpu);
        let all = thread + now.back.cpu.saturating_sub(self.back.cpu) + ends;
        let (is, was) = (now.forth.stats.forwarded, self.forth.stats.forwarded);
        let bytes = Bytes(is.bytes.0.saturating_sub(was.bytes.0));
        *self = now;
        Ok((Spent { thread, all }, Count { packets: is.packets.saturating_sub(was.packets), bytes }))
    }
}

impl Spent {
    fn per(&self, count: u64, few: u64) -> Result<Cost, EmulateError> {
        if count < few {
            return Err(system("measure what this machine carries")(io::Error::other("it is too busy")));
        }
        let per = |time: Duration| time.as_secs_f64() / count as f64;
        Ok(Cost { thread: per(self.thread), all: per(self.all) })
    }
}

/// Gives the processor time of the sender.
fn flood([near, far]: &[SideNet; 2]) -> io::Result<Duration> {
    let at = address();
    let _sink = far.namespace.run(|| UdpSocket::bind(at))??;
    let socket = near.namespace.run(|| UdpSocket::bind(("0.0.0.0", 0)))??;
    socket.connect(at)?;
    let end = Instant::now() + FLOOD;
    while Instant::now() < end {
        socket.send(&[0; DATAGRAM])?;
    }
    process::thread_cpu_time()
}

/// Gives the processor time of sender and receiver. Neither waits for ever for the other, which may not have come up.
fn stream([near, far]: &[SideNet; 2]) -> Result<io::Result<Duration>, EmulateError> {
    let listener = far.namespace.run(|| TcpListener::bind(address())).map_err(system("enter a network namespace"))?;
    let listener = listener.map_err(system("listen"))?;
    thread::scope(|scope| {
        let receiver = start(scope, || receive(&listener))?;
        let sender = start(scope, || {
            let stream = near.namespace.run(|| TcpStream::connect_timeout(&address(), PATIENCE))??;
            send(stream)
        })?;
        let (sent, received) = (ended(sender), ended(receiver));
        Ok(sent.and_then(|sent| Ok(sent + received?)))
    })
}

fn ended(thread: ScopedJoinHandle<'_, io::Result<Duration>>) -> io::Result<Duration> {
    thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
}

fn send(mut stream: TcpStream) -> io::Result<Duration> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let record = vec![0; RECORD];
    let end = Instant::now() + STREAM;
    while Instant::now() < end {
        stream.write_all(&record)?;
    }
    process::thread_cpu_time()
}

fn receive(listener: &TcpListener) -> io::Result<Duration> {
    if clock::wait_readable([listener.as_fd()], Some(PATIENCE))? == [false] {
        return Err(ErrorKind::TimedOut.into());
    }
    let (mut stream, _) = listener.accept()?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut record = vec![0; RECORD];
    loop {
        match stream.read(&mut record) {
            Ok(0) => return process::thread_cpu_time(),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn address() -> SocketAddr {
    SocketAddr::from((End::new(SideName::Far, 0).v4(), PORT))
}
