//! Fit of a token bucket to the packets that passed and that were lost.
//!
//! A token bucket of rate r and size B drops a packet if fewer tokens than its length are left. The missing tokens follow
//! from the packets that passed: they grow by each passed packet, and shrink with r. If a bucket caused the losses, then all
//! lost packets arrived at more missing tokens than the passed ones. The same holds for a queue of size B that is
//! drained at r; there, the delay grows with the missing tokens.

use lfn_base::units::{BitRate, Bytes};
use lfn_results::evidence::capture::PolicerFit;

use crate::half::Arrival;

/// Minimum losses of a fit.
const MIN_LOSSES: usize = 8;
/// Minimum size of a bucket, packets. A smaller bucket looks like single losses.
const MIN_BUCKET_PACKETS: f64 = 2.5;
/// Rates that are tried, relative to the goodput between the losses.
const FACTORS: [f64; 15] = [0.7, 0.8, 0.87, 0.93, 0.97, 1.0, 1.03, 1.07, 1.15, 1.3, 1.6, 2.2, 3.5, 6.0, 12.0];

/// Tolerance of the fit: a bucket holds whole packets, and routers add tokens in steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tolerance {
    pub(crate) mss: u32,
    /// Base RTT in seconds.
    pub(crate) rtt: f64,
}

impl Tolerance {
    fn bytes(&self, rate: f64, bucket: f64) -> f64 {
        f64::from(self.mss).max((rate * self.rtt / 2.0).min(bucket * MAX_TOLERANCE))
    }
}

/// Maximum tolerance as a share of the bucket.
const MAX_TOLERANCE: f64 = 0.05;

/// A rate with the separation that it gives.
#[derive(Clone, Copy, Debug)]
struct Separation {
    rate: f64,
    bucket: f64,
    /// Shares of the losses above, and of the passed bytes below the size of the bucket.
    lost_above: f64,
    passed_below: f64,
}

impl Separation {
    fn quality(&self) -> f64 {
        self.lost_above.min(self.passed_below)
    }
}

/// Fits a token bucket. `None` if too few packets were lost.
pub(crate) fn fit(arrivals: &[Arrival], connections: u32, tolerance: &Tolerance) -> Option<PolicerFit> {
    let losses: Vec<&Arrival> = arrivals.iter().filter(|arrival| arrival.is_lost).collect();
    if losses.len() < MIN_LOSSES {
        return None;
    }
    let between = goodput_between_losses(arrivals)?;
    let best = FACTORS
        .iter()
        .filter_map(|factor| separation(arrivals, between * factor, tolerance))
        .max_by(|a, b| a.quality().total_cmp(&b.quality()))?;
    Some(PolicerFit {
        rate: BitRate((best.rate * 8.0) as u64),
        bucket: Bytes(best.bucket as u64),
        explained_share: best.quality(),
        losses: losses.len() as u64,
        connections,
    })
}

/// Returns bytes per second between the first and the last loss, without long pauses.
fn goodput_between_losses(arrivals: &[Arrival]) -> Option<f64> {
    let first = arrivals.iter().position(|arrival| arrival.is_lost)?;
    let last = arrivals.iter().rposition(|arrival| arrival.is_lost)?;
    let part = arrivals.get(first..=last)?;
    let time: u64 = part.windows(2).map(|pair| (pair[1].at - pair[0].at).min(1_000_000_000)).sum();
    let passed: u64 = part.iter().filter(|arrival| !arrival.is_lost).map(|arrival| u64::from(arrival.length)).sum();
    (time > 0 && passed > 0).then(|| passed as f64 * 1e9 / time as f64)
}

/// Returns the size of the bucket that separates lost and passed packets best.
fn separation(arrivals: &[Arrival], rate: f64, tolerance: &Tolerance) -> Option<Separation> {
    let mut missing = 0.0_f64;
    let mut at = arrivals.first()?.at;
    let mut lost: Vec<f64> = Vec::new();
    let mut passed: Vec<(f64, f64)> = Vec::with_capacity(arrivals.len());
    for arrival in arrivals {
        missing = (missing - rate * (arrival.at - at) as f64 / 1e9).max(0.0);
        at = arrival.at;
        let length = f64::from(arrival.length);
        if arrival.is_lost {
            lost.push(missing);
        } else {
            passed.push((missing, length));
            missing += length;
        }
    }
    lost.sort_by(f64::total_cmp);
    passed.sort_by(|a, b| a.0.total_cmp(&b.0));
    let all: f64 = passed.iter().map(|(_, length)| length).sum();
    let packet = f64::from(tolerance.mss);
    let mut best: Option<Separation> = None;
    let steps = 64.min(lost.len());
    for step in 0..steps {
        let number = step * lost.len() / steps;
        let bucket = lost[number];
        if bucket < MIN_BUCKET_PACKETS * packet {
            continue;
        }
        let slack = tolerance.bytes(rate, bucket);
        let lost_above = (lost.len() - number) as f64 / lost.len() as f64;
        let below = passed.partition_point(|(missing, _)| *missing <= bucket + slack);
        let passed_below = passed[..below].iter().map(|(_, length)| length).sum::<f64>() / all.max(1.0);
        let candidate = Separation { rate, bucket, lost_above, passed_below };
        if best.is_none_or(|best| candidate.quality() > best.quality()) {
            best = Some(candidate);
        }
    }
    best
}
