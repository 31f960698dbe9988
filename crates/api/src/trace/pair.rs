//! Comparison of two captures of the same packets.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use lfn_results::evidence::pair::PairEvidence;

use super::error::TraceError;
use super::filter::ConnectionFilter;
use crate::documents::TracedFile;

/// Result of a comparison.
pub struct ComparedCaptures {
    pub evidence: PairEvidence,
    /// The far file.
    pub far: TracedFile,
}

/// Compares both captures.
pub fn compare(
    near: &Path,
    far: &Path,
    _filter: &ConnectionFilter,
    _stop: &AtomicBool,
) -> Result<ComparedCaptures, TraceError> {
    Err(TraceError::NothingInCommon { near: near.to_owned(), far: far.to_owned() })
}
