//! What is known of the path beforehand, and how the result is cut and printed.

use std::path::PathBuf;
use std::time::Duration;

use lfn_core::path::PathProfile;
use lfn_core::units::BitRate;
use lfn_core::wire::test::{Load, SHORTEST_INTERVAL};

use super::typed::{duration, read, unreadable};
use crate::emulated;
use crate::exit::Failure;
use crate::print::test::{Format, SaveFile};

#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Report")]
pub(super) struct ReportArgs {
    /// Capacity of the bottleneck, if known: the plan and the prediction are made from it
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    rate: Option<String>,
    /// Length of the intervals reported [default: 1s, or a tenth of a shorter test, and whole round trips on
    /// a long path]
    #[arg(short, long, value_name = "DURATION", allow_hyphen_values = true)]
    interval: Option<String>,
    /// How much is start-up [default: found in the figures]
    #[arg(short = 'O', long, value_name = "DURATION", allow_hyphen_values = true)]
    omit: Option<String>,
    /// One JSON object at the end instead of text
    #[arg(short = 'J', long, conflicts_with_all = ["ndjson", "csv", "nettest"])]
    json: bool,
    /// A JSON object a line for everything that happens, as it happens; the last holds the whole result
    #[arg(long, conflicts_with_all = ["csv", "nettest"])]
    ndjson: bool,
    /// A table at the end, with a row for each interval and stream
    #[arg(long, conflicts_with = "nettest")]
    csv: bool,
    /// The layout of nettest, 1995; implies --both
    #[arg(long, conflicts_with = "reverse")]
    pub(super) nettest: bool,
    /// Keep the result in this file too, as --json prints it: for `lfn show`
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Nothing but the table while it runs, on a terminal too
    #[arg(long)]
    no_live: bool,
}

const DEFAULT_INTERVAL: Duration = Duration::from_secs(1);

impl ReportArgs {
    pub(super) fn interval(&self, load: Load) -> Result<Duration, Failure> {
        Ok(match (duration("interval", &self.interval)?, load) {
            (Some(interval), _) => interval,
            (None, Load::TimeSeconds(time)) => (time / 10).clamp(SHORTEST_INTERVAL, DEFAULT_INTERVAL),
            (None, Load::Records(_) | Load::Bytes(_)) => DEFAULT_INTERVAL,
        })
    }

    /// Whether the interval is ours to choose.
    pub(super) fn interval_is_ours(&self) -> bool {
        self.interval.is_none()
    }

    pub(super) fn omit(&self, load: Load) -> Result<Option<Duration>, Failure> {
        let omit = duration("omit", &self.omit)?;
        if matches!((omit, load), (Some(omit), Load::TimeSeconds(time)) if omit >= time) {
            return Err(Failure::usage("--omit leaves nothing of the test").hint("give a longer --time"));
        }
        Ok(omit)
    }

    /// The path whose capacity is known: as typed, or that of `lfn emulate`.
    /// Of data that goes forward, and of data that comes back.
    pub(super) fn paths(&self) -> Result<[Option<PathProfile>; 2], Failure> {
        let rate: Option<BitRate> = read("rate", &self.rate, "--rate 10gbit")?;
        if rate == Some(BitRate(0)) {
            return Err(unreadable("rate", "a capacity of zero carries nothing", "--rate 10gbit"));
        }
        let known = |emulated: Option<PathProfile>| match (rate, emulated) {
            (Some(capacity), Some(path)) => Some(PathProfile { capacity, ..path }),
            (Some(capacity), None) => Some(PathProfile::new(capacity, Duration::ZERO)),
            (None, emulated) => emulated,
        };
        Ok([known(emulated::path()?), known(emulated::return_path()?)])
    }

    pub(super) fn format(&self) -> Format {
        match self {
            ReportArgs { json: true, .. } => Format::Json,
            ReportArgs { ndjson: true, .. } => Format::Ndjson,
            ReportArgs { csv: true, .. } => Format::Csv,
            ReportArgs { nettest: true, .. } => Format::Nettest,
            _ => Format::Text,
        }
    }

    /// Whether somebody at a terminal may be shown more than the table while it runs.
    pub(super) fn watched(&self) -> bool {
        !self.no_live
    }

    /// The file the result is kept in, made now.
    pub(super) fn save(&self) -> Result<Option<SaveFile>, Failure> {
        self.save.as_deref().map(SaveFile::create).transpose()
    }
}
