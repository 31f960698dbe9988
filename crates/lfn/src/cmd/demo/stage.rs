//! The part of the demo that runs inside the emulated path: `lfn test` and `lfn copy`, as a user would call them.
//!
//! It is a process of its own, the near side's command. What it measures goes into one file, which the outside turns
//! into the table; its progress goes to the terminal as it happens.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

use super::measured::{self, Measured};
use super::published;
use crate::print;

/// Runs of each window; their intervals past start-up are taken together.
pub const REPEATS: usize = 2;

/// How long each run lasts: start-up over this path takes about six of them.
pub const TEST_TIME: Duration = Duration::from_secs(15);

/// Where things are, agreed between the inside and the outside.
#[derive(Debug)]
pub struct Places<'a> {
    /// Holds everything below; the outside makes it and removes it.
    pub work: &'a Path,
}

impl Places<'_> {
    /// The file that is copied.
    pub fn source(&self) -> PathBuf {
        self.work.join("fields.dat")
    }

    /// What the far server serves.
    pub fn far_root(&self) -> PathBuf {
        self.work.join("far")
    }

    /// Where the copy arrives.
    pub fn arrived(&self) -> PathBuf {
        self.far_root().join("fields.dat")
    }

    /// What the inside leaves for the outside.
    pub fn measured(&self) -> PathBuf {
        self.work.join("measured.json")
    }
}

/// Measures each window and copies the file.
pub fn run(places: &Places<'_>) -> Result<()> {
    let lfn = std::env::current_exe().context("cannot find this program's own file")?;
    let steps = published::WINDOWS.len() * REPEATS + 1;
    let mut step = 0;
    let mut windows = Vec::new();
    for window in published::WINDOWS {
        let mut reports = Vec::new();
        for repeat in 1..=REPEATS {
            step += 1;
            let what = format!(
                "[{step}/{steps}] lfn test far --window {} ({} of the BDP, run {repeat} of {REPEATS})",
                window.bytes.0, window.share
            );
            let mut command = Command::new(&lfn);
            command.args(["test", "far", "--json", "--window", &window.bytes.0.to_string()]);
            command.args(["--time", &format!("{}s", TEST_TIME.as_secs())]);
            command.args(["--interval", &format!("{}ms", measured::INTERVAL.as_millis())]);
            // Two round trips to set up, one for the last result.
            reports.push(watch(&what, TEST_TIME + published::PING_RTT * 4, command)?);
        }
        windows.push(reports);
    }
    step += 1;
    let what = format!("[{step}/{steps}] lfn copy fields.dat far:fields.dat ({})", published::TRANSFER);
    let mut command = Command::new(&lfn);
    command.arg("copy").arg(places.source()).args(["far:fields.dat", "--json"]);
    let expected = super::predicted_copy().unwrap_or(Duration::from_secs(30));
    let copy = watch(&what, expected, command)?;
    let measured = Measured { windows, copy };
    fs::write(places.measured(), serde_json::to_vec(&measured)?).context("cannot hand over what was measured")
}

/// Runs a command that prints one JSON object, with a bar that shows how far it should be.
fn watch(what: &str, expected: Duration, mut command: Command) -> Result<Value> {
    let bar = progress(what, expected);
    let started = Instant::now();
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().context("cannot start lfn")?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    // What the command says as it goes stands beside the bar; what it complained of last is kept for an error.
    let live = bar.clone();
    let talk = thread::spawn(move || {
        let mut complaint = String::new();
        for line in stderr.into_iter().flat_map(|pipe| BufReader::new(pipe).lines().map_while(Result::ok)) {
            live.set_message(line.trim().to_owned());
            take(&mut complaint, &line);
        }
        complaint
    });
    let result = thread::spawn(move || {
        let mut text = String::new();
        if let Some(mut pipe) = stdout {
            // A cut result is found out by the parser.
            let _ = pipe.read_to_string(&mut text);
        }
        text
    });
    let status = loop {
        if let Some(status) = child.try_wait().context("cannot wait for lfn")? {
            break status;
        }
        bar.set_position(started.elapsed().as_millis().min(expected.as_millis()) as u64);
        thread::sleep(Duration::from_millis(200));
    };
    let (Ok(complaint), Ok(text)) = (talk.join(), result.join()) else { bail!("cannot read what lfn printed") };
    if !status.success() {
        bar.abandon();
        bail!("{what} failed: {complaint}");
    }
    let report: Value = serde_json::from_str(&text).context("lfn printed no JSON")?;
    bar.finish_and_clear();
    print::talk(format_args!("{what}: {}\n", headline(&report)));
    Ok(report)
}

/// Keeps the line if it is the command's error, or the hint to it.
fn take(complaint: &mut String, line: &str) {
    if let Some(error) = line.strip_prefix("lfn: ") {
        error.clone_into(complaint);
    } else if line.starts_with("hint: ") {
        complaint.push_str("; ");
        complaint.push_str(line);
    }
}

/// A bar on a terminal; elsewhere a line that says what begins.
fn progress(what: &str, expected: Duration) -> ProgressBar {
    if !print::terminal::talks_to_one() {
        print::talk(format_args!("{what}, about {} s\n", expected.as_secs()));
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(expected.as_millis() as u64);
    // The template is a constant and is tested: falling back to the plain bar loses looks only.
    if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
        bar.set_style(style);
    }
    bar.set_prefix(what.to_owned());
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}

const TEMPLATE: &str = "{prefix}\n  {bar:24} {elapsed} {wide_msg}";

/// The one figure of a report that a watcher wants.
fn headline(report: &Value) -> String {
    let rate = measured::steady_goodput(report).or_else(|| measured::goodput(report));
    rate.map_or_else(|| "done".to_owned(), |rate| rate.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_is_one() {
        assert!(ProgressStyle::with_template(TEMPLATE).is_ok());
    }

    #[test]
    fn a_complaint_is_the_error_with_its_hint() {
        let mut complaint = String::new();
        for line in ["warming up", "lfn: no route", "hint: ip route", "the path was faithful"] {
            take(&mut complaint, line);
        }
        assert_eq!(complaint, "no route; hint: ip route");
    }
}
