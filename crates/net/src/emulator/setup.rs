//! What is to be emulated: the paths between the two sides, hop by hop, and what runs there.
//!
//! It is plain data that the command line, a profile or the demo fills in; [`Setup::check`] says what is wrong with it
//! before anything is made.

use std::ffi::OsString;
use std::path::PathBuf;

use lfn_core::link::EmulatedPath;
use lfn_core::units::Bytes;
use lfn_sys::memory;

use super::data_path;
use super::{Attachment, EmulateError, Watching, system};

/// Most paths side by side. Each costs two threads and, however little it carries, 58 MB of rings; and some 130 ms when
/// the run begins and as much when it ends, mostly for making them resident and giving them back: 64 take 3.7 GB, and 9
/// seconds each time. [`Setup::check`] counts the memory.
pub const MOST_PATHS: usize = 64;
/// Share of the memory available that all rings may take; the kernel's own buffers hold as much again.
const MOST_OF_MEMORY: f64 = 0.6;

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
    /// What is to be seen of the run while it goes.
    pub watch: Watching,
    /// Where the two sides are.
    pub place: Place,
    /// Whether to measure first what this machine can do.
    pub calibrate: bool,
    /// Whether to run also what it cannot carry.
    pub force: bool,
}

/// Where the two sides are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Each in a network namespace: one of its own, or one that exists.
    Sides {
        /// Where CMD runs.
        near: Option<Attachment>,
        /// The other one.
        far: Option<Attachment>,
    },
    /// Outside, behind these two interfaces: the emulator is a box in the wire. Near is behind the first.
    Wire([String; 2]),
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

impl Default for Place {
    fn default() -> Self {
        Place::Sides { near: None, far: None }
    }
}

impl Setup {
    /// One path between two network namespaces of its own.
    pub fn new(path: EmulatedPath, seed: u64, far: FarSide) -> Self {
        Setup {
            paths: vec![path],
            seed,
            far,
            place: Place::default(),
            watch: Watching::default(),
            calibrate: true,
            force: false,
        }
    }

    /// Says what is wrong with these settings, before anything is made.
    pub fn check(&self) -> Result<(), EmulateError> {
        if !(1..=MOST_PATHS).contains(&self.paths.len()) {
            return Err(EmulateError::Paths(self.paths.len()));
        }
        self.paths.iter().try_for_each(EmulatedPath::check).map_err(|e| EmulateError::Link(e.to_string()))?;
        let hops = self.paths.iter().flat_map(|path| [&path.forward, &path.back]);
        let needed = hops.map(|hops| data_path::memory(hops)).fold(0, u64::saturating_add);
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
}

/// Bytes that rings may take of what the machine has left.
pub(super) fn usable_memory() -> Result<u64, EmulateError> {
    let available = memory::available().map_err(system("read /proc/meminfo"))?;
    Ok((available as f64 * MOST_OF_MEMORY) as u64)
}
