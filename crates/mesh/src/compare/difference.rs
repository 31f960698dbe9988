//! Differences between two days of one direction.

use std::collections::BTreeSet;
use std::time::Duration;

use lfn_base::units::{BitRate, Ratio, show_duration};
use serde::{Deserialize, Serialize};

use super::condition::{Conditions, names};
use super::day_log::{DirectionLog, Route, is_same_route};
use super::effect::Effect;

/// Minimum change of the minimum RTT, as a share of the RTT.
const RTT_CHANGE: f64 = 0.05;

/// Minimum change of the minimum RTT.
const MIN_RTT_CHANGE: Duration = Duration::from_micros(100);

/// Standard errors by which two losses differ, about 99 % confidence.
const LOSS_ERRORS: f64 = 2.6;

/// A figure or a condition that differs between the days.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct Difference {
    pub kind: DifferenceKind,
    /// Name of the condition, or `path`, `base_rtt`, `loss`, `capacity`.
    pub name: String,
    /// Value of the first day; null if the first day has none.
    pub first: Option<String>,
    /// Value of the second day.
    pub second: Option<String>,
    /// Effect on the goodput of the slower day.
    pub effect: Effect,
}

/// Sides of a measurement that can change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum DifferenceKind {
    /// A condition of the test or of its hosts.
    Test,
    /// A figure of the path between the hosts.
    Network,
}

/// A difference before its effect is known, with the conditions of the model for the other day.
pub(super) struct Changed {
    pub kind: DifferenceKind,
    pub name: String,
    pub first: Option<String>,
    pub second: Option<String>,
}

impl Changed {
    /// Returns the conditions of the faster day with the value of the slower day; `None` if the model has no such value.
    pub fn in_model(&self, faster: &Conditions, slower: &Conditions) -> Option<Conditions> {
        match self.kind {
            DifferenceKind::Test => faster.with(&self.name, slower),
            DifferenceKind::Network => {
                let mut changed = faster.clone();
                match self.name.as_str() {
                    "base_rtt" => changed.base_rtt = Some(slower.base_rtt?),
                    "loss" => changed.loss = Some(slower.loss?),
                    "capacity" => changed.capacity = Some(slower.capacity?),
                    _ => return None,
                }
                Some(changed)
            }
        }
    }

    fn network(name: &str, first: Option<String>, second: Option<String>) -> Self {
        Changed { kind: DifferenceKind::Network, name: name.to_owned(), first, second }
    }

    /// Adds the effect of the difference.
    pub fn with_effect(self, effect: Effect) -> Difference {
        Difference { kind: self.kind, name: self.name, first: self.first, second: self.second, effect }
    }
}

/// Lists the differences of two days: the conditions by name, then the path and its figures.
pub(super) fn differences(first: &DirectionLog, second: &DirectionLog) -> Vec<Changed> {
    let mut changed = condition_differences(first, second);
    let routes = [&first.routes, &second.routes].map(|routes| routes.as_slice());
    if !routes.iter().any(|routes| routes.is_empty()) && !have_same_routes(routes[0], routes[1]) {
        let [first, second] = routes.map(|routes| Some(show_routes(routes)));
        changed.push(Changed::network("path", first, second));
    }
    let rtts = [first, second].map(|log| log.rtt.and_then(|rtt| rtt.min));
    if let [Some(one), Some(other)] = rtts {
        let least = one.min(other).mul_f64(RTT_CHANGE).max(MIN_RTT_CHANGE);
        if one.abs_diff(other) > least {
            changed.push(Changed::network("base_rtt", Some(show_duration(one)), Some(show_duration(other))));
        }
    }
    if is_loss_changed(first, second) {
        let [first, second] = [first, second].map(|log| log.loss().map(|loss| show_loss(loss, log.packets)));
        changed.push(Changed::network("loss", first, second));
    }
    if let (Some(one), Some(other)) = (first.capacity, second.capacity)
        && one != other
    {
        let text = |rate: BitRate| Some(rate.to_string());
        changed.push(Changed::network("capacity", text(one), text(other)));
    }
    changed
}

fn condition_differences(first: &DirectionLog, second: &DirectionLog) -> Vec<Changed> {
    let is_empty = |log: &DirectionLog| log.conditions.is_empty() && log.changed_conditions.is_empty();
    // A day without conditions has unknown conditions, which are no differences.
    if is_empty(first) || is_empty(second) {
        return Vec::new();
    }
    let logs = [first, second];
    let all: BTreeSet<&String> =
        logs.iter().flat_map(|log| log.conditions.keys().chain(log.changed_conditions.keys())).collect();
    let difference = |name: &String| {
        let [first, second] = logs.map(|log| condition_of_day(log, name));
        (first != second).then(|| Changed { kind: DifferenceKind::Test, name: name.clone(), first, second })
    };
    all.into_iter().filter_map(difference).collect()
}

/// Returns the value of a condition; all values of a day in order if the condition changed within the day.
pub(super) fn condition_of_day(log: &DirectionLog, name: &str) -> Option<String> {
    let periods = || log.changed_conditions.get(name).into_iter().flatten();
    let values: Vec<&str> = periods().map(|period| period.value.as_deref().unwrap_or("unknown")).collect();
    log.conditions.get(name).cloned().or_else(|| (!values.is_empty()).then(|| values.join(", then ")))
}

fn have_same_routes(first: &[Route], second: &[Route]) -> bool {
    let is_known = |route: &Route, others: &[Route]| others.iter().any(|other| is_same_route(&route.hops, &other.hops));
    first.iter().all(|route| is_known(route, second)) && second.iter().all(|route| is_known(route, first))
}

fn show_routes(routes: &[Route]) -> String {
    let hop = |hop: &String| if hop.is_empty() { "*".to_owned() } else { hop.clone() };
    let route = |route: &Route| route.hops.iter().map(hop).collect::<Vec<_>>().join(" ");
    routes.iter().map(route).collect::<Vec<_>>().join(", then ")
}

/// Returns the loss in per cent with the number of packets.
fn show_loss(loss: Ratio, packets: u64) -> String {
    format!("{:.2} % of {packets} packets", loss.get() * 100.0)
}

/// Compares the shares of two samples by the standard error of their difference.
fn is_loss_changed(first: &DirectionLog, second: &DirectionLog) -> bool {
    let (Some(one), Some(other)) = (first.loss(), second.loss()) else { return false };
    let (packets, lost) = (first.packets + second.packets, first.lost_packets + second.lost_packets);
    let all = lost as f64 / packets as f64;
    let error = (all * (1.0 - all) * (1.0 / first.packets as f64 + 1.0 / second.packets as f64)).sqrt();
    (one.get() - other.get()).abs() > LOSS_ERRORS * error
}

/// Returns true for a condition that only repeats others: the arguments of the tool.
pub(super) fn is_summary(name: &str) -> bool {
    name == names::ARGUMENTS
}
