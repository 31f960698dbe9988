//! `lfn emulate` measured by other tools: the kernel's shaper, the kernel's timestamps at the interfaces of both sides,
//! the numbers of the packets that arrive, and the kernel's congestion control.
//!
//! No test uses the clock or the counts of the emulator, with one exception: a run with drops outside the model is
//! repeated. Machines are sometimes busy, so time limits must hold in one of several tries. `bench/emulate` measures
//! the accuracy on an idle machine.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking, its helpers too")]

mod delay;
mod loss;
mod rate;
#[path = "../../../sim/tests/laws/statistics/mod.rs"]
mod statistics;
#[path = "../support/mod.rs"]
mod support;
mod tcp;
mod trial;

use std::env;
use std::process::ExitCode;

use support::Needs;

fn main() -> ExitCode {
    if let Ok(role) = env::var(trial::ROLE) {
        act(&role);
        return ExitCode::SUCCESS;
    }
    // The longest tests run first and in parallel. Tests of time run last, when the machine has less load.
    support::run(&[
        ("loss_limits_reno_and_cubic_as_predicted", Needs::Namespaces, tcp::loss_limits_as_predicted),
        ("bbr_fills_a_path_of_539_ms", Needs::Namespaces, tcp::bbr_fills_a_path_of_539_ms),
        ("loss_share_and_bursts_match_the_setting", Needs::Namespaces, loss::losses_match_the_setting),
        ("super_packets_lose_the_same_as_single_packets", Needs::Namespaces, loss::offloads_do_not_change_loss),
        ("rate_matches_tbf", Needs::Programs(&["tc"]), rate::rate_matches_tbf),
        ("each_direction_has_its_delay", Needs::Namespaces, delay::each_direction_has_its_delay),
    ])
}

/// Roles of this program on one side of a path.
fn act(role: &str) {
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
