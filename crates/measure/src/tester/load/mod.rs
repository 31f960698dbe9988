//! Loops that move data: one thread per stream, a blocking socket, one buffer, no lock.
//!
//! A thread publishes its progress in atomic counters for the control thread. It ends when its share is sent, when the
//! peer has finished, when its time is over, or when [`LoadState::stop`] is set and its socket shut down. `copying` and
//! `no_copy` move the bytes; `data` creates and verifies them. The server's limits are enforced by waiting, at a reader
//! too: a full receive window then stops a peer that ignores the limit.

mod copying;
mod data;
mod no_copy;
mod run;

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lfn_results::block_timing::BlockTimes;
use lfn_results::measure::{Cpu, Mode, PayloadCheck, PayloadData, SocketReport, TestDirection, TestRequest};
pub(crate) use run::run;

use lfn_session::DataStream;
use lfn_session::limits::rate_limiter::RateLimiter;
use lfn_session::transport::{DEAD_PEER_TIMEOUT, Handle, is_timeout};

/// Stack of a stream's thread, which touches 8 KiB of it. glibc reuses the stacks of ended threads, with their resident
/// memory, for any thread that requests at least a quarter of their size. The stacks of connections are larger than
/// four times this size.
pub(super) const STACK_SIZE: usize = 96 << 10;

/// State that all streams of one end share.
#[derive(Debug)]
pub(crate) struct LoadState {
    /// Origin of all times.
    pub(crate) origin: Instant,
    /// Set to end the streams, before their sockets are shut down.
    pub(crate) stop: AtomicBool,
    /// Bytes still to send, for a load of a fixed amount.
    bytes_left: Option<AtomicU64>,
    /// Time after the origin at which the streams end by themselves, even if the control thread is delayed.
    end_after: Duration,
    rate_limiter: Arc<RateLimiter>,
    record_bytes: usize,
    read_bytes: usize,
    pub(crate) mode: Mode,
    data: PayloadData,
    check: bool,
    with_block_times: bool,
}

/// Progress of one stream, for the control thread.
#[derive(Debug, Default)]
pub(crate) struct StreamCounter {
    pub(crate) bytes: AtomicU64,
    /// Nanoseconds from the origin to the first byte, plus one; 0 before the first byte.
    first: AtomicU64,
    /// Nanoseconds from the origin to the end; 0 before.
    last: AtomicU64,
    /// Id of the thread that moves the data; 0 before the thread runs.
    thread: AtomicI32,
}

/// Events of the streams for the control thread.
#[derive(Debug)]
pub(crate) enum StreamEvent {
    /// The stream is open and moves data.
    Opened(Box<LoadStream>),
    Ended {
        stream: u16,
        /// Processor time of the thread.
        cpu: Cpu,
        payload: Box<PayloadResult>,
        result: io::Result<()>,
    },
    /// The stream could not be opened.
    Failed(Box<lfn_session::SessionError>),
}

/// A stream, as the control thread sees it.
#[derive(Debug)]
pub(crate) struct LoadStream {
    pub(crate) number: u16,
    pub(crate) handle: Arc<dyn Handle>,
    pub(crate) counter: Arc<StreamCounter>,
    /// Time at which the hello was sent or received.
    pub(crate) opened: Instant,
    /// Options granted when the stream was opened; `None` if the stream has no socket.
    pub(crate) granted: Option<SocketReport>,
}

/// Results about the payload of a stream, if requested.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PayloadResult {
    pub(crate) check: Option<PayloadCheck>,
    pub(crate) blocks: Option<BlockTimes>,
}

impl LoadState {
    /// Creates the state of the sending or the receiving end. `max_time` limits the streams' time from now on, if the
    /// streams themselves do not know their end.
    pub(crate) fn new(
        request: &TestRequest,
        sends: bool,
        origin: Instant,
        rate_limiter: Arc<RateLimiter>,
        max_time: Option<Duration>,
    ) -> Arc<Self> {
        let near = sends == (request.direction == TestDirection::Forward);
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        Arc::new(LoadState {
            origin,
            stop: AtomicBool::new(false),
            bytes_left: request.load.bytes(request.record).map(AtomicU64::new),
            end_after: max_time.map_or(Duration::MAX, |max_time| origin.elapsed().saturating_add(max_time)),
            rate_limiter,
            record_bytes: size(request.record.0),
            read_bytes: size(request.read.0),
            mode: if near { request.modes.near } else { request.modes.far },
            data: request.data,
            check: request.check,
            with_block_times: request.blocks,
        })
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || (self.end_after < Duration::MAX && self.now() >= self.end_after)
    }

    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    /// Counts moved bytes, and waits as the server's limits require.
    fn count_and_wait(&self, bytes: usize) -> io::Result<()> {
        self.rate_limiter.count_and_wait(bytes as u64, &self.stop).map_err(io::Error::other)
    }

    /// Takes the next record from the bytes left to send, and returns its length.
    fn take_record(&self) -> Option<usize> {
        let Some(bytes_left) = &self.bytes_left else { return Some(self.record_bytes) };
        let record = self.record_bytes as u64;
        let before = bytes_left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |bytes_left| Some(bytes_left.saturating_sub(record)))
            .ok()?;
        (before > 0).then(|| before.min(record) as usize)
    }
}

impl StreamCounter {
    /// Returns the nanoseconds from the origin to the first byte.
    pub(crate) fn first(&self) -> Option<u64> {
        self.first.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Returns the id of the thread that moves the data.
    pub(crate) fn thread(&self) -> i32 {
        self.thread.load(Ordering::Relaxed)
    }

    /// Returns the nanoseconds from the origin to the end; 0 before.
    pub(crate) fn last(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }

    fn begin(&self, now: Duration) {
        self.first.store(nanos(now) + 1, Ordering::Relaxed);
    }
}

/// Sends records until all are sent. `write` sends a part of a record and returns its length.
fn send(
    stream: &mut DataStream,
    shared: &LoadState,
    counter: &StreamCounter,
    payload: &mut PayloadResult,
    mut write: impl FnMut(&mut DataStream, RecordPart) -> io::Result<usize>,
) -> io::Result<()> {
    counter.begin(shared.now());
    let (mut acked, mut sent) = (0, 0);
    let mut times = shared.with_block_times.then(BlockTimes::default);
    while let Some(length) = shared.take_record() {
        let begun = times.map(|_| shared.now());
        let mut offset = 0;
        while offset < length {
            let part =
                RecordPart { at: sent, offset, length, max_bytes: shared.rate_limiter.chunk_size(length - offset) };
            match write(stream, part) {
                Ok(moved) => {
                    counter.bytes.fetch_add(moved as u64, Ordering::Relaxed);
                    offset += moved;
                    shared.count_and_wait(moved)?;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // A full send buffer on a slow path does not mean a dead peer, as long as acknowledgements arrive.
                Err(error) if is_timeout(&error) && has_progress(&**stream.handle(), &mut acked) => {}
                Err(error) => return Err(error),
            }
            if shared.stopped() {
                payload.blocks = times;
                return Ok(());
            }
        }
        sent += length as u64;
        if let (Some(times), Some(begun)) = (&mut times, begun) {
            times.record(begun, shared.now(), length as u64);
        }
    }
    payload.blocks = times;
    stream.finish()
}

/// Part of a record that is to be sent.
#[derive(Debug, Clone, Copy)]
struct RecordPart {
    /// Position of the record in its stream.
    at: u64,
    /// Position of the part in the record.
    offset: usize,
    length: usize,
    /// Maximum bytes to send now.
    max_bytes: usize,
}

/// Receives until the peer has finished. `read` gets the maximum length and the position in the stream.
fn receive(
    stream: &mut DataStream,
    shared: &LoadState,
    counter: &StreamCounter,
    payload: &mut PayloadResult,
    mut read: impl FnMut(&mut DataStream, usize, u64) -> io::Result<usize>,
) -> io::Result<()> {
    stream.set_read_timeout(Some(DEAD_PEER_TIMEOUT))?;
    let mut received = 0;
    let record = shared.record_bytes as u64;
    loop {
        // With block times, no read crosses the end of a block.
        let room = if shared.with_block_times {
            shared.read_bytes.min((record - received % record) as usize)
        } else {
            shared.read_bytes
        };
        let length = match read(stream, shared.rate_limiter.chunk_size(room), received) {
            Ok(0) => return Ok(()),
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if counter.bytes.fetch_add(length as u64, Ordering::Relaxed) == 0 {
            counter.begin(shared.now());
        }
        received += length as u64;
        if shared.with_block_times && received % record == 0 {
            payload.blocks.get_or_insert_default().record_received(shared.now(), record);
        }
        shared.count_and_wait(length)?;
        if shared.stopped() {
            return Ok(());
        }
    }
}

/// Returns whether more bytes were acknowledged than `acked`, and updates `acked`.
fn has_progress(stream: &dyn Handle, acked: &mut u64) -> bool {
    let now = stream.info().and_then(|info| info.acked_bytes);
    let before = std::mem::replace(acked, now.unwrap_or(0));
    *acked > before
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
