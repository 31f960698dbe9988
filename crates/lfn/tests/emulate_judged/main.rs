//! `lfn emulate` judged by others than itself: the kernel's shaper, the kernel's stamps at both sides' interfaces, the
//! numbers of the packets that arrive, and what the kernel's congestion controls make of the path.
//!
//! Nothing here asks the emulator's clock or its counts, but for one: a run in which packets were dropped that the model
//! did not drop tells nothing, and is repeated. Machines are busy at times, so bounds of time have to hold in one of a
//! few tries; exactness on a quiet machine is measured by `bench/emulate`.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking, its helpers too")]

mod delay;
mod loss;
mod rate;
#[path = "../../../core/tests/statistics/mod.rs"]
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
    // The longest first, beside each other; those that judge time come last, when there is less to disturb them.
    support::run(&[
        ("loss_makes_reno_and_cubic_as_slow_as_theory_says", Needs::Namespaces, tcp::loss_limits_as_theory_says),
        ("bbr_fills_a_path_of_539_ms", Needs::Namespaces, tcp::bbr_fills_a_path_of_539_ms),
        ("losses_come_as_often_and_in_such_bursts_as_set", Needs::Namespaces, loss::losses_come_as_set),
        ("super_packets_lose_what_single_packets_lose", Needs::Namespaces, loss::offloads_change_no_loss),
        ("the_rate_is_that_of_tbf", Needs::Programs(&["tc"]), rate::the_rate_is_that_of_tbf),
        ("each_way_takes_its_delay", Needs::Namespaces, delay::each_way_takes_its_delay),
    ])
}

/// What this program does on one side of a path.
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
