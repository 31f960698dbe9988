//! `lfn couple plan`: reads a coupling file and predicts the run.

use std::path::PathBuf;
use std::time::Duration;

use lfn_api::couple::{CouplePlanOptions, PathOverrides, plan};
use lfn_api::pictures::of_couple_plan;
use lfn_base::units::{BitRate, parse_unit_duration};

use crate::cli::output::{OutputArgs, PlotArgs, TextOrJson};
use crate::cmd::values::value_error;
use crate::exit::{Exit, Failure};
use crate::print;
use crate::print::couple::plan::page;

/// Print the lag that each variable needs, and the time of the run
///
/// The plan repeats the run in virtual time: the compute times, the sizes of the fields and the path of the coupling file
/// decide. Nothing is sent.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CouplePlanArgs {
    /// Coupling file of the run (TOML)
    file: PathBuf,
    /// Set the capacity of the bottleneck, such as 155mbit [default: rate of the path in FILE]
    #[arg(long, value_name = "RATE", allow_hyphen_values = true, help_heading = "Path")]
    rate: Option<String>,
    /// Set the round-trip time, such as 539ms [default: rtt of the path in FILE]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, help_heading = "Path")]
    rtt: Option<String>,
    /// Set the IP MTU in bytes [default: mtu of the path in FILE, or 1500]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(576..=65_535), help_heading = "Path")]
    mtu: Option<u32>,
    #[command(flatten)]
    output: OutputArgs<TextOrJson>,
    #[command(flatten)]
    plot: PlotArgs,
}

const EXAMPLES: &str = "Examples:
  lfn couple plan lag.toml
  lfn couple plan lag.toml --rtt 80ms --rate 1gbit
  lfn couple plan lag.toml --plot time-by-lag.svg

Exit codes: 0 planned; 2 usage, also a coupling file with a problem.";

/// Runs `lfn couple plan` and returns its exit code.
pub fn run(args: CouplePlanArgs) -> Result<Exit, Failure> {
    let path = PathOverrides {
        rate: args.rate.as_deref().map(parse_rate).transpose()?,
        rtt: args.rtt.as_deref().map(parse_rtt).transpose()?,
        mtu: args.mtu,
    };
    let mut output = args.output.open()?;
    let pictures = args.plot.create()?;
    let document = plan(&CouplePlanOptions { file: args.file, path })?;
    output.set_album(|| of_couple_plan(&document));
    output.finish(&document, || print::result(&page(&document)))?;
    if let Some(pictures) = pictures {
        pictures.write_one(of_couple_plan(&document), "the plan has no lags")?;
    }
    Ok(Exit::Ok)
}

fn parse_rate(text: &str) -> Result<BitRate, Failure> {
    text.parse().map_err(|error| value_error("rate", error, "--rate 155mbit"))
}

fn parse_rtt(text: &str) -> Result<Duration, Failure> {
    parse_unit_duration(text).map_err(|error| value_error("rtt", error, "--rtt 539ms"))
}
