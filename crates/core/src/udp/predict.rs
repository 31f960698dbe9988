//! What a test of datagrams should come to on a path whose capacity is known.

use std::time::Duration;

use crate::path::PathProfile;
use crate::prediction::Expected;
use crate::tcp_model::{Limit, Prediction};
use crate::units::{BitRate, Ratio};

/// Bytes of a UDP header.
const UDP_HEADER: u32 = 8;
/// Headers and clocks.
const FRAMING: f64 = 0.01;
/// A ramp stops as near as this below the rate where loss starts, and a step that queues fails before any is lost.
const RAMP: f64 = 0.1;

/// The most payload a path carries in datagrams of this size; headers count as much as they do on its links.
pub fn carried(path: &PathProfile, datagram: u64) -> BitRate {
    let most = path.framing.inner_mtu(path.mtu);
    let header = path.framing.ip.header() + UDP_HEADER;
    let whole = u32::try_from(datagram).unwrap_or(u32::MAX).saturating_add(header);
    // One that has to be fragmented has more headers than this: near enough for a bound.
    let packets = u64::from(whole.div_ceil(most.max(1)));
    let wire = path.framing.wire_bytes(whole.min(most)).saturating_mul(packets).max(1);
    let rate = u128::from(path.capacity.0) * u128::from(datagram) / u128::from(wire);
    BitRate(u64::try_from(rate).unwrap_or(u64::MAX))
}

/// The goodput of streams that send at `asked` together for `time`, or what a ramp (`None`) should find.
pub fn predicted(path: &PathProfile, datagram: u64, asked: Option<BitRate>, time: Duration) -> (Prediction, Expected) {
    let most = carried(path, datagram);
    let sent = asked.unwrap_or(most);
    let fits = sent.min(most).as_f64();
    let loss = if asked.is_some() { path.loss.get() } else { 0.0 };
    let goodput = fits * (1.0 - loss);
    let limit = if asked.is_some_and(|asked| asked <= most) { Limit::Asked } else { Limit::Capacity };
    let edge = path.base_rtt.as_secs_f64() / time.as_secs_f64().max(1e-3);
    // Of n datagrams lost independently twice the deviation of their share.
    let count = (fits * time.as_secs_f64() / 8.0 / datagram.max(1) as f64).max(1.0);
    let chance = 2.0 * (loss * (1.0 - loss) / count).sqrt();
    let below = FRAMING + chance + if asked.is_none() { RAMP } else { edge.min(1.0) };
    let mut reasons = vec![format!("headers and clocks ({:.1} %)", FRAMING * 100.0)];
    if chance > 0.001 {
        reasons.push(format!("which datagrams are lost is chance ({:.1} %)", chance * 100.0));
    }
    reasons.push(match asked {
        None => format!("a queue that grows fails a step ({:.1} %)", RAMP * 100.0),
        Some(_) => format!("round trips at the edges of the time measured ({:.1} %)", edge.min(1.0) * 100.0),
    });
    let above = 1.0 + FRAMING + chance + if asked.is_none() { FRAMING } else { edge.min(1.0) };
    let expected = Expected {
        least: BitRate((goodput * (1.0 - below).max(0.0)) as u64),
        most: BitRate((goodput * above) as u64),
        reasons,
    };
    let idle = Ratio::new((1.0 - fits / most.as_f64().max(1.0)).clamp(0.0, 1.0)).unwrap_or_default();
    (Prediction { goodput: BitRate(goodput as u64), limit, idle_share: idle }, expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path() -> PathProfile {
        PathProfile::new(BitRate(20_000_000), Duration::from_millis(10))
    }

    #[test]
    fn a_path_carries_less_payload_in_small_datagrams() {
        // 1472 and 100 bytes of payload in frames of 1514 and 142.
        assert_eq!(carried(&path(), 1472), BitRate(20_000_000 * 1472 / 1514));
        assert_eq!(carried(&path(), 100), BitRate(20_000_000 * 100 / 142));
        assert!(carried(&path(), 3000) < carried(&path(), 1472));
    }

    #[test]
    fn what_fits_arrives_but_for_what_the_path_loses() {
        let second = Duration::from_secs(1);
        let (fits, expected) = predicted(&path(), 1000, Some(BitRate(8_000_000)), second);
        assert_eq!((fits.goodput, fits.limit), (BitRate(8_000_000), Limit::Asked));
        assert!(expected.least < fits.goodput && fits.goodput < expected.most);
        let lossy = PathProfile { loss: Ratio::new(0.1).unwrap(), ..path() };
        assert_eq!(predicted(&lossy, 1000, Some(BitRate(8_000_000)), second).0.goodput, BitRate(7_200_000));
        let (full, _) = predicted(&path(), 1000, Some(BitRate(100_000_000)), second);
        assert_eq!((full.goodput, full.limit), (carried(&path(), 1000), Limit::Capacity));
    }
}
