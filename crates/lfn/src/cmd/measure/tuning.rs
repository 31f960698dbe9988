//! Flags for the settings of the streams: the host's own, those of the plan, or both in turn.

use crate::exit::Failure;
use crate::print::output::OutputFormat;

#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Tuning")]
pub(super) struct TuningArgs {
    /// Use the congestion control and the buffers of the plan [default: the host's own]
    ///
    /// The plan is for the capacity of --rate, or for the emulated path. See `lfn plan`.
    #[arg(long, conflicts_with_all = ["iperf3", "udp", "ramp"])]
    pub(super) tuned: bool,
    /// Run with the host's own settings and then tuned, and print the settings that make the difference
    #[arg(
        long,
        conflicts_with_all = ["tuned", "iperf3", "path", "path_names", "udp", "ramp", "bidir"]
    )]
    pub(super) compare: bool,
}

impl TuningArgs {
    /// Returns true if a run uses the plan.
    pub(super) fn needs_plan(&self) -> bool {
        self.tuned || self.compare
    }

    /// Refuses an unknown capacity, from which no plan follows.
    pub(super) fn check_capacity(&self, is_known: bool, host: &str) -> Result<(), Failure> {
        if !self.needs_plan() || is_known {
            return Ok(());
        }
        let flag = if self.tuned { "--tuned" } else { "--compare" };
        Err(Failure::usage(format!("{flag} needs the capacity of the path"))
            .hint(format!("give the rate of the slowest link: lfn test {host} {flag} --rate 1gbit")))
    }

    /// Refuses formats that have no place for a comparison.
    pub(super) fn check_format(&self, format: OutputFormat) -> Result<(), Failure> {
        match format {
            OutputFormat::Text | OutputFormat::Json => Ok(()),
            _ if !self.compare => Ok(()),
            _ => Err(Failure::usage("--compare prints text or JSON only").hint("use --json, or remove --compare")),
        }
    }
}
