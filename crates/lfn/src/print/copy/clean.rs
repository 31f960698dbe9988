//! What `lfn copy --clean` shows: a line for each thing as it is found, and how many there were.

use std::io::{self, Write};
use std::time::Duration;

use lfn_core::transfer::leftover::{Counts, Leftover, Rule, State};
use lfn_core::units::{Bytes, show_duration};
use lfn_net::transfer::Seen;
use serde::Serialize;

use crate::exit::{Exit, Failure};
use crate::print;

/// What was found so far.
pub struct Report {
    rule: Rule,
    json: bool,
    places: Vec<String>,
    counts: Counts,
    troubles: u64,
    /// The first error of printing, told at the end.
    failed: Option<io::Error>,
}

/// Something that was found, as JSON.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<&'a str>,
    #[serde(flatten)]
    left: &'a Leftover,
}

/// The last line as JSON.
#[derive(Serialize)]
struct Json<'a> {
    schema: &'static str,
    places: &'a [String],
    #[serde(flatten)]
    rule: Rule,
    counts: Counts,
    troubles: u64,
}

impl Report {
    /// Of these places, as typed and without secrets.
    pub fn new(rule: Rule, json: bool, places: impl Iterator<Item = String>) -> Self {
        let (places, counts) = (places.collect(), Counts::default());
        Report { rule, json, places, counts, troubles: 0, failed: None }
    }

    /// Prints what was found, at a host if it is not this one.
    pub fn see(&mut self, host: Option<&str>, seen: Seen) {
        match seen {
            Seen::Left(left) => {
                self.counts.add(&left);
                if let Err(error) = self.tell(host, &left) {
                    self.failed.get_or_insert(error);
                }
            }
            Seen::Trouble { path, what } => {
                self.troubles += 1;
                print::talk(format_args!("lfn: {}{path}: {what}\n", before(host)));
            }
        }
    }

    /// Prints why one host could not be looked at.
    pub fn fail(&mut self, failure: &Failure) {
        self.troubles += 1;
        failure.tell();
    }

    fn tell(&self, host: Option<&str>, left: &Leftover) -> io::Result<()> {
        if self.json {
            let mut out = print::json();
            serde_json::to_writer(&mut out, &Line { host, left })?;
            return writeln!(out);
        }
        writeln!(print::out(), "{:<8}{}{}: {}", left.state.word(), before(host), left.path, what(left))
    }

    /// Prints how many there were; 1 if something could not be looked at or removed.
    pub fn end(self) -> Result<Exit, Failure> {
        if let Some(error) = self.failed {
            return Err(error.into());
        }
        let Report { rule, counts, troubles, places, .. } = &self;
        if self.json {
            let json = Json { schema: "lfn.clean/1", places, rule: *rule, counts: *counts, troubles: *troubles };
            let mut out = print::json();
            serde_json::to_writer(&mut out, &json)?;
            writeln!(out)?;
        } else {
            // Where something could not be looked at, nobody knows that nothing is left.
            if *troubles == 0 || *counts != Counts::default() {
                writeln!(print::out(), "{}", counted(counts))?;
            }
            if counts.stale > 0 {
                print::talk("hint: the same with --force removes what is stale\n");
            }
        }
        Ok(if counts.failed + troubles > 0 { Exit::Failed } else { Exit::Ok })
    }
}

/// What stands before a path.
fn before(host: Option<&str>) -> String {
    host.map(|host| format!("{host}:")).unwrap_or_default()
}

fn what(left: &Leftover) -> String {
    let mut words = Vec::new();
    match (&left.kept, &left.bytes) {
        (Some(kept), Some(bytes)) => words.push(match &left.source {
            Some(source) => format!("{kept} of {bytes} of {source}"),
            None => format!("{kept} of {bytes} of a guest's file"),
        }),
        _ => words.push(format!("{} on disk", left.room)),
    }
    words.push(format!("written {} ago", about(left.age)));
    words.extend(left.why.clone());
    words.join(", ")
}

/// A time as long as people count it.
fn about(age: Duration) -> String {
    match age.as_secs() / 86_400 {
        0 | 1 => show_duration(age),
        days => format!("{days} days"),
    }
}

fn counted(counts: &Counts) -> String {
    let Counts { busy, fresh, stale, removed, foreign, failed, stale_disk_bytes, removed_disk_bytes } = *counts;
    let room = |state: State, room: Bytes| format!("{} ({room} on disk)", state.word());
    let all = [
        (removed, room(State::Removed, removed_disk_bytes)),
        (stale, room(State::Stale, stale_disk_bytes)),
        (fresh, State::Fresh.word().to_owned()),
        (busy, State::Busy.word().to_owned()),
        (foreign, State::Foreign.word().to_owned()),
        (failed, State::Failed.word().to_owned()),
    ];
    let told: Vec<_> = all.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
    if told.is_empty() { "nothing is left of copies that were cut".to_owned() } else { told.join(", ") }
}
