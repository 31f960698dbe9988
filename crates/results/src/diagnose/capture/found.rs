//! A finding of a capture before its goodput is predicted, and shares of the time of a connection.

use std::collections::BTreeMap;
use std::time::Duration;

use lfn_base::units::BitRate;
use serde_json::Value;

use crate::diagnose::{Cause, Confidence, Finding, Remedy};
use crate::evidence::capture::{CaptureEvidence, PeriodLimit};
use crate::evidence::figures::Figures;

/// Maximum buffer of a socket that a remedy sets, bytes.
const MAX_BUFFER: u64 = 1 << 30;
/// Maximum share of the time that a single cause explains: the rest moves the data.
const MAX_EXPLAINED_SHARE: f64 = 0.99;

impl CaptureEvidence {
    /// Returns the time of the periods with this limit.
    pub fn time_of(&self, limit: PeriodLimit) -> Duration {
        let of_limit = self.periods.iter().filter(|period| period.limit == limit);
        of_limit.map(|period| period.end.saturating_sub(period.start)).sum()
    }

    /// Returns a time as a share of the whole connection.
    pub(in crate::diagnose) fn share(&self, time: Duration) -> f64 {
        match self.duration.as_secs_f64() {
            whole if whole > 0.0 => (time.as_secs_f64() / whole).min(1.0),
            _ => 0.0,
        }
    }

    /// Returns a time as a share of the time without pauses of the applications.
    pub(in crate::diagnose) fn active_share(&self, time: Duration) -> f64 {
        match self.active.as_secs_f64() {
            active if active > 0.0 => (time.as_secs_f64() / active).min(1.0),
            _ => 0.0,
        }
    }

    /// Returns the share of the whole connection in which the path or a loss was the limit.
    pub(in crate::diagnose) fn path_share(&self) -> f64 {
        self.share(self.time_of(PeriodLimit::Path) + self.time_of(PeriodLimit::Recovery))
    }

    /// Returns the packets that the path lost.
    pub(in crate::diagnose) fn lost(&self) -> u64 {
        self.loss.before_capture + self.loss.after_capture
    }
}

/// A finding before its goodput is predicted.
pub(in crate::diagnose) struct Found {
    pub(in crate::diagnose) cause: Cause,
    /// Share of the time of the connection that the cause took.
    pub(in crate::diagnose) share: f64,
    pub(in crate::diagnose) confidence: Confidence,
    pub(in crate::diagnose) summary: String,
    pub(in crate::diagnose) remedy: Remedy,
    pub(in crate::diagnose) evidence: BTreeMap<String, Value>,
}

impl Found {
    /// Predicts the goodput without the cause.
    pub(in crate::diagnose) fn finding(self, figures: &Figures) -> Finding {
        let share = self.share.clamp(0.0, MAX_EXPLAINED_SHARE);
        let goodput = figures.goodput.as_f64();
        let predicted = BitRate((goodput / (1.0 - share)) as u64);
        let mut evidence = self.evidence;
        if let Some(number) = serde_json::Number::from_f64((share * 1e4).round() / 1e4) {
            evidence.insert("time_share".to_owned(), Value::Number(number));
        }
        Finding {
            name: self.cause.name().to_owned(),
            summary: self.summary,
            evidence,
            remedy: self.remedy,
            confidence: Some(self.confidence),
            confirmation: None,
            predicted: Some(predicted),
            gain: Some(BitRate(predicted.0.saturating_sub(figures.goodput.0))),
        }
    }
}

/// Returns a command for the sending or for the receiving host.
///
/// `endpoint` is an address with a port, or a description of a host.
pub(in crate::diagnose) fn on(endpoint: &str, command: impl Into<String>) -> Remedy {
    let host = match endpoint.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host.trim_matches(['[', ']']),
        _ => endpoint,
    };
    Remedy { command: command.into(), host: Some(host.to_owned()) }
}

/// Returns a share in percent for a sentence.
pub(in crate::diagnose) fn percent(share: f64) -> String {
    match share * 100.0 {
        percent if percent < 1.0 => format!("{percent:.2} %"),
        percent if percent < 10.0 => format!("{percent:.1} %"),
        percent => format!("{percent:.0} %"),
    }
}

/// Returns a window or a buffer with this number of bytes for `sysctl`: twice the bytes, because the kernel uses half of a
/// buffer for its own structures.
pub(in crate::diagnose) fn buffer_for(bytes: f64) -> u64 {
    ((2.0 * bytes) as u64).clamp(1, MAX_BUFFER).next_multiple_of(65_536)
}

/// Returns a rate rounded down to two digits, for a command: measured rates are not more exact.
pub(in crate::diagnose) fn rounded(rate: BitRate) -> BitRate {
    let unit = 10_u64.pow(rate.0.checked_ilog10().unwrap_or(0).saturating_sub(1));
    BitRate(rate.0 / unit * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_of_a_command_has_two_digits() {
        let text = |rate| rounded(BitRate(rate)).to_argument();
        assert_eq!([text(3_111_232), text(476_900), text(7), text(0)], ["3100kbit", "470kbit", "7bit", "0bit"]);
    }
}
