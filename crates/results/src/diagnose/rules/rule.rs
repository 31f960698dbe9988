//! A rule: a cause, the function that finds the cause, and the conditions of the function.

use std::time::Duration;

use lfn_base::units::{BitRate, Bytes};

use crate::diagnose::{Cause, Finding};
use crate::evidence::LoadKind;
use crate::evidence::figures::{EvidenceKind, FULL_SHARE, Figures};

/// Loads of the rules for streams of TCP that adapt their rate to the path.
pub(super) const TESTS: &[LoadKind] = &[LoadKind::Tcp];
/// Loads of the rules that need no more evidence than the sockets of a copy give.
pub(super) const TESTS_AND_COPIES: &[LoadKind] = &[LoadKind::Tcp, LoadKind::Copy];
/// Loads of the rules for the disks, the hashing and the sessions of copies.
pub(super) const COPIES: &[LoadKind] = &[LoadKind::Copy];
/// Loads of the rules for datagrams at a requested rate.
pub(super) const DATAGRAM_TESTS: &[LoadKind] = &[LoadKind::Datagrams];
/// Loads of the rules for connections of captures.
pub(super) const CAPTURES: &[LoadKind] = &[LoadKind::Capture];

/// Loads of the rules for runs of two coupled models.
pub(super) const COUPLES: &[LoadKind] = &[LoadKind::Couple];

/// One rule: the cause that it finds, and the conditions.
pub(in crate::diagnose) struct Rule {
    /// Kinds of loads that have the evidence of the rule.
    pub(in crate::diagnose) loads: &'static [LoadKind],
    pub(in crate::diagnose) cause: Cause,
    pub(in crate::diagnose) find: fn(&Figures) -> Option<Finding>,
    /// Conditions under which the cause is a finding.
    pub(in crate::diagnose) thresholds: &'static [Threshold],
    /// Evidence without which the rule finds nothing.
    pub(in crate::diagnose) needs: &'static [EvidenceKind],
    /// Evidence of which the rule needs at least one kind; empty if it needs none of them.
    pub(in crate::diagnose) needs_one_of: &'static [EvidenceKind],
    /// Source of the rule and of its thresholds.
    pub(in crate::diagnose) source: &'static str,
}

impl Rule {
    /// Returns true if the rule examines loads of this kind.
    pub(in crate::diagnose) fn examines(&self, load: LoadKind) -> bool {
        self.loads.contains(&load)
    }

    /// Returns true if copies have the rule in common with tests.
    pub(in crate::diagnose) fn is_shared_with_copies(&self) -> bool {
        self.loads.len() > 1 && self.examines(LoadKind::Copy)
    }

    /// Returns the kinds of evidence that prevent the rule, because the figures lack them.
    pub(in crate::diagnose) fn missing(&self, figures: &Figures) -> Vec<EvidenceKind> {
        let lacks = |kind: &&EvidenceKind| !figures.has(**kind);
        let has_one = self.needs_one_of.iter().any(|kind| figures.has(*kind));
        let alternatives = if has_one { &[] } else { self.needs_one_of };
        self.needs.iter().filter(lacks).chain(alternatives).copied().collect()
    }
}

/// A condition of a rule: a figure and its bound.
///
/// All conditions hold together, except for those that begin with "or": an alternative to the conditions before it, back
/// to the previous alternative or to the conditions of the whole rule.
pub(in crate::diagnose) struct Threshold {
    pub(in crate::diagnose) figure: &'static str,
    pub(in crate::diagnose) bound: Bound,
}

/// Bound of a figure with its unit.
#[derive(Clone, Copy)]
pub(in crate::diagnose) enum Bound {
    MinShare(f64),
    MaxShare(f64),
    MinFactor(f64),
    MaxFactor(f64),
    MinCount(u64),
    MaxCount(u64),
    MinTime(Duration),
    MaxTime(Duration),
    MinRate(BitRate),
    MinBytes(Bytes),
    MaxBytes(Bytes),
}

pub(super) const fn of(figure: &'static str, bound: Bound) -> Threshold {
    Threshold { figure, bound }
}

/// Bound of a figure that a rule compares with another figure.
pub(super) const EQUAL: f64 = 1.0;
/// Bound of a count that is a finding if it is not zero.
pub(super) const ANY: u64 = 1;

/// Condition of the rules for a limit other than the path.
pub(super) const NOT_FULL: Threshold =
    of("with a known capacity: goodput / possible goodput", Bound::MaxShare(FULL_SHARE));

/// Source of rules that `bench/findings` tries.
pub(super) const MEASURED: &str = "measured with injected faults (bench/findings)";
