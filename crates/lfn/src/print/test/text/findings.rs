//! Findings as text: each with its remedy. Missing evidence with the findings that it prevents.

use lfn_results::diagnose::{Diagnosis, Finding};
use lfn_results::evidence::figures::EvidenceKind;
use lfn_results::report::Run;

/// Maximum number of findings that a line names.
const MAX_NAMES: usize = 5;

/// Returns all findings, the largest gain first; none without findings.
pub(super) fn all_findings(findings: &[Finding]) -> Option<String> {
    let (first, more) = findings.split_first()?;
    Some(finding_text(first) + &more_findings(more))
}

/// Returns findings that are not the limit, or not the first one.
pub(super) fn more_findings(findings: &[Finding]) -> String {
    findings.iter().map(|finding| format!("also: {}", finding_text(finding))).collect()
}

pub(in crate::print::test) fn finding_text(finding: &Finding) -> String {
    format!("{}. {}\nhint: {}\n", finding.name, finding.summary, finding.remedy)
}

/// Returns one line for each kind of evidence that is missing. Without an own server or with MPTCP much is missing, for
/// one reason, so there is one line. A test of one interval has no differences of counters, which is no surprise.
pub(super) fn missing_evidence(run: &Run) -> String {
    let evidence = &run.evidence;
    let reason = match (&evidence.iperf3, evidence.near_socket.mptcp) {
        (Some(_), _) => Some("with an iperf3 server"),
        (None, true) => Some("with MPTCP"),
        (None, false) if evidence.sender().intervals.len() < 2 => return String::new(),
        (None, false) => None,
    };
    missing_lines(&run.diagnosis, reason)
}

/// Returns the findings that were not examined: in one line with this reason, or by missing evidence. An unknown
/// capacity has no line, because most tests have none and the prediction is then absent too.
fn missing_lines(diagnosis: &Diagnosis, reason: Option<&str>) -> String {
    let missing = diagnosis.missing.iter().filter(|missing| missing.evidence != EvidenceKind::Capacity.name());
    let Some(reason) = reason else {
        return missing
            .map(|missing| format!("not examined without {}: {}\n", missing.evidence, missing.findings.join(", ")))
            .collect();
    };
    let mut names: Vec<&str> = Vec::new();
    for name in missing.flat_map(|missing| &missing.findings) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    match names.len() {
        0 => String::new(),
        1..=MAX_NAMES => format!("not examined {reason}: {}\n", names.join(", ")),
        count => format!("not examined {reason}: {count} findings (--json lists them)\n"),
    }
}

#[cfg(test)]
mod tests {
    use lfn_results::diagnose::MissingEvidence;

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
        assert_eq!(missing_lines(&diagnosis, None), "");
        assert_eq!(missing_lines(&diagnosis, Some("with MPTCP")), "");
        diagnosis.missing.push(missing(EvidenceKind::TcpInfo, ["receive window", "loss"]));
        let line = "not examined without TCP_INFO of the sender: receive window, loss\n";
        assert_eq!(missing_lines(&diagnosis, None), line);
        diagnosis.missing.push(missing(EvidenceKind::SentBytes, ["loss", "retransmissions"]));
        let line = "not examined with MPTCP: receive window, loss, retransmissions\n";
        assert_eq!(missing_lines(&diagnosis, Some("with MPTCP")), line);
    }
}
