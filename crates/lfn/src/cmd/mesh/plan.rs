//! `lfn mesh plan`: reads a sites file and prints the schedule of a day.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use lfn_api::mesh::{PlanOptions, plan};
use lfn_base::date;
use lfn_sys::clock::since_1970;

use crate::cli::output::{OutputArgs, TextOrTable};
use crate::cmd::values::value_error;
use crate::exit::{Exit, Failure};
use crate::print;
use crate::print::mesh::plan::{csv, page};
use crate::print::output::OutputFormat;

/// Print the schedule, the load of each host and bottleneck, and the tests that do not fit
///
/// The schedule is a function of the sites file and the day: every agent computes the same one. Nothing is measured.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct MeshPlanArgs {
    /// Sites file of the mesh (TOML)
    file: PathBuf,
    /// Print the schedule of this day in UTC [default: today]
    #[arg(long, value_name = "YYYY-MM-DD")]
    day: Option<String>,
    /// Print only the loads of this host
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    #[command(flatten)]
    output: OutputArgs<TextOrTable>,
}

const EXAMPLES: &str = "Examples:
  lfn mesh plan sites.toml
  lfn mesh plan sites.toml --day 2026-12-01 --host aztec
  lfn mesh plan sites.toml --output csv

Exit codes: 0 every load fits; 1 a load does not fit; 2 usage, also a sites file with a problem.";

/// Runs `lfn mesh plan` and returns its exit code.
pub fn run(args: MeshPlanArgs) -> Result<Exit, Failure> {
    let day = args.day.as_deref().map_or_else(|| Ok(since_1970()), parse_day)?;
    let output = args.output.open()?;
    let document = plan(&PlanOptions { file: args.file, day, host: args.host })?;
    let is_table = output.format() == OutputFormat::Csv;
    output.finish(&document, || {
        if is_table { print::csv().write_all(csv(&document).as_bytes()) } else { print::result(&page(&document)) }
    })?;
    if document.not_fitting.is_empty() {
        return Ok(Exit::Ok);
    }
    let count = print::counted(document.not_fitting.len() as u64, "load");
    print::message(format_args!("{count} without a slot\n"));
    Ok(Exit::Failed)
}

/// Parses the date of a day.
pub(super) fn parse_day(text: &str) -> Result<Duration, Failure> {
    let day = date::parse(text).filter(|_| !text.contains(['T', ' ']));
    day.ok_or_else(|| value_error("day", format!("'{text}' is not a date"), "--day 2026-12-01"))
}
