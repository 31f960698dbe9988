//! `lfn show`: prints a stored result as `lfn test` printed it, or compares several.

use std::io::Write;
use std::path::PathBuf;

use lfn_api::pictures::of_results;
use lfn_api::show::ShownResults;
use lfn_results::report::{self, StoredResult};

use crate::cli::output::{OutputArgs, PlotArgs, TextOrTable};
use crate::exit::{Exit, Failure};
use crate::print::output::OutputFormat;
use crate::print::{self, show, test};

/// Print stored results, or compare them
///
/// One result of `lfn test` is printed as after the test. Several results are printed side by side, with their
/// differences from the first and with settings that were not the same. Accepts the files of `lfn test --report`, the
/// output of --output json and --output ndjson, and the output of iperf3 -J and --json-stream.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ShowArgs {
    /// Files with results; - reads standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Print a table (CSV) with one row for each interval and stream, as `lfn test --output csv` does
    #[arg(long, conflicts_with_all = ["output", "json"])]
    intervals: bool,
    #[command(flatten)]
    output: OutputArgs<TextOrTable>,
    #[command(flatten)]
    plot: PlotArgs,
}

const EXAMPLES: &str = "Examples:
  lfn test far.example --report before.json
  lfn show before.json                     as after the test
  lfn show before.json after.json          side by side
  iperf3 -c far.example -J | lfn show before.json -
  lfn show before.json after.json --plot both.svg   draws both in the same charts

Exit codes: 0 printed; 1 a file cannot be read, or is not a result; 2 usage.";

/// Runs `lfn show` and returns its exit code.
pub fn run(args: ShowArgs) -> Result<Exit, Failure> {
    let output = args.output.open()?;
    let pictures = args.plot.create()?;
    let ShownResults { results: mut files, comparison } = lfn_api::show(&args.files)?;
    let album = pictures.as_ref().map(|_| of_results(&files));
    let format = output.format();
    output.finish(&comparison, || match files.as_mut_slice() {
        [(_, StoredResult::Test(document))] if args.intervals => {
            print::csv().write_all(report::interval_csv(document).as_bytes()).map_err(Failure::from)
        }
        [(_, StoredResult::Tuning(document))] if args.intervals => {
            let document = std::mem::take(document.as_mut()).into_test_document();
            print::csv().write_all(report::interval_csv(&document).as_bytes()).map_err(Failure::from)
        }
        _ if args.intervals => Err(Failure::usage("--intervals needs exactly one result of lfn test")
            .hint("to compare several results, use --output csv")),
        _ if format == OutputFormat::Csv => Ok(print::csv().write_all(comparison.csv().as_bytes())?),
        [(_, StoredResult::Test(document))] => Ok(test::show(std::mem::take(document.as_mut()))?),
        [(_, StoredResult::Tuning(document))] => Ok(test::tuning::show(document)?),
        _ => Ok(print::out().write_all(show::side_by_side(&comparison).as_bytes())?),
    })?;
    if let Some((pictures, album)) = pictures.zip(album) {
        pictures.write_one(album, "no result has intervals")?;
    }
    Ok(Exit::Ok)
}
