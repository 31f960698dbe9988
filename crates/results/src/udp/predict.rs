//! Prediction of a datagram test on a path with known capacity.

use std::time::Duration;

use lfn_base::path::PathProfile;
use lfn_base::tcp_model::{GoodputLimit, Prediction};
use lfn_base::units::{BitRate, Ratio};

use crate::prediction::ExpectedRange;

const UDP_HEADER: u32 = 8;
/// Error from headers and clocks.
const FRAMING_ERROR: f64 = 0.01;
/// A ramp stops within this share below the rate where loss starts; a step that fills a queue fails before any loss.
const RAMP_ERROR: f64 = 0.1;

/// Returns the maximum payload rate of a path with datagrams of this size; headers count as on the links of the path.
pub fn payload_capacity(path: &PathProfile, datagram: u64) -> BitRate {
    let mtu = path.framing.inner_mtu(path.mtu);
    let header = path.framing.ip.header() + UDP_HEADER;
    let whole = u32::try_from(datagram).unwrap_or(u32::MAX).saturating_add(header);
    // A fragmented datagram has more headers than this; the difference is small enough for a bound.
    let packets = u64::from(whole.div_ceil(mtu.max(1)));
    let wire = path.framing.wire_bytes(whole.min(mtu)).saturating_mul(packets).max(1);
    let rate = u128::from(path.capacity.0) * u128::from(datagram) / u128::from(wire);
    BitRate(u64::try_from(rate).unwrap_or(u64::MAX))
}

/// Predicts the goodput of streams that send at `requested` together for `time`, or the result of a ramp (`None`).
pub fn predict_datagrams(
    path: &PathProfile,
    datagram: u64,
    requested: Option<BitRate>,
    time: Duration,
) -> (Prediction, ExpectedRange) {
    let max_rate = payload_capacity(path, datagram);
    let sent = requested.unwrap_or(max_rate);
    let fits = sent.min(max_rate).as_f64();
    let loss = if requested.is_some() { path.loss.get() } else { 0.0 };
    let goodput = fits * (1.0 - loss);
    let limit = if requested.is_some_and(|requested| requested <= max_rate) {
        GoodputLimit::RequestedRate
    } else {
        GoodputLimit::Capacity
    };
    let edge = path.base_rtt.as_secs_f64() / time.as_secs_f64().max(1e-3);
    // Twice the standard deviation of the lost share of n independent datagrams.
    let count = (fits * time.as_secs_f64() / 8.0 / datagram.max(1) as f64).max(1.0);
    let chance = 2.0 * (loss * (1.0 - loss) / count).sqrt();
    let below = FRAMING_ERROR + chance + if requested.is_none() { RAMP_ERROR } else { edge.min(1.0) };
    let mut reasons = vec![format!("headers and clocks ({:.1} %)", FRAMING_ERROR * 100.0)];
    if chance > 0.001 {
        reasons.push(format!("random loss of datagrams ({:.1} %)", chance * 100.0));
    }
    reasons.push(match requested {
        None => format!("a growing queue fails a step ({:.1} %)", RAMP_ERROR * 100.0),
        Some(_) => format!("round trips at the start and end of the measurement ({:.1} %)", edge.min(1.0) * 100.0),
    });
    let above = 1.0 + FRAMING_ERROR + chance + if requested.is_none() { FRAMING_ERROR } else { edge.min(1.0) };
    let expected = ExpectedRange {
        min: BitRate((goodput * (1.0 - below).max(0.0)) as u64),
        max: BitRate((goodput * above) as u64),
        reasons,
    };
    let idle = Ratio::new((1.0 - fits / max_rate.as_f64().max(1.0)).clamp(0.0, 1.0)).unwrap_or_default();
    (Prediction { goodput: BitRate(goodput as u64), limit, idle_share: idle }, expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path() -> PathProfile {
        PathProfile::new(BitRate(20_000_000), Duration::from_millis(10))
    }

    #[test]
    fn small_datagrams_carry_less_payload() {
        // Payloads of 1472 and 100 bytes in frames of 1514 and 142 bytes.
        assert_eq!(payload_capacity(&path(), 1472), BitRate(20_000_000 * 1472 / 1514));
        assert_eq!(payload_capacity(&path(), 100), BitRate(20_000_000 * 100 / 142));
        assert!(payload_capacity(&path(), 3000) < payload_capacity(&path(), 1472));
    }

    #[test]
    fn goodput_is_the_rate_minus_the_loss() {
        let second = Duration::from_secs(1);
        let (fits, expected) = predict_datagrams(&path(), 1000, Some(BitRate(8_000_000)), second);
        assert_eq!((fits.goodput, fits.limit), (BitRate(8_000_000), GoodputLimit::RequestedRate));
        assert!(expected.min < fits.goodput && fits.goodput < expected.max);
        let lossy = PathProfile { loss: Ratio::new(0.1).unwrap(), ..path() };
        assert_eq!(predict_datagrams(&lossy, 1000, Some(BitRate(8_000_000)), second).0.goodput, BitRate(7_200_000));
        let (full, _) = predict_datagrams(&path(), 1000, Some(BitRate(100_000_000)), second);
        assert_eq!((full.goodput, full.limit), (payload_capacity(&path(), 1000), GoodputLimit::Capacity));
    }
}
