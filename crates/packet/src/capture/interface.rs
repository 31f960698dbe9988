//! Interface of a capture file, with the counts of its drops.

use super::time_scale::TimeScale;
use crate::LinkLayer;

/// Maximum interfaces of a file, over all its sections.
pub const MAX_INTERFACES: usize = 1 << 16;

/// Maximum bytes of a stored name.
const MAX_NAME: usize = 64;

/// Interface of a capture file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturedInterface {
    pub link: LinkLayer,
    /// Name of the interface, shortened to 64 bytes.
    pub name: Option<String>,
    /// Maximum captured bytes of each frame; 0 if there is no limit.
    pub snap_length: u32,
    pub(super) time_scale: TimeScale,
    /// Drops by the last statistics block.
    pub(super) counted_drops: Option<u64>,
    /// Sum of the drops that packets report.
    pub(super) reported_drops: Option<u64>,
}

impl CapturedInterface {
    pub(super) fn new(link: LinkLayer, snap_length: u32, time_scale: TimeScale) -> Self {
        CapturedInterface { link, name: None, snap_length, time_scale, counted_drops: None, reported_drops: None }
    }

    pub(super) fn set_name(&mut self, bytes: &[u8]) {
        let name = String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_NAME)]);
        self.name = Some(name.trim_end_matches(char::REPLACEMENT_CHARACTER).to_owned());
    }

    pub(super) fn add_reported_drops(&mut self, count: u64) {
        self.reported_drops = Some(self.reported_drops.unwrap_or(0).saturating_add(count));
    }

    /// Returns the frames that the capture missed, if the file has the count.
    pub fn dropped(&self) -> Option<u64> {
        self.counted_drops.max(self.reported_drops)
    }
}
