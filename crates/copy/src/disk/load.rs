//! Sequential reads or writes of a file in blocks, by as many threads as a copy has streams, around the page cache.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lfn_base::plan::streams::DEFAULT_STREAMS;
use lfn_base::random_data::fill_random;
use lfn_base::units::{BitRate, Bytes, show_duration};
use lfn_results::evidence::disk::{DiskMethod, DiskRate};
use lfn_session::SessionError;
use lfn_session::limits::rate_limiter::{Exhausted, RateLimiter};
use lfn_session::wire::copy::blocks::DEFAULT_BLOCK;
use rustix::fs::{Advice, OFlags, fadvise, fcntl_getfl, fcntl_setfl, fdatasync};
use rustix::io::Errno;

use crate::TransferError;

/// Maximum time of each of the two measurements.
pub const MEASURED_TIME: Duration = Duration::from_secs(5);
/// Threads of a measurement, each with one block in flight.
pub(super) const THREADS: u16 = DEFAULT_STREAMS;
/// Length of an interval.
const INTERVAL: Duration = Duration::from_millis(250);
/// Interval at which the measurement checks if it must end.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Blocks of one thread between two flushes, without direct output.
const BLOCKS_PER_FLUSH: u64 = 8;
/// Size of a block, bytes.
const BLOCK: usize = DEFAULT_BLOCK.0 as usize;
/// Alignment of buffers for direct input and output: the largest size of a page and of a logical block in use.
const ALIGNMENT: usize = 64 << 10;

/// Direction of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DiskActivity {
    Read,
    Write,
}

/// Limits of a measurement, and the check whether it must end early.
pub(super) struct Limits<'a> {
    /// Time of each activity.
    pub(super) time: Duration,
    pub(super) limiter: Arc<RateLimiter>,
    /// Maximum bytes of each activity; none without a quota.
    pub(super) max_bytes: Option<Bytes>,
    pub(super) check: &'a mut dyn FnMut() -> Result<(), TransferError>,
}

/// Reasons for a load without a result.
#[derive(Debug)]
pub(super) enum LoadError {
    /// A file operation failed.
    File(io::Error),
    /// The session or the user ended the measurement.
    Ended(TransferError),
}

/// A file that is read or written from its start to its end, again and again.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load<'a> {
    pub(super) file: &'a File,
    pub(super) activity: DiskActivity,
    /// Whole blocks of the file.
    pub(super) size: Bytes,
}

/// State that the threads of a load share.
struct Shared<'a> {
    load: Load<'a>,
    method: DiskMethod,
    seed: u64,
    /// Number of the next block, over all passes.
    next: AtomicU64,
    max_blocks: u64,
    /// Bytes that reached the disk or came from it.
    moved: AtomicU64,
    running: AtomicUsize,
    ended: AtomicBool,
    limiter: &'a RateLimiter,
}

/// A thread that counts until it ends, also after a panic.
struct RunningThread<'a>(&'a AtomicUsize);

impl Drop for RunningThread<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

impl Load<'_> {
    /// Runs the load for the time of the limits, with direct input and output where the file system supports them.
    pub(super) fn run(self, seed: u64, limits: &mut Limits<'_>) -> Result<DiskRate, LoadError> {
        let is_direct = self.set_direct(true).is_ok();
        if is_direct {
            match self.run_as(DiskMethod::Direct, seed, limits) {
                // The file system accepts the flag and not the alignment.
                Err(LoadError::File(error)) if Errno::from_io_error(&error) == Some(Errno::INVAL) => {}
                result => return result,
            }
        }
        // Without the flag there is nothing to clear.
        let _ = self.set_direct(false);
        self.run_as(DiskMethod::Flushed, seed, limits)
    }

    fn set_direct(self, is_direct: bool) -> Result<(), Errno> {
        let flags = fcntl_getfl(self.file)?;
        fcntl_setfl(self.file, if is_direct { flags | OFlags::DIRECT } else { flags - OFlags::DIRECT })
    }

    fn run_as(self, method: DiskMethod, seed: u64, limits: &mut Limits<'_>) -> Result<DiskRate, LoadError> {
        if method == DiskMethod::Flushed && self.activity == DiskActivity::Read {
            self.drop_cached().map_err(LoadError::File)?;
        }
        let shared = Shared {
            load: self,
            method,
            seed,
            next: AtomicU64::new(0),
            max_blocks: limits.max_bytes.map_or(u64::MAX, |max| max.0 / DEFAULT_BLOCK.0),
            moved: AtomicU64::new(0),
            running: AtomicUsize::new(THREADS.into()),
            ended: AtomicBool::new(false),
            limiter: &limits.limiter,
        };
        let begun = Instant::now();
        let (rates, checked, worked) = thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|_| thread::Builder::new().name("disk load".into()).spawn_scoped(scope, || shared.work()))
                .collect();
            let started = threads.iter().filter(|thread| thread.is_ok()).count();
            shared.running.fetch_sub(usize::from(THREADS) - started, Ordering::Relaxed);
            let (rates, checked) = shared.watch(begun, limits.time, limits.check);
            // A panic of a thread has already been reported on stderr.
            let panicked = || Err(io::Error::other("a thread of the measurement failed"));
            let worked: io::Result<()> =
                threads.into_iter().try_for_each(|thread| thread?.join().unwrap_or_else(|_| panicked()));
            (rates, checked, worked)
        });
        checked.map_err(LoadError::Ended)?;
        worked.map_err(LoadError::File)?;
        if self.activity == DiskActivity::Write {
            fdatasync(self.file).map_err(|error| LoadError::File(error.into()))?;
        }
        let bytes = Bytes(shared.moved.load(Ordering::Relaxed));
        if bytes.0 == 0 {
            let text = format!("no block of {DEFAULT_BLOCK} finished within {}", show_duration(limits.time));
            return Err(LoadError::File(io::Error::other(text)));
        }
        Ok(DiskRate { file_bytes: self.size.min(bytes), ..DiskRate::new(method, bytes, begun.elapsed(), &rates) })
    }

    /// Drops the file from the page cache. Only pages on the disk can be dropped.
    fn drop_cached(self) -> io::Result<()> {
        // A file that is open for reading only may still have data of other programs in the cache.
        fdatasync(self.file)?;
        Ok(fadvise(self.file, 0, None, Advice::DontNeed)?)
    }
}

impl Shared<'_> {
    /// Returns the rates of the whole intervals, and whether the measurement ended as planned.
    fn watch(
        &self,
        begun: Instant,
        time: Duration,
        check: &mut dyn FnMut() -> Result<(), TransferError>,
    ) -> (Vec<BitRate>, Result<(), TransferError>) {
        let mut rates = Vec::new();
        let (mut last_at, mut last_bytes) = (begun, 0);
        let mut checked = Ok(());
        while self.running.load(Ordering::Acquire) > 0 {
            thread::sleep(POLL_INTERVAL);
            checked = checked.and_then(|()| check());
            let (now, bytes) = (Instant::now(), self.moved.load(Ordering::Relaxed));
            let is_over = self.ended.load(Ordering::Relaxed);
            if now - last_at >= INTERVAL && !is_over {
                rates.push(Bytes(bytes - last_bytes).per(now - last_at));
                (last_at, last_bytes) = (now, bytes);
            }
            if now - begun >= time || checked.is_err() {
                self.ended.store(true, Ordering::Relaxed);
            }
        }
        if self.limiter.is_exhausted() && checked.is_ok() {
            checked = Err(SessionError::Refused(Exhausted.refusal()).into());
        }
        (rates, checked)
    }

    /// Reads or writes the next blocks until the measurement ends. An error ends the other threads too.
    fn work(&self) -> io::Result<()> {
        let _running = RunningThread(&self.running);
        let result = self.move_blocks();
        if result.is_err() {
            self.ended.store(true, Ordering::Relaxed);
        }
        result
    }

    fn move_blocks(&self) -> io::Result<()> {
        let Load { file, activity, size } = self.load;
        let mut memory = vec![0; BLOCK + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        let block = &mut memory[start..start + BLOCK];
        let blocks = (size.0 / DEFAULT_BLOCK.0).max(1);
        let is_flushed = self.method == DiskMethod::Flushed;
        let mut waiting = 0;
        while !self.ended.load(Ordering::Relaxed) {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.max_blocks {
                break;
            }
            let offset = number % blocks * DEFAULT_BLOCK.0;
            match activity {
                DiskActivity::Write => {
                    fill_random(self.seed, number.wrapping_mul(DEFAULT_BLOCK.0), block);
                    file.write_all_at(block, offset)?;
                }
                DiskActivity::Read => {
                    if is_flushed && offset == 0 && number > 0 {
                        self.load.drop_cached()?;
                    }
                    file.read_exact_at(block, offset)?;
                }
            }
            waiting += 1;
            // Written blocks count when they are on the disk.
            if !is_flushed || activity == DiskActivity::Read || waiting == BLOCKS_PER_FLUSH {
                if is_flushed && activity == DiskActivity::Write {
                    fdatasync(file)?;
                }
                self.moved.fetch_add(waiting * DEFAULT_BLOCK.0, Ordering::Relaxed);
                waiting = 0;
            }
            if self.limiter.count_and_wait(DEFAULT_BLOCK.0, &self.ended).is_err() {
                break;
            }
        }
        if waiting > 0 {
            fdatasync(file)?;
            self.moved.fetch_add(waiting * DEFAULT_BLOCK.0, Ordering::Relaxed);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn limits(check: &mut dyn FnMut() -> Result<(), TransferError>) -> Limits<'_> {
        let time = Duration::from_millis(300);
        Limits { time, limiter: RateLimiter::unlimited(), max_bytes: Some(Bytes(64 << 20)), check }
    }

    #[test]
    fn both_methods_move_whole_blocks() {
        let file = tempfile::tempfile().unwrap();
        let size = Bytes(16 << 20);
        for method in [DiskMethod::Direct, DiskMethod::Flushed] {
            for activity in [DiskActivity::Write, DiskActivity::Read] {
                let load = Load { file: &file, activity, size };
                if load.set_direct(method == DiskMethod::Direct).is_err() {
                    continue;
                }
                let rate = load.run_as(method, 7, &mut limits(&mut || Ok(()))).unwrap();
                assert!(rate.bytes.0 > 0 && rate.bytes.0.is_multiple_of(DEFAULT_BLOCK.0), "{rate:?}");
                assert!(rate.bytes <= Bytes(64 << 20) && rate.file_bytes <= size, "{rate:?}");
                assert_eq!(rate.method, method);
            }
        }
        assert!(file.metadata().unwrap().len() <= size.0, "later passes overwrite the file");
    }

    #[test]
    fn written_data_does_not_compress() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        let load = Load { file: &file, activity: DiskActivity::Write, size: Bytes(4 << 20) };
        load.run(7, &mut limits(&mut || Ok(()))).unwrap();
        let mut blocks: Vec<Vec<u8>> = fs::read(&path).unwrap().chunks(4096).map(<[u8]>::to_vec).collect();
        let all = blocks.len();
        blocks.sort();
        blocks.dedup();
        assert_eq!(blocks.len(), all, "no block occurs twice");
        let mut counts = [0u32; 256];
        blocks.iter().flatten().for_each(|byte| counts[usize::from(*byte)] += 1);
        let mean = all as f64 * 16.0;
        assert!(counts.iter().all(|count| (f64::from(*count) - mean).abs() < 0.1 * mean));
    }

    #[test]
    fn failed_check_and_failed_file_end_the_load() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, vec![1; 1 << 20]).unwrap();
        let file = File::open(&path).unwrap();
        let read = Load { file: &file, activity: DiskActivity::Read, size: Bytes(1 << 20) };
        let ended = read.run(1, &mut limits(&mut || Err(TransferError::Interrupted)));
        assert!(matches!(ended, Err(LoadError::Ended(TransferError::Interrupted))), "{ended:?}");
        let write = Load { activity: DiskActivity::Write, ..read };
        let failed = write.run(1, &mut limits(&mut || Ok(())));
        assert!(matches!(failed, Err(LoadError::File(_))), "the file is open for reading only: {failed:?}");
        let beyond = Load { size: Bytes(64 << 20), ..read };
        let failed = beyond.run(1, &mut limits(&mut || Ok(())));
        assert!(matches!(failed, Err(LoadError::File(_))), "the file became shorter: {failed:?}");
    }
}
