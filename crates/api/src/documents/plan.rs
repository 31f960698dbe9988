//! Document of `lfn plan`.

use lfn_base::geometry::Route;
use lfn_base::plan::Plan;
use lfn_base::plan::advice::Advice;
use lfn_base::plan::settings::Setting;
use serde::Serialize;

/// A plan, the settings for a host and the origin of the path, schema `lfn.plan/2`.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PlanDocument {
    #[serde(flatten)]
    pub plan: Plan,
    /// Host whose settings the plan compares with the needs of the path.
    pub host: PlannedHost,
    /// Settings that the host needs.
    pub settings: Vec<Setting>,
    /// Commands that restore the values before the change.
    pub undo: Vec<String>,
    /// Advice beyond kernel settings.
    pub advice: Advice,
    /// Commands for the next steps.
    pub next: Vec<String>,
    /// Name of the link; null if it was not given.
    pub link: Option<String>,
    /// One end of the route; null without a route.
    pub from: Option<String>,
    /// Other end of the route; null without a route.
    pub to: Option<String>,
    /// Medium of the route; null without a route.
    pub via: Option<String>,
    /// Length and RTT of the route; null if the RTT was given.
    pub route: Option<Route>,
}

/// Host whose settings the plan compares with the needs of the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum PlannedHost {
    This,
    /// A host whose settings were read from a file.
    File,
    /// A host with unknown settings.
    Other,
}
