//! One data stream of a copy, as those know it who do not work on it: how far it is, what it carries, whether it is cut.
//!
//! A sender keeps books: what it wrote and the receiver has not taken off the stream yet. That is what is lost if the stream
//! breaks, and if nothing of it is taken for long though the other side lives and could, the stream is stalled.

use std::collections::{BTreeMap, VecDeque};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lfn_core::transfer::blockset::BlockSet;
use lfn_core::units::Bytes;
use lfn_core::wire::copy::{Part, Taken, in_messages};

use super::TransferError;
use super::flow::lock;
use crate::session::{DataStream, round_trip};

/// For how long nothing may be taken off a stream.
pub(super) const STREAM_STALLED: Duration = Duration::from_secs(10);

/// How many round trips nothing may be taken off a stream, where that is more than its least time.
const STALLED_ROUND_TRIPS: u32 = 20;

/// Ranges of blocks in one message: at most 43 bytes each.
pub(super) const RANGES: usize = 16_384;

/// Most blocks that are sent over all streams before the receiver has taken one of them: four of the largest receive buffers
/// that Linux gives unasked, full of headers of holes. Half of what a receiver believes to be lost at once.
const MOST_CARRIED: usize = 1 << 18;

/// A data stream that is at work.
#[derive(Debug)]
pub(crate) struct Line {
    number: u16,
    pub(super) socket: TcpStream,
    cut: AtomicBool,
    stalled: AtomicBool,
    /// Written, or read.
    bytes: AtomicU64,
    blocks: AtomicU64,
    books: Mutex<Books>,
}

/// A data stream that is over.
#[derive(Debug)]
pub(crate) struct Over {
    pub(crate) line: Arc<Line>,
    /// Nothing if it ended in order.
    pub(crate) why: Option<TransferError>,
}

#[derive(Debug)]
struct Books {
    /// Blocks that were sent and not taken: file and index, in order.
    carried: VecDeque<(u32, u64)>,
    taken: Taken,
    /// When something of it was taken last, or began to wait for that.
    moved: Instant,
    /// What was told of it last.
    told: Taken,
}

impl Line {
    pub(super) fn new(stream: &DataStream, socket: TcpStream) -> Self {
        let number = stream.stream();
        let taken = Taken { stream: number, blocks: 0, bytes: Bytes(0) };
        let books = Books { carried: VecDeque::new(), taken, moved: Instant::now(), told: taken };
        Line {
            number,
            socket,
            cut: AtomicBool::new(false),
            stalled: AtomicBool::new(false),
            bytes: AtomicU64::new(0),
            blocks: AtomicU64::new(0),
            books: Mutex::new(books),
        }
    }

    /// Its number.
    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    /// Ends it now; its thread finds out by an error.
    pub(crate) fn cut(&self) {
        self.cut.store(true, Ordering::SeqCst);
        // Closed by the peer already, perhaps.
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    /// The same of one of which nothing is taken.
    pub(crate) fn cut_as_stalled(&self) {
        self.stalled.store(true, Ordering::SeqCst);
        self.cut();
    }

    /// Whether it ended so.
    pub(crate) fn is_stalled(&self) -> bool {
        self.stalled.load(Ordering::SeqCst)
    }

    /// Whether somebody ended it.
    pub(crate) fn is_cut(&self) -> bool {
        self.cut.load(Ordering::SeqCst)
    }

    /// Counts bytes that were written or read.
    pub(super) fn count(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts a block that was taken off it.
    pub(crate) fn took(&self) {
        self.blocks.fetch_add(1, Ordering::SeqCst);
    }

    /// Blocks that were taken off it.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks.load(Ordering::SeqCst)
    }

    /// What was taken off it, if that is more than was told last.
    pub(crate) fn news(&self) -> Option<Taken> {
        let bytes = Bytes(self.bytes.load(Ordering::Relaxed));
        let taken = Taken { stream: self.number, blocks: self.blocks(), bytes };
        let mut books = lock(&self.books);
        let new = taken != books.told;
        books.told = taken;
        new.then_some(taken)
    }

    /// Blocks that were taken off it and not told.
    pub(crate) fn untold(&self) -> u64 {
        self.blocks().saturating_sub(lock(&self.books).told.blocks)
    }

    /// Enters blocks that are about to be sent.
    pub(crate) fn carry(&self, blocks: impl Iterator<Item = (u32, u64)>) {
        let mut books = lock(&self.books);
        if books.taken.bytes.0 >= self.bytes.load(Ordering::Relaxed) {
            books.moved = Instant::now();
        }
        books.carried.extend(blocks);
    }

    /// Whether it carries as much as each of so many streams may: nothing more is sent over it before something is taken off
    /// it.
    pub(crate) fn is_full(&self, streams: usize) -> bool {
        lock(&self.books).carried.len() >= MOST_CARRIED / streams.max(1)
    }

    /// Crosses out what the receiver has taken; tells how many blocks that is.
    pub(crate) fn taken(&self, taken: Taken) -> u64 {
        let mut books = lock(&self.books);
        if taken.bytes > books.taken.bytes {
            books.moved = Instant::now();
        }
        // Blocks that were never sent are none of its own.
        let new = taken.blocks.saturating_sub(books.taken.blocks).min(books.carried.len() as u64);
        books.carried.drain(..new as usize);
        books.taken.blocks += new;
        books.taken.bytes = books.taken.bytes.max(taken.bytes);
        new
    }

    /// Whether nothing of what it carries was taken for too long, counted from `since` at the earliest: more than `least`,
    /// and more than some round trips.
    pub(crate) fn stalls(&self, since: Instant, least: Duration, now: Instant) -> bool {
        let books = lock(&self.books);
        let pending = self.bytes.load(Ordering::Relaxed) > books.taken.bytes.0;
        let still = now.saturating_duration_since(books.moved.max(since));
        drop(books);
        pending && still > least && still > STALLED_ROUND_TRIPS * round_trip(&self.socket)
    }

    /// What was sent over it and is not known to have come, in parts of at most `most` ranges together.
    pub(crate) fn unaccounted(&self, most: usize) -> Vec<Vec<Part>> {
        let mut files: BTreeMap<u32, BlockSet> = BTreeMap::new();
        for &(file, index) in &lock(&self.books).carried {
            files.entry(file).or_default().insert(index);
        }
        let mut messages = in_messages(files.into_iter().map(|(file, blocks)| Part { file, blocks }), most);
        if messages.is_empty() {
            // Of one that carried nothing that is told too.
            messages.push(Vec::new());
        }
        messages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever a receiver says of bytes.
    #[test]
    fn a_stream_of_which_no_block_is_taken_is_full_at_last() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let line = Line::new(&DataStream::clear(0, near.try_clone().unwrap()), near);
        line.carry((1..MOST_CARRIED as u64).map(|index| (0, 2 * index)));
        assert!(!line.is_full(1));
        line.carry([(1, 0)].into_iter());
        line.taken(Taken { stream: 0, blocks: 0, bytes: Bytes(1 << 40) });
        assert!(line.is_full(1));
        // Every second block of a file is a range by itself, and a message holds so many.
        let messages = line.unaccounted(1 << 10);
        assert!(messages.iter().flatten().all(|part| part.blocks.ranges().count() <= 1 << 10));
        assert_eq!(messages.iter().flatten().map(|part| part.blocks.len()).sum::<u64>(), MOST_CARRIED as u64);
        assert!(messages.len() > MOST_CARRIED >> 11, "{}", messages.len());
        assert!(line.is_full(256));
        line.taken(Taken { stream: 0, blocks: 1, bytes: Bytes(1 << 40) });
        assert!(!line.is_full(1));
    }
}
