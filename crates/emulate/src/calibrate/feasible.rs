//! Checks if this machine can carry the settings accurately, from the measured costs of forwarding.
//!
//! One thread forwards each direction, so the work of one second must fit into one second. The senders and receivers of
//! the packets need the processors too. The cost of a packet is the sum of a part for the packet and a part for its
//! bytes, derived from two measured packet sizes. The result is an estimate: a small overload causes a warning, a large
//! one an error.

use std::fmt;

use lfn_base::framing::ETHERNET_HEADER;
use lfn_base::units::BitRate;
use lfn_link::{Discipline, LinkConfig};

use super::{CpuCost, ForwardingCosts};
use crate::Setup;
use crate::error::EmulateError;

/// Settings that exceed the capacity of this machine.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Overload {
    pub(crate) rate: BitRate,
    /// Bytes that leave together at this rate: a single packet on a slow link, a super-packet on a fast one.
    pub(crate) burst: u32,
    /// True if nearly all packets leave one by one.
    pub(crate) is_single_packets: bool,
    /// Maximum rate that this machine can carry with these settings.
    pub(crate) max_rate: BitRate,
    /// A rate that this machine can carry accurately.
    pub(crate) fitting_rate: BitRate,
}

/// Size of a measured single packet, bytes.
const PACKET: f64 = 1514.0;
/// Size of a measured super-packet, bytes.
const SUPER_PACKET: f64 = 65_226.0;
/// Costs of a slow machine. Settings that need less than half of its capacity work everywhere, so no measurement is
/// needed.
const SLOW_MACHINE: ForwardingCosts = ForwardingCosts {
    packet: CpuCost { thread: 25e-6, all: 50e-6 },
    gigabyte: CpuCost { thread: 1.5, all: 3.0 },
    processors: 2,
};
/// Maximum share of the capacity at which packets are on time. Above it, packets wait for the thread and not for the
/// link.
const MAX_ACCURATE_LOAD: f64 = 0.75;
/// Share of the capacity of a rate that is suggested as fitting.
const FITTING_LOAD: f64 = 0.6;
/// Load above which a run is refused, as a multiple of the capacity. A machine that is less busy later does not gain
/// that much.
const MAX_LOAD: f64 = 4.0;

/// Returns true if the settings are demanding enough that the cost of forwarding must be measured.
pub(super) fn needs_costs(setup: &Setup) -> bool {
    directions(setup).any(|hops| Demand::of(hops).is_some_and(|demand| demand.load(&SLOW_MACHINE) > 0.5))
}

/// Returns the overload, or `None` if the settings fit. Returns an error above [`MAX_LOAD`], unless `force` is set.
pub(crate) fn check_capacity(setup: &Setup, costs: &ForwardingCosts) -> Result<Option<Overload>, EmulateError> {
    let demands = directions(setup).filter_map(Demand::of);
    let Some((load, demand)) =
        demands.map(|demand| (demand.load(costs), demand)).max_by(|one, other| one.0.total_cmp(&other.0))
    else {
        return Ok(None);
    };
    let overload = demand.overload(costs);
    match load {
        load if load > MAX_LOAD && !setup.force => {
            Err(EmulateError::Infeasible(overload.to_string(), overload.fitting_rate))
        }
        load if load > MAX_ACCURATE_LOAD => Ok(Some(overload)),
        _ => Ok(None),
    }
}

fn directions(setup: &Setup) -> impl Iterator<Item = &[LinkConfig]> {
    setup.paths.iter().flat_map(|path| [&path.forward[..], &path.back[..]])
}

/// Demand of a full direction on its thread.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Demand {
    rate: BitRate,
    /// Bytes of a full packet.
    packet: f64,
    /// Bytes that leave in one burst.
    burst: f64,
}

impl Demand {
    /// Computes the demand of the slowest hop. Later hops may split packets further.
    fn of(hops: &[LinkConfig]) -> Option<Demand> {
        let rate = hops.iter().map(LinkConfig::max_rate).min()?;
        let packet = hops.iter().map(max_packet).min()?.max(1) as f64;
        let pieces = hops.iter().map(|hop| burst_limit(hop, packet));
        let packets = (pieces.fold(SUPER_PACKET, f64::min) / packet).floor().max(1.0);
        // Packets that one hop has split stay split.
        let splits_per_packet: f64 = hops.iter().map(LinkConfig::splits_per_packet).sum();
        let burst = (1.0 / (1.0 / packets + splits_per_packet)).max(1.0) * packet;
        Some(Demand { rate, packet, burst })
    }

    /// Returns the load as a share of the capacity.
    fn load(&self, costs: &ForwardingCosts) -> f64 {
        self.rate.as_f64() / self.max_rate(costs)
    }

    /// Returns bits per second: the limit of one thread or of all processors, the smaller one.
    fn max_rate(&self, costs: &ForwardingCosts) -> f64 {
        let one = self.per_byte(costs.packet.thread, costs.gigabyte.thread);
        let all = self.per_byte(costs.packet.all, costs.gigabyte.all);
        8.0 / one.max(all / costs.processor_count())
    }

    /// Returns processor seconds per byte, from the cost of a single packet and of a gigabyte in super-packets.
    fn per_byte(&self, packet: f64, gigabyte: f64) -> f64 {
        let super_packet = gigabyte * SUPER_PACKET / 1e9;
        // On a busy machine, a small packet may seem to cost more than a large one.
        let packet = packet.min(super_packet);
        let of_byte = (super_packet - packet) / (SUPER_PACKET - PACKET);
        let of_packet = (packet - of_byte * PACKET).max(0.0);
        of_packet / self.burst + of_byte
    }

    fn overload(&self, costs: &ForwardingCosts) -> Overload {
        let max_rate = self.max_rate(costs);
        let rate = |bits: f64| BitRate(bits as u64);
        Overload {
            rate: self.rate,
            burst: self.burst as u32,
            is_single_packets: self.burst < 2.0 * self.packet,
            max_rate: rate(round_down_to_two_digits(max_rate)),
            fitting_rate: rate(round_down_to_two_digits(max_rate * FITTING_LOAD)),
        }
    }
}

/// Returns the size of the longest packet that passes, bytes with its Ethernet header.
fn max_packet(hop: &LinkConfig) -> u64 {
    let path_mtu = hop.path_mtu.map(|limit| u64::from(limit.mtu) + u64::from(ETHERNET_HEADER));
    path_mtu.unwrap_or(u64::MAX).min(hop.largest_packet.0)
}

/// Returns the maximum number of bytes that leave a hop in one burst.
fn burst_limit(hop: &LinkConfig, packet: f64) -> f64 {
    let slice = hop.max_rate().times(hop.slice).0 as f64;
    let turn = match hop.discipline {
        Discipline::FqCoDel(fq_codel) => fq_codel.quantum.0 as f64,
        Discipline::DropTail | Discipline::CoDel(_) | Discipline::Red(_) => slice,
    };
    // With jitter, every packet has its own delay.
    if hop.jitter.spread.is_zero() { slice.min(turn) } else { packet }
}

/// Rounds down, because the value is an estimate.
fn round_down_to_two_digits(value: f64) -> f64 {
    let unit = 10_f64.powf((value.max(1.0).log10() - 1.0).floor());
    (value / unit + 1e-6).floor() * unit
}

impl fmt::Display for Overload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Overload { rate, max_rate, .. } = self;
        if self.is_single_packets {
            write!(f, "{rate} in single packets is more than this machine can carry: about {max_rate}")
        } else {
            write!(f, "{rate} is more than this machine can carry: about {max_rate} of bulk TCP")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lfn_base::path::PathProfile;
    use lfn_link::EmulatedPath;
    use lfn_link::settings::HopSettings;

    use super::*;
    use crate::FarSide;

    /// Measured on a virtual machine with two processors: at most 16 Gb/s.
    const COSTS: ForwardingCosts = ForwardingCosts {
        packet: CpuCost { thread: 8e-6, all: 15e-6 },
        gigabyte: CpuCost { thread: 0.42, all: 0.99 },
        processors: 2,
    };

    fn setup(rate: BitRate) -> Setup {
        let path = EmulatedPath::symmetric(PathProfile::new(rate, Duration::from_millis(50)));
        Setup::new(path, 0, FarSide::Nothing)
    }

    fn with_slice(rate: BitRate, slice: Duration) -> Setup {
        let mut setup = setup(rate);
        for hop in setup.paths.iter_mut().flat_map(|path| path.forward.iter_mut().chain(&mut path.back)) {
            hop.slice = slice;
        }
        setup
    }

    const GBIT: u64 = 1_000_000_000;

    #[test]
    fn fitting_rates_cause_no_warning() {
        for rate in [BitRate(135_000_000), BitRate(GBIT), BitRate(8 * GBIT)] {
            assert_eq!(check_capacity(&setup(rate), &COSTS).unwrap(), None, "{rate}");
        }
    }

    #[test]
    fn overload_is_reported_and_high_overload_refused() {
        let overload = check_capacity(&setup(BitRate(20 * GBIT)), &COSTS).unwrap().unwrap();
        assert_eq!((overload.max_rate, overload.fitting_rate), (BitRate(16 * GBIT), BitRate(9_600_000_000)));
        assert_eq!(overload.to_string(), "20 Gb/s is more than this machine can carry: about 16 Gb/s of bulk TCP");
        assert!(check_capacity(&setup(BitRate(60 * GBIT)), &COSTS).unwrap().is_some());
        let far = setup(BitRate(100 * GBIT));
        assert!(matches!(check_capacity(&far, &COSTS), Err(EmulateError::Infeasible(_, BitRate(9_600_000_000)))));
        assert!(check_capacity(&Setup { force: true, ..far }, &COSTS).unwrap().is_some());
    }

    #[test]
    fn single_packets_cost_more() {
        let singles = |rate| with_slice(rate, Duration::ZERO);
        assert_eq!(check_capacity(&singles(BitRate(GBIT)), &COSTS).unwrap(), None);
        let overload = check_capacity(&singles(BitRate(2 * GBIT)), &COSTS).unwrap().unwrap();
        assert_eq!(overload.max_rate, BitRate(1_500_000_000));
        assert_eq!(
            overload.to_string(),
            "2 Gb/s in single packets is more than this machine can carry: about 1.5 Gb/s"
        );
        assert!(check_capacity(&singles(BitRate(8 * GBIT)), &COSTS).is_err());
    }

    fn typed(mtu: u32, spec: &str) -> Setup {
        let mut hop = HopSettings::default();
        spec.split(',').for_each(|pair| hop.set_pair(pair).unwrap());
        Setup::new(EmulatedPath::new(&[hop], mtu).unwrap(), 0, FarSide::Nothing)
    }

    #[test]
    fn splitting_super_packets_costs_as_much_as_singles() {
        let max_rate = |mtu: u32, setting: &str| {
            let setup = typed(mtu, &format!("rate=4gbit,rtt=50ms{setting}"));
            check_capacity(&setup, &COSTS).unwrap().map(|overload| (overload.max_rate, overload.is_single_packets))
        };
        let alone = Some((BitRate(1_500_000_000), true));
        for setting in ["", ",loss=1e-4", ",jitter=none", ",aqm=codel", ",reorder=none"] {
            assert_eq!(max_rate(1500, setting), None, "{setting}");
        }
        for setting in [",jitter=5ms", ",forward-jitter=normal:1ms", ",aqm=fq-codel", ",reorder=100%:3"] {
            assert_eq!(max_rate(1500, setting), alone, "{setting}");
        }
        // Longer packets are fewer, shorter packets more.
        assert_eq!(max_rate(9000, ",jitter=5ms"), None);
        let short = |mtu, setting: &str| {
            let setup = Setup { force: true, ..typed(mtu, &format!("rate=4gbit,rtt=50ms,jitter=5ms{setting}")) };
            check_capacity(&setup, &COSTS).unwrap().unwrap().max_rate
        };
        assert!(short(750, "") < BitRate(GBIT) && short(750, "") == short(1500, ",path-mtu=750"));
        // The more often super-packets are split, the lower the maximum rate.
        let carried = ["loss=1e-6", "reorder=1%:3", "reorder=5%:3"].map(|spec| {
            let setup = Setup { force: true, ..typed(1500, &format!("rate=40gbit,rtt=5ms,{spec}")) };
            check_capacity(&setup, &COSTS).unwrap().unwrap().max_rate
        });
        assert!(carried.is_sorted_by(|one, next| one > next), "{carried:?}");
    }

    #[test]
    fn slow_links_need_no_measurement() {
        assert!(!needs_costs(&setup(BitRate(135_000_000))) && !needs_costs(&setup(BitRate(GBIT))));
        assert!(needs_costs(&setup(BitRate(4 * GBIT))) && needs_costs(&with_slice(BitRate(GBIT), Duration::ZERO)));
    }

    #[test]
    fn implausible_costs_do_not_panic() {
        let zero = CpuCost { thread: 0.0, all: 0.0 };
        let nothing = ForwardingCosts { packet: zero, gigabyte: zero, processors: 0 };
        assert_eq!(check_capacity(&setup(BitRate(GBIT)), &nothing).unwrap(), None);
        let upside_down = ForwardingCosts { packet: CpuCost { thread: 1e-3, all: 2e-3 }, ..COSTS };
        assert!(check_capacity(&setup(BitRate(8 * GBIT)), &upside_down).is_ok());
    }
}
