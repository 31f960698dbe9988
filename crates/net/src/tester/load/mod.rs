//! The loops that move data: one thread a stream, a blocking socket, one buffer, no lock.
//!
//! A thread tells its progress by atomic counters that the control thread reads when it wants to; it ends when its
//! share is sent, the peer has finished, its time is over, or [`Shared::stop`] is set and its socket shut down. How
//! bytes are moved is `copying` or `no_copy`; `data` says which bytes, and looks at those that come.
//! What the server's limits allow is kept by waiting, a reader too, so that the window holds back a peer that would not
//! be told.

mod copying;
mod data;
mod no_copy;

use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use lfn_core::blocks::BlockTimes;
use lfn_core::tcp_info::TcpInfo;
use lfn_core::wire::test::{Check, Cpu, Data, Direction, Mode, SocketReport, TestRequest};
use lfn_sys::{process, tcp};

use crate::server::throttle::Throttle;
use crate::session::{DEAD_AFTER, DataStream, timed_out};

/// Stack of a stream's thread, of which it touches 8 KiB. glibc hands on stacks that others have used, with all of them
/// that is in memory, to whoever asks for a quarter of their size or more: those of connections are larger than that.
pub(super) const STACK: usize = 96 << 10;

/// What all streams of one end have in common.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Times are counted from here.
    pub(crate) origin: Instant,
    /// Set when the streams are to end, before their sockets are shut down.
    pub(crate) stop: AtomicBool,
    /// Bytes still to be dealt, of a load that is counted.
    left: Option<AtomicU64>,
    /// When the streams end by themselves, from the origin, whatever holds up the thread that would end them.
    ends: Duration,
    throttle: Arc<Throttle>,
    record: usize,
    read: usize,
    pub(crate) mode: Mode,
    data: Data,
    check: bool,
    blocks: bool,
}

/// What a stream's thread tells as it goes.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    pub(crate) bytes: AtomicU64,
    /// Nanoseconds from the origin to the first byte, plus one; 0 before.
    first: AtomicU64,
    /// Nanoseconds from the origin to the end.
    last: AtomicU64,
    /// Who moves the data, for those who look from outside; 0 before it does.
    thread: AtomicI32,
}

/// What the control thread is told of streams.
#[derive(Debug)]
pub(crate) enum Event {
    /// It is open and moves data.
    Opened(Box<Stream>),
    /// Its thread is done.
    Ended {
        /// Its number.
        stream: u16,
        /// What its thread used.
        cpu: Cpu,
        /// What was seen of the bytes.
        seen: Box<Seen>,
        /// Why it ended, if that is an error.
        result: io::Result<()>,
    },
    /// It could not be opened.
    Failed(Box<crate::session::SessionError>),
}

/// A stream as the control thread sees it.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) number: u16,
    pub(crate) socket: TcpStream,
    pub(crate) counter: Arc<Counter>,
    /// When its hello had been sent, or had arrived.
    pub(crate) opened: Instant,
    /// As granted when it was opened.
    pub(crate) granted: SocketReport,
}

/// What a loop saw of the bytes it moved, where it was asked to look.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Seen {
    pub(crate) check: Option<Check>,
    pub(crate) blocks: Option<BlockTimes>,
}

impl Shared {
    /// For one end of a test: that which sends, or the other. `most` is how long its streams may go on from now, if
    /// that is not theirs to say.
    pub(crate) fn new(
        request: &TestRequest,
        sends: bool,
        origin: Instant,
        throttle: Arc<Throttle>,
        most: Option<Duration>,
    ) -> Arc<Self> {
        let near = sends == (request.direction == Direction::Forward);
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        Arc::new(Shared {
            origin,
            stop: AtomicBool::new(false),
            left: request.load.bytes(request.record).map(AtomicU64::new),
            ends: most.map_or(Duration::MAX, |most| origin.elapsed().saturating_add(most)),
            throttle,
            record: size(request.record.0),
            read: size(request.read.0),
            mode: if near { request.modes.near } else { request.modes.far },
            data: request.data,
            check: request.check,
            blocks: request.blocks,
        })
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || (self.ends < Duration::MAX && self.now() >= self.ends)
    }

    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    /// Counts what was moved, and waits as the server's limits say.
    fn pass(&self, bytes: usize) -> io::Result<()> {
        self.throttle.pass(bytes as u64, &self.stop).map_err(io::Error::other)
    }

    /// Takes one record of what is left to send; says how long it is.
    fn deal(&self) -> Option<usize> {
        let Some(left) = &self.left else { return Some(self.record) };
        let record = self.record as u64;
        let before =
            left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(left.saturating_sub(record))).ok()?;
        (before > 0).then(|| before.min(record) as usize)
    }
}

impl Counter {
    /// Nanoseconds from the origin to the first byte.
    pub(crate) fn first(&self) -> Option<u64> {
        self.first.load(Ordering::Relaxed).checked_sub(1)
    }

    /// The thread that moves the data.
    pub(crate) fn thread(&self) -> i32 {
        self.thread.load(Ordering::Relaxed)
    }

    /// Nanoseconds from the origin to the end; 0 before.
    pub(crate) fn last(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }

    fn begin(&self, now: Duration) {
        self.first.store(nanos(now) + 1, Ordering::Relaxed);
    }
}

/// Moves one stream's data in the calling thread, and tells of its end.
pub(crate) fn run(stream: DataStream, sends: bool, shared: &Shared, counter: &Counter, events: &Sender<Event>) {
    let number = stream.stream();
    counter.thread.store(process::thread_id(), Ordering::Relaxed);
    let before = tcp::thread_cpu();
    let mut seen = Seen::default();
    let result = match (sends, shared.mode) {
        (true, Mode::Copying) => copying::send(stream, shared, counter, &mut seen),
        (true, Mode::NoCopy) => no_copy::send(stream, shared, counter, &mut seen),
        (false, Mode::Copying) => copying::receive(stream, shared, counter, &mut seen),
        (false, Mode::NoCopy) => no_copy::receive(stream, shared, counter, &mut seen),
    };
    counter.last.store(nanos(shared.now()), Ordering::Relaxed);
    let after = tcp::thread_cpu();
    let cpu = Cpu { user: after.user.saturating_sub(before.user), system: after.system.saturating_sub(before.system) };
    // What a stream that was stopped had to say of its shut socket is no news.
    let result = if shared.stopped() { Ok(()) } else { result };
    // Nobody listens any more after a failure elsewhere.
    let _ = events.send(Event::Ended { stream: number, cpu, seen: Box::new(seen), result });
}

/// Sends records until there are no more: `write` moves some of record `length` from `offset` on, at most `most` bytes.
fn send(
    stream: &mut DataStream,
    shared: &Shared,
    counter: &Counter,
    seen: &mut Seen,
    mut write: impl FnMut(&mut DataStream, Piece) -> io::Result<usize>,
) -> io::Result<()> {
    counter.begin(shared.now());
    let (mut acked, mut sent) = (0, 0);
    let mut times = shared.blocks.then(BlockTimes::default);
    while let Some(length) = shared.deal() {
        let begun = times.map(|_| shared.now());
        let mut offset = 0;
        while offset < length {
            let piece = Piece { at: sent, offset, length, most: shared.throttle.part(length - offset) };
            match write(stream, piece) {
                Ok(moved) => {
                    counter.bytes.fetch_add(moved as u64, Ordering::Relaxed);
                    offset += moved;
                    shared.pass(moved)?;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // A full buffer on a slow path is no dead peer as long as acknowledgements come.
                Err(error) if timed_out(&error) && progressed(stream.socket(), &mut acked) => {}
                Err(error) => return Err(error),
            }
            if shared.stopped() {
                seen.blocks = times;
                return Ok(());
            }
        }
        sent += length as u64;
        if let (Some(times), Some(begun)) = (&mut times, begun) {
            times.add(begun, shared.now(), length as u64);
        }
    }
    seen.blocks = times;
    stream.finish()
}

/// A piece of a record to be sent.
#[derive(Debug, Clone, Copy)]
struct Piece {
    /// Where the record stands in its stream.
    at: u64,
    /// Where the piece begins in the record.
    offset: usize,
    /// Length of the whole record.
    length: usize,
    /// The most to move now.
    most: usize,
}

/// Receives until the peer has finished: `read` takes at most so many bytes, those at this place of the stream.
fn receive(
    stream: &mut DataStream,
    shared: &Shared,
    counter: &Counter,
    seen: &mut Seen,
    mut read: impl FnMut(&mut DataStream, usize, u64) -> io::Result<usize>,
) -> io::Result<()> {
    stream.socket().set_read_timeout(Some(DEAD_AFTER))?;
    let mut got = 0;
    let record = shared.record as u64;
    loop {
        // Where blocks are told apart, none of them is read with the next.
        let room = if shared.blocks { shared.read.min((record - got % record) as usize) } else { shared.read };
        let length = match read(stream, shared.throttle.part(room), got) {
            Ok(0) => return Ok(()),
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if counter.bytes.fetch_add(length as u64, Ordering::Relaxed) == 0 {
            counter.begin(shared.now());
        }
        got += length as u64;
        if shared.blocks && got % record == 0 {
            seen.blocks.get_or_insert_default().caught(shared.now(), record);
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

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    #[test]
    fn a_stream_that_nobody_ends_ends_by_itself() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let drained = thread::spawn(move || while far.read(&mut [0; 65_536]).unwrap_or(0) > 0 {});
        let most = Some(Duration::from_millis(200));
        let shared = Shared::new(&TestRequest::default(), true, Instant::now(), Throttle::none(), most);
        let (events, ended) = channel();
        let counter = Counter::default();
        run(DataStream::clear(0, near), true, &shared, &counter, &events);
        assert!(matches!(ended.recv().unwrap(), Event::Ended { result: Ok(()), .. }));
        assert!(counter.last() >= 200_000_000 && counter.bytes.load(Ordering::Relaxed) > 0, "{counter:?}");
        drained.join().unwrap();
    }
}
