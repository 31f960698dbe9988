//! Result of `lfn doctor` as text: the verdict of each direction, then the findings, then what was not seen.

use lfn_base::units::{BitRate, show_duration};
use lfn_results::diagnose::Cause;
use lfn_results::evidence::disk::{DiskEvidence, DiskRate};
use lfn_results::evidence::{HostNames, Side};
use lfn_results::measure::TestDirection;
use lfn_results::report::{DirectedFinding, DoctorDocument, Run, Unseen};

use crate::print::label_columns::{Page, wrap};
use crate::print::settings::is_quiet;
use crate::print::terminal::columns;

/// Indentation of the lines of a finding.
const INDENT: &str = "   ";

/// Returns the whole text.
pub fn page(document: &DoctorDocument) -> String {
    let mut page = Page::default();
    for run in &document.runs {
        page.commands(wrap(&verdict(run), columns()));
    }
    for line in disks(document) {
        page.commands(wrap(&line, columns()));
    }
    page.gap();
    for (number, finding) in document.findings.iter().enumerate() {
        add_finding(&mut page, number + 1, finding, document);
    }
    for line in hidden(document) {
        page.commands(wrap(&line, columns()));
    }
    for parts in document.unseen.chunk_by(|a, b| a.part == b.part && a.consequence == b.consequence) {
        page.commands(wrap(&unseen_line(parts), columns()));
    }
    for line in missing(document) {
        page.commands(wrap(&line, columns()));
    }
    page.text().trim_end().to_owned() + "\n"
}

/// Returns the line of a part without a result, with all reasons for it.
fn unseen_line(entries: &[Unseen]) -> String {
    let Some(Unseen { part, consequence, .. }) = entries.first() else { return String::new() };
    let reasons: Vec<&str> = entries.iter().map(|unseen| unseen.reason.as_str()).collect();
    format!("not examined: {part} ({}); {consequence}", reasons.join("; "))
}

/// Returns the line of a direction: its goodput, the possible goodput, and the limit.
fn verdict(run: &Run) -> String {
    let hosts = names(run.direction, &run.evidence.hosts);
    let possible =
        run.evidence.path.map(|path| format!(" of {} possible", path.payload_capacity())).unwrap_or_default();
    let goodput = run.steady_goodput;
    let rtt = show_duration(run.base_rtt);
    format!("{hosts}: {goodput}{possible}, RTT {rtt}: {}", run.diagnosis.verdict.summary)
}

/// Returns one line for each measured disk.
fn disks(document: &DoctorDocument) -> Vec<String> {
    let Some(disks) = document.runs.iter().find_map(|run| run.evidence.disks.as_deref()) else { return Vec::new() };
    let line = |side| disks.get(side).as_ref().map(|disk| disk_line(document.origin.hosts.name(side), disk));
    [Side::Near, Side::Far].into_iter().filter_map(line).collect()
}

/// Returns the line of a disk: its path, its kind and its rates.
fn disk_line(host: &str, disk: &DiskEvidence) -> String {
    let report = &disk.report;
    let rate = |name: &str, rate: &Option<DiskRate>| match rate {
        Some(rate) => {
            let DiskRate { rate, median, min, method, .. } = rate;
            format!("{name} {rate} (intervals: median {median}, minimum {min}; {})", method.name())
        }
        None => format!("{name} not measured"),
    };
    let path = if disk.path.is_empty() { "served root" } else { disk.path.as_str() };
    let kind = report.kind().map(|kind| format!(", {kind}")).unwrap_or_default();
    format!("disk of {host} ({path}{kind}): {}, {}", rate("read", &report.read), rate("write", &report.write))
}

/// Returns the names of the sender and the receiver.
fn names(direction: TestDirection, hosts: &HostNames) -> String {
    match direction {
        TestDirection::Forward => format!("{} to {}", hosts.near, hosts.far),
        TestDirection::Reverse => format!("{} to {}", hosts.far, hosts.near),
    }
}

fn add_finding(page: &mut Page, number: usize, directed: &DirectedFinding, document: &DoctorDocument) {
    let finding = &directed.finding;
    let hosts = &document.origin.hosts;
    let directions: Vec<String> = directed.directions.iter().map(|direction| names(*direction, hosts)).collect();
    let confidence =
        finding.confidence.map(|confidence| format!(", confidence {}", confidence.name())).unwrap_or_default();
    let title = format!("{number}. {} ({}{confidence})", finding.name, directions.join(" and "));
    page.commands(wrap(&title, columns()));
    page.commands(indented(&finding.summary));
    let same = document.findings[..number - 1]
        .iter()
        .position(|other| !finding.remedy.command.is_empty() && other.finding.remedy == finding.remedy);
    match same {
        // One remedy has one gain.
        Some(other) => page.commands(indented(&format!("same hint and prediction as finding {}", other + 1))),
        None => add_remedy(page, directed),
    }
    if let Some(confirmation) = &finding.confirmation {
        page.commands(indented(&format!("to confirm: {confirmation}")));
    }
    page.gap();
}

/// Adds the remedy of a finding, and the goodput that is predicted with it.
fn add_remedy(page: &mut Page, directed: &DirectedFinding) {
    let remedy = &directed.finding.remedy;
    if !remedy.command.is_empty() && !is_quiet() {
        page.commands([format!("hint: {remedy}")]);
    }
    if let Some(afterwards) = afterwards(directed) {
        page.commands(indented(&afterwards));
    }
}

/// Returns the goodput that is predicted without the cause.
fn afterwards(directed: &DirectedFinding) -> Option<String> {
    let (predicted, gain) = (directed.finding.predicted?, directed.finding.gain?);
    // A disk limits copies, and not the load of the examination.
    let is_disk = directed.finding.cause().is_some_and(Cause::is_disk);
    let of_copy = if is_disk { " for a copy" } else { "" };
    // Pacing leaves the bucket in place.
    let is_bucket = matches!(directed.finding.cause(), Some(Cause::Policer | Cause::Shaper));
    Some(match gain {
        gain if is_bucket => {
            format!("predicted with pacing: {predicted}, without losses; a higher rate gains up to {gain}")
        }
        BitRate(0) => format!("predicted without this cause{of_copy}: the same goodput"),
        gain => format!("predicted without this cause{of_copy}: {predicted} (+{gain})"),
    })
}

fn indented(text: &str) -> impl Iterator<Item = String> {
    wrap(text, columns().saturating_sub(INDENT.len())).into_iter().map(|line| format!("{INDENT}{line}"))
}

/// Returns one line for each finding that hides other causes.
fn hidden(document: &DoctorDocument) -> Vec<String> {
    let groups = document.hidden.chunk_by(|a, b| a.behind == b.behind);
    groups
        .map(|group| {
            let names: Vec<&str> = group.iter().map(|cause| cause.cause.as_str()).collect();
            let behind = &group[0].behind;
            format!("hidden by the finding {behind}: {}. Apply its remedy, then examine again.", names.join(", "))
        })
        .collect()
}

/// Returns one line for each kind of missing evidence.
fn missing(document: &DoctorDocument) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for missing in document.runs.iter().flat_map(|run| &run.diagnosis.missing) {
        let line = format!("not examined without {}: {}", missing.evidence, missing.findings.join(", "));
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use lfn_results::diagnose::{Finding, HiddenCause, Remedy};
    use lfn_results::report::{Origin, PlannedLoad};

    use super::*;

    fn document() -> DoctorDocument {
        DoctorDocument::new(Origin::default(), PlannedLoad::default(), Vec::new(), Vec::new())
    }

    /// Returns the page on one line, because the width of the terminal breaks the lines.
    fn text(document: &DoctorDocument) -> String {
        page(document).split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn hidden_causes_are_listed_for_each_finding() {
        let cause = |cause: &str, behind: &str| HiddenCause { cause: cause.into(), behind: behind.into() };
        let hidden =
            vec![cause("send buffer", "receive window"), cause("policer", "receive window"), cause("loss", "proxy")];
        let page = text(&DoctorDocument { hidden, ..document() });
        assert!(page.contains("hidden by the finding receive window: send buffer, policer."), "{page}");
        assert!(page.contains("hidden by the finding proxy: loss."), "{page}");
    }

    #[test]
    fn unseen_part_has_all_reasons_and_one_consequence() {
        let entry =
            |reason: &str| Unseen { part: "facts of far".into(), reason: reason.into(), consequence: "so".into() };
        let page = text(&DoctorDocument { unseen: vec![entry("a"), entry("b")], ..document() });
        assert_eq!(page, "not examined: facts of far (a; b); so");
    }

    #[test]
    fn remedy_of_two_findings_is_printed_once() {
        let remedy = Remedy { command: "sysctl -w net.core.wmem_max=1".into(), host: None };
        let finding = Finding {
            name: "send buffer".into(),
            summary: String::new(),
            evidence: BTreeMap::new(),
            remedy,
            confidence: None,
            confirmation: None,
            predicted: None,
            gain: None,
        };
        let directed = DirectedFinding { directions: vec![TestDirection::Forward], finding };
        let page = text(&DoctorDocument { findings: vec![directed.clone(), directed], ..document() });
        assert_eq!(page.matches("sysctl").count(), 1, "{page}");
        assert!(page.contains("same hint and prediction as finding 1"), "{page}");
    }
}
