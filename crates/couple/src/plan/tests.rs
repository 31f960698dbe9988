#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::time::Duration;

use lfn_base::path::PathProfile;
use lfn_base::units::BitRate;

use super::*;
use crate::coupling::Coupling;

/// The runs of the lag table: 40 steps of 0.1 s, 64 KiB each way.
fn coupling(lag: u64) -> Coupling {
    let text = include_str!("../../tests/lag.toml").replace("lag = 4", &format!("lag = {lag}"));
    Coupling::parse(&text).unwrap()
}

fn acts() -> PathProfile {
    PathProfile::new(BitRate(155_000_000), Duration::from_millis(539))
}

#[test]
fn lock_step_waits_for_one_way_delay() {
    let plan = predict(&coupling(0), &acts()).unwrap();
    let expected = 0.1 + 0.2695 + plan.directions[0].serialisation.as_secs_f64();
    assert!((plan.step.as_secs_f64() - expected).abs() < 1e-6, "{plan:?}");
    assert_eq!(plan.variables[0].needed_lag, Some(3));
}

#[test]
fn needed_lag_hides_the_delay() {
    let plan = predict(&coupling(3), &acts()).unwrap();
    assert_eq!(plan.run, plan.run_without_waits);
    assert_eq!(plan.variables[0].wait, Duration::ZERO);
    let below = predict(&coupling(2), &acts()).unwrap();
    // Three steps take the one-way delay and one computation.
    let step = (0.2695 + below.directions[0].serialisation.as_secs_f64() + 0.1) / 3.0;
    assert!((below.step.as_secs_f64() - step).abs() < 1e-3, "{below:?}");
}

#[test]
fn variable_without_waits_needs_no_lag() {
    let text = include_str!("../../tests/lag.toml").replace("lag = 4", "lag = 0");
    // The lake gets wind, and puts nothing.
    let one_way = Coupling::parse(&text[..text.find("[variable.level]").unwrap()]).unwrap();
    let viewer = Coupling::parse(&text.replace("initial = 0.0", "drop = \"oldest\"")).unwrap();
    for coupling in [one_way, viewer] {
        let plan = predict(&coupling, &acts()).unwrap();
        assert!(plan.run < plan.run_without_waits + Duration::from_millis(300), "{plan:?}");
        assert!(plan.variables.iter().all(|variable| variable.needed_lag == Some(0)), "{plan:?}");
    }
}

#[test]
fn slow_path_has_no_lag_that_is_enough() {
    let path = PathProfile::new(BitRate(1_000_000), Duration::from_millis(10));
    let plan = predict(&coupling(8), &path).unwrap();
    assert_eq!(plan.variables[0].needed_lag, None);
    assert!(plan.directions[0].utilisation > 5.0);
    assert!(plan.step > Duration::from_millis(500), "{plan:?}");
}

#[test]
fn long_run_is_extrapolated() {
    let long = Coupling { steps: 1_000_000_000, ..coupling(0) };
    let plan = predict(&long, &acts()).unwrap();
    let per_step = plan.run.as_secs_f64() / 1e9;
    assert!((per_step - plan.step.as_secs_f64()).abs() < 1e-3, "{plan:?}");
}
