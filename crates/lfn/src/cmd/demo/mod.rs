//! `lfn demo`: repeats the ACTS satellite experiment of 1995 on this machine, and compares published, predicted and
//! measured figures.
//!
//! The parent process ([`run`]) plans, starts the emulated path and prints the table. The process inside the path
//! ([`stage`]) runs the same commands as a user. [`lfn_campaign::published`] has the figures of the reports, [`report`] the
//! table and its explanations, [`mod@chart`] the chart.

mod chart;
mod coop3d;
mod emulation;
mod measured;
mod report;
mod stage;
mod wrap;

#[cfg(test)]
#[allow(dead_code, reason = "the test checks whole documents only")]
#[path = "../../../tests/support/schema.rs"]
mod schema;

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use lfn_api::documents::{
    DemoDocument, DemoFigure, DemoResults, DemoRow, DemoSchema, HostComparison, RateSpread, WindowPoint,
};
use lfn_api::emulate;
use lfn_base::plan::{Plan, PlanOptions, plan, predict_goodput};
use lfn_base::units::{Bytes, show_duration};
use lfn_campaign::published;
use lfn_emulate::{AccuracyReport, CommandExit, EmulatedPath, RunOutcome, Setup};

use crate::cli::output::{OutputArgs, PlotArgs, TextOrJson};
use crate::exit::{Exit, Failure};
use crate::print;
use crate::print::pictures::PictureFiles;
use chart::{Chart, MeasuredPoint};
use emulation::{SEED, create_work_directory, exit_of_inner_process};
use report::{compare_hosts, comparison_lines};
use stage::DemoPaths;
use wrap::wrap;

/// Compare this host as it is and tuned on an emulated satellite link
///
/// Emulates the ACTS satellite path of 1995 (539 ms, OC-3c at 135 Mb/s, a queue of one BDP). Tests the path with the
/// settings of this host, then with three receive windows, and copies a file over it. Prints the published, predicted
/// and measured figures side by side and explains the differences. Draws the goodput of each window to lfn-demo.svg.
/// Takes about two and a half minutes and needs no root.
#[derive(clap::Args, Debug)]
#[command(after_help = EXIT_CODES, args_conflicts_with_subcommands = true)]
pub struct DemoArgs {
    #[command(subcommand)]
    experiment: Option<Experiment>,
    #[command(flatten)]
    output: OutputArgs<TextOrJson>,
    #[command(flatten)]
    plot: PlotArgs,
    /// Run as the process inside the emulated path
    #[arg(long, hide = true, value_name = "DIR")]
    inside: Option<PathBuf>,
}

/// Other experiments than the one of 1995.
#[derive(clap::Subcommand, Debug)]
enum Experiment {
    Coop3d(Box<coop3d::Coop3dArgs>),
}

const EXIT_CODES: &str =
    "Exit codes: 0 measured, 1 failed, 2 usage, 4 measured but the emulation was not accurate, 130 interrupted.";

/// Picture of a demo without `--plot`.
const PICTURE: &str = "lfn-demo.svg";

/// Runs `lfn demo` and returns its exit code.
pub fn run(args: DemoArgs) -> Result<Exit, Failure> {
    if let Some(Experiment::Coop3d(args)) = &args.experiment {
        return coop3d::run(args);
    }
    if let Some(work) = &args.inside {
        stage::run(&DemoPaths { work })?;
        return Ok(Exit::Ok);
    }
    let output = args.output.open()?;
    let path = published::path();
    let plan = plan(&path, &PlanOptions { size: Some(published::TRANSFER), ..PlanOptions::default() })?;
    let size = args.plot.size();
    let pictures = PictureFiles::create(&args.plot.plot.unwrap_or_else(|| PICTURE.into()), size)?;
    print_introduction(&plan);
    let work = create_work_directory(SPACE)?;
    let outcome = run_emulation(&DemoPaths { work: &work });
    let measured = outcome.as_ref().ok().map(|_| read_results(&DemoPaths { work: &work }));
    // The copied file is deleted, also after an error.
    let _ = fs::remove_dir_all(&work);
    let outcome = outcome?;
    if let Some(broken) = &outcome.link_failure {
        return Err(Failure::msg(broken));
    }
    if let Some(ending) = outcome.near.filter(|ending| *ending != CommandExit::Exited(0)) {
        return Ok(exit_of_inner_process(ending));
    }
    let measured = measured.context("nothing was measured")??;
    let report = document(&plan, measured, outcome.accuracy_report.clone());
    output.finish(&report, || {
        print_comparison(report.comparison.as_ref())?;
        print_table(&report.rows)
    })?;
    print::message(format_args!(
        "\n{}",
        print::emulate::accuracy::for_stderr(&outcome.accuracy_report, outcome.link_failure.is_some())
    ));
    print::message("\n");
    pictures.write_picture("goodput", &chart(&plan, &report.windows, &report.accuracy_report).picture())?;
    Ok(if outcome.accuracy_report.is_accurate() { Exit::Ok } else { Exit::Unreliable })
}

/// Reads the results of the process inside, and compares the copied file with the source.
fn read_results(paths: &DemoPaths<'_>) -> Result<DemoResults, Failure> {
    let measured = serde_json::from_slice(&fs::read(paths.measured())?)?;
    if !same_bytes(&paths.source(), &paths.arrived())? {
        return Err(Failure::msg("the copied file differs from the source"));
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

fn print_introduction(plan: &Plan) {
    let runs = published::WINDOWS.len() * stage::REPEATS + 1;
    print::message(format_args!(
        "A geostationary satellite link on this machine: {}, RTT {}, BDP {}.\n\
         {runs} tests and one copy: this host as it is, then tuned, then the measurements of 1995 repeated.\n\
         This takes about {}. No other machine is involved.\n",
        plan.capacity,
        show_duration(plan.rtt),
        plan.bdp,
        DURATION,
    ));
}

/// Space for the copied file, its copy and the results.
const SPACE: Bytes = Bytes(700_000_000);

/// Duration of the demo. The help of the command and README.md state the same.
const DURATION: &str = "two and a half minutes";

/// Creates the file, starts the emulated path and runs the process inside.
fn run_emulation(paths: &DemoPaths<'_>) -> Result<RunOutcome, Failure> {
    fs::create_dir_all(paths.far_root())?;
    let mut source = File::create(paths.source())?;
    let mut noise = File::open("/dev/urandom")?.take(published::TRANSFER.0);
    io::copy(&mut noise, &mut source).with_context(|| format!("cannot write {}", paths.source().display()))?;
    drop(source);
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let work = paths.work.canonicalize()?;
    let far = emulate::far_server(program.clone(), Some(&work.join("far")), &[])?;
    let setup = Setup::new(EmulatedPath::symmetric(published::path()), SEED, far);
    let command = [program.into(), "demo".into(), "--inside".into(), work.into()];
    let document = emulate::run_setup(&setup, &command).map_err(crate::cmd::emulate::emulate_error)?;
    Ok(document.outcome)
}

/// Prints the result that matters most: this host as it is, and tuned.
fn print_comparison(comparison: Option<&HostComparison>) -> Result<(), Failure> {
    let Some(comparison) = comparison else { return Ok(()) };
    let mut out = print::out();
    writeln!(out, "\nGEO satellite link, 135 Mb/s at 539 ms, one TCP stream after slow start:")?;
    for line in comparison_lines(comparison) {
        writeln!(out, "{}", wrap(&format!("  {line}"), 80))?;
    }
    writeln!(out, "\nThe same path was measured in 1995:")?;
    Ok(())
}

fn print_table(rows: &[DemoRow]) -> Result<(), Failure> {
    let text = |figure: &Option<DemoFigure>| figure.as_ref().map_or("–".to_owned(), |f| f.text.clone());
    let head = ["", "published 1995", "predicted", "measured now", "why"].map(str::to_owned);
    let lines = rows.iter().enumerate().map(|(at, row)| {
        [row.quantity.clone(), text(&row.published), text(&row.predicted), text(&row.measured), (at + 1).to_string()]
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
        writeln!(out, "{}", wrap(&format!("{:>2}. {}: {}", number + 1, row.quantity, row.reason), 80))?;
    }
    Ok(())
}

/// Returns the document of the demo.
fn document(plan: &Plan, measured: DemoResults, accuracy_report: AccuracyReport) -> DemoDocument {
    let point = |(window, reports): (&published::Window, &Vec<_>)| WindowPoint {
        window: window.bytes,
        published: window.goodput,
        predicted: predict_goodput(&plan.path, Some(window.bytes), 1).goodput,
        measured: report::spread(reports),
    };
    DemoDocument {
        schema: DemoSchema::Current,
        experiment: "ACTS 1995".to_owned(),
        plan: plan.clone(),
        comparison: compare_hosts(&measured),
        rows: report::rows(&plan.path, plan, &measured),
        windows: published::WINDOWS.iter().zip(&measured.windows).map(point).collect(),
        measured,
        accurate: accuracy_report.is_accurate(),
        accuracy_report,
    }
}

fn chart(plan: &Plan, points: &[WindowPoint], accuracy: &AccuracyReport) -> Chart<'static> {
    let bdp = plan.bdp.0 as f64;
    let at = |window: f64| (window, predict_goodput(&plan.path, Some(Bytes(window as u64)), 1).goodput.as_f64());
    // The prediction rises linearly up to the window that fills the path, then stays constant.
    let full = plan.payload_capacity.times(plan.rtt);
    let predicted = vec![at(0.0), at(full.0 as f64), at(2.0 * bdp)];
    Chart {
        title: "Goodput versus receive window",
        subtitle: "ACTS satellite path (geostationary): 135 Mb/s, RTT 539 ms",
        bdp,
        predicted,
        predicted_label: format!("predicted: full from {:.1} MB, the BDP without headers", full.0 as f64 / 1e6),
        published: points.iter().map(|p| (p.window.0 as f64, p.published.as_f64())).collect(),
        measured: points
            .iter()
            .filter_map(|p| {
                let RateSpread { min, median, max } = p.measured?;
                let window = p.window.0 as f64;
                Some(MeasuredPoint { window, min: min.as_f64(), median: median.as_f64(), max: max.as_f64() })
            })
            .collect(),
        inaccuracy: accuracy.inaccuracies().first().map(|first| format!("{}: {}", first.direction, first.cause)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use lfn_api::documents::FailedCopy;
    use lfn_results::report::{StoredResult, read_result};
    use serde_json::Value;

    use super::*;

    #[test]
    fn document_matches_its_schema() {
        let plan = plan(&published::path(), &PlanOptions::default()).unwrap();
        let recorded = include_str!("../../../../results/tests/recorded/test-healthy.json");
        let StoredResult::Test(test) = read_result(recorded.as_bytes()).unwrap() else {
            panic!("another kind of result")
        };
        let test = serde_json::to_value(test).unwrap();
        let windows = published::WINDOWS.map(|_| vec![test.clone()]).to_vec();
        let copy = FailedCopy::new(&["fields.dat".to_owned(), "far:".to_owned()], "no answer".to_owned(), None, 1);
        let copy = serde_json::to_value(copy).unwrap();
        let measured = DemoResults { default_host: test, windows, copy };
        let accuracy = AccuracyReport { seed: SEED, calibration: None, paths: Vec::new() };
        let document = document(&plan, measured, accuracy);
        let value: Value = serde_json::to_value(&document).unwrap();
        schema::check_document(&value).unwrap();
        for place in ["/rows/0/reason", "/measured/default_host/runs/0/goodput_bits_per_second"] {
            let mut wrong = value.clone();
            *wrong.pointer_mut(place).unwrap() = Value::Null;
            let fault = schema::check_document(&wrong).unwrap_err();
            assert!(fault.contains("lfn.demo.2") && fault.contains(place), "{fault}");
        }
    }
}
