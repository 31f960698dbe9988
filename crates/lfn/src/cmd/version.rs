//! `lfn version`: prints the version, the commit and the date of this program.

use std::io::Write;

use lfn_api::documents::{VersionDocument, VersionSchema};

use crate::cli::output::{OutputArgs, TextOrJson};
use crate::exit::{Exit, Failure};
use crate::print;

/// Version number, with the commit and its date if they were known when the program was built.
pub const VERSION: &str = if env!("BUILD_COMMIT_AND_DATE").is_empty() {
    env!("CARGO_PKG_VERSION")
} else {
    concat!(env!("CARGO_PKG_VERSION"), " (", env!("BUILD_COMMIT_AND_DATE"), ")")
};

/// Print the version, the commit and the date of this program
#[derive(clap::Args, Debug)]
pub struct VersionArgs {
    #[command(flatten)]
    output: OutputArgs<TextOrJson>,
}

/// Runs `lfn version` and returns its exit code.
pub fn run(args: &VersionArgs) -> Result<Exit, Failure> {
    let output = args.output.open()?;
    let build = Some(env!("BUILD_COMMIT_AND_DATE")).filter(|build| !build.is_empty()).map(str::to_owned);
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let document = VersionDocument { schema: VersionSchema::Current, version, build };
    output.finish(&document, || writeln!(print::out(), "lfn {VERSION}"))?;
    Ok(Exit::Ok)
}
