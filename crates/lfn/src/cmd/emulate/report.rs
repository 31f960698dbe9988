//! The accuracy report of `--report`.

use lfn_api::documents::EmulateDocument;
use lfn_sys::process::{self, signal::SIGXFSZ};

use crate::exit::Failure;
use crate::print::output::Output;

/// Writes the report, if it is requested.
pub fn write(mut output: Output, document: &EmulateDocument) -> Result<(), Failure> {
    // A file size limit (`ulimit -f`) becomes an error of write(2). CMD has ended and does not inherit this.
    let _ = process::ignore_signal(SIGXFSZ);
    output.write_report(document)
}
