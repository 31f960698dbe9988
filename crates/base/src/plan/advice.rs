//! Advice beyond kernel settings: disks, streams, jumbo frames, the queue of the bottleneck.

use serde::Serialize;

use super::{Plan, PlanOptions, predict_congestion};
use crate::path::PathProfile;
use crate::tcp_model::Congestion;
use crate::units::{BitRate, Bytes, Ratio};

/// Capacity from which one stream, which one processor serves, is often too slow, and from which the rings of the
/// interface matter (ESnet, fasterdata.es.net: 4 to 8 streams).
pub const FAST_PATH: BitRate = BitRate(10_000_000_000);
/// Range of streams for a fast path.
pub const FAST_PATH_STREAMS: [u32; 2] = [4, 8];
/// IP MTU of jumbo frames, bytes.
const JUMBO_MTU: u32 = 9000;
/// Capacity from which networks with jumbo frames are common.
const JUMBO_CAPACITY: BitRate = BitRate(1_000_000_000);

/// Advice for a plan. Parts that do not apply are absent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct Advice {
    /// Kernel memory of all full socket buffers of one end.
    #[serde(rename = "memory_bytes")]
    pub memory: Bytes,
    /// Rate at which the disks must read and write, bytes per second; absent without a size.
    #[serde(rename = "disk_bytes_per_second")]
    pub disk_rate: Option<Bytes>,
    /// Minimum and maximum of the usual number of streams on a fast path.
    pub streams: Option<[u32; 2]>,
    /// Goodput with an MTU of 9000 on Ethernet.
    #[serde(rename = "jumbo_goodput_bits_per_second")]
    pub jumbo_goodput: Option<BitRate>,
    /// Share of the path that stays empty at first after a loss, because the queue is too small to feed the link
    /// meanwhile.
    pub idle_after_loss: Option<Ratio>,
}

/// Returns the advice for a plan.
pub fn advice(plan: &Plan, options: &PlanOptions) -> Advice {
    let fast = plan.capacity >= FAST_PATH && options.streams.is_none() && options.window.is_none();
    Advice {
        memory: Bytes(plan.memory_per_socket.0.saturating_mul(plan.streams.into())),
        disk_rate: plan.predicted.average_goodput.map(|goodput| Bytes(goodput.0 / 8)),
        streams: (fast && plan.streams < FAST_PATH_STREAMS[0]).then_some(FAST_PATH_STREAMS),
        jumbo_goodput: jumbo_goodput(plan),
        idle_after_loss: idle_after_loss(plan),
    }
}

fn jumbo_goodput(plan: &Plan) -> Option<BitRate> {
    let path = plan.path;
    let applies = path.framing.layer.is_ethernet() && path.mtu == 1500 && path.capacity >= JUMBO_CAPACITY;
    let jumbo = PathProfile { mtu: JUMBO_MTU, ..path };
    applies.then(|| predict_congestion(&jumbo, plan.streams, plan.predicted.congestion).goodput)
}

/// Computes 1 − β (BDP + queue) / BDP, with β of RFC 5681 (Reno) or RFC 9438 (CUBIC). BBR does not fill the queue.
fn idle_after_loss(plan: &Plan) -> Option<Ratio> {
    let beta = match plan.predicted.congestion {
        Congestion::Reno => 0.5,
        Congestion::Cubic => 0.7,
        Congestion::Bbr => return None,
    };
    let (bdp, queue) = (plan.bdp.0.max(1) as f64, plan.path.queue?.0 as f64);
    Ratio::new((1.0 - beta * (bdp + queue) / bdp).max(0.0))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::plan;
    use super::*;

    fn advice_of(path: &PathProfile, options: &PlanOptions) -> Advice {
        advice(&plan(path, options).unwrap(), options)
    }

    #[test]
    fn fast_paths_get_streams_and_jumbo_frames() {
        let path = PathProfile::new(BitRate(10_000_000_000), Duration::from_millis(150));
        let options = PlanOptions { size: Some(Bytes(2_000_000_000_000)), ..PlanOptions::default() };
        let advice = advice_of(&path, &options);
        assert_eq!(advice.streams, Some([4, 8]));
        assert_eq!(advice.memory, Bytes(375_390_208));
        // 2 TB in 1,675 s.
        assert!((1.19e9..1.20e9).contains(&(advice.disk_rate.unwrap().0 as f64)), "{advice:?}");
        assert!(advice.jumbo_goodput.unwrap() > BitRate(9_900_000_000));
        let slow = PathProfile { capacity: BitRate(100_000_000), ..path };
        let advice = advice_of(&slow, &PlanOptions::default());
        assert_eq!((advice.streams, advice.jumbo_goodput, advice.disk_rate), (None, None, None));
    }

    #[test]
    fn a_small_queue_leaves_the_path_idle() {
        let path = PathProfile::new(BitRate(135_000_000), Duration::from_millis(539));
        let idle = |queue| advice_of(&PathProfile { queue, ..path }, &PlanOptions::default()).idle_after_loss;
        assert_eq!(idle(None), None);
        assert_eq!(idle(Some(Bytes(9_095_625))), Some(Ratio::ZERO));
        assert!((0.29..0.30).contains(&idle(Some(Bytes(50_000))).unwrap().get()));
    }
}
