//! Flags for the known path and for the report.

use std::time::Duration;

use lfn_base::units::BitRate;
use lfn_results::measure::{MIN_INTERVAL, TestLoad};

use crate::cli::output::{OutputArgs, PlotArgs, TestFormats};
use crate::cmd::values::{duration, read};
use crate::exit::Failure;
use crate::print::output::OutputFormat;
use crate::print::settings::is_quiet;

#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Report")]
pub(super) struct ReportArgs {
    /// Set the capacity of the bottleneck, if known; used for the prediction, the findings and --tuned
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    rate: Option<String>,
    /// Set the time between periodic reports [default: 1s; a tenth of a shorter test; whole round trips on a long path]
    #[arg(short, long, value_name = "DURATION", allow_hyphen_values = true)]
    interval: Option<String>,
    /// Ignore this much time at the start [default: detected]
    #[arg(short = 'O', long, value_name = "DURATION", allow_hyphen_values = true)]
    omit: Option<String>,
    /// List all findings with their thresholds, evidence and sources, and exit
    #[arg(long, conflicts_with = "host")]
    pub(super) list_findings: bool,
    /// Disable the live display
    #[arg(long)]
    no_live: bool,
    #[command(flatten)]
    pub(super) output: OutputArgs<TestFormats>,
    #[command(flatten)]
    pub(super) plot: PlotArgs,
}

const DEFAULT_INTERVAL: Duration = Duration::from_secs(1);

impl ReportArgs {
    pub(super) fn interval(&self, load: TestLoad) -> Result<Duration, Failure> {
        Ok(match (duration("interval", &self.interval)?, load) {
            (Some(interval), _) => interval,
            (None, TestLoad::TimeSeconds(time)) => (time / 10).clamp(MIN_INTERVAL, DEFAULT_INTERVAL),
            (None, TestLoad::Records(_) | TestLoad::Bytes(_)) => DEFAULT_INTERVAL,
        })
    }

    /// Reports whether lfn chooses the interval.
    pub(super) fn chooses_interval(&self) -> bool {
        self.interval.is_none()
    }

    pub(super) fn omit(&self) -> Result<Option<Duration>, Failure> {
        duration("omit", &self.omit)
    }

    /// Returns the capacity of the bottleneck, if given.
    pub(super) fn rate(&self) -> Result<Option<BitRate>, Failure> {
        read("rate", &self.rate, "--rate 10gbit")
    }

    /// Reports whether the result has the layout of nettest, which needs both directions.
    pub(super) fn is_nettest(&self) -> bool {
        self.output.format() == OutputFormat::Nettest
    }

    /// Reports whether the live display is enabled.
    pub(super) fn live_enabled(&self) -> bool {
        !self.no_live && !is_quiet()
    }
}
