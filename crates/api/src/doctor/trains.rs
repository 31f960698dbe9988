//! Rates of the trains of datagrams, chosen by the goodput of TCP.
//!
//! Trains below the goodput show loss that does not depend on the rate. Trains above the goodput show whether the path
//! carries more than TCP reached, and what happens to the excess: a queue delays it, a policer drops it.

use std::time::Duration;

use lfn_base::units::{BitRate, Bytes};
use lfn_results::measure::{TestDirection, TestLoad, TestRequest, UdpRequest};
use lfn_results::udp::ramp::RampRequest;

/// Rates of the trains as factors of the goodput of TCP. The path is below its capacity in the first half.
const FACTORS: [f64; 5] = [0.5, 0.85, 1.3, 2.0, 4.0];
/// The same for a quick examination.
const QUICK_FACTORS: [f64; 3] = [0.5, 1.3, 4.0];
/// Rates without a goodput of TCP as factors of the highest rate.
const SHARES: [f64; 4] = [0.02, 0.1, 0.5, 1.0];
/// Highest rate as a factor of the capacity.
const ABOVE_CAPACITY: f64 = 1.2;
/// Highest rate on a path of unknown capacity without a goodput of TCP.
const UNKNOWN: BitRate = BitRate(100_000_000);
/// Maximum rate: hosts send and receive datagrams up to about this rate without loss of their own.
const MAX_RATE: BitRate = BitRate(2_500_000_000);
/// Headers of IPv6 and UDP in a datagram, bytes.
const HEADERS: u32 = 48;
/// Minimum payload of a datagram, bytes.
const MIN_DATAGRAM: u32 = 64;
/// IP packets of slow trains, bytes: a train of few large packets shows no course.
const ETHERNET_MTU: u32 = 1500;
/// Minimum datagrams of a train, as in a step of a ramp.
const MIN_DATAGRAMS: u64 = 50;
/// Maximum send time of a train. A slower train is not sent.
const MAX_STEP: Duration = Duration::from_secs(1);
/// Send time of a train: long enough for a bucket of usual size to run empty.
const STEP: Duration = Duration::from_millis(400);
const QUICK_STEP: Duration = Duration::from_millis(250);

/// Known figures of a direction before its trains.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct BeforeTrains {
    /// Goodput of the TCP load; none if the load failed.
    pub(super) goodput: Option<BitRate>,
    /// Payload that the path carries, if known.
    pub(super) capacity: Option<BitRate>,
    /// Maximum rate of the load.
    pub(super) max_load: Option<BitRate>,
    /// Largest packet that passes, if probes found it: a train with larger packets would only show this limit again.
    pub(super) path_mtu: Option<u32>,
    pub(super) quick: bool,
}

impl BeforeTrains {
    /// Returns the rates of the trains in ascending order; none if the maximum rate is too low for a train.
    fn rates(&self) -> Vec<BitRate> {
        let capacity = self.capacity.map(|capacity| scaled(capacity, ABOVE_CAPACITY));
        let max = [capacity, self.max_load].into_iter().flatten().fold(MAX_RATE, BitRate::min);
        let min = slowest(self.datagram_bytes());
        if max < min {
            return Vec::new();
        }
        let wanted: Vec<BitRate> = match self.goodput.filter(|goodput| goodput.0 > 0) {
            Some(goodput) => {
                let factors = if self.quick { &QUICK_FACTORS[..] } else { &FACTORS[..] };
                // A gap to the capacity is closed by the last train.
                let last = capacity.filter(|last| *last > scaled(goodput, 2.0));
                factors.iter().map(|factor| scaled(goodput, *factor)).chain(last).collect()
            }
            None => {
                let max = if capacity.is_some() { max } else { max.min(UNKNOWN) };
                SHARES.iter().map(|share| scaled(max, *share)).collect()
            }
        };
        let mut rates: Vec<BitRate> = wanted.into_iter().map(|rate| rate.clamp(min, max)).collect();
        rates.sort_unstable();
        rates.dedup();
        rates
    }

    /// Returns the payload of a datagram: the path MTU, or a packet of Ethernet for trains that are slow.
    fn datagram_bytes(&self) -> u32 {
        let payload = |mtu: u32| mtu.saturating_sub(HEADERS).max(MIN_DATAGRAM);
        let full = payload(self.path_mtu.unwrap_or(ETHERNET_MTU));
        let is_fast = self.goodput.is_some_and(|goodput| scaled(goodput, FACTORS[0]) >= slowest(full));
        if is_fast { full } else { full.min(payload(ETHERNET_MTU)) }
    }

    /// Returns the request for the trains of a direction; none if the maximum rate is too low for a train.
    pub(super) fn request(&self, direction: TestDirection) -> Option<TestRequest> {
        let rates = self.rates();
        let (from, to) = (*rates.first()?, *rates.last()?);
        let step = if self.quick { QUICK_STEP } else { STEP };
        let ramp = RampRequest { from, to, step, rates, ..RampRequest::default() };
        let datagram_bytes = Some(self.datagram_bytes());
        let udp = UdpRequest { rate: to, ramp: Some(ramp), datagram_bytes, ..UdpRequest::default() };
        // A ramp ends after its last step.
        let load = TestLoad::TimeSeconds(Duration::from_secs(60));
        Some(TestRequest { direction, load, udp: Some(Box::new(udp)), ..TestRequest::default() })
    }
}

/// Returns the rate at which a train of the minimum number of datagrams takes the maximum time.
fn slowest(datagram_bytes: u32) -> BitRate {
    Bytes(MIN_DATAGRAMS * u64::from(datagram_bytes)).per(MAX_STEP)
}

fn scaled(rate: BitRate, factor: f64) -> BitRate {
    BitRate((rate.as_f64() * factor) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MBIT: u64 = 1_000_000;

    fn rates(goodput: Option<u64>, capacity: Option<u64>, max_load: Option<u64>) -> Vec<u64> {
        let rate = |mbit: Option<u64>| mbit.map(|mbit| BitRate(mbit * MBIT));
        let before = BeforeTrains {
            goodput: rate(goodput),
            capacity: rate(capacity),
            max_load: rate(max_load),
            ..BeforeTrains::default()
        };
        if let Some(request) = before.request(TestDirection::Forward) {
            request.check().unwrap();
        }
        before.rates().iter().map(|rate| rate.0 / 100_000).collect()
    }

    #[test]
    fn trains_are_below_and_above_the_goodput() {
        assert_eq!(rates(Some(22), Some(956), None), [110, 187, 286, 440, 880, 11472]);
        assert_eq!(rates(Some(95), Some(95), None), [475, 807, 1140], "a full path");
        assert_eq!(rates(Some(50), None, None), [250, 425, 650, 1000, 2000], "an unknown capacity");
    }

    #[test]
    fn trains_stay_below_the_maximum_load() {
        assert_eq!(rates(Some(22), Some(956), Some(30)), [110, 187, 286, 300]);
        assert_eq!(rates(None, Some(956), Some(50)), [10, 50, 250, 500]);
        assert_eq!(rates(Some(1), Some(1), Some(1)), [5, 8, 10], "the slowest train is above half of the goodput");
        assert_eq!(rates(Some(0), Some(0), None), [] as [u64; 0], "too slow for trains");
        assert_eq!(rates(Some(9000), None, None), [25000], "hosts lose datagrams above");
    }

    #[test]
    fn failed_load_still_has_trains() {
        assert_eq!(rates(None, None, None), [20, 100, 500, 1000]);
        assert_eq!(rates(Some(0), Some(10), None), [5, 12, 60, 120]);
    }
}
