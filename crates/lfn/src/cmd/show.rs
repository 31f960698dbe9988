//! `lfn show`: stored results, printed as they looked when they were measured, or side by side.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use lfn_core::report::{self, LARGEST, ReadError, Stored, compare};

use crate::exit::{Exit, Failure};
use crate::print::{self, show, test};

/// Print stored results, or compare them
///
/// One result of `lfn test` looks as it did when it was measured; several stand side by side, with how each differs from
/// the first and what was not the same about them. Read are what `--save`, `--json` and `--ndjson` of `lfn test` wrote,
/// and what iperf3 prints with -J or --json-stream.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Results; - is standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// The figures of each result, and their differences, as one JSON object
    #[arg(long, conflicts_with_all = ["csv", "intervals"])]
    json: bool,
    /// A table with a row for each result
    #[arg(long, conflicts_with = "intervals")]
    csv: bool,
    /// A table with a row for each interval and stream of one result, as `lfn test --csv`
    #[arg(long)]
    intervals: bool,
}

const EXAMPLES: &str = "Examples:
  lfn test far.example --save before.json
  lfn show before.json                     as it was printed
  lfn show before.json after.json          side by side
  iperf3 -c far.example -J | lfn show before.json -

Exit codes: 0 printed; 1 a file cannot be read, or is no result; 2 usage.";

/// Runs the command.
pub fn run(args: Args) -> Result<Exit, Failure> {
    let mut files = args.files.iter().map(|path| Ok((name(path), read(path)?))).collect::<Result<Vec<_>, Failure>>()?;
    let mut out = match &args {
        args if args.json => print::json(),
        args if args.csv || args.intervals => print::csv(),
        _ => print::out(),
    };
    match files.as_mut_slice() {
        [(_, Stored::Test(document))] if args.intervals => out.write_all(report::csv(document).as_bytes())?,
        _ if args.intervals => {
            return Err(Failure::usage("--intervals is for one result of lfn test")
                .hint("--csv has a row for each of several results"));
        }
        files if args.json => {
            serde_json::to_writer_pretty(&mut out, &compare(files))?;
            writeln!(out)?;
        }
        files if args.csv => out.write_all(compare(files).csv().as_bytes())?,
        [(_, Stored::Test(document))] => {
            drop(out);
            test::show(std::mem::take(document.as_mut()))?;
        }
        files => out.write_all(show::side_by_side(&compare(files)).as_bytes())?,
    }
    Ok(Exit::Ok)
}

fn name(path: &Path) -> String {
    path.display().to_string()
}

fn read(path: &Path) -> Result<Stored, Failure> {
    let shown = path.display();
    let bytes = contents(path).map_err(|error| {
        Failure::msg(format!("{shown}: {error}")).hint("lfn test HOST --save result.json makes such a file")
    })?;
    report::read(&bytes).map_err(|error| {
        let hint = match &error {
            ReadError::Schema(_) => "measure again with this lfn: lfn test HOST --save result.json",
            ReadError::Failed(_) => "run iperf3 again",
            ReadError::More => "put each result into a file of its own",
            _ => "lfn test HOST --save result.json, or iperf3 -c HOST -J > result.json",
        };
        Failure::msg(format!("{shown}: {error}")).hint(hint)
    })
}

/// At most [`LARGEST`] bytes, whatever stands behind the name.
fn contents(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = match path.as_os_str() == "-" {
        true => io::stdin().lock().take(LARGEST + 1).read_to_end(&mut bytes)?,
        false => File::open(path)?.take(LARGEST + 1).read_to_end(&mut bytes)?,
    };
    if read as u64 > LARGEST {
        return Err(io::Error::other(format!("longer than the {} MiB that are read", LARGEST >> 20)));
    }
    Ok(bytes)
}
