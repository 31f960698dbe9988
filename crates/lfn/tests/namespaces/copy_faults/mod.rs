//! After any fault at any time, no wrong or short file has a final name, and the same command completes the copy.
//!
//! A seed determines a trial: the files, direction and options of the copy, the fault and its time.
//! `TEST_LFN_TRIALS=1000` sets the number of trials (`bench/faults` uses this), `TEST_LFN_SEED=17` runs one seed.
//! Without them, the test runs a sample of each kind. A seed always draws the same values, but the timing of the
//! machine differs. So repeat a failed seed several times (`TEST_LFN_TRIALS` with `TEST_LFN_SEED`).

mod clock;
mod fault;
mod proxy;
mod queue;
mod trial;

pub use trial::as_limited_server;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use fault::Fault;
use parking_lot::Mutex;
use queue::{QueueFault, QueueSeen, QueueTrial};
use trial::{Seen, Trial};

use crate::support::harness::{Needs, Test, Weight, tests_of};
use crate::support::missing_program;
use crate::support::skip::skip;

/// Name of this module in the names of its tests and roles.
const MODULE: &str = "copy_faults";

/// Trials in the normal test run: each kind of fault in each direction, with and without encryption.
const SAMPLE: u64 = 4 * Fault::ALL.len() as u64;

/// Trials that run at once. They mostly wait for retries.
const AT_ONCE: usize = 3;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap())
}

pub fn tests() -> Vec<Test> {
    let complete = files_with_final_names_are_complete as fn();
    let clock = lfn_uses_the_moved_clock as fn();
    let queue = queue_delivers_every_file as fn();
    let waiting = [
        ("files_with_final_names_are_complete", Needs::Nothing, complete),
        ("queue_delivers_every_file", Needs::Nothing, queue),
    ];
    let mut tests = tests_of(MODULE, Weight::Waiting, &waiting);
    // A clock that moves during a slow handshake ends the handshake.
    tests.extend(tests_of(MODULE, Weight::Alone, &[("lfn_uses_the_moved_clock", Needs::Nothing, clock)]));
    tests
}

fn files_with_final_names_are_complete() {
    let many = number("TEST_LFN_TRIALS").unwrap_or(SAMPLE);
    let seeds = move |n| number("TEST_LFN_SEED").unwrap_or(n);
    let missing = clock::missing();
    if let Some(missing) = &missing {
        skip("files_with_final_names_are_complete", missing);
    }
    let began = Instant::now();
    let next = AtomicU64::new(0);
    let results = Mutex::new(Results::default());
    let work = || {
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            if n >= many {
                return;
            }
            let trial = Trial::new(seeds(n));
            if trial.fault != Fault::ClockJump || missing.is_none() {
                let (seed, kind) = (seeds(n), trial.fault.to_string());
                let outcome = trial.run();
                results.lock().add(seed, kind, outcome);
            }
        }
    };
    thread::scope(|scope| (0..AT_ONCE).for_each(|_| drop(scope.spawn(work))));
    let Results { kinds, failed } = results.into_inner();
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

/// Trials of the queue in the normal test run.
const QUEUE_SAMPLE: u64 = QueueFault::ALL.len() as u64;

/// Three movers share a queue, and one of the servers or movers fails.
fn queue_delivers_every_file() {
    if let Some(missing) = missing_program(&["nats-server"]) {
        return skip("queue_delivers_every_file", &missing);
    }
    let many = number("TEST_LFN_TRIALS").unwrap_or(QUEUE_SAMPLE);
    let began = Instant::now();
    let next = AtomicU64::new(0);
    let results = Mutex::new(Results::default());
    let work = || {
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            if n >= many {
                return;
            }
            let seed = number("TEST_LFN_SEED").unwrap_or(n);
            let trial = QueueTrial::new(seed);
            let kind = trial.fault.to_string();
            let outcome = trial.run().map(|QueueSeen { struck, redeliveries }| {
                let is_redelivered = redeliveries > 0;
                Seen { struck, resumable: is_redelivered, resumed: is_redelivered }
            });
            results.lock().add(seed, kind, outcome);
        }
    };
    thread::scope(|scope| (0..AT_ONCE).for_each(|_| drop(scope.spawn(work))));
    let Results { kinds, failed } = results.into_inner();
    println!("\n| fault | trials | all movers were under way | leases went to another mover |");
    println!("| --- | --- | --- | --- |");
    for (kind, Count { trials, struck, resumed, .. }) in &kinds {
        println!("| {kind} | {trials} | {struck} | {resumed} |");
    }
    println!("{many} trials in {:.0} s, {} failed", began.elapsed().as_secs_f64(), failed.len());
    assert!(failed.is_empty(), "seeds that failed: {}", failed.join("; "));
}

/// Without a moving clock the clock trials would test nothing.
fn lfn_uses_the_moved_clock() {
    match clock::missing() {
        Some(missing) => skip("lfn_uses_the_moved_clock", &missing),
        None => trial::clock_moves(),
    }
}

/// Outcomes of the trials.
#[derive(Default)]
struct Results {
    kinds: BTreeMap<String, Count>,
    failed: Vec<String>,
}

#[derive(Default)]
struct Count {
    trials: u64,
    struck: u64,
    resumable: u64,
    resumed: u64,
}

impl Results {
    fn add(&mut self, seed: u64, kind: String, outcome: Result<Seen, String>) {
        let count = self.kinds.entry(kind.clone()).or_default();
        count.trials += 1;
        match outcome {
            Ok(seen) => {
                count.struck += u64::from(seen.struck);
                count.resumable += u64::from(seen.resumable);
                count.resumed += u64::from(seen.resumed);
            }
            Err(what) => {
                eprintln!("seed {seed}, {kind}: {what}");
                self.failed.push(format!("{seed} ({kind}: {what})"));
            }
        }
    }
}
