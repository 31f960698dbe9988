//! What `lfn copy` shows: how it goes ([`Live`]), some lines or one JSON object at its end.

pub mod clean;
mod line;
mod live;

use std::io::Write;

use lfn_core::transfer::digest::Digest;
use lfn_core::transfer::keep::LeftOut;
use lfn_core::transfer::limit::{Limit, Look, Shares, SocketEvidence, classify};
use lfn_core::transfer::manner::{Sync, Verify};
use lfn_core::transfer::shortfall::{Finished, Shortfall, shortfall};
use lfn_core::transfer::streams::{Change, Choice};
use lfn_core::units::{BitRate, Bytes, show_duration};
use lfn_core::wire::CongestionWish;
use lfn_core::wire::copy::{Failure as Failed, Tally, Thing, Told};
use lfn_net::session::Protection;
use lfn_net::transfer::{Options, Outcome};
use serde::Serialize;

use crate::exit::Failure;
use crate::forecast::Predicted;
use crate::print;
pub use live::Live;

/// A finished copy and what it is held against.
pub struct Report<'a> {
    /// As typed, without secrets.
    pub sources: Vec<String>,
    /// As typed, without secrets.
    pub destination: String,
    /// How it ended.
    pub outcome: &'a Outcome,
    /// How it went.
    pub options: &'a Options,
    /// How the streams were set up, and why so.
    pub choice: &'a Choice,
    /// This host was the sender.
    pub near_sends: bool,
    /// How many files are in the manifest, if one was asked for.
    pub manifest: Option<u64>,
    /// What was to be expected, if the path is known.
    pub predicted: Option<Predicted>,
}

/// The report as JSON.
#[derive(Serialize)]
struct Json<'a> {
    schema: &'static str,
    sources: &'a [String],
    destination: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'a str>,
    bytes: Bytes,
    /// Of it, what crossed the path.
    moved_bytes: Bytes,
    seconds: f64,
    goodput_bits_per_second: BitRate,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest_blake3: Option<Digest>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    dry_run: bool,
    verify: Verify,
    fsync: Sync,
    tally: Tally,
    left_out: LeftOut,
    #[serde(skip_serializing_if = "Option::is_none")]
    manifest_files: Option<u64>,
    failures: &'a [Failed],
    /// How often the connection was lost and found again, and how long there was none.
    reconnects: u32,
    seconds_without_connection: f64,
    /// How long nothing came though there was one.
    seconds_still: f64,
    /// Data streams that broke.
    streams_replaced: u32,
    predicted: Option<Predicted>,
    limit: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    shortfall: Option<Shortfall>,
    streams: u16,
    streams_reason: &'a str,
    streams_changes: &'a [Change],
    block_bytes: Bytes,
    block_reason: &'a str,
    buffer_bytes: Option<Bytes>,
    buffer_reason: &'a str,
    protection: Protection,
    congestion: Option<&'a str>,
    congestion_reason: &'a str,
    #[serde(rename = "pace_bits_per_second")]
    pace: Option<BitRate>,
    sender: Shares,
    receiver: Shares,
    sockets: Option<SocketEvidence>,
}

impl Report<'_> {
    /// One JSON object on stdout; in one line if it ends a row of them.
    pub fn json(&self, line: bool) -> Result<(), Failure> {
        let Outcome {
            bytes,
            digest,
            elapsed,
            path,
            tally,
            left_out,
            failures,
            look,
            reconnects,
            without,
            still,
            replaced,
            changes,
        } = self.outcome;
        let (congestion, congestion_reason) = self.switched().unzip();
        let json = Json {
            schema: "lfn.copy/1",
            sources: &self.sources,
            destination: &self.destination,
            path: path.as_deref(),
            bytes: *bytes,
            moved_bytes: self.outcome.moved(),
            seconds: elapsed.as_secs_f64(),
            goodput_bits_per_second: self.outcome.moved().per(*elapsed),
            digest_blake3: *digest,
            dry_run: self.options.manner.dry_run,
            verify: self.options.manner.verify,
            fsync: self.options.manner.fsync,
            tally: *tally,
            left_out: *left_out,
            manifest_files: self.manifest,
            failures,
            reconnects: *reconnects,
            seconds_without_connection: without.as_secs_f64(),
            seconds_still: still.as_secs_f64(),
            streams_replaced: *replaced,
            predicted: self.predicted,
            limit: self.limit().seen(self.near_sends),
            shortfall: self.shortfall(),
            streams: self.streams(),
            streams_reason: &self.choice.streams_reason,
            streams_changes: changes,
            block_bytes: self.options.block,
            block_reason: &self.choice.block_reason,
            buffer_bytes: self.choice.buffer,
            buffer_reason: &self.choice.buffer_reason,
            protection: self.options.protection,
            congestion: congestion.or(self.options.congestion.as_ref().map(CongestionWish::name)),
            congestion_reason: congestion_reason.unwrap_or(&self.choice.congestion_reason),
            pace: self.options.pace,
            sender: look.sender,
            receiver: look.receiver,
            sockets: look.sockets,
        };
        let mut out = print::json();
        // Behind lines of entries it is one more line.
        match line || self.options.manner.tell {
            true => serde_json::to_writer(&mut out, &json)?,
            false => serde_json::to_writer_pretty(&mut out, &json)?,
        }
        Ok(writeln!(out)?)
    }

    /// Two lines on stdout.
    pub fn text(&self) -> Result<(), Failure> {
        let Outcome { bytes, digest, elapsed, path, tally, .. } = self.outcome;
        if self.options.manner.dry_run {
            let mut out = print::out();
            writeln!(out, "dry run, nothing was written: {} of {} in files to copy", tally.bytes, bytes)?;
            return Ok(writeln!(out, "{}", counted(tally))?);
        }
        let (moved, took) = (self.outcome.moved(), show_duration(*elapsed));
        let mut line = match moved {
            Bytes(0) if tally.failed > 0 => format!("nothing of {bytes} was copied, in {took}"),
            Bytes(0) => format!("nothing of {bytes} had to be moved, in {took}"),
            moved if moved < *bytes => format!("{moved} of {bytes} moved in {took}, goodput {}", moved.per(*elapsed)),
            _ => format!("{bytes} in {took}, goodput {}", moved.per(*elapsed)),
        };
        if let Some(predicted) = self.predicted.as_ref().filter(|_| moved.0 > 0) {
            let (time, rate) = (show_duration(predicted.time), predicted.average_goodput);
            line +=
                &format!(" of {rate} predicted ({time}, of which start-up {})", show_duration(predicted.slow_start));
        }
        let limit = self.limit();
        if limit != Limit::Unknown {
            line += &format!("; limit: {}", limit.seen(self.near_sends));
        }
        let protection = match self.options.protection {
            Protection::Tls => "TLS",
            Protection::Clear => "clear",
        };
        if moved.0 > 0 || tally.changed() {
            let streams = self.streams();
            line += &format!("; {streams} {}", if streams == 1 { "stream" } else { "streams" });
            // That nothing is known of the path is no news.
            let reason = self.streams_reason();
            if !reason.starts_with("default") {
                line += &format!(" ({reason})");
            }
            line += &format!(", {protection}");
            line += &format!(", {}", checked(self.options.manner.verify));
            // Nothing is kept at null:.
            if path.is_some() {
                line += &format!(", {}", kept(self.options.manner.fsync));
            }
        }
        let mut out = print::out();
        writeln!(out, "{line}")?;
        match digest {
            Some(digest) => writeln!(out, "blake3 {digest}")?,
            None => writeln!(out, "{}", counted(tally))?,
        }
        if let Some(files) = self.manifest {
            writeln!(out, "{files} {} in the manifest", if files == 1 { "file" } else { "files" })?;
        }
        if tally.kept.0 > 0 {
            writeln!(out, "{} of it had been there from an earlier copy", tally.kept)?;
        }
        if tally.skipped_bytes.0 > 0 && tally.files > 0 {
            writeln!(out, "{} of it were in files that were there already", tally.skipped_bytes)?;
        }
        if let Some((congestion, reason)) = self.switched() {
            writeln!(out, "changed to {congestion}: {reason}")?;
        }
        if let Some(line) = self.troubles() {
            writeln!(out, "{line}")?;
        }
        if let Some(Shortfall { finding, cure }) = self.shortfall() {
            writeln!(out, "finding: {finding}\n         {cure}")?;
        }
        Ok(())
    }

    /// What had to be dialled or sent anew, if anything.
    fn troubles(&self) -> Option<String> {
        let Outcome { reconnects, without, replaced, tally, .. } = self.outcome;
        let mut told = Vec::new();
        if *reconnects > 0 {
            let times = if *reconnects == 1 { "once".into() } else { format!("{reconnects} times") };
            told.push(format!("the connection was lost {times}, for {} in all", show_duration(*without)));
        }
        if *replaced > 0 {
            let streams = if *replaced == 1 { "data stream broke and was" } else { "data streams broke and were" };
            told.push(format!("{replaced} {streams} replaced"));
        }
        if tally.again > 0 {
            let blocks = if tally.again == 1 { "block was" } else { "blocks were" };
            told.push(format!("{} damaged {blocks} sent again", tally.again));
        }
        (!told.is_empty()).then(|| told.join("; "))
    }

    /// How many streams it ended with.
    fn streams(&self) -> u16 {
        self.outcome.changes.last().map_or(self.options.streams, |change| change.streams)
    }

    /// Why so many, the last change first.
    fn streams_reason(&self) -> String {
        match self.outcome.changes.iter().rfind(|change| change.congestion.is_none()) {
            None => self.choice.streams_reason.clone(),
            Some(last) => format!("{} at first; {}", self.options.streams, last.reason),
        }
    }

    /// The change of congestion control, if there was one.
    fn switched(&self) -> Option<(&str, &str)> {
        let mut changes = self.outcome.changes.iter().rev();
        changes.find_map(|change| Some((change.congestion.as_deref()?, change.reason.as_str())))
    }

    /// Where it fell behind what was predicted.
    fn shortfall(&self) -> Option<Shortfall> {
        let Outcome { elapsed, look, without, still, .. } = self.outcome;
        shortfall(&Finished {
            goodput: self.outcome.moved().per(*elapsed),
            predicted: self.predicted?.average_goodput,
            limit: self.limit(),
            look: &Look { at: *elapsed, ..*look },
            streams: self.streams(),
            near_sends: self.near_sends,
            without: *without,
            still: *still,
        })
    }

    /// Over the whole copy.
    fn limit(&self) -> Limit {
        let predicted = self.predicted.map(|predicted| predicted.average_goodput);
        // While there was no connection, nothing else held it.
        let at = self.outcome.elapsed.saturating_sub(self.outcome.without);
        let whole = Look { at, bytes: self.outcome.moved(), ..self.outcome.look };
        classify(&Look::default(), &whole, self.streams(), predicted)
    }
}

/// What became, or would become, of one entry: one line on stdout as it is found out.
pub fn tell(told: &Told, json: bool) {
    // A reader that closed the pipe has read enough.
    let _ = if json {
        let mut out = print::json();
        serde_json::to_writer(&mut out, told).map_err(std::io::Error::from).and_then(|()| writeln!(out))
    } else {
        let slash = if told.kind == Thing::Directory { "/" } else { "" };
        writeln!(print::out(), "{:<8}{}{slash}", told.fate.word(), told.name)
    };
}

fn checked(verify: Verify) -> &'static str {
    match verify {
        Verify::Blake3 => "verified by BLAKE3",
        Verify::Xxh3 => "verified by XXH3 (errors only)",
        Verify::Off => "not verified",
    }
}

fn kept(fsync: Sync) -> &'static str {
    match fsync {
        Sync::File => "on disk before named",
        Sync::End => "on disk at the end",
        Sync::None => "not synced",
    }
}

/// What became of the entries of a tree.
fn counted(tally: &Tally) -> String {
    let some = [
        (tally.files, ["file", "files"]),
        (tally.directories, ["directory", "directories"]),
        (tally.links, ["link", "links"]),
        (tally.skipped, ["there already"; 2]),
        (tally.deleted, ["deleted"; 2]),
        (tally.failed, ["failed"; 2]),
    ];
    let said = |(n, [one, more]): &(u64, [&str; 2])| format!("{n} {}", if *n == 1 { one } else { more });
    let told: Vec<_> = some.iter().filter(|(n, _)| *n > 0).map(said).collect();
    if told.is_empty() { "nothing to copy".to_owned() } else { told.join(", ") }
}
