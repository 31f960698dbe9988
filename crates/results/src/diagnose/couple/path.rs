//! A path that differs from the coupling file, and a connection that was lost.

use std::time::Duration;

use lfn_base::units::{duration_argument, show_duration};
use serde_json::json;

use super::parts::Parts;
use super::{couple, found, show_seconds};
use crate::diagnose::{Cause, Confidence, Finding, figures_map};
use crate::evidence::figures::Figures;

/// Minimum share by which the RTT differs from the coupling file.
pub(in crate::diagnose) const MIN_RTT_SHARE: f64 = 0.05;
/// Minimum difference of the RTT from the coupling file.
pub(in crate::diagnose) const MIN_RTT_DIFFERENCE: Duration = Duration::from_millis(1);

/// Finds an RTT that differs from the coupling file.
pub(in crate::diagnose) fn path_delay(figures: &Figures) -> Option<Finding> {
    let couple = couple(figures)?;
    let file = couple.file_rtt?;
    let parts = Parts::of(couple)?;
    let difference = file.abs_diff(couple.rtt);
    let is_other = difference >= MIN_RTT_DIFFERENCE && difference.as_secs_f64() >= MIN_RTT_SHARE * file.as_secs_f64();
    if !is_other || !parts.is_named(parts.delay) {
        return None;
    }
    let rtt = show_duration(couple.rtt);
    let summary = format!("the RTT of the path is {rtt}; the coupling file has {}", show_duration(file));
    let remedy = format!(
        "set rtt = \"{}\" in [path]; lfn couple plan then shows the lags",
        duration_argument(rounded(couple.rtt))
    );
    let mut finding = found(figures, Cause::PathDelay, summary, remedy, parts.delay);
    finding.evidence.extend(figures_map([
        ("rtt_seconds", json!(couple.rtt.as_secs_f64())),
        ("file_rtt_seconds", json!(file.as_secs_f64())),
    ]));
    Some(finding)
}

/// Returns an RTT in whole milliseconds, or as measured if it is short.
fn rounded(rtt: Duration) -> Duration {
    let millis = (rtt.as_secs_f64() * 1e3).round() as u64;
    if millis < 10 { rtt } else { Duration::from_millis(millis) }
}

/// Finds fields that arrive later than the RTT and the rate in the coupling file explain.
pub(in crate::diagnose) fn late_fields(figures: &Figures) -> Option<Finding> {
    let couple = couple(figures)?;
    let parts = Parts::of(couple)?;
    if !parts.is_named(parts.late) {
        return None;
    }
    let (component, partner) = (parts.component, parts.partner);
    let waits = component.put_wait.as_secs_f64();
    let file = match (couple.file_rate, couple.file_rtt) {
        (Some(rate), Some(rtt)) => format!("a path of {rate} and {} explains", show_duration(rtt.max(couple.rtt))),
        _ => format!("an RTT of {} explains, and the coupling file has no rate", show_duration(couple.rtt)),
    };
    let late = show_seconds(parts.late);
    let summary = if waits >= parts.late / 2.0 {
        format!(
            "puts of {} ({} a step) wait {} a step: the path takes them slower than {file}",
            component.name,
            component.step_bytes,
            show_duration(component.put_wait)
        )
    } else {
        format!("fields of {} ({} a step) arrive {late} later than {file}", partner.name, partner.step_bytes)
    };
    let then = if couple.file_rate.is_some() { "set rate" } else { "set rate and rtt" };
    let remedy =
        format!("lfn doctor HOST   # HOST: the site of {}; then {then} in [path] of the coupling file", partner.name);
    let mut finding = found(figures, Cause::LateFields, summary, remedy, parts.late);
    finding.confidence = Some(Confidence::Medium);
    finding.confirmation = Some("repeat the run with rate in [path] as measured".to_owned());
    finding.evidence.extend(figures_map([
        ("late_seconds", json!(parts.late)),
        ("put_wait_seconds", json!(waits)),
        ("bytes_per_step", json!(partner.step_bytes.0)),
        ("file_rate_bits_per_second", json!(couple.file_rate.map(|rate| rate.0))),
    ]));
    Some(finding)
}

/// Finds the slow start of the connections, which delays the first fields.
pub(in crate::diagnose) fn slow_start(figures: &Figures) -> Option<Finding> {
    let couple = couple(figures)?;
    let parts = Parts::of(couple)?;
    if !parts.is_named(parts.start) {
        return None;
    }
    let total = parts.start * parts.component.steps as f64;
    let summary = format!(
        "fields of {} ({} a step) arrive late until slow start has reached their rate: {} in the whole run",
        parts.partner.name,
        parts.partner.step_bytes,
        show_seconds(total)
    );
    let remedy = "run more steps: slow start takes the same time in a longer run".to_owned();
    let mut finding = found(figures, Cause::StartUp, summary, remedy, parts.start);
    finding.confidence = Some(Confidence::Medium);
    finding.confirmation = Some("double steps in [coupling]: the late time of the whole run stays the same".to_owned());
    finding.evidence.extend(figures_map([("late_seconds", json!(total)), ("steps", json!(parts.component.steps))]));
    Some(finding)
}

/// Finds a connection that was lost for a part of the run.
pub(in crate::diagnose) fn lost_connection(figures: &Figures) -> Option<Finding> {
    let couple = couple(figures)?;
    let parts = Parts::of(couple)?;
    if !parts.is_named(parts.disconnected) {
        return None;
    }
    let (component, partner) = (parts.component, parts.partner);
    let times = match component.reconnects {
        1 => "once".to_owned(),
        count => format!("{count} times"),
    };
    let lost = show_duration(component.disconnected);
    let (name, partner) = (&component.name, &partner.name);
    let (summary, remedy) = match component.partner_restarts {
        0 => (
            format!("{name} was without a connection to {partner} for {lost}, and reconnected {times}"),
            format!("ping -D HOST   # HOST: the site of {partner}; losses show when the path was down"),
        ),
        _ => (
            format!(
                "{name} was without {partner} for {lost}: {partner} was started again, and repeated the steps since its checkpoint"
            ),
            format!("write checkpoints of {partner} more often, if it may end again"),
        ),
    };
    let mut finding = found(figures, Cause::LostConnection, summary, remedy, parts.disconnected);
    finding.evidence.extend(figures_map([
        ("disconnected_seconds", json!(component.disconnected.as_secs_f64())),
        ("reconnects", json!(component.reconnects)),
    ]));
    Some(finding)
}
