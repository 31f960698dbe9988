//! After any fault at any time, no wrong or short file has a final name, and the same command completes the copy.
//!
//! A seed determines a trial: the files, direction and options of the copy, the fault and its time.
//! `TEST_LFN_TRIALS=1000` sets the number of trials (`bench/faults` uses this), `TEST_LFN_SEED=17` runs one seed.
//! Without them, the test runs a sample of each kind. A seed always draws the same values, but the timing of the
//! machine differs. So repeat a failed seed several times (`TEST_LFN_TRIALS` with `TEST_LFN_SEED`).

mod clock;
mod fault;
mod proxy;
mod trial;

pub use trial::as_limited_server;

use std::collections::BTreeMap;
use std::time::Instant;

use fault::Fault;
use trial::Trial;

use crate::support::harness::{Needs, Test, Weight, tests_of};
use crate::support::skip::skip;

/// Name of this module in the names of its tests and roles.
const MODULE: &str = "copy_faults";

/// Trials in the normal test run: each kind of fault in each direction, with and without encryption.
const SAMPLE: u64 = 4 * Fault::ALL.len() as u64;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap())
}

pub fn tests() -> Vec<Test> {
    tests_of(
        MODULE,
        Weight::Waiting,
        &[
            ("files_with_final_names_are_complete", Needs::Nothing, files_with_final_names_are_complete),
            ("lfn_uses_the_moved_clock", Needs::Nothing, lfn_uses_the_moved_clock),
        ],
    )
}

fn files_with_final_names_are_complete() {
    let many = number("TEST_LFN_TRIALS").unwrap_or(SAMPLE);
    let seeds = move |n| number("TEST_LFN_SEED").unwrap_or(n);
    let missing = clock::missing();
    if let Some(missing) = &missing {
        skip("files_with_final_names_are_complete", missing);
    }
    let (began, mut kinds, mut failed) = (Instant::now(), BTreeMap::<String, Count>::new(), Vec::new());
    for n in 0..many {
        let seed = seeds(n);
        let trial = Trial::new(seed);
        let kind = trial.fault.to_string();
        let count = kinds.entry(kind.clone()).or_default();
        if trial.fault == Fault::ClockJump && missing.is_some() {
            continue;
        }
        count.trials += 1;
        match trial.run() {
            Ok(seen) => {
                count.struck += u64::from(seen.struck);
                count.resumable += u64::from(seen.resumable);
                count.resumed += u64::from(seen.resumed);
            }
            Err(what) => {
                eprintln!("seed {seed}, {kind}: {what}");
                failed.push(format!("{seed} ({kind}: {what})"));
            }
        }
    }
    println!("\n| fault | trials | copy was under way | had blocks to go on from | went on from them |");
    println!("| --- | --- | --- | --- | --- |");
    for (kind, Count { trials, struck, resumable, resumed }) in &kinds {
        println!("| {kind} | {trials} | {struck} | {resumable} | {resumed} |");
    }
    println!("{many} trials in {:.0} s, {} failed", began.elapsed().as_secs_f64(), failed.len());
    assert!(failed.is_empty(), "seeds that failed: {}", failed.join("; "));
    let total = |of: fn(&Count) -> u64| kinds.values().map(of).sum::<u64>();
    let (ran, struck, resumed) = (total(|kind| kind.trials), total(|kind| kind.struck), total(|kind| kind.resumed));
    let required = ran.div_ceil(2);
    println!("copy was under way: {struck} of {ran}, required {required}; resumed: {resumed} of {ran}, required 1");
    // Faults after the end of the copy would test nothing. One seed has one time of its fault.
    assert!(
        number("TEST_LFN_SEED").is_some() || (struck >= required && resumed > 0),
        "{struck} and {resumed} of {ran}"
    );
}

/// Without a moving clock the clock trials would test nothing.
fn lfn_uses_the_moved_clock() {
    match clock::missing() {
        Some(missing) => skip("lfn_uses_the_moved_clock", &missing),
        None => trial::clock_moves(),
    }
}

#[derive(Default)]
struct Count {
    trials: u64,
    struck: u64,
    resumable: u64,
    resumed: u64,
}
