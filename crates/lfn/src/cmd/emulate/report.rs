//! The accuracy report of `--report`.

use lfn_net::emulator::RunOutcome;
use lfn_sys::process::{self, signal::SIGXFSZ};
use serde::Serialize;

use crate::exit::Failure;
use crate::print::output::Output;

/// Schema of the file. `doc/reference/emulate-output.md` describes its fields.
const SCHEMA: &str = "lfn.emulate/2";

/// JSON object in the file.
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    #[serde(flatten)]
    outcome: &'a RunOutcome,
}

/// Writes the report, if it is requested.
pub fn write(mut output: Output, outcome: &RunOutcome) -> Result<(), Failure> {
    // A file size limit (`ulimit -f`) becomes an error of write(2). CMD has ended and does not inherit this.
    let _ = process::ignore_signal(SIGXFSZ);
    output.write_report(&Document { schema: SCHEMA, outcome })
}
