//! The shortfall of a test: a goodput below the expected range, and the part of it that findings explain.

use lfn_base::tcp_model::Prediction;
use lfn_base::units::BitRate;

use super::{Cause, Finding, copy};
use crate::evidence::LoadKind;
use crate::evidence::figures::Figures;
use crate::prediction::{self, ExpectedRange};

/// Minimum share of the shortfall that the findings explain; below it, another cause is unknown.
pub(super) const MIN_EXPLAINED_SHARE: f64 = 0.5;

/// A goodput below the expected range.
#[derive(Debug, Clone)]
pub(super) struct Shortfall {
    pub(super) predicted: Prediction,
    pub(super) expected: ExpectedRange,
    /// Goodput of the settled part of the test.
    pub(super) goodput: BitRate,
}

impl Shortfall {
    /// Returns the shortfall of a test or a copy with a known capacity; none if the goodput is in the range or above it.
    ///
    /// The settled part begins after start-up and contains each later interval. The steady part begins where the rate is
    /// near its later median, so the first of several outages may be before it.
    pub(super) fn of(figures: &Figures) -> Option<Shortfall> {
        let is_examined = match figures.kind {
            LoadKind::Tcp => true,
            // The prediction of a copy has slow start.
            LoadKind::Copy => copy::is_slow(figures),
            LoadKind::Datagrams | LoadKind::Capture | LoadKind::Couple => false,
        };
        if !is_examined || figures.streams.is_empty() {
            return None;
        }
        let (predicted, expected) = prediction::predict_test(figures)?;
        let steady = figures.steady_goodput();
        let settled = figures.omit.map_or(figures.course.goodput(), |_| None);
        let goodput = settled.map_or(steady, |settled| settled.min(steady));
        (goodput < expected.min).then_some(Shortfall { predicted, expected, goodput })
    }

    /// Returns true if the findings explain most of the shortfall. A finding without a known gain explains all of it.
    pub(super) fn is_explained(&self, figures: &Figures, findings: &[Finding]) -> bool {
        let missing = self.expected.min.0.saturating_sub(self.goodput.0);
        // Slow start explains a low start of a test whose steady part is in the range, and a test that ends before such a part.
        if (figures.steady.is_none() || figures.steady_goodput() >= self.expected.min)
            && findings.iter().any(|finding| finding.cause() == Some(Cause::StartUp))
        {
            return true;
        }
        let limits = findings.iter().filter(|finding| finding.is_limit() && finding.cause() != Some(Cause::StartUp));
        let explained = limits.map(|finding| match finding.predicted {
            // A remedy that keeps the cause, as pacing behind a policer, gains less than the cause costs.
            Some(predicted) => predicted.0.saturating_sub(self.goodput.0).max(finding.gain.map_or(0, |gain| gain.0)),
            None => missing,
        });
        explained.fold(0u64, u64::saturating_add) as f64 >= MIN_EXPLAINED_SHARE * missing as f64
    }
}
