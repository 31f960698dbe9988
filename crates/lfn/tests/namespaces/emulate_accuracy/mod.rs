//! `lfn emulate` measured by other tools: the kernel's shaper, the kernel's timestamps at the interfaces of both sides,
//! the numbers of the packets that arrive, and the kernel's congestion control.
//!
//! No test uses the clock or the counts of the emulator, with one exception: a run with drops outside the model is
//! repeated. Machines are sometimes busy, so time limits must hold in two of three runs. `bench/emulate` measures
//! the accuracy on an idle machine.

mod delay;
mod loss;
mod rate;
#[path = "../../../../sim/tests/laws/statistics/mod.rs"]
mod statistics;
mod tcp;
mod trial;

use crate::support::harness::{Needs, Test, Weight, tests_of};

/// Name of this module in the names of its tests and roles.
const MODULE: &str = "emulate_accuracy";

pub fn tests() -> Vec<Test> {
    let mut tests = tests_of(
        MODULE,
        Weight::Loaded,
        &[
            (
                "loss_limits_reno_and_cubic_as_predicted",
                Needs::Namespaces,
                tcp::loss_limits_reno_and_cubic_as_predicted,
            ),
            ("bbr_fills_a_path_of_539_ms", Needs::Namespaces, tcp::bbr_fills_a_path_of_539_ms),
            (
                "loss_share_and_bursts_match_the_setting",
                Needs::Namespaces,
                loss::loss_share_and_bursts_match_the_setting,
            ),
            (
                "super_packets_lose_the_same_as_single_packets",
                Needs::Namespaces,
                loss::super_packets_lose_the_same_as_single_packets,
            ),
        ],
    );
    tests.extend(tests_of(
        MODULE,
        Weight::Alone,
        &[
            ("rate_matches_tbf", Needs::Programs(&["tc"]), rate::rate_matches_tbf),
            ("each_direction_has_its_delay", Needs::Namespaces, delay::each_direction_has_its_delay),
        ],
    ));
    tests
}

/// Roles of this program on one side of a path.
pub fn act(role: &str) {
    match role {
        "near rate" => trial::near(&rate::TAPS, rate::offer),
        "far rate" => trial::far(&rate::TAPS, trial::hold),
        "near delay" => trial::near(&delay::TAPS, delay::ask),
        "far delay" => trial::far(&delay::TAPS, delay::answer),
        "near loss" => trial::near(&[], loss::number),
        "far loss" => trial::far(&loss::TAPS, trial::hold),
        "near singles" => trial::near(&loss::TAPS_OF_SINGLES, loss::send_singles),
        "far singles" => trial::far(&loss::TAPS_OF_SINGLES, trial::hold),
        "near supers" => trial::near(&loss::TAPS_OF_SUPERS, loss::send_super_packets),
        "far supers" => trial::far(&loss::TAPS_OF_SUPERS, trial::hold),
        role => match role.split_once(' ') {
            Some(("pour", flows)) => tcp::pour(flows),
            Some(("drink", spans)) => tcp::drink(spans),
            _ => panic!("no role '{role}'"),
        },
    }
}
