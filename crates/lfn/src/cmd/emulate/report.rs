//! The file of `--report`: opened before the run, and written after it.

use std::fmt::Display;
use std::path::Path;

use lfn_net::emulator::{Outcome, OutputFile};
use lfn_sys::process::{self, signal::SIGXFSZ};
use serde::Serialize;

use crate::exit::Failure;

/// What the file says of itself; `doc/emulate-output.md` tells the fields.
const SCHEMA: &str = "lfn.emulate/1";

/// The one object in the file.
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    #[serde(flatten)]
    outcome: &'a Outcome,
}

/// Makes sure that it can be written.
pub fn open(path: &Path) -> Result<OutputFile, Failure> {
    OutputFile::open(path).map_err(|error| unwritable(path, error))
}

/// Writes it, in place of what the file held.
pub fn write(file: &OutputFile, outcome: &Outcome) -> Result<(), Failure> {
    // A file beyond `ulimit -f` is to be an error that can be told. CMD has ended, and inherits nothing of this.
    let _ = process::ignore_signal(SIGXFSZ);
    file.empty().map_err(|error| unwritable(file.path(), error))?;
    let document = Document { schema: SCHEMA, outcome };
    serde_json::to_writer_pretty(file.file(), &document).map_err(|error| unwritable(file.path(), error))
}

fn unwritable(path: &Path, error: impl Display) -> Failure {
    Failure::msg(format!("--report {}: {error}", path.display())).hint("--report report.json, where you may write")
}
