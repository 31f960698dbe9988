//! Output of `lfn copy`: the progress ([`CopyProgress`]), and some lines or one JSON object at its end.

pub mod clean;
mod progress;
mod progress_line;

use std::io::Write;

use lfn_core::transfer::bottleneck::{CopyBottleneck, ProgressSample, SocketEvidence, StreamTime, classify};
use lfn_core::transfer::digest::Digest;
use lfn_core::transfer::options::{FsyncPolicy, Verify};
use lfn_core::transfer::preserve::SkippedEntries;
use lfn_core::transfer::shortfall::{FinishedCopy, Shortfall, shortfall};
use lfn_core::transfer::streams::{StreamChange, StreamPlan};
use lfn_core::units::{BitRate, Bytes, show_duration};
use lfn_core::wire::CongestionRequest;
use lfn_core::wire::copy::{CopyTally, EntryEvent, EntryFailure as Failed, ReportedKind};
use lfn_net::session::Protection;
use lfn_net::transfer::{CopyOptions, CopyOutcome};
use serde::Serialize;

use crate::exit::Failure;
use crate::prediction::CopyPrediction;
use crate::print;
use crate::print::output::{Output, OutputFormat, print_document};
use crate::print::settings::is_quiet;
pub use progress::CopyProgress;

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
    /// Prediction, if the path is known.
    pub predicted: Option<CopyPrediction>,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    shortfall: Option<Shortfall>,
    streams: u16,
    streams_reason: &'a str,
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
            // After the lines of entries, the report is one more line.
            OutputFormat::Json if !self.options.transfer_options.report_entries => {
                Ok(print_document(&document, OutputFormat::Json)?)
            }
            _ => Ok(print_document(&document, OutputFormat::Ndjson)?),
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
            schema: "lfn.copy/2",
            sources: &self.sources,
            destination: &self.destination,
            path: path.as_deref(),
            bytes: *bytes,
            moved_bytes: self.outcome.moved(),
            seconds: elapsed.as_secs_f64(),
            goodput_bits_per_second: self.outcome.moved().per(*elapsed),
            digest_blake3: *digest,
            dry_run: self.options.transfer_options.dry_run,
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
            predicted: self.predicted,
            limited_by: self.limit().display_for_end(self.near_sends),
            shortfall: self.shortfall(),
            streams: self.streams(),
            streams_reason: &self.choice.streams_reason,
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

    /// Prints some lines on stdout.
    pub fn text(&self) -> Result<(), Failure> {
        let CopyOutcome { bytes, digest, elapsed, path, tally, .. } = self.outcome;
        if self.options.transfer_options.dry_run {
            let mut out = print::out();
            writeln!(out, "dry run, nothing written: {} of {} to copy", tally.bytes, bytes)?;
            return Ok(writeln!(out, "{}", count_texts(tally))?);
        }
        let (moved, time) = (self.outcome.moved(), show_duration(*elapsed));
        let mut line = match moved {
            Bytes(0) if tally.failed > 0 => format!("nothing of {bytes} copied, in {time}"),
            Bytes(0) if !tally.changed() => format!("nothing to copy: {bytes} already up to date, in {time}"),
            Bytes(0) => format!("nothing of {bytes} sent, in {time}"),
            moved if moved < *bytes => format!("{moved} of {bytes} sent in {time}, goodput {}", moved.per(*elapsed)),
            _ => format!("{bytes} in {time}, goodput {}", moved.per(*elapsed)),
        };
        if let Some(predicted) = self.predicted.as_ref().filter(|_| moved.0 > 0) {
            let (time, rate) = (show_duration(predicted.time), predicted.average_goodput);
            line += &format!(" (predicted {rate}: {time}, with {} of slow start)", show_duration(predicted.slow_start));
        }
        let limit = self.limit();
        if limit != CopyBottleneck::Unknown {
            line += &format!("; limit: {}", limit.display_for_end(self.near_sends));
        }
        let protection = match self.options.protection {
            Protection::Tls => "TLS",
            Protection::Clear => "clear",
        };
        if moved.0 > 0 || tally.changed() {
            let streams = self.streams();
            line += &format!("; {streams} {}", if streams == 1 { "stream" } else { "streams" });
            // The default reason is not printed.
            let reason = self.streams_reason();
            if !reason.starts_with("default") {
                line += &format!(" ({reason})");
            }
            line += &format!(", {protection}");
            line += &format!(", {}", verify_text(self.options.transfer_options.verify));
            // The destination `null:` writes nothing.
            if path.is_some() {
                line += &format!(", {}", fsync_text(self.options.transfer_options.fsync));
            }
        }
        let mut out = print::out();
        writeln!(out, "{line}")?;
        match digest {
            Some(digest) => writeln!(out, "blake3 {digest}")?,
            None => writeln!(out, "{}", count_texts(tally))?,
        }
        if let Some(files) = self.manifest {
            writeln!(out, "{files} {} in the manifest", if files == 1 { "file" } else { "files" })?;
        }
        if tally.resumed_bytes.0 > 0 {
            writeln!(out, "resumed: {} of an earlier copy", tally.resumed_bytes)?;
        }
        if tally.skipped_bytes.0 > 0 && tally.files > 0 {
            writeln!(out, "{} unchanged", tally.skipped_bytes)?;
        }
        if let Some((congestion, reason)) = self.switched() {
            writeln!(out, "congestion control changed to {congestion}: {reason}")?;
        }
        if let Some(line) = self.troubles() {
            writeln!(out, "{line}")?;
        }
        if let Some(Shortfall { finding, remedy }) = self.shortfall() {
            writeln!(out, "finding: {finding}\n         {remedy}")?;
        }
        Ok(())
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
        self.outcome.changes.last().map_or(self.options.streams, |change| change.streams)
    }

    /// Returns the reason for this number, with the last change.
    fn streams_reason(&self) -> String {
        match self.outcome.changes.iter().rfind(|change| change.congestion.is_none()) {
            None => self.choice.streams_reason.clone(),
            Some(last) => format!("{} at first; {}", self.options.streams, last.reason),
        }
    }

    /// Returns the change of congestion control, if there was one.
    fn switched(&self) -> Option<(&str, &str)> {
        let mut changes = self.outcome.changes.iter().rev();
        changes.find_map(|change| Some((change.congestion.as_deref()?, change.reason.as_str())))
    }

    /// Returns the finding if the goodput is below the prediction.
    fn shortfall(&self) -> Option<Shortfall> {
        let CopyOutcome { elapsed, sample, outage_time, standstill_time, .. } = self.outcome;
        shortfall(&FinishedCopy {
            goodput: self.outcome.moved().per(*elapsed),
            predicted: self.predicted?.average_goodput,
            bottleneck: self.limit(),
            sample: &ProgressSample { at: *elapsed, ..*sample },
            streams: self.streams(),
            near_sends: self.near_sends,
            outage: *outage_time,
            standstill: *standstill_time,
        })
    }

    /// Returns the limit of the whole copy.
    fn limit(&self) -> CopyBottleneck {
        let predicted = self.predicted.map(|predicted| predicted.average_goodput);
        // Time without a connection has its own cause.
        let at = self.outcome.elapsed.saturating_sub(self.outcome.outage_time);
        let whole = ProgressSample { at, bytes: self.outcome.moved(), ..self.outcome.sample };
        classify(&ProgressSample::default(), &whole, self.streams(), predicted)
    }
}

/// Prints the action for one entry as one line on stdout.
pub fn print_entry(event: &EntryEvent, json: bool) {
    // A closed pipe is not an error.
    let _ = if json {
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

/// Returns the counts of the entries by their outcome.
fn count_texts(tally: &CopyTally) -> String {
    let counts = [
        (tally.files, ["file", "files"]),
        (tally.directories, ["directory", "directories"]),
        (tally.links, ["link", "links"]),
        (tally.skipped, ["up to date"; 2]),
        (tally.deleted, ["deleted"; 2]),
        (tally.failed, ["failed"; 2]),
    ];
    let count_text = |(n, [one, more]): &(u64, [&str; 2])| format!("{n} {}", if *n == 1 { one } else { more });
    let texts: Vec<_> = counts.iter().filter(|(n, _)| *n > 0).map(count_text).collect();
    if texts.is_empty() { "nothing to copy".to_owned() } else { texts.join(", ") }
}
