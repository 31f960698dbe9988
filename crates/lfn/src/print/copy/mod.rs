//! Output of `lfn copy`: the progress ([`CopyProgress`]), and some lines or one JSON object at its end.

pub mod clean;
mod progress;
mod progress_line;

use std::io::Write;

use lfn_api::prediction::{CopyPrediction, Predictor};
use lfn_core::diagnose::bottleneck::CopyBottleneck;
use lfn_core::diagnose::{Diagnosis, Finding, MissingEvidence, Verdict};
use lfn_core::evidence::{SocketEvidence, StreamTime};
use lfn_core::transfer::digest::Digest;
use lfn_core::transfer::options::{FsyncPolicy, Verify};
use lfn_core::transfer::preserve::SkippedEntries;
use lfn_core::transfer::streams::{CountReason, DEFAULT_STREAMS, StreamChange, StreamPlan};
use lfn_core::units::{BitRate, Bytes, show_duration};
use lfn_core::wire::CongestionRequest;
use lfn_core::wire::copy::{CopyTally, EntryEvent, EntryFailure as Failed, ReportedKind};
use lfn_net::session::Protection;
use lfn_net::transfer::{CopyOptions, CopyOutcome};
use serde::Serialize;

use crate::exit::Failure;
use crate::print::label_columns::wrap;
use crate::print::output::{Output, OutputFormat, print_document};
use crate::print::settings::is_quiet;
use crate::print::{self, terminal};
pub use progress::{CopyProgress, ProgressMode};

/// Schema of the report.
const SCHEMA: &str = "lfn.copy/3";

/// A finished copy and its prediction.
pub struct CopyReport<'a> {
    /// Sources as typed, without secrets.
    pub sources: Vec<String>,
    /// Destination as typed, without secrets.
    pub destination: String,
    /// Result of the copy.
    pub outcome: &'a CopyOutcome,
    /// Options of the copy.
    pub options: &'a CopyOptions,
    /// Settings of the streams with their reasons.
    pub choice: &'a StreamPlan,
    /// True if this host was the sender.
    pub near_sends: bool,
    /// Number of files in the manifest, if it was requested.
    pub manifest: Option<u64>,
    /// Entries that were copied or deleted, or would be, if they belong into the document.
    pub entries: Option<Vec<EntryEvent>>,
    /// Limit and findings of the copy.
    pub diagnosis: Diagnosis,
    /// Prediction of the copy.
    pub predictor: &'a Predictor,
    /// Bytes that a send buffer of the sender holds, if known.
    pub send_buffer: Option<Bytes>,
}

/// JSON object of the report.
#[derive(Serialize)]
struct ReportJson<'a> {
    schema: &'static str,
    sources: &'a [String],
    destination: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'a str>,
    bytes: Bytes,
    /// Bytes that crossed the path.
    moved_bytes: Bytes,
    seconds: f64,
    goodput_bits_per_second: BitRate,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest_blake3: Option<Digest>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    dry_run: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    entries: Option<&'a [EntryEvent]>,
    verify: Verify,
    fsync: FsyncPolicy,
    counts: CopyTally,
    not_copied: SkippedEntries,
    #[serde(skip_serializing_if = "Option::is_none")]
    manifest_files: Option<u64>,
    failures: &'a [Failed],
    /// Reconnects, and the time without a connection.
    reconnects: u32,
    disconnected_seconds: f64,
    /// Time without progress on an existing connection.
    stalled_seconds: f64,
    /// Data streams that broke and were replaced.
    streams_replaced: u32,
    predicted: Option<CopyPrediction>,
    limited_by: String,
    verdict: &'a Verdict,
    findings: &'a [Finding],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    missing: &'a [MissingEvidence],
    streams: u16,
    streams_reason: String,
    streams_changes: &'a [StreamChange],
    block_bytes: Bytes,
    block_reason: &'a str,
    buffer_bytes: Option<Bytes>,
    buffer_reason: &'a str,
    protection: Protection,
    congestion: Option<&'a str>,
    congestion_reason: &'a str,
    #[serde(rename = "pacing_bits_per_second")]
    pacing: Option<BitRate>,
    sender: StreamTime,
    receiver: StreamTime,
    sockets: Option<SocketEvidence>,
}

impl CopyReport<'_> {
    /// Writes the report file and prints the result. Without `is_error_line_enough` the text is printed too.
    pub fn print(&self, mut output: Output, is_error_line_enough: bool) -> Result<(), Failure> {
        let document = self.document();
        output.write_report(&document)?;
        match output.format() {
            OutputFormat::Text if is_error_line_enough || is_quiet() => Ok(()),
            OutputFormat::Text => self.text(),
            // Each entry was a line already.
            OutputFormat::Ndjson => {
                Ok(print_document(&ReportJson { entries: None, ..document }, OutputFormat::Ndjson)?)
            }
            format => Ok(print_document(&document, format)?),
        }
    }

    fn document(&self) -> ReportJson<'_> {
        let CopyOutcome {
            bytes,
            digest,
            elapsed,
            path,
            tally,
            skipped,
            failures,
            sample,
            reconnects,
            outage_time,
            standstill_time,
            replaced,
            changes,
        } = self.outcome;
        let (congestion, congestion_reason) = self.switched().unzip();
        ReportJson {
            schema: SCHEMA,
            sources: &self.sources,
            destination: &self.destination,
            path: path.as_deref(),
            bytes: *bytes,
            moved_bytes: self.outcome.moved(),
            seconds: elapsed.as_secs_f64(),
            goodput_bits_per_second: self.outcome.moved().per(*elapsed),
            digest_blake3: *digest,
            dry_run: self.options.transfer_options.dry_run,
            entries: self.entries.as_deref(),
            verify: self.options.transfer_options.verify,
            fsync: self.options.transfer_options.fsync,
            counts: *tally,
            not_copied: *skipped,
            manifest_files: self.manifest,
            failures,
            reconnects: *reconnects,
            disconnected_seconds: outage_time.as_secs_f64(),
            stalled_seconds: standstill_time.as_secs_f64(),
            streams_replaced: *replaced,
            predicted: self.predicted(),
            limited_by: self.limit().display_for_end(self.near_sends),
            verdict: &self.diagnosis.verdict,
            findings: &self.diagnosis.findings,
            missing: &self.diagnosis.missing,
            streams: self.streams(),
            streams_reason: self.count_reason(),
            streams_changes: changes,
            block_bytes: self.options.block,
            block_reason: &self.choice.block_reason,
            buffer_bytes: self.choice.buffer,
            buffer_reason: &self.choice.buffer_reason,
            protection: self.options.protection,
            congestion: congestion.or(self.options.congestion.as_ref().map(CongestionRequest::name)),
            congestion_reason: congestion_reason.unwrap_or(&self.choice.congestion_reason),
            pacing: self.options.pace,
            sender: sample.sender,
            receiver: sample.receiver,
            sockets: sample.sockets,
        }
    }

    /// Prints some lines on stdout. On a terminal, they are wrapped between words.
    pub fn text(&self) -> Result<(), Failure> {
        let mut lines = SummaryLines::new(terminal::wrap_columns());
        let CopyOutcome { bytes, digest, elapsed, path, tally, .. } = self.outcome;
        let total = bytes.decimal();
        if self.options.transfer_options.dry_run {
            lines.add(format!("dry run, nothing written: {} of {total} to copy", tally.bytes.decimal()));
            lines.add(count_texts(tally, true));
            return lines.print();
        }
        let (moved, time) = (self.outcome.moved(), show_duration(*elapsed));
        let mut line = match moved {
            Bytes(0) if tally.failed > 0 => format!("nothing of {total} copied, in {time}"),
            Bytes(0) if !tally.changed() => format!("nothing to copy: {total} already up to date, in {time}"),
            Bytes(0) => format!("nothing of {total} sent, in {time}"),
            moved if moved < *bytes => {
                format!("{} of {total} sent in {time}, goodput {}", moved.decimal(), moved.per(*elapsed))
            }
            _ => format!("{total} in {time}, goodput {}", moved.per(*elapsed)),
        };
        let (limit, findings) = (self.limit(), &self.diagnosis.findings);
        // The finding below names the limit, with figures.
        if limit != CopyBottleneck::Unknown && findings.is_empty() {
            line += &format!("; limit: {}", limit.display_for_end(self.near_sends));
        }
        if moved.0 > 0 || tally.changed() {
            let protection = match self.options.protection {
                Protection::Tls => "TLS",
                Protection::Clear => "clear",
            };
            line += &format!("; {}", stream_count(self.streams()));
            // The default reason is not printed.
            if let Some(last) = self.last_count_change() {
                line += &format!(" ({} at first; {})", self.options.streams, last.reason);
            }
            line += &format!(", {protection}, {}", verify_text(self.options.transfer_options.verify));
            // The destination `null:` writes nothing.
            if path.is_some() {
                line += &format!(", {}", fsync_text(self.options.transfer_options.fsync));
            }
        }
        lines.add(line);
        lines.extend(self.prediction_text());
        lines.add(match digest {
            Some(digest) => format!("blake3 {digest}"),
            None => count_texts(tally, false),
        });
        if let Some(files) = self.manifest {
            lines.add(format!("{files} {} in the manifest", if files == 1 { "file" } else { "files" }));
        }
        if tally.resumed_bytes.0 > 0 {
            lines.add(format!("resumed: {} of an earlier copy", tally.resumed_bytes.decimal()));
        }
        if tally.skipped_bytes.0 > 0 && tally.files > 0 {
            lines.add(format!("{} unchanged", tally.skipped_bytes.decimal()));
        }
        if let Some((congestion, reason)) = self.switched() {
            lines.add(format!("congestion control changed to {congestion}: {reason}"));
        }
        lines.extend(self.troubles());
        for finding in findings {
            lines.add(format!("finding: {}", finding.summary));
            lines.add(format!("hint: {}", finding.remedy));
        }
        lines.print()
    }

    /// Returns the line of the prediction, with the reason for the number of streams.
    fn prediction_text(&self) -> Option<String> {
        let predicted = self.predicted()?;
        let mut line = format!("predicted: {}", show_duration(predicted.time));
        if !predicted.slow_start.is_zero() {
            line += &format!(" with {} of slow start", show_duration(predicted.slow_start));
        }
        line += &format!(", goodput {}", predicted.average_goodput);
        if self.last_count_change().is_none() && self.choice.streams_reason != CountReason::UnknownPath {
            line += &format!("; {}: {}", stream_count(self.streams()), self.count_reason());
        }
        Some(line)
    }

    /// Returns the reason for the number of streams at the start. The times are those of the printed prediction.
    fn count_reason(&self) -> String {
        let reason = self.choice.streams_reason;
        let is_chosen = matches!(reason, CountReason::Faster | CountReason::Size(_) | CountReason::UnknownSize);
        if !is_chosen || self.options.streams <= DEFAULT_STREAMS {
            return reason.to_string();
        }
        let (Some(predicted), Some(fewer)) =
            (self.predicted(), self.predictor.predict_outcome(self.outcome, DEFAULT_STREAMS, self.send_buffer))
        else {
            return reason.to_string();
        };
        let gain = if fewer.time > predicted.time {
            let [time, with_fewer] = [predicted.time, fewer.time].map(show_duration);
            format!("{time} instead of {with_fewer} with {DEFAULT_STREAMS}")
        } else {
            format!("as fast as {DEFAULT_STREAMS}")
        };
        match reason {
            CountReason::Faster => gain,
            reason => format!("{reason}; {gain}"),
        }
    }

    /// Returns the prediction for the bytes that were sent, if the path is known and any were sent.
    fn predicted(&self) -> Option<CopyPrediction> {
        self.predictor.predict_outcome(self.outcome, self.streams(), None)
    }

    /// Returns a line about lost connections, broken streams and damaged blocks, if there were any.
    fn troubles(&self) -> Option<String> {
        let CopyOutcome { reconnects, outage_time, replaced, tally, .. } = self.outcome;
        let mut notes = Vec::new();
        if *reconnects > 0 {
            let times = if *reconnects == 1 { "once".into() } else { format!("{reconnects} times") };
            notes.push(format!("the connection was lost {times}, for {} in total", show_duration(*outage_time)));
        }
        if *replaced > 0 {
            let streams = if *replaced == 1 { "data stream broke and was" } else { "data streams broke and were" };
            notes.push(format!("{replaced} {streams} replaced"));
        }
        if tally.resent_blocks > 0 {
            let blocks = if tally.resent_blocks == 1 { "block was" } else { "blocks were" };
            notes.push(format!("{} damaged {blocks} sent again", tally.resent_blocks));
        }
        (!notes.is_empty()).then(|| notes.join("; "))
    }

    /// Returns the number of streams at the end.
    fn streams(&self) -> u16 {
        self.outcome.last_stream_count(self.options.streams)
    }

    /// Returns the last change of this number, if there was one.
    fn last_count_change(&self) -> Option<&StreamChange> {
        self.outcome.changes.iter().rfind(|change| change.congestion.is_none())
    }

    /// Returns the change of congestion control, if there was one.
    fn switched(&self) -> Option<(&str, &str)> {
        let mut changes = self.outcome.changes.iter().rev();
        changes.find_map(|change| Some((change.congestion.as_deref()?, change.reason.as_str())))
    }

    /// Returns the limit of the whole copy.
    fn limit(&self) -> CopyBottleneck {
        self.diagnosis.bottleneck.unwrap_or(CopyBottleneck::Unknown)
    }
}

/// Lines of the summary, wrapped between words if the width is known.
struct SummaryLines {
    columns: Option<usize>,
    text: String,
}

impl SummaryLines {
    fn new(columns: Option<usize>) -> Self {
        SummaryLines { columns, text: String::new() }
    }

    fn add(&mut self, line: String) {
        const INDENT: &str = "  ";
        let Some(columns) = self.columns else {
            self.text += &format!("{line}\n");
            return;
        };
        for (number, line) in wrap(&line, columns - INDENT.len()).iter().enumerate() {
            self.text += &format!("{}{line}\n", if number == 0 { "" } else { INDENT });
        }
    }

    fn extend(&mut self, line: Option<String>) {
        line.into_iter().for_each(|line| self.add(line));
    }

    fn print(self) -> Result<(), Failure> {
        Ok(print::result(&self.text)?)
    }
}

/// A copy that failed before it had a report.
pub struct FailedCopy<'a> {
    /// Sources and destination as typed, without secrets.
    pub places: &'a [String],
    pub failure: &'a Failure,
}

/// JSON object of a copy that failed.
#[derive(Serialize)]
struct FailedCopyJson<'a> {
    schema: &'static str,
    sources: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    destination: Option<&'a String>,
    error: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    exit_code: u8,
}

impl FailedCopy<'_> {
    /// Prints one JSON object on stdout.
    pub fn print_json(&self, format: OutputFormat) {
        let (error, hint) = self.failure.lines();
        let (destination, sources) = match self.places.split_last() {
            Some((destination, sources)) if !sources.is_empty() => (Some(destination), sources),
            _ => (None, self.places),
        };
        let exit_code = self.failure.exit_code();
        let json = FailedCopyJson { schema: SCHEMA, sources, destination, error, hint, exit_code };
        // The failure itself is reported after this.
        let _ = print_document(&json, format);
    }
}

/// Prints the action for one entry as one line on stdout.
pub fn print_entry(event: &EntryEvent, format: OutputFormat) {
    // A closed pipe is not an error.
    let _ = if format.is_json() {
        let mut out = print::json();
        serde_json::to_writer(&mut out, event).map_err(std::io::Error::from).and_then(|()| writeln!(out))
    } else {
        let slash = if event.kind == ReportedKind::Directory { "/" } else { "" };
        writeln!(print::out(), "{:<12}{}{slash}", event.action.word(), event.name)
    };
}

fn verify_text(verify: Verify) -> &'static str {
    match verify {
        Verify::Blake3 => "verified by BLAKE3",
        Verify::Xxh3 => "verified by XXH3 (errors only)",
        Verify::Off => "not verified",
    }
}

fn fsync_text(fsync: FsyncPolicy) -> &'static str {
    match fsync {
        FsyncPolicy::File => "flushed to disk",
        FsyncPolicy::End => "flushed to disk at the end",
        FsyncPolicy::None => "not flushed",
    }
}

fn stream_count(streams: u16) -> String {
    format!("{streams} {}", if streams == 1 { "stream" } else { "streams" })
}

/// Returns the counts of the entries by their outcome.
fn count_texts(tally: &CopyTally, dry_run: bool) -> String {
    let counts = [
        (tally.files, ["file", "files"]),
        (tally.directories, ["directory", "directories"]),
        (tally.links, ["link", "links"]),
        (tally.skipped, ["up to date"; 2]),
        (tally.deleted, [if dry_run { "would be deleted" } else { "deleted" }; 2]),
        (tally.failed, ["failed"; 2]),
    ];
    let count_text = |(n, [one, more]): &(u64, [&str; 2])| format!("{n} {}", if *n == 1 { one } else { more });
    let texts: Vec<_> = counts.iter().filter(|(n, _)| *n > 0).map(count_text).collect();
    if texts.is_empty() { "nothing to copy".to_owned() } else { texts.join(", ") }
}
