//! Figures of a finished load for its entry.

use lfn_mesh::entry::{Entry, RawJson};
use lfn_mesh::from_result::add_run;
use lfn_results::diagnose::VerdictLimit;
use lfn_results::report::TestDocument;

/// Verdict of a load whose limit is unknown because the capacity is.
const UNKNOWN_CAPACITY: &str = "the limit is unknown: the sites file has no capacity of this path";

/// Adds the figures of the only run of a document, and the document.
pub(super) fn fill(entry: &mut Entry, document: &TestDocument) {
    entry.detail = RawJson::of(document);
    let Some(run) = document.runs.first() else { return };
    add_run(entry, run);
    // The text of the test names a flag of `lfn test`.
    if run.diagnosis.verdict.limit == VerdictLimit::Unknown && entry.capacity.is_none() {
        UNKNOWN_CAPACITY.clone_into(&mut entry.verdict);
    }
}
