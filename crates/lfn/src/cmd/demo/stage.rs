//! The process inside the emulated path. Runs `lfn test` and `lfn copy` as a user would.
//!
//! This process is the command on the near side. Its results go into one file, from which the parent process makes the
//! table. Its progress goes to the terminal.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{fs, thread};

use anyhow::{Context, Result, bail};
use lfn_api::documents::DemoResults;
use lfn_base::plan::{PlanOptions, plan};
use lfn_base::units::show_duration;
use serde_json::Value;

use super::{measured, published};
use crate::print;
use crate::print::progress::{Figures, Progress, ProgressPrinter, bar};
use crate::print::terminal::use_unicode;

/// Runs per window. The steady intervals of all runs are combined.
pub const REPEATS: usize = 2;

/// Duration of each run. Slow start over this path takes about six seconds.
pub const TEST_TIME: Duration = Duration::from_secs(15);

/// Duration of a run with its set-up, which takes two round trips, and its result, which takes one.
const TEST_DURATION: Duration = TEST_TIME.saturating_add(published::PING_RTT.saturating_mul(4));

/// Paths that the parent process and the process inside agree on.
#[derive(Debug)]
pub struct DemoPaths<'a> {
    /// Directory of all other paths. The parent process creates and deletes it.
    pub work: &'a Path,
}

impl DemoPaths<'_> {
    /// Returns the path of the file that the demo copies.
    pub fn source(&self) -> PathBuf {
        self.work.join("fields.dat")
    }

    /// Returns the served directory of the far side.
    pub fn far_root(&self) -> PathBuf {
        self.work.join("far")
    }

    /// Returns the path of the copied file on the far side.
    pub fn arrived(&self) -> PathBuf {
        self.far_root().join("fields.dat")
    }

    /// Returns the path of the measured results, in JSON.
    pub fn measured(&self) -> PathBuf {
        self.work.join("measured.json")
    }
}

/// Tests this host as it is and with each window, and copies the file.
pub fn run(paths: &DemoPaths<'_>) -> Result<()> {
    let lfn = std::env::current_exe().context("cannot find this program's own file")?;
    let steps = published::WINDOWS.len() * REPEATS + 2;
    let mut step = 1;
    let label = format!("[{step}/{steps}] lfn test far (this host as it is)");
    let default_host = watch(&label, TEST_DURATION, test_command(&lfn))?;
    let mut windows = Vec::new();
    for window in published::WINDOWS {
        let mut reports = Vec::new();
        for repeat in 1..=REPEATS {
            step += 1;
            let what = format!(
                "[{step}/{steps}] lfn test far --tuned --window {} ({} of the BDP, run {repeat} of {REPEATS})",
                window.bytes.0, window.share
            );
            let mut command = test_command(&lfn);
            // BBR would empty this long path every ten seconds.
            command.args(["--tuned", "--congestion", "cubic", "--window", &window.bytes.0.to_string()]);
            reports.push(watch(&what, TEST_DURATION, command)?);
        }
        windows.push(reports);
    }
    step += 1;
    let what = format!("[{step}/{steps}] lfn copy fields.dat far:fields.dat ({})", published::TRANSFER);
    let mut command = Command::new(&lfn);
    command.arg("copy").arg(paths.source()).args(["far:fields.dat", "--no-defaults", "--json"]);
    let expected = predicted_copy().unwrap_or(Duration::from_secs(30));
    let copy = watch(&what, expected, command)?;
    let measured = DemoResults { default_host, windows, copy };
    fs::write(paths.measured(), serde_json::to_vec(&measured)?).context("cannot write the results")
}

/// Returns the predicted time of the copy, for the progress bar.
fn predicted_copy() -> Option<Duration> {
    let wishes = PlanOptions { size: Some(published::TRANSFER), ..PlanOptions::default() };
    plan(&published::path(), &wishes).ok()?.predicted.time
}

/// Returns `lfn test far` with the duration and the intervals of the demo.
fn test_command(lfn: &Path) -> Command {
    let mut command = Command::new(lfn);
    command.args(["test", "far", "--no-defaults"]);
    command.args(["--json", "--time", &format!("{}s", TEST_TIME.as_secs())]);
    command.args(["--interval", &format!("{}ms", measured::INTERVAL.as_millis())]);
    command
}

/// Runs a command that prints one JSON object, with a progress bar for the expected time.
fn watch(what: &str, expected: Duration, mut command: Command) -> Result<Value> {
    let progress = progress(what, expected);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().context("cannot start lfn")?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    // The bar shows the last message of the command. The last error is kept.
    let live = progress.clone();
    let messages = thread::spawn(move || {
        let mut error = String::new();
        for line in stderr.into_iter().flat_map(|pipe| BufReader::new(pipe).lines().map_while(Result::ok)) {
            live.update(|step| line.trim().clone_into(&mut step.message));
            keep_error(&mut error, &line);
        }
        error
    });
    let result = thread::spawn(move || {
        let mut text = String::new();
        if let Some(mut pipe) = stdout {
            // The parser detects an incomplete result.
            let _ = pipe.read_to_string(&mut text);
        }
        text
    });
    let status = loop {
        if let Some(status) = child.try_wait().context("cannot wait for lfn")? {
            break status;
        }
        thread::sleep(Duration::from_millis(200));
    };
    let (Ok(error), Ok(text)) = (messages.join(), result.join()) else { bail!("cannot read what lfn printed") };
    if !status.success() {
        progress.finish();
        bail!("{what} failed: {error}");
    }
    let report: Value = serde_json::from_str(&text).context("lfn printed no JSON")?;
    progress.finish();
    print::message(format_args!("{what}: {}\n", headline(&report)));
    Ok(report)
}

/// Keeps the line if it is the error of the command, or its hint.
fn keep_error(error: &mut String, line: &str) {
    if let Some(message) = line.strip_prefix("lfn: ") {
        message.clone_into(error);
    } else if line.starts_with("hint: ") {
        error.push_str("; ");
        error.push_str(line);
    }
}

/// Progress of one step, whose end is expected.
pub(super) struct Step {
    name: String,
    expected: Duration,
    /// Last message of the command.
    pub(super) message: String,
}

impl Figures for Step {
    fn lines(&mut self, now: Duration, columns: usize, _rows: usize) -> Vec<String> {
        let share = now.as_secs_f64() / self.expected.as_secs_f64();
        let elapsed = show_duration(Duration::from_secs(now.as_secs()));
        let line = format!("  {} {elapsed} {}", bar(share, 24, use_unicode()), self.message);
        vec![self.name.clone(), line.chars().filter(|c| !c.is_control()).take(columns).collect()]
    }
}

/// Shows the progress of a step on a terminal; elsewhere prints a line.
pub(super) fn progress(what: &str, expected: Duration) -> Progress<Step> {
    let printer = ProgressPrinter::stderr();
    if printer == ProgressPrinter::Hidden {
        print::message(format_args!("{what}, about {} s\n", expected.as_secs()));
    }
    let progress = Progress::new(Step { name: what.to_owned(), expected, message: String::new() }, printer);
    progress.redraw_at_intervals();
    progress
}

/// Returns the main figure of a report.
fn headline(report: &Value) -> String {
    let rate = measured::steady_goodput(report).or_else(|| measured::goodput(report));
    rate.map_or_else(|| "done".to_owned(), |rate| rate.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_error_has_its_hint() {
        let mut error = String::new();
        for line in ["warming up", "lfn: no route", "hint: ip route", "the path was accurate"] {
            keep_error(&mut error, line);
        }
        assert_eq!(error, "no route; hint: ip route");
    }
}
