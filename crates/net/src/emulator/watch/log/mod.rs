//! The log of a run: what became of every packet, or every packet as it was seen on either side of the link.
//!
//! A tap on each direction ([`tap`]) is told of every packet on the thread that forwards, copies what the log needs and
//! leaves it in a bounded channel; a thread of the log's own writes it in one of two formats ([`json_lines`],
//! [`pcapng`]). Nothing that befalls the log holds up the data path: what finds no room in the channel is not logged,
//! and counted; a disk that is full ends the log and not the run. Both are told at the end.

mod json_lines;
mod pcapng;
mod record;
mod tap;

use std::io::{self, Write};
use std::iter;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;
use std::time::Duration;

use lfn_core::link::Direction;
use lfn_sys::clock;
use serde::{Deserialize, Serialize};

use crate::emulator::data_path::Observer;
use crate::emulator::watch::output::OutputFile;
use crate::emulator::{EmulateError, now, system};
use json_lines::JsonLines;
use pcapng::Capture;
use record::{POINTS, Record, Zero};
use tap::{Out, Tap};

/// Records that may wait to be written: 8 MB with their frames, and a fifth of a second of single packets at 1 Gb/s.
const ROOM: usize = 16_384;
/// Bytes written at a time.
const CHUNK: usize = 256 * 1024;
/// The writer rests so long when it has caught up, because waking it costs the data path a system call.
const REST: Duration = Duration::from_millis(2);
/// How long after the run the rest may take to be written.
const GRACE: Duration = Duration::from_secs(10);

/// A file to log to, open.
#[derive(Clone, Debug)]
pub struct LogFile {
    format: LogFormat,
    output: OutputFile,
}

/// What a log says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// What became of every packet: one JSON object a line.
    JsonLines,
    /// Every packet as it was seen on both sides of the link, and those dropped between them.
    Pcapng,
}

/// Why a log cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The format goes by the end of the name. Give one of the two.
    #[error("{}: a log is a .jsonl or a .pcapng", .0.display())]
    Suffix(PathBuf),
    /// Give a file in a directory where you may write.
    #[error("{}: {reason}", file.display())]
    Open {
        /// As it was given.
        file: PathBuf,
        /// The system's words.
        reason: io::Error,
    },
}

/// What became of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogAccount {
    /// Records in the file.
    pub written: u64,
    /// Records that are not: the writer could not keep up, or the file could not be written.
    pub missed: u64,
    /// Why the file ends where it does, if that is not where the run ended.
    pub error: Option<String>,
}

impl LogFile {
    /// Opens the file, or makes it; the end of its name says the format. What it holds stays there until the run begins.
    pub fn open(path: &Path) -> Result<Self, LogError> {
        let format = match path.extension().and_then(|extension| extension.to_str()) {
            Some("jsonl") => LogFormat::JsonLines,
            Some("pcapng") => LogFormat::Pcapng,
            _ => return Err(LogError::Suffix(path.to_owned())),
        };
        let output = OutputFile::open(path).map_err(|reason| LogError::Open { file: path.to_owned(), reason })?;
        Ok(LogFile { format, output })
    }

    /// The file itself.
    pub fn output(&self) -> &OutputFile {
        &self.output
    }
}

/// A log that is being written.
pub(super) struct Log {
    format: LogFormat,
    records: SyncSender<Record>,
    missed: Arc<[AtomicU64]>,
    account: Receiver<LogAccount>,
}

/// How records become bytes.
trait Encode: Send {
    /// What stands before the first.
    fn begin(&mut self, out: &mut Vec<u8>);

    fn record(&mut self, record: &Record, out: &mut Vec<u8>);

    /// What stands behind the last. `missed` has as many figures as there are places to see packets at.
    fn end(&mut self, written: u64, missed: &[u64], out: &mut Vec<u8>);
}

impl Log {
    /// Begins a log of so many paths.
    pub(super) fn start(to: &LogFile, paths: usize, seed: u64) -> Result<Log, EmulateError> {
        to.output.empty().map_err(system("empty the log"))?;
        let zero = Zero { instant: now(), wall: clock::wall_nanos() };
        let encoder: Box<dyn Encode> = match to.format {
            LogFormat::JsonLines => Box::new(JsonLines::new(zero, seed)),
            LogFormat::Pcapng => Box::new(Capture::new(zero, seed, paths)),
        };
        let (records, receiver) = mpsc::sync_channel(ROOM);
        let (reporter, account) = mpsc::sync_channel(1);
        let missed: Arc<[AtomicU64]> = (0..paths * POINTS).map(|_| AtomicU64::new(0)).collect();
        let writer = Writer {
            output: to.output.clone(),
            encoder,
            out: Vec::new(),
            pending: 0,
            written: 0,
            unwritten: 0,
            error: None,
        };
        let counts = missed.clone();
        let write = move || {
            // Nobody reads it if the end of the log took too long.
            let _ = reporter.send(writer.write(&receiver, &counts));
        };
        // Not of the scope of the run: a file that hangs must not keep it from ending.
        thread::Builder::new().name("log".to_owned()).spawn(write).map_err(system("start the log"))?;
        Ok(Log { format: to.format, records, missed, account })
    }

    /// What watches one direction of path number `path`, counted from 0.
    pub(super) fn tap(&self, path: usize, direction: Direction) -> Box<dyn Observer> {
        let out = Out { records: self.records.clone(), missed: self.missed.clone() };
        Box::new(Tap::new(self.format, path, direction, out))
    }

    /// Waits until all is written, once the taps are gone.
    pub(super) fn finish(self) -> LogAccount {
        let Log { records, missed, account, .. } = self;
        drop(records);
        account.recv_timeout(GRACE).unwrap_or_else(|_| LogAccount {
            missed: missed.iter().map(|count| count.load(Ordering::Relaxed)).sum(),
            error: Some(format!("not written within {} s after the run", GRACE.as_secs())),
            ..LogAccount::default()
        })
    }
}

/// Turns records into bytes of a file.
struct Writer {
    output: OutputFile,
    encoder: Box<dyn Encode>,
    out: Vec<u8>,
    /// Records in `out`.
    pending: u64,
    /// Records in the file.
    written: u64,
    /// Records that the file did not take, or not for certain: of a chunk it may have the start.
    unwritten: u64,
    error: Option<io::Error>,
}

impl Writer {
    /// Writes until all who know something are gone.
    fn write(mut self, records: &Receiver<Record>, missed: &[AtomicU64]) -> LogAccount {
        self.encoder.begin(&mut self.out);
        while let Ok(record) = records.recv() {
            iter::once(record).chain(records.try_iter()).for_each(|record| self.take(&record));
            self.flush();
            thread::sleep(REST);
        }
        let missed: Vec<u64> = missed.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        self.encoder.end(self.written, &missed, &mut self.out);
        self.flush();
        let missed = missed.iter().sum::<u64>() + self.unwritten;
        LogAccount { written: self.written, missed, error: self.error.map(|error| error.to_string()) }
    }

    fn take(&mut self, record: &Record) {
        if self.error.is_some() {
            self.unwritten += 1;
            return;
        }
        self.encoder.record(record, &mut self.out);
        self.pending += 1;
        if self.out.len() >= CHUNK {
            self.flush();
        }
    }

    fn flush(&mut self) {
        if self.error.is_none() {
            self.error = self.output.file().write_all(&self.out).err();
        }
        let counted = if self.error.is_none() { &mut self.written } else { &mut self.unwritten };
        *counted += mem::take(&mut self.pending);
        self.out.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{PipeReader, Read};
    use std::os::fd::OwnedFd;

    use lfn_core::link::segment::VnetHeader;
    use lfn_core::link::{DropCause, Event, Packet};
    use lfn_core::time::Instant;

    use super::*;
    use crate::emulator::data_path::{Frame, Unforeseen};

    /// More than channel and pipe hold together.
    const MANY: u64 = 20_000;

    fn log_to_pipe(format: LogFormat) -> (PipeReader, Log) {
        let (reader, writer) = io::pipe().unwrap();
        let file = LogFile { format, output: OutputFile::of(File::from(OwnedFd::from(writer))) };
        (reader, Log::start(&file, 1, 7).unwrap())
    }

    /// Each frame arrives and is dropped.
    fn drop_many(log: &Log, count: u64) {
        let frame = Frame { vnet: VnetHeader::default(), parts: [&[], &[0; 60]] };
        let mut tap = log.tap(0, Direction::Forward);
        for id in 0..count {
            let (packet, at) = (Packet::single(id, 60), now());
            tap.arrived(&packet, frame, at);
            let event = Event::Drop { packet, cause: DropCause::Loss, at, reply_mtu: None };
            tap.happened(&event, frame, at);
        }
    }

    /// Were the tap to wait for room, this would never end: nobody reads until all has happened.
    #[test]
    fn what_cannot_be_written_in_time_is_counted_and_never_waited_for() {
        let (mut reader, log) = log_to_pipe(LogFormat::JsonLines);
        drop_many(&log, MANY);
        let reading = thread::spawn(move || {
            let mut text = String::new();
            reader.read_to_string(&mut text).map(|_| text)
        });
        let account = log.finish();
        assert!(account.missed > 0 && account.written >= ROOM as u64, "{account:?}");
        assert_eq!((account.written + account.missed, &account.error), (MANY, &None));
        let text = reading.join().unwrap().unwrap();
        assert_eq!(text.lines().count() as u64, account.written + 2, "with the first line and the last");
        let last = serde_json::from_str::<serde_json::Value>(text.lines().last().unwrap()).unwrap();
        assert_eq!(last["missed"].as_u64(), Some(account.missed));
    }

    #[test]
    fn a_reader_that_goes_away_ends_the_log_and_is_told() {
        let (reader, log) = log_to_pipe(LogFormat::Pcapng);
        drop(reader);
        drop_many(&log, 100);
        let account = log.finish();
        assert!(account.error.is_some_and(|error| error.contains("pipe")));
        assert_eq!((account.written, account.missed), (0, 200));
    }

    #[test]
    fn what_the_run_left_in_the_link_and_what_found_no_room_is_logged_too() {
        let (mut reader, log) = log_to_pipe(LogFormat::JsonLines);
        let frame = Frame { vnet: VnetHeader::default(), parts: [&[], &[0; 60]] };
        let mut tap = log.tap(0, Direction::Return);
        tap.arrived(&Packet::several(4, 10, 1514, 1514), frame, now());
        let packet = Packet { first: 2, count: 3, ..Packet::several(4, 10, 1514, 1514) };
        tap.happened(&Event::Forward { packet, due: Instant::ZERO }, frame, now());
        let copy = Packet { first: 5, count: 1, ..packet };
        tap.happened(&Event::Duplicate { packet: copy, at: now() }, frame, now());
        tap.lost(&Packet::several(u64::MAX, 45, 1514, 100), frame, Unforeseen::NoRoom, now());
        drop(tap);
        log.finish();
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let fates =
            lines.map(|line| (line["fate"].as_str().map(str::to_owned), line["id"].as_u64(), line["count"].as_u64()));
        let wanted = [("forward", 0, 3), ("duplicate", 0, 1), ("lost", 1, 45), ("in_flight", 0, 8)];
        let wanted = wanted.map(|(fate, id, count)| (Some(fate.to_owned()), Some(id), Some(count)));
        assert_eq!(fates.collect::<Vec<_>>()[1..5], wanted);
    }
}
