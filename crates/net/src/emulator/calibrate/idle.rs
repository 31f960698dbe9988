//! What a packet takes across an idle path beyond its delay, by the kernel's stamps at both sides' interfaces.
//!
//! Frames of a kind that nobody listens to go both ways, at intervals long enough for every thread to fall asleep and
//! never the same, and sockets on both sides see them leave and arrive. So it is the whole way that is measured, through
//! both cables, and no clock but the kernel's.

use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::thread;
use std::time::Duration;

use lfn_sys::netlink::Netlink;
use lfn_sys::packet::{Lengths, PacketSocket, ReceiveRing, Room, VNET_HEADER};

use crate::emulator::place::{End, SideName, SideNet};
use crate::emulator::{EmulateError, system};

/// Probes each way.
const PROBES: u16 = 50;
/// Between two probes, at least; and more by turns, so that no timer of the kernel keeps step with them.
const INTERVAL: Duration = Duration::from_micros(1_100);
const MORE: Duration = Duration::from_micros(137);
/// How long the last probe may take beyond the delay.
const LATEST: Duration = Duration::from_millis(5);
/// Bytes of a probe: the least that Ethernet carries.
const LENGTH: usize = 60;
/// Set aside for experiments (IEEE 802, local experimental ethertype 1).
const KIND: [u8; 2] = [0x88, 0xb5];
/// Bytes of the Ethernet header.
const HEADER: usize = 14;

/// One side's interface, seen from outside the path.
struct Tap {
    /// Sends; it does not see what it sent itself.
    sender: PacketSocket,
    ring: ReceiveRing,
    /// Whose ring it is.
    _watcher: PacketSocket,
    addresses: [u8; 12],
}

/// The shortest time from the one interface to the other beyond `delay`.
pub(super) fn shortest(sides: &[SideNet; 2], delay: Duration) -> Result<Duration, EmulateError> {
    let [near, far] = sides;
    let taps = [Tap::open(near, SideName::Near), Tap::open(far, SideName::Far)];
    let [near, far] = taps.map(|tap| tap.map_err(system("watch an interface")));
    let mut taps = [near?, far?];
    for number in 0..PROBES {
        for (side, tap) in taps.iter().enumerate() {
            tap.send(side, number).map_err(system("send a probe"))?;
            thread::sleep(INTERVAL + MORE * u32::from(number % 8));
        }
    }
    thread::sleep(delay + LATEST);
    let seen = taps.each_mut().map(Tap::seen);
    let shortest =
        ways(&seen).min().ok_or_else(|| system("measure the idle path")(io::Error::other("no probe arrived")))?;
    Ok(shortest.saturating_sub(delay))
}

/// From which side a probe came, and its number.
type Probe = (usize, u16);

/// When each probe was at an interface, nanoseconds.
type Seen = HashMap<Probe, u64>;

/// How long each probe took that arrived.
fn ways(seen: &[Seen; 2]) -> impl Iterator<Item = Duration> {
    let left = seen.iter().enumerate().flat_map(|(side, seen)| seen.iter().map(move |(probe, at)| (side, probe, at)));
    left.filter(|(side, (from, _), _)| side == from).filter_map(|(side, probe, left)| {
        let arrived = seen[1 - side].get(probe)?;
        Some(Duration::from_nanos(arrived.saturating_sub(*left)))
    })
}

impl Tap {
    fn open(side: &SideNet, name: SideName) -> io::Result<Tap> {
        let end = End::new(name, 0);
        let open = |lengths| {
            side.namespace.run(|| PacketSocket::open_tap(Netlink::open()?.index(&end.interface())?, lengths))?
        };
        let (sender, watcher) = (open(Lengths::UpTo(0))?, open(Lengths::UpTo(LENGTH as u32))?);
        let ring = ReceiveRing::new(&watcher, Room::Frames(LENGTH), 1)?;
        let mut addresses = [0; 12];
        addresses[..6].copy_from_slice(&end.peer().mac().0);
        addresses[6..].copy_from_slice(&end.mac().0);
        Ok(Tap { sender, ring, _watcher: watcher, addresses })
    }

    fn send(&self, side: usize, number: u16) -> io::Result<()> {
        let mut frame = [0; LENGTH];
        frame[..12].copy_from_slice(&self.addresses);
        frame[12..HEADER].copy_from_slice(&KIND);
        frame[HEADER] = side as u8;
        frame[HEADER + 1..HEADER + 3].copy_from_slice(&number.to_be_bytes());
        self.sender.send(&[IoSlice::new(&[0; VNET_HEADER]), IoSlice::new(&frame)])
    }

    /// Every probe that passed here.
    fn seen(&mut self) -> Seen {
        let mut seen = Seen::new();
        while let Ok(Some(frame)) = self.ring.take() {
            if let Some(probe) = probe(self.ring.bytes(frame.slot)) {
                seen.insert(probe, frame.stamp);
            }
            self.ring.give_back(frame.slot);
        }
        seen
    }
}

fn probe(bytes: &[u8]) -> Option<Probe> {
    let frame = bytes.get(VNET_HEADER..)?;
    let &[side, n0, n1] = frame.get(HEADER..)?.first_chunk()?;
    (frame.get(12..HEADER)? == KIND && side < 2).then(|| (usize::from(side), u16::from_be_bytes([n0, n1])))
}
