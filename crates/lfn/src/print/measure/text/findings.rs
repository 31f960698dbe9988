//! Findings as text: each with its remedy.

use lfn_core::diagnose::Finding;

/// Returns all findings, the largest gain first; none without findings.
pub(super) fn all_findings(findings: &[Finding]) -> Option<String> {
    let (first, more) = findings.split_first()?;
    Some(finding_text(first) + &more_findings(more))
}

/// Returns findings that are not the limit, or not the first one.
pub(super) fn more_findings(findings: &[Finding]) -> String {
    findings.iter().map(|finding| format!("also: {}", finding_text(finding))).collect()
}

pub(in crate::print::measure) fn finding_text(finding: &Finding) -> String {
    format!("{}. {}\nhint: {}\n", finding.name, finding.summary, finding.remedy)
}
