//! Output of `lfn copy --clean`: one line for each file, and the counts at the end.

use std::io::{self, Write};
use std::time::Duration;

use lfn_api::documents::{CleanDocument, CleanSchema};
use lfn_base::units::{Bytes, show_duration};
use lfn_copy::CleanEvent;
use lfn_copy::proto::leftover::{CleanRule, Leftover, LeftoverCounts, LeftoverState};

use crate::exit::{Exit, Failure};
use crate::print;
use crate::print::output::{Output, OutputFormat, print_document};

/// Counts of the files found so far.
pub struct CleanReport {
    rule: CleanRule,
    output: Output,
    places: Vec<String>,
    /// Found files, if they belong into the document.
    files: Option<Vec<Leftover>>,
    counts: LeftoverCounts,
    errors: u64,
    /// First output error, reported at the end.
    failed: Option<io::Error>,
}

impl CleanReport {
    /// Creates a report; the places are as typed.
    pub fn new(rule: CleanRule, output: Output, places: impl Iterator<Item = String>) -> Self {
        let files = (output.format() == OutputFormat::Json || output.has_report()).then(Vec::new);
        let (places, counts) = (places.collect(), LeftoverCounts::default());
        CleanReport { rule, output, places, files, counts, errors: 0, failed: None }
    }

    /// Prints one event of the search.
    pub fn add(&mut self, event: CleanEvent) {
        match event {
            CleanEvent::Leftover(left) => {
                self.counts.add(&left);
                if let Err(error) = self.print_line(&left) {
                    self.failed.get_or_insert(error);
                }
                if let Some(files) = &mut self.files {
                    files.push(left);
                }
            }
            CleanEvent::Unreadable { path, reason } => {
                self.errors += 1;
                print::error(format_args!("lfn: {path}: {reason}\n"));
            }
        }
    }

    fn print_line(&self, left: &Leftover) -> io::Result<()> {
        match self.output.format() {
            OutputFormat::Json => Ok(()),
            OutputFormat::Ndjson => {
                let mut out = print::json();
                serde_json::to_writer(&mut out, left)?;
                writeln!(out)
            }
            _ => writeln!(print::out(), "{:<14}{}: {}", left.state.word(), left.path, describe(left)),
        }
    }

    /// Prints the counts. The exit code is 1 if a file could not be read or deleted.
    pub fn finish(self) -> Result<Exit, Failure> {
        if let Some(error) = self.failed {
            return Err(error.into());
        }
        let CleanReport { rule, counts, errors, places, files, mut output, .. } = self;
        let document = CleanDocument { schema: CleanSchema::Current, places, rule, files, counts, errors };
        output.write_report(&document)?;
        if output.format() == OutputFormat::Json {
            print_document(&document, OutputFormat::Json)?;
        } else if output.format() == OutputFormat::Ndjson {
            print_document(&CleanDocument { files: None, ..document }, OutputFormat::Ndjson)?;
        } else {
            // After an error, the message "nothing found" would be wrong.
            if errors == 0 || counts != LeftoverCounts::default() {
                writeln!(print::out(), "{}", count_texts(&counts))?;
            }
            if counts.stale > 0 {
                print::message("hint: run the same command with --force to delete the stale files\n");
            }
        }
        Ok(if counts.failed + errors > 0 { Exit::Failed } else { Exit::Ok })
    }
}

fn describe(left: &Leftover) -> String {
    let mut words = Vec::new();
    match (&left.received, &left.bytes) {
        (Some(kept), Some(bytes)) => words.push(match &left.source {
            Some(source) => format!("{kept} of {bytes} of {source}"),
            None => format!("{kept} of {bytes} of a write-only client's file"),
        }),
        _ => words.push(format!("{} on disk", left.disk_usage)),
    }
    words.push(format!("written {} ago", age_text(left.age)));
    words.extend(left.reason.clone());
    words.join(", ")
}

/// Returns an age in the unit that a person would use.
fn age_text(age: Duration) -> String {
    match age.as_secs() / 86_400 {
        0 | 1 => show_duration(age),
        days => format!("{days} days"),
    }
}

fn count_texts(counts: &LeftoverCounts) -> String {
    let LeftoverCounts { in_use, recent, stale, removed, unrecognised, failed, stale_disk_bytes, removed_disk_bytes } =
        *counts;
    let room = |state: LeftoverState, room: Bytes| format!("{} ({room} on disk)", state.word());
    let all = [
        (removed, room(LeftoverState::Removed, removed_disk_bytes)),
        (stale, room(LeftoverState::Stale, stale_disk_bytes)),
        (recent, LeftoverState::Recent.word().to_owned()),
        (in_use, LeftoverState::InUse.word().to_owned()),
        (unrecognised, LeftoverState::Unrecognised.word().to_owned()),
        (failed, LeftoverState::Failed.word().to_owned()),
    ];
    let texts: Vec<_> = all.iter().filter(|(n, _)| *n > 0).map(|(n, text)| format!("{n} {text}")).collect();
    if texts.is_empty() { "no files of interrupted copies found".to_owned() } else { texts.join(", ") }
}
