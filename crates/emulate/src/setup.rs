//! Settings of an emulation run: the paths between the two sides, hop by hop, and the commands on both sides.
//!
//! The settings are plain data. The command line, a profile or the demo fills them in. [`Setup::check`] reports errors
//! before anything is created.

use std::ffi::OsString;
use std::path::PathBuf;

use lfn_base::units::Bytes;
use lfn_link::EmulatedPath;
use serde::{Deserialize, Serialize};

use super::data_path;
use super::data_path::usable_memory;
use super::error::{EmulateError, MAX_PATHS};
use super::network::NamespaceRef;
use super::watch::WatchOptions;

/// Settings of an emulation run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Parallel paths from near to far, each with its own addresses. At least one. The environment of the commands
    /// describes the first path.
    pub paths: Vec<EmulatedPath>,
    /// Seed of every random draw. The same seed and the same arrivals give the same drops.
    pub seed: u64,
    pub far: FarSide,
    pub watch: WatchOptions,
    pub placement: Placement,
    /// Measure the capacity of this machine before the run.
    pub calibrate: bool,
    /// Run even if this machine is too slow for the settings.
    pub force: bool,
    /// Raise the limits of TCP buffers in new namespaces to what the paths need. Without this, the limits are those of
    /// the host.
    pub large_buffers: bool,
    /// Print no introduction to a user who gave no command.
    pub quiet: bool,
}

/// Location of the two sides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Placement {
    /// Each side is a network namespace: a new one, or an existing one.
    Namespaces { near: Option<NamespaceRef>, far: Option<NamespaceRef> },
    /// The two sides are behind these interfaces, near behind the first. The emulator is a transparent bridge between
    /// them.
    Bridge([String; 2]),
}

/// Command on the far side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FarSide {
    /// No command. The kernel answers ping and refuses connections.
    Nothing,
    /// A command line for `sh -c`.
    Shell(String),
    /// A program that prints a ticket as its first line on stdout, as `lfn serve` does.
    Server {
        program: PathBuf,
        arguments: Vec<OsString>,
        /// Existing directory that becomes an empty file system in memory, only for this program. Its content
        /// disappears with the program.
        memory_root: Option<PathBuf>,
    },
}

impl Default for Placement {
    fn default() -> Self {
        Placement::Namespaces { near: None, far: None }
    }
}

impl Setup {
    /// Creates settings for one path between two new network namespaces.
    pub fn new(path: EmulatedPath, seed: u64, far: FarSide) -> Self {
        Setup {
            paths: vec![path],
            seed,
            far,
            placement: Placement::default(),
            watch: WatchOptions::default(),
            calibrate: true,
            force: false,
            large_buffers: false,
            quiet: false,
        }
    }

    /// Checks these settings before anything is created.
    pub fn check(&self) -> Result<(), EmulateError> {
        if !(1..=MAX_PATHS).contains(&self.paths.len()) {
            return Err(EmulateError::Paths(self.paths.len()));
        }
        self.paths.iter().try_for_each(EmulatedPath::check).map_err(|e| EmulateError::Link(e.to_string()))?;
        let hops = self.paths.iter().flat_map(|path| [&path.forward, &path.back]);
        let needed = hops.map(|hops| data_path::memory_needed(hops)).fold(0, u64::saturating_add);
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

    /// Returns the path numbers, from 0. There are at most [`MAX_PATHS`].
    pub(super) fn path_numbers(&self) -> impl Iterator<Item = u8> {
        0..u8::try_from(self.paths.len()).unwrap_or(u8::MAX)
    }
}
