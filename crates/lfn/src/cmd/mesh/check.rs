//! `lfn mesh check`: reads a sites file and prints its problems or its contents.

use std::path::PathBuf;

use lfn_api::mesh::{CheckOptions, check};
use lfn_base::date;
use lfn_sys::clock::since_1970;

use crate::cli::output::{OutputArgs, TextOrJson};
use crate::cmd::values::value_error;
use crate::exit::{Exit, Failure};
use crate::print;
use crate::print::mesh::check::page;

/// Check a sites file, and print its contacts, audiences and maintenance windows
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CheckArgs {
    /// Sites file to be checked (TOML)
    file: PathBuf,
    /// Print the maintenance windows after this time in UTC [default: now]
    #[arg(long, value_name = "TIME")]
    at: Option<String>,
    #[command(flatten)]
    output: OutputArgs<TextOrJson>,
}

const EXAMPLES: &str = "Examples:
  lfn mesh check sites.toml
  lfn mesh check sites.toml --at 2026-12-01T02:00:00Z

Exit codes: 0 no problem; 2 usage, also a sites file with a problem.";

/// Runs `lfn mesh check` and returns its exit code.
pub fn run(args: CheckArgs) -> Result<Exit, Failure> {
    let time = match &args.at {
        None => since_1970(),
        Some(text) => date::parse(text)
            .ok_or_else(|| value_error("at", format!("'{text}' is not a time"), "--at 2026-12-01T02:00:00Z"))?,
    };
    let output = args.output.open()?;
    let document = check(&CheckOptions { file: args.file, time })?;
    output.finish(&document, || print::result(&page(&document)))?;
    Ok(if document.problems.is_empty() { Exit::Ok } else { Exit::Usage })
}
