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
    /// Returns the flag that selects the settings of the plan.
    pub(super) fn flag(&self) -> &'static str {
        if self.compare { "--compare" } else { "--tuned" }
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
