//! `lfn mesh log`: the log of a pair for a day, or two days side by side.

use std::path::PathBuf;

use lfn_api::mesh::{LogOptions, log};
use lfn_api::pictures::of_log;

use super::archive_flag::ArchiveFlag;
use super::plan::parse_day;
use crate::cli::output::{OutputArgs, PlotArgs, TextOrJson};
use crate::exit::{Exit, Failure};
use crate::print;
use crate::print::mesh::log::{page, report};
use crate::print::terminal::columns;

/// Print the log of two hosts for a day, or compare two days
///
/// With --against, the result names the differences of both days and those that explain the change of the goodput. Days
/// are days of UTC.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct LogArgs {
    /// First host, or its site
    #[arg(value_name = "A")]
    from: String,
    /// Second host, or its site
    #[arg(value_name = "B")]
    to: String,
    /// Show this day in UTC [default: the newest day with entries]
    #[arg(long, value_name = "YYYY-MM-DD")]
    day: Option<String>,
    /// Compare with this day in UTC
    #[arg(long, value_name = "YYYY-MM-DD")]
    against: Option<String>,
    #[command(flatten)]
    archive: ArchiveFlag,
    /// Find the hosts of sites in this sites file [default: the copy that the hub keeps next to its archive]
    #[arg(long, value_name = "FILE")]
    sites: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArgs<TextOrJson>,
    #[command(flatten)]
    plot: PlotArgs,
}

const EXAMPLES: &str = "Examples:
  lfn mesh log ncar sdsc
  lfn mesh log ncar sdsc --day 1997-03-03 --against 1997-03-04
  lfn mesh log ncar sdsc --report log.html --plot goodput.svg

Exit codes: 0 printed; 1 no entry of this day, or no archive; 2 usage, also an unknown host or the same day twice.";

/// Runs `lfn mesh log` and returns its exit code.
pub fn run(args: LogArgs) -> Result<Exit, Failure> {
    let day = args.day.as_deref().map(parse_day).transpose()?;
    let against = args.against.as_deref().map(parse_day).transpose()?;
    let mut output = args.output.open()?;
    let pictures = args.plot.create()?;
    let archive = args.archive.path()?;
    let options = LogOptions { archive, sites: args.sites, from: args.from, to: args.to, day, against };
    let document = log(&options)?;
    output.write_page(&document, || report(&document))?;
    output.finish(&document, || print::result(&page(&document, columns())))?;
    if let Some(pictures) = pictures {
        pictures.write_one(of_log(&document), "the days have no loads")?;
    }
    Ok(Exit::Ok)
}
