//! Compute times that differ from the coupling file, and a component that is slower than its partner.

use lfn_base::units::{duration_argument, show_duration};
use serde_json::json;

use super::parts::Parts;
use super::{couple, found, show_seconds};
use crate::diagnose::{Cause, Finding, figures_map};
use crate::evidence::couple::{CoupleComponent, MAX_DIFFERENCE_SHARE};
use crate::evidence::figures::Figures;

/// Finds models that compute longer or shorter than declared.
pub(in crate::diagnose) fn compute_time(figures: &Figures) -> Option<Finding> {
    let couple = couple(figures)?;
    let parts = Parts::of(couple)?;
    if !parts.is_named(parts.compute) {
        return None;
    }
    let differing: Vec<&CoupleComponent> =
        couple.components.iter().filter(|component| is_misdeclared(component)).collect();
    let text = |component: &&CoupleComponent| {
        let declared = component.declared_compute.unwrap_or_default();
        let (compute, declared) = (show_duration(component.compute), show_duration(declared));
        format!("{} computes {compute} a step; the coupling file has {declared}", component.name)
    };
    let edit = |component: &&CoupleComponent| {
        format!("compute = \"{}\" in [component.{}]", duration_argument(rounded(component)), component.name)
    };
    let summary = differing.iter().map(text).collect::<Vec<_>>().join("; ");
    let remedy = format!("set {}", differing.iter().map(edit).collect::<Vec<_>>().join(", and "));
    let first = differing.first()?;
    let mut finding = found(figures, Cause::ComputeTime, summary, remedy, parts.compute);
    finding.evidence.extend(figures_map([
        ("compute_seconds", json!(first.compute.as_secs_f64())),
        ("declared_compute_seconds", json!(first.declared_compute.unwrap_or_default().as_secs_f64())),
    ]));
    Some(finding)
}

fn is_misdeclared(component: &CoupleComponent) -> bool {
    let declared = component.declared_compute.unwrap_or(component.compute).as_secs_f64();
    (component.compute.as_secs_f64() - declared).abs() > MAX_DIFFERENCE_SHARE * declared
}

/// Returns the compute time in whole milliseconds, or as measured if it is short.
fn rounded(component: &CoupleComponent) -> std::time::Duration {
    let millis = (component.compute.as_secs_f64() * 1e3).round() as u64;
    if millis < 10 { component.compute } else { std::time::Duration::from_millis(millis) }
}

/// Finds a component that waits for its partner, because the partner is slower.
pub(in crate::diagnose) fn load_imbalance(figures: &Figures) -> Option<Finding> {
    let couple = couple(figures)?;
    let parts = Parts::of(couple)?;
    let (waiting, slower) = (parts.component, parts.partner);
    let waits = couple.received_by(waiting);
    let wait: f64 = waits.map(|variable| variable.wait.min(variable.partner_wait).as_secs_f64()).sum();
    if wait < waiting.permitted_difference() {
        return None;
    }
    let excess = (slower.compute.as_secs_f64() - waiting.compute.as_secs_f64()).min(wait);
    let times = format!(
        "{} computes {} a step, {} computes {}",
        slower.name,
        show_duration(slower.compute),
        waiting.name,
        show_duration(waiting.compute)
    );
    let is_slower = parts.is_named(excess);
    if !is_slower && !parts.is_named(parts.partner_late) {
        return None;
    }
    let (part, reason) = if is_slower {
        (excess, "no lag changes this".to_owned())
    } else {
        let name = &slower.name;
        (parts.partner_late, format!("single steps of {name} take longer than its mean, or {name} waits too"))
    };
    let waited = show_seconds(if is_slower { wait } else { parts.partner_late });
    let summary =
        format!("{} waits {waited} a step until {} begins its step: {times}; {reason}", waiting.name, slower.name);
    let remedy = if is_slower {
        format!("give {} more processors, or less work in a step", slower.name)
    } else {
        format!("vmstat 1   # at the site of {}: other programs may use the CPU", slower.name)
    };
    let mut finding = found(figures, Cause::LoadImbalance, summary, remedy, part);
    if !is_slower {
        finding.confidence = Some(crate::diagnose::Confidence::Medium);
        finding.confirmation = Some(format!("print the time of each step of {}", slower.name));
    }
    finding.evidence.extend(figures_map([
        ("partner_wait_seconds", json!(wait)),
        ("compute_seconds", json!(waiting.compute.as_secs_f64())),
        ("partner_compute_seconds", json!(slower.compute.as_secs_f64())),
    ]));
    Some(finding)
}
