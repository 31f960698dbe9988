//! What is to be emulated: the paths between the two sides, hop by hop, and what runs there.
//!
//! It is plain data that the command line, a profile or the demo fills in; [`Setup::check`] says what is wrong with it
//! before anything is made.

use std::ffi::OsString;
use std::path::PathBuf;

use lfn_core::link::{Direction, Link, LinkConfig, Varying};
use lfn_core::path::PathProfile;
use lfn_core::units::Bytes;
use lfn_sys::memory;

use super::forward::ring_size;
use super::{EmulateError, system};

/// Smallest MTU an IPv4 link may have, bytes (RFC 791).
pub const LEAST_MTU: u32 = 68;
/// Largest MTU of a veth interface, bytes.
pub const MOST_MTU: u32 = 65_535;
/// Most paths side by side: each costs two threads and two rings.
pub const MOST_PATHS: usize = 64;
/// Share of the memory available that all rings may take; the kernel's own buffers hold as much again.
const MOST_OF_MEMORY: f64 = 0.6;
/// Bytes of the Ethernet header, which the link counts and the MTU does not.
const ETHERNET_HEADER: u32 = 14;

/// What is to be emulated.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The paths from near to far, side by side, each with addresses of its own. At least one; commands are told of the
    /// first.
    pub paths: Vec<EmulatedPath>,
    /// Seeds every random draw: same seed and arrivals, same drops.
    pub seed: u64,
    /// What runs on the far side.
    pub far: FarSide,
}

/// One path: its hops each way, and the figures that come of them.
#[derive(Clone, Debug)]
pub struct EmulatedPath {
    /// For predictions, and told to the commands: capacity of the narrowest hop, delay of all hops both ways, MTU of
    /// the interfaces, the narrowest hop's queue.
    pub profile: PathProfile,
    /// From near to far, in this order. Seed, direction and hop number are filled in when the run starts.
    pub forward: Vec<LinkConfig>,
    /// From far to near, in the order in which those packets meet them.
    pub back: Vec<LinkConfig>,
}

/// What runs on the far side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FarSide {
    /// Nothing but the kernel, which answers ping and refuses connections.
    Nothing,
    /// A command line for `sh -c`.
    Shell(String),
    /// A program that prints a ticket as its first line on stdout, as `lfn serve` does.
    Server {
        /// The program.
        program: PathBuf,
        /// Its arguments.
        arguments: Vec<OsString>,
    },
}

impl Setup {
    /// One path.
    pub fn new(path: EmulatedPath, seed: u64, far: FarSide) -> Self {
        Setup { paths: vec![path], seed, far }
    }

    /// Says what is wrong with these settings, before anything is made.
    pub fn check(&self) -> Result<(), EmulateError> {
        if !(1..=MOST_PATHS).contains(&self.paths.len()) {
            return Err(EmulateError::Paths(self.paths.len()));
        }
        self.paths.iter().try_for_each(EmulatedPath::check)?;
        let hops = self.paths.iter().flat_map(|path| [&path.forward, &path.back]);
        let needed = hops.map(|hops| ring_size(hops)).fold(0, u64::saturating_add);
        let usable = usable_memory()?;
        match self.paths.first() {
            Some(path) if needed > usable => Err(EmulateError::Memory {
                rate: path.profile.capacity,
                rtt: path.profile.base_rtt,
                needed: Bytes(needed),
                usable: Bytes(usable),
            }),
            _ => Ok(()),
        }
    }

    /// The paths are numbered from 0; there are no more than [`MOST_PATHS`].
    pub(super) fn path_numbers(&self) -> impl Iterator<Item = u8> {
        0..u8::try_from(self.paths.len()).unwrap_or(u8::MAX)
    }

    /// The hops of a path as the model takes them, near to far and far to near.
    pub(super) fn hops(&self, path: usize) -> [Vec<LinkConfig>; 2] {
        // Links beside each other draw as differently as links in a row.
        const MOST_HOPS: u32 = 1 << 16;
        let first = u32::try_from(path).unwrap_or(u32::MAX).saturating_mul(MOST_HOPS);
        let numbered = |hops: &[LinkConfig], direction| {
            let number = |(hop, config): (u32, &LinkConfig)| LinkConfig {
                seed: self.seed,
                direction,
                hop: first.saturating_add(hop),
                ..config.clone()
            };
            (0..).zip(hops).map(number).collect()
        };
        match self.paths.get(path) {
            Some(path) => [numbered(&path.forward, Direction::Forward), numbered(&path.back, Direction::Return)],
            None => [Vec::new(), Vec::new()],
        }
    }
}

/// Bytes that rings may take of what the machine has left.
pub(super) fn usable_memory() -> Result<u64, EmulateError> {
    let available = memory::available().map_err(system("read /proc/meminfo"))?;
    Ok((available as f64 * MOST_OF_MEMORY) as u64)
}

impl EmulatedPath {
    /// One hop, alike both ways, that is what the profile says: the round trip shared out evenly, one BDP of queue if
    /// the profile names none.
    pub fn symmetric(profile: PathProfile) -> Self {
        let least = Bytes(10 * u64::from(profile.mtu.saturating_add(ETHERNET_HEADER)));
        let queue = profile.queue.unwrap_or_else(|| profile.bdp().max(least));
        let there = profile.base_rtt / 2;
        let hop = |delay| LinkConfig {
            rate: profile.capacity,
            delay: Varying::constant(delay),
            queue,
            loss: profile.loss.into(),
            ..LinkConfig::default()
        };
        EmulatedPath {
            profile: PathProfile { queue: Some(queue), ..profile },
            forward: vec![hop(there)],
            back: vec![hop(profile.base_rtt.saturating_sub(there))],
        }
    }

    fn check(&self) -> Result<(), EmulateError> {
        let mtu = self.profile.mtu;
        if !(LEAST_MTU..=MOST_MTU).contains(&mtu) {
            return Err(EmulateError::Mtu(mtu));
        }
        let packet = Bytes(u64::from(mtu + ETHERNET_HEADER));
        for hops in [&self.forward, &self.back] {
            Link::chain(hops).map_err(|error| EmulateError::Link(error.to_string()))?;
            if let Some(hop) = hops.iter().find(|hop| hop.queue < packet) {
                return Err(EmulateError::Queue { queue: hop.queue, packet });
            }
        }
        Ok(())
    }
}
