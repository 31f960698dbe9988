//! Figures of a finished load for its entry.

use lfn_base::units::Bytes;
use lfn_mesh::entry::{Entry, EntryFinding, Outcome};
use lfn_results::diagnose::VerdictLimit;
use lfn_results::report::TestDocument;

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
    entry.verdict.clone_from(&run.diagnosis.verdict.summary);
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
