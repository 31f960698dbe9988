//! Rules of runs of two coupled models.

use super::rule::Bound::{MaxFactor, MaxShare, MinCount, MinShare, MinTime};
use super::rule::{ANY, COUPLES, EQUAL, Rule, Threshold, of};
use crate::diagnose::{Cause, Finding, couple};
use crate::evidence::couple::{MAX_DIFFERENCE, MAX_DIFFERENCE_SHARE};
use crate::evidence::figures::Figures;

const REPLAYED: &str = "comparison of the run with its plan, and with a plan that has the measured figures";

/// Conditions of each rule for a time that differs from the plan.
const SHARE: Threshold = of("difference of a step from its plan / planned time", MinShare(MAX_DIFFERENCE_SHARE));
const TIME: Threshold = of("difference of a step from its plan", MinTime(MAX_DIFFERENCE));
const PART: Threshold = of("part of the difference that the cause explains", MinShare(couple::MIN_PART_SHARE));

const fn rule(
    cause: Cause,
    find: fn(&Figures) -> Option<Finding>,
    thresholds: &'static [Threshold],
    source: &'static str,
) -> Rule {
    Rule { loads: COUPLES, cause, find, thresholds, needs: &[], needs_one_of: &[], source }
}

/// Rules of coupled runs. The findings are sorted by the part of the difference that they explain.
pub(super) const RULES: &[Rule] = &[
    rule(
        Cause::ShortLag,
        couple::short_lag,
        &[
            SHARE,
            TIME,
            of("wait for the variable beyond the plan / planned time of a step", MinShare(MAX_DIFFERENCE_SHARE)),
            of("wait for the variable beyond the plan", MinTime(MAX_DIFFERENCE)),
            of("lag that the measured path and compute times need minus lag", MinCount(ANY)),
        ],
        "a lag hides a delay of lag × time of a step",
    ),
    rule(Cause::LoadImbalance, couple::load_imbalance, &[SHARE, TIME, PART], REPLAYED),
    rule(Cause::LostConnection, couple::lost_connection, &[SHARE, TIME, PART], "time without a connection"),
    rule(Cause::LateFields, couple::late_fields, &[SHARE, TIME, PART], REPLAYED),
    rule(
        Cause::StartUp,
        couple::slow_start,
        &[SHARE, TIME, PART, of("late time of the run / round trips of slow start", MaxFactor(EQUAL))],
        "RFC 5681 section 3.1; RFC 6928",
    ),
    rule(Cause::ComputeTime, couple::compute_time, &[SHARE, TIME, PART], REPLAYED),
    rule(
        Cause::PathDelay,
        couple::path_delay,
        &[
            SHARE,
            TIME,
            PART,
            of("difference of the RTT from the coupling file / RTT in the file", MinShare(couple::MIN_RTT_SHARE)),
            of("difference of the RTT from the coupling file", MinTime(couple::MIN_RTT_DIFFERENCE)),
        ],
        REPLAYED,
    ),
    rule(
        Cause::DroppedFields,
        couple::dropped,
        &[of("dropped fields / fields of the variable", MinShare(couple::MIN_DROPPED_SHARE))],
        "the share is that of the time of a run",
    ),
    rule(
        Cause::NotANumber,
        couple::not_a_number,
        &[of("elements that are not a number", MinCount(ANY))],
        "IEEE 754 section 6.2",
    ),
    rule(
        Cause::Unexplained,
        couple::unexplained,
        &[
            SHARE,
            TIME,
            of("part of the difference that the other causes explain", MaxShare(couple::MIN_EXPLAINED_SHARE)),
        ],
        "the other rules explain too little",
    ),
];
