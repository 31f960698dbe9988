//! Result of a plan, and its document.

use std::time::Duration;

use lfn_base::geometry::{Medium, Route};
use lfn_base::place::Place;
use lfn_base::plan::Plan;
use lfn_base::plan::advice::Advice;
use lfn_base::plan::settings::{HostSettings, Setting};
use lfn_base::units::{BitRate, Bytes, duration_argument};

use crate::documents::{PlanDocument, PlannedHost};

/// File with the values before the change, on a host whose values are not known here.
pub const SAVED_VALUES: &str = "lfn-before.conf";
/// Capacity up to which an ordinary machine emulates a path.
const EMULATED_CAPACITY: BitRate = BitRate(2_500_000_000);

/// A plan, its settings for a host, and the origin of its path.
#[derive(Debug, Clone)]
pub struct PlanReport {
    pub plan: Plan,
    /// Settings that the host needs.
    pub settings: Vec<Setting>,
    /// File that the commands of the plan create.
    pub settings_file: String,
    pub advice: Advice,
    /// True if the request chose the congestion control.
    pub requested_congestion: bool,
    pub source: HostSource,
    /// Settings of the host, if they are known.
    pub host: Option<HostSettings>,
    /// Name of the link, if it was given.
    pub link: Option<String>,
    /// Route between two places, if the RTT is computed from it.
    pub route: Option<NamedRoute>,
}

/// The host whose settings the plan compares with the needs of the path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostSource {
    ThisHost,
    /// Name of the file with the output of `sysctl -a`.
    File(String),
    /// No host: all settings are needed.
    Unknown,
}

/// A route with its ends.
#[derive(Debug, Clone)]
pub struct NamedRoute {
    pub from: Place,
    pub to: Place,
    pub via: Medium,
    pub route: Route,
    /// Length of the fibre relative to the great circle.
    pub detour: f64,
}

/// Command for a next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextCommand {
    pub purpose: &'static str,
    pub command: String,
}

impl PlanReport {
    /// Returns the document of the plan.
    pub fn document(&self) -> PlanDocument {
        let route = self.route.as_ref();
        PlanDocument {
            plan: self.plan.clone(),
            host: match self.source {
                HostSource::ThisHost => PlannedHost::This,
                HostSource::File(_) => PlannedHost::File,
                HostSource::Unknown => PlannedHost::Other,
            },
            settings: self.settings.clone(),
            undo: self.undo(),
            advice: self.advice,
            next: self.next_commands().into_iter().map(|next| next.command).collect(),
            link: self.link.clone(),
            from: route.map(|route| route.from.to_string()),
            to: route.map(|route| route.to.to_string()),
            via: route.map(|route| route.via.to_string()),
            route: route.map(|route| route.route),
        }
    }

    /// Returns the commands that restore the values before the change.
    pub fn undo(&self) -> Vec<String> {
        if self.settings.is_empty() {
            return Vec::new();
        }
        let remove = format!("rm {}", self.settings_file);
        if self.source == HostSource::Unknown {
            return vec![remove, format!("sysctl -p {SAVED_VALUES}")];
        }
        std::iter::once(remove).chain(self.settings.iter().filter_map(Setting::undo)).collect()
    }

    /// Returns commands for the next steps with the figures of the path.
    pub fn next_commands(&self) -> Vec<NextCommand> {
        let plan = &self.plan;
        let path = &plan.path;
        let rate = format!("--rate {}", plan.capacity.to_argument());
        let mut figures = format!("{rate} --rtt {}", duration_argument(rounded(plan.rtt)));
        if path.loss.get() > 0.0 {
            figures += &format!(" --loss {}", path.loss.to_argument());
        }
        if let Some(queue) = path.queue {
            figures += &format!(" --queue {}", decimal_argument(queue));
        }
        let streams = match self.advice.streams {
            Some([min, _]) => format!(" --streams {min}"),
            None if plan.streams > 1 => format!(" --streams {}", plan.streams),
            None => String::new(),
        };
        let next = |purpose, command| NextCommand { purpose, command };
        let emulation = if plan.capacity <= EMULATED_CAPACITY {
            next("try the path on this machine", format!("lfn emulate {figures} -- lfn test far {rate}"))
        } else {
            let size = plan.predicted.size.map_or("100GB".to_owned(), decimal_argument);
            next("simulate a transfer", format!("lfn emulate --dry-run {figures} --size {size}{streams}"))
        };
        vec![
            emulation,
            next("measure the real path; FAR is a host with `lfn serve`", format!("lfn test FAR {rate}{streams}")),
            next("move data over the real path", format!("lfn copy DATA FAR: {rate}")),
        ]
    }
}

/// Formats bytes as a command-line argument with a decimal unit, if this is exact.
fn decimal_argument(bytes: Bytes) -> String {
    let units = [("TB", 1_000_000_000_000), ("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1000)];
    let exact = units.iter().find(|(_, size)| bytes.0 >= *size && bytes.0.is_multiple_of(*size));
    exact.map_or_else(|| bytes.to_argument(), |(unit, size)| format!("{}{unit}", bytes.0 / size))
}

/// Rounds a duration to 10 µs, so that a computed RTT is short to type.
pub fn rounded(duration: Duration) -> Duration {
    const STEP: u64 = 10_000;
    let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    if nanos < 100 * STEP { duration } else { Duration::from_nanos((nanos + STEP / 2) / STEP * STEP) }
}
