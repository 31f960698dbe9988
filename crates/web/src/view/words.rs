//! Sentences and figures of a pair that HTML and text share.

use std::time::Duration;

use lfn_mesh::entry::Entry;

use super::pair::{PairView, Route};
use super::state::loss_ratio;
use crate::format;

/// Returns the newest figures of the pair with their names.
pub(crate) fn figures(view: &PairView) -> Vec<(&'static str, String)> {
    let (load, latency) = (view.load.as_ref(), view.latency.as_ref());
    let mut figures: Vec<(&'static str, String)> = Vec::new();
    if let Some(load) = load {
        figures.push(("Goodput", format::rate(load.goodput)));
        let share = format::share(load.goodput, load.predicted).map(|share| format!(" ({share} reached)"));
        figures.push(("Predicted", format::rate(load.predicted) + &share.unwrap_or_default()));
        figures.push(("Capacity", format::rate(load.capacity)));
        if let Some(bdp) = load.bdp() {
            figures.push(("Bandwidth-delay product", bdp.decimal()));
        }
        if let Some(retransmits) = load.retransmits {
            figures.push(("Retransmits", retransmits.to_string()));
        }
        figures.push(("Load measured", measured(load, view.now, view.is_load_stale)));
    }
    if let Some(rtt) = latency.or(load) {
        figures.push(("Base RTT", format::time(rtt.base_rtt)));
        figures.push(("Median RTT", format::time(rtt.rtt)));
        figures.push(("One-way delay", format::time(rtt.one_way_delay)));
    }
    if let Some(latency) = latency {
        figures.push(("Loss", format::loss(loss_ratio(latency))));
        figures.push(("Latency measured", measured(latency, view.now, false)));
    }
    figures
}

fn measured(entry: &Entry, now: Duration, is_stale: bool) -> String {
    let age = match format::age(entry.time, now).as_str() {
        "in the future" => "in the future".to_owned(),
        age => format!("{age} ago"),
    };
    let stale = if is_stale { ", stale" } else { "" };
    format!("{} UTC, {age}{stale}", format::minute(entry.time))
}

/// Describes the newest change of a path; `None` if the archive has one path only.
pub(crate) fn route_change(route: &Route) -> Option<String> {
    let (time, before) = (route.time?, route.changed_after?);
    let gone = if route.gone.is_empty() { String::new() } else { format!("; before: {}", route.gone.join(", ")) };
    Some(format!("changed between {} and {} UTC{gone}", format::minute(before), format::minute(time)))
}

/// Returns the error, the names of the findings and the marks of an entry.
pub(crate) fn remarks(entry: &Entry) -> String {
    let findings = entry.findings.iter().map(|finding| finding.name.clone());
    let parts = entry.error.iter().cloned().chain(findings).chain([format::marks(entry.marks)]);
    parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ")
}
