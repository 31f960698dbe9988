//! Packet log of a run: either the outcome of every packet, or a capture of every packet on both sides of the link.
//!
//! A tap on each direction ([`tap`]) observes every packet on the forwarding thread. The tap copies the needed data
//! into a bounded channel. A separate thread writes it in one of two formats ([`json_lines`], [`pcapng`]). The log
//! never delays the data path: if the channel is full, the record is counted as missed. If the disk is full, the log
//! ends and the run continues. The log summary at the end of the run reports both.

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

use lfn_core::link::LinkDirection;
use lfn_sys::clock;
use serde::{Deserialize, Serialize};

use crate::emulator::data_path::Observer;
use crate::emulator::watch::output::OutputFile;
use crate::emulator::{EmulateError, now, system_error};
use json_lines::JsonLinesEncoder;
use pcapng::PcapngEncoder;
use record::{LogStart, Record, TAP_POINTS};
use tap::{LogTap, RecordQueue};

/// Maximum number of queued records: 8 MB with their frames, or 0.2 s of single packets at 1 Gb/s.
const MAX_QUEUED_RECORDS: usize = 16_384;
/// Bytes written at a time.
const WRITE_SIZE: usize = 256 * 1024;
/// Sleep of the writer after it has emptied the channel. Waking the writer would cost the data path a system call.
const IDLE_SLEEP: Duration = Duration::from_millis(2);
/// Maximum time to write the remaining records after the run.
const FINISH_TIMEOUT: Duration = Duration::from_secs(10);

/// An open file to log to.
#[derive(Clone, Debug)]
pub struct LogFile {
    format: LogFormat,
    output: OutputFile,
}

/// Content of a packet log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// The outcome of every packet, one JSON object per line.
    JsonLines,
    /// Every packet on both sides of the link, and every packet dropped between them.
    Pcapng,
}

/// Reason why a log cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The extension of the file name selects the format.
    #[error("{}: unknown log format; the name must end in .jsonl or .pcapng", .0.display())]
    Suffix(PathBuf),
    /// The file cannot be opened for writing.
    #[error("{}: {reason}", file.display())]
    Open { file: PathBuf, reason: io::Error },
}

/// Summary of a packet log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogSummary {
    pub written: u64,
    /// Records that are missing, because the writer was too slow or the file could not be written.
    pub missed: u64,
    /// Reason why the file ends before the end of the run.
    pub error: Option<String>,
}

impl LogFile {
    /// Opens or creates the file. The extension of its name selects the format. An existing file keeps its content
    /// until the run starts.
    pub fn open(path: &Path) -> Result<Self, LogError> {
        let format = match path.extension().and_then(|extension| extension.to_str()) {
            Some("jsonl") => LogFormat::JsonLines,
            Some("pcapng") => LogFormat::Pcapng,
            _ => return Err(LogError::Suffix(path.to_owned())),
        };
        let output = OutputFile::open(path).map_err(|reason| LogError::Open { file: path.to_owned(), reason })?;
        Ok(LogFile { format, output })
    }

    /// Returns the open output file.
    pub fn output(&self) -> &OutputFile {
        &self.output
    }
}

/// A log that is being written.
pub(super) struct Log {
    format: LogFormat,
    records: SyncSender<Record>,
    missed: Arc<[AtomicU64]>,
    summary: Receiver<LogSummary>,
}

/// Encoder of one log format.
trait Encode: Send {
    /// Writes the header of the file.
    fn begin(&mut self, out: &mut Vec<u8>);

    fn record(&mut self, record: &Record, out: &mut Vec<u8>);

    /// Writes the trailer. `missed` has one count for each capture point.
    fn end(&mut self, written: u64, missed: &[u64], out: &mut Vec<u8>);
}

impl Log {
    /// Starts a log for the given number of paths.
    pub(super) fn start(to: &LogFile, paths: usize, seed: u64) -> Result<Log, EmulateError> {
        to.output.truncate().map_err(system_error("truncate the log"))?;
        let start = LogStart { instant: now(), wall: clock::wall_nanos() };
        let encoder: Box<dyn Encode> = match to.format {
            LogFormat::JsonLines => Box::new(JsonLinesEncoder::new(start, seed)),
            LogFormat::Pcapng => Box::new(PcapngEncoder::new(start, seed, paths)),
        };
        let (records, receiver) = mpsc::sync_channel(MAX_QUEUED_RECORDS);
        let (reporter, summary) = mpsc::sync_channel(1);
        let missed: Arc<[AtomicU64]> = (0..paths * TAP_POINTS).map(|_| AtomicU64::new(0)).collect();
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
            // The receiver is gone if the log was not finished in time.
            let _ = reporter.send(writer.write(&receiver, &counts));
        };
        // The thread does not belong to the scope of the run: a file that blocks must not stop the run from ending.
        thread::Builder::new().name("log".to_owned()).spawn(write).map_err(system_error("start the log"))?;
        Ok(Log { format: to.format, records, missed, summary })
    }

    /// Returns an observer for one direction of path number `path`, counted from 0.
    pub(super) fn tap(&self, path: usize, direction: LinkDirection) -> Box<dyn Observer> {
        let out = RecordQueue { records: self.records.clone(), missed: self.missed.clone() };
        Box::new(LogTap::new(self.format, path, direction, out))
    }

    /// Waits until all records are written. Call this after the taps have been dropped.
    pub(super) fn finish(self) -> LogSummary {
        let Log { records, missed, summary, .. } = self;
        drop(records);
        summary.recv_timeout(FINISH_TIMEOUT).unwrap_or_else(|_| LogSummary {
            missed: missed.iter().map(|count| count.load(Ordering::Relaxed)).sum(),
            error: Some(format!("not written within {} s after the run", FINISH_TIMEOUT.as_secs())),
            ..LogSummary::default()
        })
    }
}

/// Writer of encoded records.
struct Writer {
    output: OutputFile,
    encoder: Box<dyn Encode>,
    out: Vec<u8>,
    /// Number of records in `out`.
    pending: u64,
    /// Records in the file.
    written: u64,
    /// Records that are not in the file, or perhaps only in part: the file may contain the start of a failed chunk.
    unwritten: u64,
    error: Option<io::Error>,
}

impl Writer {
    /// Writes until all senders are gone.
    fn write(mut self, records: &Receiver<Record>, missed: &[AtomicU64]) -> LogSummary {
        self.encoder.begin(&mut self.out);
        while let Ok(record) = records.recv() {
            iter::once(record).chain(records.try_iter()).for_each(|record| self.take(&record));
            self.flush();
            thread::sleep(IDLE_SLEEP);
        }
        let missed: Vec<u64> = missed.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        self.encoder.end(self.written, &missed, &mut self.out);
        self.flush();
        let missed = missed.iter().sum::<u64>() + self.unwritten;
        LogSummary { written: self.written, missed, error: self.error.map(|error| error.to_string()) }
    }

    fn take(&mut self, record: &Record) {
        if self.error.is_some() {
            self.unwritten += 1;
            return;
        }
        self.encoder.record(record, &mut self.out);
        self.pending += 1;
        if self.out.len() >= WRITE_SIZE {
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
    use lfn_core::link::{DropCause, LinkEvent, Packet};
    use lfn_core::time::Instant;

    use super::*;
    use crate::emulator::data_path::{Frame, UnmodelledDrop};

    /// More records than the channel and the pipe hold together.
    const MANY: u64 = 20_000;

    fn log_to_pipe(format: LogFormat) -> (PipeReader, Log) {
        let (reader, writer) = io::pipe().unwrap();
        let file = LogFile { format, output: OutputFile::from_file(File::from(OwnedFd::from(writer))) };
        (reader, Log::start(&file, 1, 7).unwrap())
    }

    /// Lets `count` frames arrive and drops each of them.
    fn drop_many(log: &Log, count: u64) {
        let frame = Frame { vnet: VnetHeader::default(), parts: [&[], &[0; 60]] };
        let mut tap = log.tap(0, LinkDirection::Forward);
        for id in 0..count {
            let (packet, at) = (Packet::single(id, 60), now());
            tap.on_arrival(&packet, frame, at);
            let event = LinkEvent::Drop { packet, cause: DropCause::Loss, at, reply_mtu: None };
            tap.on_event(&event, frame, at);
        }
    }

    /// This test would hang if the tap waited for room, because the reader starts only after all events.
    #[test]
    fn records_beyond_the_queue_are_counted_as_missed() {
        let (mut reader, log) = log_to_pipe(LogFormat::JsonLines);
        drop_many(&log, MANY);
        let reading = thread::spawn(move || {
            let mut text = String::new();
            reader.read_to_string(&mut text).map(|_| text)
        });
        let summary = log.finish();
        assert!(summary.missed > 0 && summary.written >= MAX_QUEUED_RECORDS as u64, "{summary:?}");
        assert_eq!((summary.written + summary.missed, &summary.error), (MANY, &None));
        let text = reading.join().unwrap().unwrap();
        assert_eq!(text.lines().count() as u64, summary.written + 2, "with the first line and the last");
        let last = serde_json::from_str::<serde_json::Value>(text.lines().last().unwrap()).unwrap();
        assert_eq!(last["missed"].as_u64(), Some(summary.missed));
    }

    #[test]
    fn closed_reader_ends_the_log_with_an_error() {
        let (reader, log) = log_to_pipe(LogFormat::Pcapng);
        drop(reader);
        drop_many(&log, 100);
        let summary = log.finish();
        assert!(summary.error.is_some_and(|error| error.contains("pipe")));
        assert_eq!((summary.written, summary.missed), (0, 200));
    }

    #[test]
    fn in_flight_and_ring_full_packets_are_logged() {
        let (mut reader, log) = log_to_pipe(LogFormat::JsonLines);
        let frame = Frame { vnet: VnetHeader::default(), parts: [&[], &[0; 60]] };
        let mut tap = log.tap(0, LinkDirection::Return);
        tap.on_arrival(&Packet::super_packet(4, 10, 1514, 1514), frame, now());
        let packet = Packet { first: 2, count: 3, ..Packet::super_packet(4, 10, 1514, 1514) };
        tap.on_event(&LinkEvent::Forward { packet, due: Instant::ZERO }, frame, now());
        let copy = Packet { first: 5, count: 1, ..packet };
        tap.on_event(&LinkEvent::Duplicate { packet: copy, at: now() }, frame, now());
        tap.on_unmodelled_drop(&Packet::super_packet(u64::MAX, 45, 1514, 100), frame, UnmodelledDrop::RingFull, now());
        drop(tap);
        log.finish();
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let outcomes = lines
            .map(|line| (line["outcome"].as_str().map(str::to_owned), line["id"].as_u64(), line["count"].as_u64()));
        let expected = [("forward", 0, 3), ("duplicate", 0, 1), ("lost", 1, 45), ("in_flight", 0, 8)];
        let expected = expected.map(|(outcome, id, count)| (Some(outcome.to_owned()), Some(id), Some(count)));
        assert_eq!(outcomes.collect::<Vec<_>>()[1..5], expected);
    }
}
