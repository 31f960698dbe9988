//! Diagnosis of a finished load: rules turn [`Evidence`] into findings and a verdict.
//!
//! [`diagnose`] is the only place where a finding is made. It reduces the evidence to
//! [`Figures`] and runs the table of
//! `rules`. Each rule is one function of the figures. A rule names a cause only if the figures show it. The finding has
//! these figures, the remedy as a command with its host, and the predicted goodput. A full path, or evidence without a
//! clear sign, gives no finding: the limit of the path is a verdict.
//!
//! Findings of TCP are sorted by gain. The consequences of another finding are not listed. The rules examine the steady
//! part of a test, or the whole test if it is too short to have one, so that start-up is not taken for a limit. Evidence
//! that is missing is listed in the diagnosis.

mod black_hole;
pub mod bottleneck;
mod buffers;
mod capture;
mod catalogue;
mod cause;
mod confirmation;
mod consequences;
mod copy;
mod couple;
mod datagrams;
mod disk;
mod drops;
mod finding;
mod host;
mod limit;
mod lockstep;
mod network;
mod outage;
mod own_evidence;
mod pacing;
mod path;
mod processor;
pub mod random_loss;
mod remedy;
mod rules;
mod settings;
mod shortfall;
mod startup;
mod unexplained;
mod verdict;
mod window;

#[cfg(test)]
pub(crate) use window::tests::half_bdp_window;

pub use catalogue::{
    BoundSide, FindingsDocument, FindingsSchema, ListedFinding, ListedRule, ListedThreshold, list_findings,
};
pub use cause::{CAUSES, Cause, CauseEntry};
pub use finding::{Confidence, Finding, Remedy};
use finding::{figures_map, finding};
pub use verdict::{Verdict, VerdictLimit};

use lfn_base::tcp_model::Prediction;
use serde::{Deserialize, Serialize};

use crate::evidence::figures::{EvidenceKind, Figures};
use crate::evidence::{Evidence, LoadKind};
use crate::prediction::{self, ExpectedRange};
use bottleneck::CopyBottleneck;
use rules::{Rule, rules};
use shortfall::Shortfall;

/// Result of a diagnosis.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct Diagnosis {
    /// Predicted steady goodput on this path with the requested window.
    pub predicted: Option<Prediction>,
    /// Range of measured goodput that agrees with the prediction.
    #[serde(default)]
    pub expected: Option<ExpectedRange>,
    /// Limit of the load, with or without a finding.
    #[serde(default)]
    pub verdict: Verdict,
    /// Causes that limit the load, the largest gain first.
    pub findings: Vec<Finding>,
    /// Causes that cannot be seen, because another cause hides their signs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hidden: Vec<HiddenCause>,
    /// Evidence that rules need and that is missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<MissingEvidence>,
    /// Activity or resource that limits a copy, in the words of its progress line.
    #[serde(skip)]
    pub bottleneck: Option<CopyBottleneck>,
}

/// A cause that cannot be seen, because another cause hides its signs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct HiddenCause {
    /// Name of the cause that cannot be seen.
    pub cause: String,
    /// Name of the cause that hides it.
    pub behind: String,
}

/// A kind of evidence that is missing, with the causes that cannot be found without it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct MissingEvidence {
    /// The missing evidence in words.
    pub evidence: String,
    /// Names of the causes that cannot be found without this evidence.
    pub findings: Vec<String>,
}

/// Returns the findings and the verdict of one load. A test with another congestion control than requested comes first,
/// then the largest gain.
///
/// A goodput below the prediction that the findings explain less than half is the finding [`Cause::Unexplained`].
pub fn diagnose(evidence: &Evidence) -> Diagnosis {
    diagnose_figures(&Figures::of(evidence))
}

/// Returns the findings and the verdict of the figures of one load.
pub(crate) fn diagnose_figures(figures: &Figures) -> Diagnosis {
    let mut findings = rule_findings(figures);
    if figures.kind == LoadKind::Couple {
        findings.extend(run_rules(figures, |cause| cause == Cause::Unexplained));
        couple::sort(&mut findings);
    } else if figures.kind == LoadKind::Tcp {
        add_unexplained(figures, &mut findings);
        findings.iter_mut().for_each(|finding| confirmation::complete(figures, finding));
        // The load read and wrote no disk, so its shortfall has other causes.
        findings.extend(run_rules(figures, Cause::is_disk));
    } else if !findings.iter().any(Finding::is_limit) {
        findings.splice(0..0, run_rules(figures, |cause| cause == Cause::Unexplained));
    }
    let predicted = match figures.kind {
        LoadKind::Tcp => prediction::predict_test(figures),
        LoadKind::Datagrams => datagrams::predict(figures),
        LoadKind::Copy | LoadKind::Capture | LoadKind::Couple => None,
    };
    let known = predicted.as_ref().map(|(predicted, expected)| (predicted, expected));
    let mut verdict = verdict::verdict(figures, &findings, known);
    if figures.kind == LoadKind::Tcp {
        disk::add_to_verdict(figures, &findings, &mut verdict);
    }
    let (predicted, expected) = predicted.unzip();
    let bottleneck = figures.copy.as_ref().map(copy::bottleneck);
    let missing = missing_evidence(figures);
    let hidden = match figures.kind {
        LoadKind::Tcp | LoadKind::Capture => hidden_causes(&findings),
        LoadKind::Datagrams | LoadKind::Copy | LoadKind::Couple => Vec::new(),
    };
    Diagnosis { predicted, expected, verdict, findings, hidden, missing, bottleneck }
}

/// Returns the causes whose signs the first finding of the path or of a host hides.
fn hidden_causes(findings: &[Finding]) -> Vec<HiddenCause> {
    let found: Vec<Cause> = findings.iter().filter_map(Finding::cause).collect();
    // A finding that costs no goodput leaves the other signs as they are.
    let limits: Vec<Cause> = findings.iter().filter(|finding| finding.is_limit()).filter_map(Finding::cause).collect();
    let Some(first) = limits.iter().find(|cause| !cause.hides().is_empty()) else { return Vec::new() };
    let unseen = first.hides().iter().filter(|cause| !found.contains(cause));
    unseen.map(|cause| HiddenCause { cause: cause.name().to_owned(), behind: first.name().to_owned() }).collect()
}

/// Adds [`Cause::Unexplained`] if the findings explain too little of a shortfall. It is the first finding, except where the
/// test itself does not match its request.
fn add_unexplained(figures: &Figures, findings: &mut Vec<Finding>) {
    let shortfall = Shortfall::of(figures);
    if shortfall.is_some_and(|shortfall| !shortfall.is_explained(figures, findings)) {
        findings.splice(0..0, run_rules(figures, |cause| cause == Cause::Unexplained));
    }
}

/// Returns the findings of the rules, without [`Cause::Unexplained`].
fn rule_findings(figures: &Figures) -> Vec<Finding> {
    let is_of_load = |cause: Cause| figures.kind != LoadKind::Tcp || !cause.is_disk();
    let findings = match figures.kind {
        LoadKind::Copy => return copy_findings(figures),
        _ => run_rules(figures, |cause| cause != Cause::Unexplained && is_of_load(cause)),
    };
    // The rate of datagrams is requested, so a gain does not rank their causes: the order is that of the rules. A coupled run
    // has no goodput to gain.
    let is_in_order = matches!(figures.kind, LoadKind::Datagrams | LoadKind::Couple);
    if is_in_order { findings } else { ranked(figures, findings) }
}

/// Returns the findings of a copy: the limit of its threads and sockets. If this limit is the path or a window, the rules
/// of tests name its cause from the same evidence.
fn copy_findings(figures: &Figures) -> Vec<Finding> {
    let limit = find(figures, |rule| !rule.is_shared_with_copies() && rule.cause != Cause::Unexplained);
    let is_fast = limit.is_empty() && !copy::is_slow(figures);
    if is_fast || limit.iter().any(|found| !copy::is_of_path(found)) {
        return limit;
    }
    let mut causes = ranked(figures, find(figures, Rule::is_shared_with_copies));
    causes.iter_mut().for_each(|finding| confirmation::complete(figures, finding));
    if causes.iter().any(Finding::is_limit) { causes } else { limit }
}

/// Removes the consequences of other findings, and sorts the rest by gain. Findings of the test itself and of the capture
/// come first.
fn ranked(figures: &Figures, mut findings: Vec<Finding>) -> Vec<Finding> {
    // A limit that is not reached explains no other sign.
    let explains = |finding: &&Finding| finding.is_limit() || finding.cause() != Some(Cause::ServerLimit);
    let found: Vec<Cause> = findings.iter().filter(explains).filter_map(Finding::cause).collect();
    // Losses at any rate are no consequence of a queue, of a bucket or of the order.
    let independent = [Cause::Policer, Cause::Shaper, Cause::ShortQueue];
    let is_independent = |of: Cause| match of {
        Cause::Reordering => network::loss_kind::is_lossy(figures),
        _ => independent.contains(&of) && network::loss_kind::is_lossy_at_any_rate(figures),
    };
    let others: Vec<Cause> = found.iter().copied().filter(|cause| !is_independent(*cause)).collect();
    let is_root =
        |cause: Cause| cause.is_root_cause(if consequences::LOSSES.contains(&cause) { &others } else { &found });
    findings.retain(|finding| {
        own_evidence::has_own_evidence(figures, finding, &found) || finding.cause().is_none_or(is_root)
    });
    // An unknown gain, because the capacity is unknown, counts as a doubling of the goodput.
    let unknown = figures.steady_goodput();
    // A test that does not match the request, and a faulty capture, come before their other findings.
    let valid = |finding: &Finding| {
        let first = [Cause::CongestionControl, Cause::CapturedTwice, Cause::IncompleteCapture];
        // A congestion control that does not fit the path was used as requested.
        let is_unfit = finding.cause() == Some(Cause::CongestionControl) && !own_evidence::is_fact(finding);
        is_unfit || !finding.cause().is_some_and(|cause| first.contains(&cause))
    };
    let is_rare = settings::congestion_fit::has_rare_losses(figures);
    // Slow start does not explain a goodput that stays low after it.
    let is_slow_later = Shortfall::of(figures).is_some_and(|at| figures.steady_goodput() < at.expected.min);
    let comes_late = |finding: &Finding| is_slow_later && finding.cause() == Some(Cause::StartUp);
    let follows =
        |finding: &Finding| is_rare && finding.cause().is_some_and(|cause| consequences::LOSSES.contains(&cause));
    // The delay of the queue that other traffic fills varies too.
    let shares = findings.iter().any(|finding| finding.cause() == Some(Cause::SharedPath));
    let varies = |finding: &Finding| shares && finding.cause() == Some(Cause::Jitter);
    findings.sort_by_key(|finding| {
        let gain = std::cmp::Reverse(finding.gain.unwrap_or(unknown));
        (valid(finding), comes_late(finding), follows(finding), varies(finding), gain)
    });
    findings
}

fn run_rules(figures: &Figures, selects: impl Fn(Cause) -> bool) -> Vec<Finding> {
    find(figures, |rule| selects(rule.cause))
}

/// Returns the findings of the selected rules for this kind of load.
fn find(figures: &Figures, selects: impl Fn(&Rule) -> bool) -> Vec<Finding> {
    let selected = rules().filter(|rule| rule.examines(figures.kind) && selects(rule));
    selected.filter_map(|rule| (rule.find)(figures)).collect()
}

/// Returns the kinds of evidence that rules of this load need and that the figures lack.
fn missing_evidence(figures: &Figures) -> Vec<MissingEvidence> {
    let mut missing: Vec<MissingEvidence> = Vec::new();
    let is_copy = figures.kind == LoadKind::Copy;
    // A test of the path has the evidence that the shared rules lack in a copy.
    let is_listed = |rule: &&Rule| rule.examines(figures.kind) && !(is_copy && rule.is_shared_with_copies());
    let of_load = rules().filter(is_listed);
    let lacking = of_load.flat_map(|rule| rule.missing(figures).into_iter().map(move |kind| (rule, kind)));
    // Only an examination reads the facts of the hosts, and only a path from the user has a disk to measure.
    let is_of_tests = |kind| !matches!(kind, EvidenceKind::HostFacts | EvidenceKind::Disks);
    for (rule, kind) in lacking.filter(|(_, kind)| is_of_tests(*kind)) {
        let at = missing.iter().position(|entry| entry.evidence == kind.name()).unwrap_or_else(|| {
            missing.push(MissingEvidence { evidence: kind.name().to_owned(), findings: Vec::new() });
            missing.len() - 1
        });
        let name = rule.cause.name().to_owned();
        if !missing[at].findings.contains(&name) {
            missing[at].findings.push(name);
        }
    }
    missing
}
