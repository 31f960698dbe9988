//! The choice of the congestion control for a path: predicted goodput and loss budget of each, and the best of those
//! that a host has.
//!
//! The loss budget of a congestion control is the random loss up to which its streams fill the path. Goodput and loss
//! budget of a congestion control have the same source ([`tcp_model`]): with a loss within the budget, the predicted
//! goodput is the capacity.

use serde::Serialize;

use crate::path::PathProfile;
use crate::tcp_model::{self, Congestion, FlowParameters, GoodputLimit};
use crate::units::{BitRate, Ratio};

/// Share of the best predicted goodput from which a congestion control is as good as the best.
const GOOD_ENOUGH_SHARE: f64 = 0.95;

/// The predicted result of one congestion control on a path.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct CongestionPrediction {
    pub congestion: Congestion,
    /// Steady goodput of all streams together, without a limit by windows or buffers.
    #[serde(rename = "goodput_bits_per_second")]
    pub goodput: BitRate,
    #[serde(rename = "limited_by")]
    pub limit: GoodputLimit,
    /// Random loss up to which the streams fill the path.
    pub loss_budget: Ratio,
}

/// Predicts goodput and loss budget of `streams` streams with this congestion control.
pub fn predict_congestion(path: &PathProfile, streams: u32, congestion: Congestion) -> CongestionPrediction {
    let flow = FlowParameters { streams, congestion, ..FlowParameters::default() };
    let steady = tcp_model::predict_steady(path, &flow);
    CongestionPrediction {
        congestion,
        goodput: steady.goodput,
        limit: steady.limit,
        loss_budget: tcp_model::congestion_loss_budget(path, streams, congestion),
    }
}

/// Predicts all congestion controls of the model: reno, cubic, bbr.
pub fn compare_congestion(path: &PathProfile, streams: u32) -> [CongestionPrediction; 3] {
    Congestion::ALL.map(|congestion| predict_congestion(path, streams, congestion))
}

/// Recommends a congestion control of `available`, the names that the kernel has and permits
/// ([`available_congestion`]); `None` without one that the model knows.
///
/// The host keeps `current` if `current` reaches 95 % of the best predicted goodput. Else CUBIC is preferred where
/// CUBIC reaches this share, because BBR empties a long path every ten seconds
/// (`doc/decisions/004-congestion-control-from-the-plan.md`).
pub fn recommend_congestion(
    path: &PathProfile,
    streams: u32,
    available: &[Congestion],
    current: Option<Congestion>,
) -> Option<Congestion> {
    let goodput = |congestion| predict_congestion(path, streams, congestion).goodput.as_f64();
    let best = available.iter().map(|congestion| goodput(*congestion)).fold(0.0, f64::max);
    let preferred = current.into_iter().chain([Congestion::Cubic, Congestion::Bbr, Congestion::Reno]);
    let mut permitted = preferred.filter(|congestion| available.contains(congestion));
    permitted.find(|congestion| goodput(*congestion) >= GOOD_ENOUGH_SHARE * best)
}

/// Chooses the congestion control for a path where the kernel has both: CUBIC where its predicted goodput under loss is
/// enough, else BBR.
pub fn select_congestion(path: &PathProfile, streams: u32) -> Congestion {
    recommend_congestion(path, streams, &[Congestion::Cubic, Congestion::Bbr], None).unwrap_or_default()
}

/// Reads the congestion controls of the model from `net.ipv4.tcp_available_congestion_control` or
/// `tcp_allowed_congestion_control`. Other names are skipped.
pub fn available_congestion(names: &str) -> Vec<Congestion> {
    names.split_whitespace().filter_map(|name| name.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn path(rate: u64, millis: u64, loss: f64) -> PathProfile {
        let path = PathProfile::new(BitRate(rate), Duration::from_millis(millis));
        PathProfile { loss: Ratio::new(loss).unwrap(), ..path }
    }

    #[test]
    fn loss_within_the_budget_fills_the_path() {
        for clean in [path(10_000_000_000, 150, 0.0), path(100_000_000, 70, 0.0), path(135_000_000, 539, 0.0)] {
            for (streams, congestion) in [1, 4].into_iter().flat_map(|n| Congestion::ALL.map(|c| (n, c))) {
                let budget = predict_congestion(&clean, streams, congestion).loss_budget.get();
                let limit = |factor: f64| {
                    let lossy = PathProfile { loss: Ratio::new(budget * factor).unwrap(), ..clean };
                    predict_congestion(&lossy, streams, congestion).limit
                };
                assert_eq!(limit(0.999), GoodputLimit::Capacity, "{congestion} {streams}");
                if congestion == Congestion::Cubic {
                    assert_eq!(limit(1.001), GoodputLimit::Loss, "{congestion} {streams}");
                }
            }
        }
    }

    #[test]
    fn loss_budgets_of_ten_gigabits() {
        let budgets = compare_congestion(&path(10_000_000_000, 150, 2.5e-8), 1);
        let [reno, cubic, bbr] = budgets.map(|prediction| prediction.loss_budget.get());
        assert!((2.9e-11..3.0e-11).contains(&reno), "{reno}");
        assert!((2.5e-8..2.7e-8).contains(&cubic), "{cubic}");
        assert_eq!(bbr, 0.05);
    }

    #[test]
    fn recommended_congestion_is_available() {
        let [reno, cubic, bbr] = Congestion::ALL;
        let (clean, lossy) = (path(100_000_000, 70, 0.0), path(10_000_000_000, 150, 1e-6));
        assert_eq!(recommend_congestion(&clean, 1, &[reno, cubic, bbr], None), Some(cubic));
        assert_eq!(recommend_congestion(&clean, 1, &[reno, cubic, bbr], Some(bbr)), Some(bbr), "keeps the host's own");
        assert_eq!(recommend_congestion(&lossy, 1, &[reno, cubic, bbr], Some(cubic)), Some(bbr));
        assert_eq!(recommend_congestion(&lossy, 1, &[reno, cubic], Some(reno)), Some(cubic));
        assert_eq!(recommend_congestion(&lossy, 1, &[reno], Some(bbr)), Some(reno), "the host lacks bbr");
        assert_eq!(recommend_congestion(&lossy, 1, &[], Some(bbr)), None);
        assert_eq!(available_congestion("reno bbr htcp cubic\n"), [reno, bbr, cubic]);
    }
}
