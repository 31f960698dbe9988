//! Figures of a finished load for its entry.

use lfn_base::units::Bytes;
use lfn_mesh::entry::{Entry, EntryFinding, Outcome};
use lfn_results::diagnose::VerdictLimit;
use lfn_results::report::TestDocument;

/// Verdict of a load whose limit is unknown because the capacity is.
const UNKNOWN_CAPACITY: &str = "the limit is unknown: the sites file has no capacity of this path";

/// Adds the figures of the only run of a document.
pub(super) fn fill(entry: &mut Entry, document: &TestDocument) {
    entry.detail = serde_json::to_value(document).ok();
    let Some(run) = document.runs.first() else { return };
    entry.duration = Some(run.elapsed);
    entry.bytes = Some(Bytes(run.bytes));
    entry.goodput = Some(run.steady_goodput);
    entry.predicted = run.diagnosis.predicted.as_ref().map(|predicted| predicted.goodput);
    entry.base_rtt = Some(run.base_rtt).filter(|rtt| !rtt.is_zero());
    entry.retransmits = run.retransmits;
    entry.verdict = match run.diagnosis.verdict.limit {
        // The text of the test names a flag of `lfn test`.
        VerdictLimit::Unknown if entry.capacity.is_none() => UNKNOWN_CAPACITY.to_owned(),
        _ => run.diagnosis.verdict.summary.clone(),
    };
    entry.findings = run
        .diagnosis
        .findings
        .iter()
        .map(|finding| EntryFinding {
            name: finding.name.clone(),
            summary: finding.summary.clone(),
            remedy: finding.remedy.command.clone(),
            host: finding.remedy.host.clone(),
        })
        .collect();
    entry.outcome = match run.diagnosis.verdict.limit {
        VerdictLimit::Finding => Outcome::Limited,
        VerdictLimit::Path | VerdictLimit::ProbablyPath | VerdictLimit::AbovePrediction => Outcome::Good,
        _ => Outcome::Unknown,
    };
}
