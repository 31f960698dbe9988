//! `lfn show`: prints a stored result as `lfn test` printed it, or compares several.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use lfn_core::report::{self, MAX_RESULT_BYTES, ReadError, StoredResult, compare};

use crate::cli::output::{OutputArgs, TextOrTable};
use crate::exit::{Exit, Failure};
use crate::print::output::OutputFormat;
use crate::print::{self, measure, show};

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
}

const EXAMPLES: &str = "Examples:
  lfn test far.example --report before.json
  lfn show before.json                     as after the test
  lfn show before.json after.json          side by side
  iperf3 -c far.example -J | lfn show before.json -

Exit codes: 0 printed; 1 a file cannot be read, or is not a result; 2 usage.";

/// Runs `lfn show` and returns its exit code.
pub fn run(args: ShowArgs) -> Result<Exit, Failure> {
    let output = args.output.open()?;
    let mut files =
        args.files.iter().map(|path| Ok((name(path), read_result(path)?))).collect::<Result<Vec<_>, Failure>>()?;
    let comparison = compare(&files);
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
        [(_, StoredResult::Test(document))] => Ok(measure::show(std::mem::take(document.as_mut()))?),
        [(_, StoredResult::Tuning(document))] => Ok(measure::tuning::show(document)?),
        _ => Ok(print::out().write_all(show::side_by_side(&comparison).as_bytes())?),
    })?;
    Ok(Exit::Ok)
}

fn name(path: &Path) -> String {
    path.display().to_string()
}

fn read_result(path: &Path) -> Result<StoredResult, Failure> {
    let shown = path.display();
    let bytes = read_contents(path).map_err(|error| {
        Failure::msg(format!("{shown}: {error}"))
            .hint("check the path; `lfn test HOST --report result.json` creates a result")
    })?;
    report::read_result(&bytes).map_err(|error| {
        let hint = match &error {
            ReadError::Schema(schema) if schema.starts_with("lfn.test") => {
                "measure again with this version: lfn test HOST --report result.json"
            }
            ReadError::Iperf3Failed(_) => "run iperf3 again",
            ReadError::Trailing => "put each result into its own file",
            _ => "create a result with `lfn test HOST --report result.json` or `iperf3 -c HOST -J > result.json`",
        };
        Failure::msg(format!("{shown}: {error}")).hint(hint)
    })
}

/// Reads at most [`MAX_RESULT_BYTES`] bytes, since a device or a pipe may never end.
fn read_contents(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = match path.as_os_str() == "-" {
        true => io::stdin().lock().take(MAX_RESULT_BYTES + 1).read_to_end(&mut bytes)?,
        false => File::open(path)?.take(MAX_RESULT_BYTES + 1).read_to_end(&mut bytes)?,
    };
    if read as u64 > MAX_RESULT_BYTES {
        return Err(io::Error::other(format!("longer than {} MiB", MAX_RESULT_BYTES >> 20)));
    }
    Ok(bytes)
}
