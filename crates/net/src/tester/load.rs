//! The loops that move data: one thread a stream, a blocking socket, one buffer, no lock.
//!
//! A thread tells its progress by atomic counters that the control thread reads when it wants to; it ends when its
//! share is sent, the peer has finished, or [`Shared::stop`] is set and its socket shut down.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::time::Instant;

use lfn_core::tcp_info::TcpInfo;
use lfn_core::wire::test::{Cpu, Load, SocketReport, TestRequest};
use lfn_sys::tcp;

use crate::server::throttle::Throttle;
use crate::session::{DEAD_AFTER, DataStream, timed_out};

/// What a receiver asks of one read: large enough that the calls cost nothing, small enough for the second-level cache.
const READ: usize = 256 * 1024;

/// What all streams of one end have in common.
#[derive(Debug)]
pub(super) struct Shared {
    /// Times are counted from here.
    pub(super) origin: Instant,
    /// Set when the streams are to end, before their sockets are shut down.
    pub(super) stop: AtomicBool,
    /// What a server holds the session to.
    throttle: Arc<Throttle>,
    /// Records still to be dealt.
    records: AtomicU64,
    record: usize,
    timed: bool,
}

/// What a stream's thread tells as it goes.
#[derive(Debug, Default)]
pub(super) struct Counter {
    pub(super) bytes: AtomicU64,
    /// Nanoseconds from the origin to the first byte, plus one; 0 before.
    first: AtomicU64,
    /// Nanoseconds from the origin to the end.
    last: AtomicU64,
}

/// What the control thread is told of streams.
#[derive(Debug)]
pub(super) enum Event {
    /// It is open and moves data.
    Opened(Stream),
    /// Its thread is done.
    Ended { stream: u16, cpu: Cpu, result: io::Result<()> },
    /// It could not be opened.
    Failed(crate::session::SessionError),
}

/// A stream as the control thread sees it.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) number: u16,
    pub(super) socket: TcpStream,
    pub(super) counter: Arc<Counter>,
    /// As granted when it was opened.
    pub(super) granted: SocketReport,
}

impl Shared {
    pub(super) fn new(request: &TestRequest, origin: Instant, throttle: Arc<Throttle>) -> Arc<Self> {
        let records = match request.load {
            Load::Records(count) => count,
            Load::TimeSeconds(_) => 0,
        };
        Arc::new(Shared {
            origin,
            stop: AtomicBool::new(false),
            throttle,
            records: AtomicU64::new(records),
            record: usize::try_from(request.record.0).unwrap_or(usize::MAX),
            timed: matches!(request.load, Load::TimeSeconds(_)),
        })
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Counts what was moved, and waits as the server's limits say.
    fn pass(&self, bytes: usize) -> io::Result<()> {
        self.throttle.pass(bytes as u64, &self.stop).map_err(io::Error::other)
    }

    /// Takes one record of those left to send.
    fn deal(&self) -> bool {
        self.timed
            || self.records.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }
}

impl Counter {
    /// Nanoseconds from the origin to the first byte.
    pub(super) fn first(&self) -> Option<u64> {
        self.first.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Nanoseconds from the origin to the end; 0 before.
    pub(super) fn last(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }
}

/// Moves one stream's data in the calling thread, and tells of its end.
pub(super) fn run(stream: DataStream, sends: bool, shared: &Shared, counter: &Counter, events: &Sender<Event>) {
    let number = stream.stream();
    let before = tcp::thread_cpu();
    let result = if sends { send(stream, shared, counter) } else { receive(stream, shared, counter) };
    counter.last.store(shared.now(), Ordering::Relaxed);
    let after = tcp::thread_cpu();
    let cpu = Cpu { user: after.user.saturating_sub(before.user), system: after.system.saturating_sub(before.system) };
    // What a stream that was stopped had to say of its shut socket is no news.
    let result = if shared.stopped() { Ok(()) } else { result };
    // Nobody listens any more after a failure elsewhere.
    let _ = events.send(Event::Ended { stream: number, cpu, result });
}

fn send(mut stream: DataStream, shared: &Shared, counter: &Counter) -> io::Result<()> {
    // Not zeros: a compressing tunnel would make a path of its own of them.
    let record = noise(shared.record);
    counter.first.store(shared.now() + 1, Ordering::Relaxed);
    let mut acked = 0;
    while shared.deal() {
        let mut rest = &record[..];
        while !rest.is_empty() {
            match stream.write(&rest[..shared.throttle.part(rest.len())]) {
                Ok(length) => {
                    counter.bytes.fetch_add(length as u64, Ordering::Relaxed);
                    rest = &rest[length..];
                    shared.pass(length)?;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // A full buffer on a slow path is no dead peer as long as acknowledgements come.
                Err(error) if timed_out(&error) && progressed(stream.socket(), &mut acked) => {}
                Err(error) => return Err(error),
            }
            if shared.stopped() {
                return Ok(());
            }
        }
    }
    stream.finish()
}

fn receive(mut stream: DataStream, shared: &Shared, counter: &Counter) -> io::Result<()> {
    stream.socket().set_read_timeout(Some(DEAD_AFTER))?;
    let mut buffer = vec![0; READ];
    loop {
        let part = shared.throttle.part(buffer.len());
        let length = match stream.read(&mut buffer[..part]) {
            Ok(0) => return Ok(()),
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if counter.bytes.fetch_add(length as u64, Ordering::Relaxed) == 0 {
            counter.first.store(shared.now() + 1, Ordering::Relaxed);
        }
        shared.pass(length)?;
        if shared.stopped() {
            return Ok(());
        }
    }
}

/// Whether more was acknowledged than `acked`, which is brought up to date.
fn progressed(socket: &TcpStream, acked: &mut u64) -> bool {
    let now = tcp::info(socket).ok().and_then(|bytes| TcpInfo::parse(&bytes).ok()).and_then(|info| info.acked_bytes);
    let before = std::mem::replace(acked, now.unwrap_or(0));
    *acked > before
}

/// Bytes without a pattern (xorshift), the same every time.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}
