//! Measures the latency that an idle path adds to the configured delay, from kernel timestamps at the interfaces of
//! both sides.
//!
//! Frames with an unused ethertype go both ways. Their interval is long enough that every thread falls asleep, and it
//! varies. Sockets on both sides see them leave and arrive. So the measurement covers the whole way through both
//! cables, and uses only the kernel's clock.

use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::thread;
use std::time::Duration;

use lfn_sys::netlink::Netlink;
use lfn_sys::packet::{LengthFilter, PacketSocket, ReceiveRing, SlotSize, VNET_HEADER};

use crate::error::{EmulateError, system_error};
use crate::network::{PathEnd, SideName, SideNetwork};

/// Number of probes in each direction.
const PROBES: u16 = 50;
/// Minimum time between two probes. The time varies, so that no kernel timer can synchronise with the probes.
const INTERVAL: Duration = Duration::from_micros(1_100);
const INTERVAL_STEP: Duration = Duration::from_micros(137);
/// Maximum time of the last probe beyond the delay.
const LAST_PROBE_TIMEOUT: Duration = Duration::from_millis(5);
/// Bytes of a probe: the minimum Ethernet frame.
const PROBE_LENGTH: usize = 60;
/// Ethertype for experiments (IEEE 802, local experimental ethertype 1).
const ETHERTYPE: [u8; 2] = [0x88, 0xb5];
/// Size of the Ethernet header, bytes.
const HEADER: usize = 14;

/// Packet sockets at one side's interface.
struct ProbeTap {
    /// Sends the probes. This socket does not see its own packets.
    sender: PacketSocket,
    ring: ReceiveRing,
    /// Owner of the ring.
    _receiver: PacketSocket,
    addresses: [u8; 12],
}

/// Returns the shortest time between the two interfaces, minus `delay`.
pub(super) fn min_idle_latency(sides: &[SideNetwork; 2], delay: Duration) -> Result<Duration, EmulateError> {
    let [near, far] = sides;
    let taps = [ProbeTap::open(near, SideName::Near), ProbeTap::open(far, SideName::Far)];
    let [near, far] = taps.map(|tap| tap.map_err(system_error("open a packet socket at an interface")));
    let mut taps = [near?, far?];
    for number in 0..PROBES {
        for (side, tap) in taps.iter().enumerate() {
            tap.send(side, number).map_err(system_error("send a probe"))?;
            thread::sleep(INTERVAL + INTERVAL_STEP * u32::from(number % 8));
        }
    }
    thread::sleep(delay + LAST_PROBE_TIMEOUT);
    let times = taps.each_mut().map(ProbeTap::times);
    let min_idle_latency = transit_times(&times)
        .min()
        .ok_or_else(|| system_error("measure the idle path")(io::Error::other("no probe arrived")))?;
    Ok(min_idle_latency.saturating_sub(delay))
}

/// Number of the sending side, and sequence number of a probe.
type Probe = (usize, u16);

/// Time of each probe at an interface, nanoseconds.
type ProbeTimes = HashMap<Probe, u64>;

/// Returns the transit time of each probe that arrived.
fn transit_times(times: &[ProbeTimes; 2]) -> impl Iterator<Item = Duration> {
    let departures =
        times.iter().enumerate().flat_map(|(side, times)| times.iter().map(move |(probe, at)| (side, probe, at)));
    departures.filter(|(side, (from, _), _)| side == from).filter_map(|(side, probe, departed)| {
        let arrived = times[1 - side].get(probe)?;
        Some(Duration::from_nanos(arrived.saturating_sub(*departed)))
    })
}

impl ProbeTap {
    fn open(side: &SideNetwork, name: SideName) -> io::Result<ProbeTap> {
        let end = PathEnd::new(name, 0);
        let open = |lengths| {
            side.namespace.run(|| PacketSocket::open_tap(Netlink::open()?.index(&end.interface())?, lengths))?
        };
        let (sender, receiver) = (open(LengthFilter::UpTo(0))?, open(LengthFilter::UpTo(PROBE_LENGTH as u32))?);
        let ring = ReceiveRing::new(&receiver, SlotSize::Frames(PROBE_LENGTH), 1)?;
        let mut addresses = [0; 12];
        addresses[..6].copy_from_slice(&end.peer().mac().0);
        addresses[6..].copy_from_slice(&end.mac().0);
        Ok(ProbeTap { sender, ring, _receiver: receiver, addresses })
    }

    fn send(&self, side: usize, number: u16) -> io::Result<()> {
        let mut frame = [0; PROBE_LENGTH];
        frame[..12].copy_from_slice(&self.addresses);
        frame[12..HEADER].copy_from_slice(&ETHERTYPE);
        frame[HEADER] = side as u8;
        frame[HEADER + 1..HEADER + 3].copy_from_slice(&number.to_be_bytes());
        self.sender.send(&[IoSlice::new(&[0; VNET_HEADER]), IoSlice::new(&frame)])
    }

    /// Returns the times of all probes that passed this interface.
    fn times(&mut self) -> ProbeTimes {
        let mut times = ProbeTimes::new();
        while let Ok(Some(frame)) = self.ring.take() {
            if let Some(probe) = probe(self.ring.bytes(frame.slot)) {
                times.insert(probe, frame.timestamp);
            }
            self.ring.give_back(frame.slot);
        }
        times
    }
}

fn probe(bytes: &[u8]) -> Option<Probe> {
    let frame = bytes.get(VNET_HEADER..)?;
    let &[side, n0, n1] = frame.get(HEADER..)?.first_chunk()?;
    (frame.get(12..HEADER)? == ETHERTYPE && side < 2).then(|| (usize::from(side), u16::from_be_bytes([n0, n1])))
}
