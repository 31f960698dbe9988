//! `lfn demo`: the ACTS satellite experiment of 1995 on this machine alone, published, predicted and measured.
//!
//! The outside ([`run`]) plans, lays the emulated path, and prints the table; the [`stage`] inside runs the commands a
//! user would. [`published`] is what the reports say, [`report`] the table and its reasons, [`mod@chart`] the picture.

mod chart;
mod measured;
mod published;
mod report;
mod stage;

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use lfn_core::plan::{Plan, Wishes, plan, predict_goodput};
use lfn_core::units::{Bytes, show_duration};
use lfn_net::emulator::{self, EmulatedPath, Ending, FarSide, Outcome, Setup};
use serde::Serialize;

use crate::exit::{Exit, Failure};
use crate::print;
use chart::{Chart, Point};
use measured::Measured;
use report::{RateSpread, Row};
use stage::Places;

/// Replay the ACTS satellite experiment of 1995 on this machine alone
///
/// Emulates the path (539 ms, OC-3c at 135 Mb/s, a queue of one BDP), measures it with three receive windows, copies a
/// file over it, and lays what was published beside what is predicted and what is measured. Takes about two and a half
/// minutes; needs no root.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Where report.json and window.svg go
    #[arg(long, value_name = "DIR", default_value = "lfn-demo")]
    out: PathBuf,
    /// Print the report as one JSON object instead of the table
    #[arg(long)]
    json: bool,
    /// The part that runs inside the emulated path
    #[arg(long, hide = true, value_name = "DIR")]
    inside: Option<PathBuf>,
}

/// The same draws in every demo.
const SEED: u64 = 1995;

/// What `report.json` holds.
#[derive(Serialize)]
struct Report<'a> {
    schema: &'static str,
    experiment: &'static str,
    plan: &'a Plan,
    rows: &'a [Row],
    windows: Vec<WindowPoint>,
    measured: &'a Measured,
    faithful: bool,
    ledger: &'a emulator::Ledger,
}

/// One point of the chart.
#[derive(Serialize)]
struct WindowPoint {
    window_bytes: Bytes,
    published_bits_per_second: u64,
    predicted_bits_per_second: u64,
    measured: Option<RateSpread>,
}

/// Runs the command.
pub fn run(args: Args) -> Result<Exit, Failure> {
    if let Some(work) = &args.inside {
        stage::run(&Places { work })?;
        return Ok(Exit::Ok);
    }
    let path = published::path();
    let plan = plan(&path, &Wishes { size: Some(published::TRANSFER), ..Wishes::default() })?;
    fs::create_dir_all(&args.out).map_err(|e| {
        Failure::msg(format!("cannot make {}: {e}", args.out.display())).hint("choose another place with --out DIR")
    })?;
    introduce(&plan);
    let work = args.out.join(".work");
    let outcome = play(&Places { work: &work });
    let measured = outcome.as_ref().ok().map(|_| take_measured(&Places { work: &work }));
    // Whatever happened, the file that was copied is not left behind.
    let _ = fs::remove_dir_all(&work);
    let outcome = outcome?;
    if let Some(broken) = &outcome.broken {
        return Err(Failure::msg(broken));
    }
    if let Some(ending) = outcome.near.filter(|ending| *ending != Ending::Exited(0)) {
        return Ok(ended_early(ending));
    }
    let measured = measured.context("nothing was measured")??;
    let rows = report::rows(&path, &plan, &measured);
    let report = Report::new(&plan, &rows, &measured, &outcome);
    if args.json {
        writeln!(print::json(), "{}", serde_json::to_string(&report)?)?;
    } else {
        print_table(&rows)?;
    }
    print::talk(format_args!("\n{}", print::emulate::ledger::shown(&outcome.ledger, outcome.broken.is_some())));
    write_files(&args.out, &plan, &report)?;
    Ok(if outcome.ledger.is_faithful() { Exit::Ok } else { Exit::Untrusted })
}

/// Reads what the inside left, and looks for itself whether the file arrived whole.
fn take_measured(places: &Places<'_>) -> Result<Measured, Failure> {
    let measured = serde_json::from_slice(&fs::read(places.measured())?)?;
    if !same_bytes(&places.source(), &places.arrived())? {
        return Err(Failure::msg("the copy that arrived is not the file that was sent"));
    }
    Ok(measured)
}

fn same_bytes(one: &Path, other: &Path) -> io::Result<bool> {
    let (mut one, mut other) = (BufReader::new(File::open(one)?), BufReader::new(File::open(other)?));
    loop {
        let (a, b) = (one.fill_buf()?, other.fill_buf()?);
        let length = a.len().min(b.len());
        if a[..length] != b[..length] {
            return Ok(false);
        }
        if length == 0 {
            return Ok(a.len() == b.len());
        }
        one.consume(length);
        other.consume(length);
    }
}

/// How long the copy should take, for its progress bar.
fn predicted_copy() -> Option<Duration> {
    let wishes = Wishes { size: Some(published::TRANSFER), ..Wishes::default() };
    plan(&published::path(), &wishes).ok()?.predicted.time
}

fn introduce(plan: &Plan) {
    let runs = published::WINDOWS.len() * stage::REPEATS;
    let seconds = runs as u64 * (stage::TEST_TIME.as_secs() + 3) + plan.predicted.time.map_or(30, |t| t.as_secs());
    print::talk(format_args!(
        "The ACTS satellite path of 1995: {} at {}, BDP {} bytes, window scale {}.\n\
         {runs} tests and one copy over it, about {} s. No other machine is involved.\n",
        plan.capacity,
        show_duration(plan.rtt),
        plan.bdp.0,
        plan.window_scale,
        seconds
    ));
}

/// Makes the file, lays the path and runs the inside.
fn play(places: &Places<'_>) -> Result<Outcome, Failure> {
    fs::create_dir_all(places.far_root())?;
    let mut source = File::create(places.source())?;
    let mut noise = File::open("/dev/urandom")?.take(published::TRANSFER.0);
    io::copy(&mut noise, &mut source).with_context(|| format!("cannot write {}", places.source().display()))?;
    drop(source);
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let work = places.work.canonicalize()?;
    let serve = ["serve", "--ephemeral", "--quiet", "--host", "far", "--root"].map(Into::into);
    let far = FarSide::Server {
        program: program.clone(),
        arguments: serve.into_iter().chain([work.join("far").into()]).collect(),
    };
    let setup = Setup::new(EmulatedPath::symmetric(published::path()), SEED, far);
    let command = [program.into(), "demo".into(), "--inside".into(), work.into()];
    emulator::run(&setup, &command).map_err(crate::cmd::emulate::explain)
}

/// The inside has said why; its exit code is passed on.
fn ended_early(ending: Ending) -> Exit {
    match ending {
        Ending::Killed(2) | Ending::Exited(130) => Exit::Interrupted,
        _ => Exit::Failed,
    }
}

fn print_table(rows: &[Row]) -> Result<(), Failure> {
    let text = |figure: &Option<report::Figure>| figure.as_ref().map_or("–".to_owned(), |f| f.text.clone());
    let head = ["", "published 1995", "predicted", "measured now", "why"].map(str::to_owned);
    let lines = rows.iter().enumerate().map(|(at, row)| {
        [row.what.clone(), text(&row.published), text(&row.predicted), text(&row.measured), (at + 1).to_string()]
    });
    let lines: Vec<[String; 5]> = std::iter::once(head).chain(lines).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 5] = std::array::from_fn(width);
    let mut out = print::out();
    writeln!(out)?;
    for (at, line) in lines.iter().enumerate() {
        let cells: Vec<String> = line.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        writeln!(out, "{}", cells.join("  ").trim_end())?;
        if at == 0 {
            writeln!(out, "{}", "─".repeat(widths.iter().sum::<usize>() + 2 * (widths.len() - 1)))?;
        }
    }
    writeln!(out)?;
    for (number, row) in rows.iter().enumerate() {
        writeln!(out, "{}", wrap(&format!("{:>2}. {}: {}", number + 1, row.what, row.reason), 80))?;
    }
    Ok(())
}

/// Breaks text at words, further lines indented under the first.
fn wrap(text: &str, width: usize) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().filter(|line| line.chars().count() + word.chars().count() < width);
        match line {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) => {
                line.push(' ');
                line.push_str(word);
            }
            None => lines.push(format!("    {word}")),
        }
    }
    lines.join("\n")
}

impl<'a> Report<'a> {
    fn new(plan: &'a Plan, rows: &'a [Row], measured: &'a Measured, outcome: &'a Outcome) -> Self {
        let point = |(window, reports): (&published::Window, &Vec<_>)| WindowPoint {
            window_bytes: window.bytes,
            published_bits_per_second: window.goodput.0,
            predicted_bits_per_second: predict_goodput(&plan.path, Some(window.bytes), 1).goodput.0,
            measured: report::spread(reports),
        };
        Report {
            schema: "lfn.demo/1",
            experiment: "ACTS 1995",
            plan,
            rows,
            windows: published::WINDOWS.iter().zip(&measured.windows).map(point).collect(),
            measured,
            faithful: outcome.ledger.is_faithful(),
            ledger: &outcome.ledger,
        }
    }
}

fn write_files(out: &Path, plan: &Plan, report: &Report<'_>) -> Result<(), Failure> {
    let (file, picture) = (out.join("report.json"), out.join("window.svg"));
    chart(plan, &report.windows).write_svg(&picture)?;
    fs::write(&file, serde_json::to_vec_pretty(report)?).with_context(|| format!("cannot write {}", file.display()))?;
    print::talk(format_args!("\nwrote {} and {}\n", file.display(), picture.display()));
    Ok(())
}

fn chart(plan: &Plan, points: &[WindowPoint]) -> Chart<'static> {
    let widest = published::WINDOWS.iter().map(|window| window.bytes.0).max().unwrap_or_default() as f64 * 1.1;
    let at = |window: f64| (window, predict_goodput(&plan.path, Some(Bytes(window as u64)), 1).goodput.as_f64());
    // Straight up to the window that fills the path, level from there on.
    let full = plan.payload_capacity.times(plan.rtt).0 as f64;
    Chart {
        title: "Goodput over the receive window: ACTS satellite path, 135 Mb/s at 539 ms",
        predicted: vec![at(0.0), at(full), at(widest)],
        published: points.iter().map(|p| (p.window_bytes.0 as f64, p.published_bits_per_second as f64)).collect(),
        measured: points
            .iter()
            .filter_map(|p| {
                let RateSpread { least, median, most } = p.measured?;
                let window = p.window_bytes.0 as f64;
                Some(Point { window, least: least.as_f64(), median: median.as_f64(), most: most.as_f64() })
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrapped_lines_are_short_and_lose_no_word() {
        let text = "1. goodput: the excess of half a BDP stands in the queue and nothing is lost by it";
        let wrapped = wrap(text, 30);
        assert!(wrapped.lines().all(|line| line.chars().count() <= 34));
        assert_eq!(wrapped.split_whitespace().collect::<Vec<_>>(), text.split(' ').collect::<Vec<_>>());
    }
}
