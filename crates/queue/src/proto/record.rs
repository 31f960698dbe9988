//! The record of a part that is done.

use lfn_base::units::Bytes;
use lfn_session::wire::copy::EntryFailure;
use serde::{Deserialize, Serialize};

/// Maximum failures with their reasons in a record. Further failures are only counted.
pub const MAX_FAILURES: usize = 100;

/// Maximum length of a reason.
const MAX_REASON: usize = 500;

/// The record of a part that is done: each of its entries is complete at the destination, or has failed for good.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartRecord {
    /// Name of the mover.
    pub mover: String,
    /// Entries that are complete.
    pub entries: u64,
    /// Total length of the complete files.
    pub bytes: Bytes,
    /// Entries that failed for good.
    pub failed: u64,
    /// The failures, at most [`MAX_FAILURES`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<EntryFailure>,
}

impl PartRecord {
    /// Encodes the record, with at most [`MAX_FAILURES`] failures and shortened reasons.
    pub fn encode(mut self) -> Vec<u8> {
        self.failures.truncate(MAX_FAILURES);
        for failure in &mut self.failures {
            let end = (0..=failure.reason.len().min(MAX_REASON)).rev().find(|at| failure.reason.is_char_boundary(*at));
            failure.reason.truncate(end.unwrap_or(0));
        }
        serde_json::to_vec(&self).unwrap_or_default()
    }

    /// Decodes the record of a part.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(bytes).map_err(|error| error.to_string())
    }
}
