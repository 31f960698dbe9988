//! Rules of disks, whose rates `lfn doctor --disk` adds to the evidence of a load of TCP. They name what limits a copy.

use super::rule::Bound::MaxShare;
use super::rule::{Rule, TESTS, Threshold, of};
use crate::diagnose::{Cause, disk};
use crate::evidence::figures::EvidenceKind::Disks;

const SOURCE: &str = "comparison of two rates; the share is that of copies, and 90 % of a server's limit is chosen";
/// Conditions of each rule.
const THRESHOLDS: &[Threshold] = &[
    of("rate of the disk / goodput", MaxShare(disk::MAX_DISK_SHARE)),
    of("with a rate limit of the server: rate of the disk / this limit", MaxShare(disk::MAX_SHARE_OF_LIMIT)),
    of("or rate of the disk / possible goodput", MaxShare(disk::MAX_DISK_SHARE)),
    of("with a rate limit of the server: rate of the disk / this limit", MaxShare(disk::MAX_SHARE_OF_LIMIT)),
];

/// Rules of disks in the order of their evaluation.
pub(super) const RULES: &[Rule] = &[
    Rule {
        loads: TESTS,
        cause: Cause::SourceDisk,
        find: disk::source,
        thresholds: THRESHOLDS,
        needs: &[Disks],
        needs_one_of: &[],
        source: SOURCE,
    },
    Rule {
        loads: TESTS,
        cause: Cause::DestinationDisk,
        find: disk::destination,
        thresholds: THRESHOLDS,
        needs: &[Disks],
        needs_one_of: &[],
        source: SOURCE,
    },
];
