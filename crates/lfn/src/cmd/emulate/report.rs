//! The accuracy report of `--report`: opens the file before the run and writes it after the run.

use std::fmt::Display;
use std::path::Path;

use lfn_net::emulator::{OutputFile, RunOutcome};
use lfn_sys::process::{self, signal::SIGXFSZ};
use serde::Serialize;

use crate::exit::Failure;
use crate::print::report_file::set_report_written;

/// Schema of the file. `doc/reference/emulate-output.md` describes its fields.
const SCHEMA: &str = "lfn.emulate/2";

/// JSON object in the file.
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    #[serde(flatten)]
    outcome: &'a RunOutcome,
}

/// Opens the file, so that errors appear before the run.
pub fn open(path: &Path) -> Result<OutputFile, Failure> {
    OutputFile::open(path).map_err(|error| report_error(path, error))
}

/// Writes the report. Replaces the contents of the file.
pub fn write(file: &OutputFile, outcome: &RunOutcome) -> Result<(), Failure> {
    // A file size limit (`ulimit -f`) becomes an error of write(2). CMD has ended and does not inherit this.
    let _ = process::ignore_signal(SIGXFSZ);
    set_report_written();
    file.truncate().map_err(|error| report_error(file.path(), error))?;
    let document = Document { schema: SCHEMA, outcome };
    serde_json::to_writer_pretty(file.file(), &document).map_err(|error| report_error(file.path(), error))
}

fn report_error(path: &Path, error: impl Display) -> Failure {
    Failure::msg(format!("--report {}: {error}", path.display()))
        .hint("choose a file that you may write: --report report.json")
}
