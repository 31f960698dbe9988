//! Figures of a coupled run: the plan, and the measured figures of both components.

use std::time::Duration;

use lfn_base::path::{optional_seconds, seconds};
use lfn_base::units::{BitRate, Bytes};
use serde::{Deserialize, Serialize};

/// Figures of a coupled run. All times are means of a step, unless the field has another comment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CoupleEvidence {
    /// Capacity in the coupling file; null if the file has no path.
    pub file_rate: Option<BitRate>,
    /// RTT in the coupling file, seconds; null if the file has no path.
    #[serde(with = "optional_seconds")]
    pub file_rtt: Option<Duration>,
    /// Minimum RTT of the connections, seconds.
    #[serde(with = "seconds")]
    pub rtt: Duration,
    /// The component of this end and its partner.
    pub components: [CoupleComponent; 2],
    /// The variables, by name.
    pub variables: Vec<CoupleVariable>,
}

/// Figures of a component.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CoupleComponent {
    pub name: String,
    /// Number of steps that the process ran.
    pub steps: u64,
    /// Compute time in the coupling file; null if the file has none.
    #[serde(with = "optional_seconds")]
    pub declared_compute: Option<Duration>,
    /// Time of a step in the plan.
    #[serde(with = "seconds")]
    pub predicted: Duration,
    /// Time of a step in a plan with the measured compute times.
    #[serde(with = "seconds")]
    pub predicted_with_compute: Duration,
    /// Time of a step in a plan with the measured compute times and the measured RTT.
    #[serde(with = "seconds")]
    pub predicted_as_measured: Duration,
    /// Measured time of a step.
    #[serde(with = "seconds")]
    pub measured: Duration,
    /// Measured compute time of a step.
    #[serde(with = "seconds")]
    pub compute: Duration,
    /// Time for handing over fields to the channel.
    #[serde(with = "seconds")]
    pub put: Duration,
    /// Wait of the puts, because the partner or the path did not take fields.
    #[serde(with = "seconds")]
    pub put_wait: Duration,
    /// Size of the fields of one step.
    pub step_bytes: Bytes,
    /// Time without a connection to the partner in the whole run.
    #[serde(with = "seconds")]
    pub disconnected: Duration,
    /// Connections after the first one.
    pub reconnects: u64,
    /// Processes of the partner after the first one.
    pub partner_restarts: u64,
}

/// Figures of a variable.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CoupleVariable {
    pub name: String,
    pub from: String,
    pub to: String,
    /// Lag in the coupling file.
    pub lag: u64,
    /// Minimum lag without waits, with the measured compute times and the measured RTT; null if no lag is enough.
    pub needed_lag: Option<u64>,
    /// Wait in the plan.
    #[serde(with = "seconds")]
    pub predicted_wait: Duration,
    /// Wait in a plan with the measured compute times and the measured RTT.
    #[serde(with = "seconds")]
    pub predicted_wait_as_measured: Duration,
    /// Measured wait, after the first `lag` steps.
    #[serde(with = "seconds")]
    pub wait: Duration,
    /// Part of the measured wait in which the partner had not yet put the field.
    #[serde(with = "seconds")]
    pub partner_wait: Duration,
    /// Number of fields that the sender put in the whole run.
    pub sent: u64,
    /// Number of fields in the whole run that a newer one replaced (`drop = "oldest"`).
    pub dropped: u64,
    /// Number of elements in the whole run that are not a number.
    pub nan: u64,
}

/// Share of the predicted time of a step by which a run may differ from its plan.
pub const MAX_DIFFERENCE_SHARE: f64 = 0.05;
/// Time of a step by which a run may differ from its plan, if 5 % are less.
pub const MAX_DIFFERENCE: Duration = Duration::from_millis(10);

impl CoupleComponent {
    /// Returns the measured minus the predicted time of a step, seconds.
    pub fn difference(&self) -> f64 {
        self.measured.as_secs_f64() - self.predicted.as_secs_f64()
    }

    /// Returns the difference that a run that matches its plan may have, seconds.
    pub fn permitted_difference(&self) -> f64 {
        (MAX_DIFFERENCE_SHARE * self.predicted.as_secs_f64()).max(MAX_DIFFERENCE.as_secs_f64())
    }

    /// Reports whether the measured time of a step differs from the plan.
    pub fn differs(&self) -> bool {
        self.steps > 0 && self.difference().abs() > self.permitted_difference()
    }
}

impl CoupleEvidence {
    /// Returns the component whose time of a step differs most from the plan; none if both match.
    pub fn differing(&self) -> Option<&CoupleComponent> {
        let [own, partner] = &self.components;
        let most = if partner.difference().abs() > own.difference().abs() { partner } else { own };
        [most, own, partner].into_iter().find(|component| component.differs())
    }

    /// Returns the partner of a component.
    pub fn partner_of(&self, component: &CoupleComponent) -> &CoupleComponent {
        let [own, partner] = &self.components;
        if component.name == own.name { partner } else { own }
    }

    /// Returns the variables that a component gets.
    pub fn received_by<'a>(&'a self, component: &'a CoupleComponent) -> impl Iterator<Item = &'a CoupleVariable> {
        self.variables.iter().filter(|variable| variable.to == component.name)
    }
}
