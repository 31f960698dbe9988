//! Findings as text: each with its remedy. Missing evidence with the findings that it prevents.

use lfn_core::diagnose::{Diagnosis, Finding};
use lfn_core::evidence::figures::EvidenceKind;

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

/// Returns one line for each kind of evidence that is missing. An unknown capacity has no line, because most tests have
/// none and the prediction is then absent too.
pub(super) fn missing_evidence(diagnosis: &Diagnosis) -> String {
    let missing = diagnosis.missing.iter().filter(|missing| missing.evidence != EvidenceKind::Capacity.name());
    missing
        .map(|missing| format!("not examined without {}: {}\n", missing.evidence, missing.findings.join(", ")))
        .collect()
}

#[cfg(test)]
mod tests {
    use lfn_core::diagnose::MissingEvidence;

    use super::*;

    #[test]
    fn missing_evidence_has_its_findings_but_no_capacity() {
        let missing = |kind: EvidenceKind, findings: [&str; 2]| MissingEvidence {
            evidence: kind.name().to_owned(),
            findings: findings.map(str::to_owned).to_vec(),
        };
        let mut diagnosis = Diagnosis {
            missing: vec![missing(EvidenceKind::Capacity, ["unexplained", "loss"])],
            ..Diagnosis::default()
        };
        assert_eq!(missing_evidence(&diagnosis), "");
        diagnosis.missing.push(missing(EvidenceKind::TcpInfo, ["receive window", "loss"]));
        let line = "not examined without TCP_INFO of the sender: receive window, loss\n";
        assert_eq!(missing_evidence(&diagnosis), line);
    }
}
