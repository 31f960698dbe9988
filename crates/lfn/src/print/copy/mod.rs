//! Output of `lfn copy`: the progress ([`CopyProgress`]), and some lines or one JSON object at its end.

pub mod clean;
mod progress;
mod progress_line;
mod report;

use std::io::Write;

use lfn_api::documents::{
    FinishedCopy, QueueReport, RankDirection, RanksReport, StripeFigures, StripeState, UsedTransport,
};
use lfn_api::pictures::Album;
use lfn_base::units::{Bytes, show_duration};
use lfn_copy::proto::streams::CountReason;
use lfn_results::diagnose::bottleneck::CopyBottleneck;
use lfn_session::Protection;
use lfn_session::wire::copy::options::{FsyncPolicy, Verify};
use lfn_session::wire::copy::ranks::RankState;
use lfn_session::wire::copy::{CopyTally, EntryEvent, ReportedKind};

use crate::exit::{Failure, without_error_number};
use crate::print::label_columns::wrap;
use crate::print::output::{Output, OutputFormat, print_document};
use crate::print::settings::is_quiet;
use crate::print::{self, terminal};
pub use progress::{CopyProgress, ProgressMode};

/// Text of a finished copy.
pub struct CopyReport<'a> {
    /// Document of the result, with its entries and the files in the manifest.
    pub document: &'a FinishedCopy,
}

impl CopyReport<'_> {
    /// Writes the report file and prints the result. Without `is_error_line_enough` the text is printed too.
    pub fn print(
        &self,
        mut output: Output,
        album: impl FnOnce() -> Album,
        is_error_line_enough: bool,
    ) -> Result<(), Failure> {
        output.write_page(self.document, || report::page(self.document, self.page_without_wrapping(), album()))?;
        match output.format() {
            OutputFormat::Text if is_error_line_enough || is_quiet() => Ok(()),
            OutputFormat::Text => Ok(print::result(&self.page())?),
            // Each entry was a line already.
            OutputFormat::Ndjson => {
                let document = FinishedCopy { entries: None, ..self.document.clone() };
                Ok(print_document(&document, OutputFormat::Ndjson)?)
            }
            format => Ok(print_document(self.document, format)?),
        }
    }

    /// Returns some lines. On a terminal, they are wrapped between words.
    pub fn page(&self) -> String {
        self.text(SummaryLines::new(terminal::wrap_columns()))
    }

    fn page_without_wrapping(&self) -> String {
        self.text(SummaryLines::new(None))
    }

    fn text(&self, mut lines: SummaryLines) -> String {
        let document = self.document;
        let FinishedCopy { bytes, digest, time, path, counts: tally, findings, .. } = document;
        let total = bytes.decimal();
        if document.dry_run {
            lines.add(format!("dry run, nothing written: {} of {total} to copy", tally.bytes.decimal()));
            lines.add(count_texts(tally, true));
            return lines.text;
        }
        let (elapsed, moved, time) = (*time, document.moved_bytes, show_duration(*time));
        let mut line = match moved {
            Bytes(0) if document.queue.is_some() => format!("nothing sent by this mover, in {time}"),
            Bytes(0) if tally.failed > 0 => format!("nothing of {total} copied, in {time}"),
            Bytes(0) if !tally.changed() => format!("nothing to copy: {total} already up to date, in {time}"),
            Bytes(0) if document.ranks.is_some() => format!("nothing of {total} moved by this rank, in {time}"),
            Bytes(0) => format!("nothing of {total} sent, in {time}"),
            moved if moved < *bytes => {
                let is_download =
                    document.ranks.as_ref().is_some_and(|ranks| ranks.direction == RankDirection::Download);
                let verb = if is_download { "received" } else { "sent" };
                format!("{} of {total} {verb} in {time}, goodput {}", moved.decimal(), moved.per(elapsed))
            }
            _ => format!("{total} in {time}, goodput {}", moved.per(elapsed)),
        };
        // The finding below names the limit, with figures.
        if document.limited_by != CopyBottleneck::Unknown.to_string() && findings.is_empty() {
            line += &format!("; limit: {}", document.limited_by);
        }
        if moved.0 > 0 || tally.changed() {
            let protection = match document.protection {
                Protection::Tls => "TLS",
                Protection::Clear => "clear",
            };
            line += &format!("; {}", stream_count(self.document.streams));
            // The default reason is not printed.
            if let Some(last) = document.last_count_change() {
                let first = document.first_streams.map(|first| format!("{first} at first; ")).unwrap_or_default();
                line += &format!(" ({first}{})", last.reason);
            }
            line += &format!(", {protection}, {}", verify_text(document.verify));
            // The destination `null:` writes nothing.
            if path.is_some() {
                line += &format!(", {}", fsync_text(document.fsync));
            }
        }
        lines.add(line);
        document.ranks.iter().flat_map(ranks_text).for_each(|line| lines.add(line));
        document.queue.iter().for_each(|queue| lines.add(queue_text(queue)));
        lines.extend(self.prediction_text());
        lines.add(match digest {
            Some(digest) => format!("blake3 {digest}"),
            None => count_texts(tally, false),
        });
        if let Some(files) = self.document.manifest_files {
            lines.add(format!("{files} {} in the manifest", if files == 1 { "file" } else { "files" }));
        }
        if tally.resumed_bytes.0 > 0 {
            lines.add(format!("resumed: {} of an earlier copy", tally.resumed_bytes.decimal()));
        }
        if tally.skipped_bytes.0 > 0 && tally.files > 0 {
            lines.add(format!("{} unchanged", tally.skipped_bytes.decimal()));
        }
        if let Some((congestion, reason)) = document.congestion_change() {
            lines.add(format!("congestion control changed to {congestion}: {reason}"));
        }
        lines.extend(match (document.transport, &document.transport_reason) {
            (UsedTransport::Mptcp, _) => Some("transport: Multipath TCP".to_owned()),
            (UsedTransport::Tcp, Some(reason)) => Some(format!("transport: plain TCP, because {reason}")),
            (UsedTransport::Tcp, None) => None,
        });
        document.stripes.iter().for_each(|stripe| lines.add(stripe_text(stripe)));
        lines.extend(self.troubles());
        for finding in findings {
            lines.add(format!("finding: {}", finding.summary));
            lines.add(format!("hint: {}", finding.remedy));
        }
        lines.text
    }

    /// Returns the line of the prediction, with the reason for the number of streams.
    fn prediction_text(&self) -> Option<String> {
        let predicted = self.document.predicted?;
        let mut line = format!("predicted: {}", show_duration(predicted.time));
        if !predicted.slow_start.is_zero() {
            line += &format!(" with {} of slow start", show_duration(predicted.slow_start));
        }
        line += &format!(", goodput {}", predicted.average_goodput);
        if self.document.last_count_change().is_none()
            && self.document.streams_reason != CountReason::UnknownPath.to_string()
        {
            line += &format!("; {}: {}", stream_count(self.document.streams), self.document.streams_reason);
        }
        Some(line)
    }

    /// Returns a line about lost connections, broken streams and damaged blocks, if there were any.
    fn troubles(&self) -> Option<String> {
        let FinishedCopy { reconnects, disconnected, streams_replaced: replaced, counts: tally, .. } = self.document;
        let mut notes = Vec::new();
        if *reconnects > 0 {
            let times = if *reconnects == 1 { "once".into() } else { format!("{reconnects} times") };
            notes.push(format!("the connection was lost {times}, for {} in total", show_duration(*disconnected)));
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

/// Returns the state of a queue and the share of this mover.
fn queue_text(queue: &QueueReport) -> String {
    let QueueReport { name, complete, entries, done_entries, failed_entries, own_entries, own_bytes, .. } = queue;
    let entry = |count: u64| if count == 1 { "entry" } else { "entries" };
    let state = match (complete, failed_entries) {
        (true, 0) => format!("queue {name} is complete: {entries} {}, {}", entry(*entries), queue.bytes.decimal()),
        (true, failed) => {
            format!(
                "queue {name} is at its end: {done_entries} of {entries} {} complete, {failed} failed",
                entry(*entries)
            )
        }
        (false, _) => format!("queue {name} is incomplete: {done_entries} of {entries} {}", entry(*entries)),
    };
    format!("{state}; this mover copied {own_entries} {}, {}", entry(*own_entries), own_bytes.decimal())
}

/// Returns the figures of all ranks together, and a line for each rank that is absent. Rank 0 prints them.
fn ranks_text(report: &RanksReport) -> Vec<String> {
    if report.rank != 0 {
        return Vec::new();
    }
    let RanksReport { ranks, bytes, time, goodput, direction, .. } = report;
    let verb = match direction {
        RankDirection::Upload => "sent",
        RankDirection::Download => "received",
    };
    let shares = ranks.iter().map(|rank| rank.bytes);
    let (least, most) = (shares.clone().min().unwrap_or_default(), shares.max().unwrap_or_default());
    let mut lines = vec![format!(
        "{} ranks {verb} {} in {}, goodput {goodput}; {} to {} each",
        ranks.len(),
        bytes.decimal(),
        show_duration(*time),
        least.decimal(),
        most.decimal()
    )];
    for rank in ranks.iter().filter(|rank| rank.state != RankState::Connected) {
        let what = match &rank.address {
            Some(address) => format!("was lost ({address})"),
            None => "did not come".to_owned(),
        };
        lines.push(format!("rank {} {what}: the others {verb} its blocks", rank.rank));
    }
    lines
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

/// Returns the line of one stripe.
fn stripe_text(stripe: &StripeFigures) -> String {
    let StripeFigures { stripe: name, bytes, throughput, streams, outages, down, retransmitted_segments, .. } = stripe;
    let mut text = format!("stripe {name}: ");
    text += &match &stripe.error {
        Some(error) if bytes.0 == 0 => format!("nothing carried: {}", without_error_number(error)),
        None if stripe.state == StripeState::Connecting => "nothing carried: no connection before the end".to_owned(),
        _ => format!("{} at {throughput}, {}", bytes.decimal(), stream_count(*streams)),
    };
    if let Some(segments) = retransmitted_segments.filter(|segments| *segments > 0) {
        text += &format!(", {segments} {} sent again", if segments == 1 { "segment" } else { "segments" });
    }
    if *outages > 0 {
        let times = if *outages == 1 { "once".to_owned() } else { format!("{outages} times") };
        text += &format!("; down {times}, for {} in total", show_duration(*down));
    }
    text
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
