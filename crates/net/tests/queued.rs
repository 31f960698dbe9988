//! Tests that wait for their turn, and end there.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking, its helpers too")]

mod support;

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use lfn_core::report::Ended;
use lfn_core::wire::test::{Direction, Load, SocketWish, TestRequest};
use lfn_net::server::Config;
use lfn_net::server::admission::{Ask, Entry, Grant, Quotas, Share};
use lfn_net::service;
use lfn_net::tester::{self, Test, TestError};
use support::Served;

const PATIENCE: Duration = Duration::from_secs(30);

/// A server with room for one session.
fn one_place() -> Served {
    let all = Share { sessions: 1, ..Quotas::default().all };
    Served::start(Config { quotas: Quotas { all, ..Quotas::default() }, ..support::config() }, service::serve)
}

fn test(direction: Direction, time: Duration) -> Test {
    Test {
        request: TestRequest { direction, load: Load::TimeSeconds(time), ..TestRequest::default() },
        near: SocketWish::default(),
        path: None,
        whole_round_trips: false,
        until: None,
        omit: None,
        stop: Default::default(),
    }
}

/// Takes the one place.
fn taken(server: &Served) -> Grant {
    match server.admission.enter([127, 0, 0, 1].into(), Ask { streams: 1, ..Ask::default() }) {
        Entry::Granted(grant) => grant,
        other => panic!("{other:?}"),
    }
}

fn eventually(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn one_that_is_stopped_in_the_queue_has_not_begun_and_leaves_it() {
    let server = one_place();
    let place = taken(&server);
    let (target, test) = (server.target(), test(Direction::Forward, Duration::from_secs(60)));
    thread::scope(|scope| {
        let waits = scope.spawn(|| tester::run(&target, &test, &mut |_| panic!("it tells of nothing")));
        eventually("it waits", || server.admission.waiting() == 1);
        test.stop.store(true, Ordering::Relaxed);
        let ended = waits.join().unwrap();
        assert!(matches!(ended, Err(TestError::Stopped)), "{ended:?}");
    });
    eventually("it leaves", || server.admission.waiting() == 0);
    drop(place);
}

#[test]
fn of_two_at_once_the_one_that_waits_is_stopped_when_the_other_is_over() {
    let server = one_place();
    let [forward, reverse] = [Direction::Forward, Direction::Reverse].map(|way| test(way, Duration::from_millis(300)));
    let ended = tester::run_both(&server.target(), [&forward, &reverse], &mut |_, _| {});
    // Which of them goes in is chance.
    let told = |wanted: fn(&TestError) -> bool| ended.iter().filter(|one| one.as_ref().is_err_and(wanted)).count();
    let apart = told(|error| matches!(error, TestError::Apart));
    let stopped = told(|error| matches!(error, TestError::Stopped));
    // It may have been let in just before it was stopped.
    let begun = ended.iter().flatten().filter(|one| one.ended == Ended::Interrupted).count();
    assert_eq!((apart, stopped + begun), (1, 1), "{ended:?}");
}
