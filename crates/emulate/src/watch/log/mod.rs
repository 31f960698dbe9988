//! Packet log of a run: either the outcome of every packet, or a capture of every packet on both sides of the link.
//!
//! A capture has one file for each side, as tcpdump would write it there. In one file, an analyser would take each
//! packet on the second side for a retransmission.
//!
//! A tap on each direction ([`tap`]) observes every packet on the forwarding thread. The tap copies the needed data
//! into a bounded channel. A separate thread writes it in one of two formats ([`json_lines`], [`pcapng`]). The log
//! never delays the data path: if the channel is full, the record is counted as missed. If the disk is full, the log
//! ends and the run continues. The log summary at the end of the run reports both.

mod encode;
mod files;
mod json_lines;
mod pcapng;
mod record;
mod tap;

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::time::Duration;
use std::{iter, mem, thread};

use lfn_link::LinkDirection;
use lfn_session::clock::now;
use lfn_sys::clock;
use serde::{Deserialize, Serialize};

use crate::data_path::Observer;
use crate::error::{EmulateError, system_error};
use crate::watch::output::OutputFile;
use encode::Encode;
pub use files::{LogError, LogFiles, LogFormat};
use json_lines::JsonLinesEncoder;
use pcapng::PcapngEncoder;
use record::{LogStart, Record, TAP_POINTS, TapPoint};
use tap::{LogTap, RecordQueue};

/// Maximum number of queued records: 8 MB with their frames, or 0.2 s of single packets at 1 Gb/s.
const MAX_QUEUED_RECORDS: usize = 16_384;
/// Bytes written at a time.
const WRITE_SIZE: usize = 256 * 1024;
/// Sleep of the writer after it has emptied the channel. Waking the writer would cost the data path a system call.
const IDLE_SLEEP: Duration = Duration::from_millis(2);
/// Maximum time to write the remaining records after the run.
const FINISH_TIMEOUT: Duration = Duration::from_secs(10);

/// Summary of a packet log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LogSummary {
    /// Records that were written to the files.
    pub written: u64,
    /// Records that are missing, because the writer was too slow or the file could not be written.
    pub missed: u64,
    /// Reason why the file ends before the end of the run.
    pub error: Option<String>,
}

/// A log that is being written.
pub(super) struct Log {
    format: LogFormat,
    records: SyncSender<Record>,
    missed: Arc<[AtomicU64]>,
    summary: Receiver<LogSummary>,
}

impl Log {
    /// Starts a log for the given number of paths.
    pub(super) fn start(to: &LogFiles, paths: usize, seed: u64) -> Result<Log, EmulateError> {
        let start = LogStart { instant: now(), wall: clock::wall_nanos() };
        let mut writers = Vec::new();
        for (output, point) in to.outputs.iter().zip(TapPoint::ALL) {
            output.truncate().map_err(system_error("truncate the log"))?;
            let encoder: Box<dyn Encode> = match to.format {
                LogFormat::JsonLines => Box::new(JsonLinesEncoder::new(start, seed)),
                LogFormat::Pcapng => Box::new(PcapngEncoder::new(start, seed, paths, point)),
            };
            // Without drops there is nothing to look at.
            let is_optional = to.format == LogFormat::Pcapng && point == TapPoint::Dropped;
            writers.push(FileWriter::new(output.clone(), encoder, is_optional));
        }
        let (records, receiver) = mpsc::sync_channel(MAX_QUEUED_RECORDS);
        let (reporter, summary) = mpsc::sync_channel(1);
        let missed: Arc<[AtomicU64]> = (0..paths * TAP_POINTS).map(|_| AtomicU64::new(0)).collect();
        let counts = missed.clone();
        let write = move || {
            // The receiver is gone if the log was not finished in time.
            let _ = reporter.send(write_all(writers, &receiver, &counts));
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

/// Writes until all senders are gone.
fn write_all(mut writers: Vec<FileWriter>, records: &Receiver<Record>, missed: &[AtomicU64]) -> LogSummary {
    writers.iter_mut().for_each(FileWriter::begin);
    while let Ok(record) = records.recv() {
        for record in iter::once(record).chain(records.try_iter()) {
            let fitting = writers.iter_mut().find(|writer| writer.encoder.accepts(&record));
            fitting.into_iter().for_each(|writer| writer.take(&record));
        }
        writers.iter_mut().for_each(FileWriter::flush);
        thread::sleep(IDLE_SLEEP);
    }
    let missed: Vec<u64> = missed.iter().map(|count| count.load(Ordering::Relaxed)).collect();
    writers.iter_mut().for_each(|writer| writer.end(&missed));
    LogSummary {
        written: writers.iter().map(|writer| writer.written).sum(),
        missed: missed.iter().chain(writers.iter().map(|writer| &writer.unwritten)).sum(),
        error: writers.iter().find_map(|writer| writer.error.as_ref()).map(io::Error::to_string),
    }
}

/// Writer of encoded records to one file.
struct FileWriter {
    output: OutputFile,
    encoder: Box<dyn Encode>,
    /// Without records, the file is deleted.
    is_optional: bool,
    out: Vec<u8>,
    /// Number of records in `out`.
    pending: u64,
    /// Records in the file.
    written: u64,
    /// Records that are not in the file, or perhaps only in part: the file may contain the start of a failed chunk.
    unwritten: u64,
    error: Option<io::Error>,
}

impl FileWriter {
    fn new(output: OutputFile, encoder: Box<dyn Encode>, is_optional: bool) -> Self {
        FileWriter { output, encoder, is_optional, out: Vec::new(), pending: 0, written: 0, unwritten: 0, error: None }
    }

    fn begin(&mut self) {
        self.encoder.begin(&mut self.out);
    }

    fn end(&mut self, missed: &[u64]) {
        self.encoder.end(self.written, missed, &mut self.out);
        self.flush();
        if self.is_optional && self.written + self.unwritten == 0 {
            self.output.discard();
        }
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

    use lfn_base::time::Instant;
    use lfn_link::{DropCause, LinkEvent, Packet};
    use lfn_packet::VnetHeader;

    use super::*;
    use crate::data_path::{Frame, UnmodelledDrop};

    /// More records than the channel and the pipe hold together.
    const MANY: u64 = 20_000;

    fn log_to_pipe(format: LogFormat) -> (PipeReader, Log) {
        let (reader, writer) = io::pipe().unwrap();
        let output = OutputFile::from_file(File::from(OwnedFd::from(writer)));
        let count = if format == LogFormat::Pcapng { TAP_POINTS } else { 1 };
        (reader, Log::start(&LogFiles { format, outputs: vec![output; count] }, 1, 7).unwrap())
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
