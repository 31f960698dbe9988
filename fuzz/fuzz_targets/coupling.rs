//! Any text as a coupling file: a valid file can be compared and planned.

#![no_main]

use lfn_base::path::PathProfile;
use lfn_base::units::BitRate;
use lfn_couple::Coupling;
use lfn_couple::coupling::differences;
use lfn_couple::plan::predict;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| match Coupling::parse(text) {
    Err(errors) => assert!(!errors.0.is_empty() && !errors.to_string().is_empty()),
    Ok(coupling) => {
        assert!(differences(&coupling, &coupling).is_empty());
        let path = PathProfile::new(BitRate(155_000_000), std::time::Duration::from_millis(539));
        if let Ok(plan) = predict(&coupling, &path) {
            assert!(plan.run >= plan.run_without_waits.mul_f64(0.99) || plan.steps > 20_000);
        }
    }
});
