//! Limits and queue in virtual time: limits always hold, no session is starved, and waiting sessions learn their wait.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking, its helpers too")]

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use lfn_core::limits::{
    Client, Denial, LimitScope, ResourceGrant, ResourceLimits, ResourceRequest, ServerLimits, SessionQueue,
};
use lfn_core::time::Instant;
use lfn_core::units::{BitRate, Bytes};
use proptest::prelude::*;

const UNLIMITED: ResourceLimits =
    ResourceLimits { sessions: 1000, streams: 100_000, rate: None, bytes: None, time: None, queue: 1000 };

fn client(number: u8) -> Client {
    Client::of(IpAddr::V4(Ipv4Addr::new(192, 0, 2, number)))
}

fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

fn seconds(seconds: u64) -> ResourceRequest {
    ResourceRequest { streams: 1, time: Some(Duration::from_secs(seconds)), ..ResourceRequest::default() }
}

fn streams(streams: u16) -> ResourceRequest {
    ResourceRequest { streams, ..seconds(10) }
}

/// Returns limits with this number of sessions in total and per client.
fn sessions(total: u32, own: u32) -> ServerLimits {
    let [total, client] = [total, own].map(|sessions| ResourceLimits { sessions, ..UNLIMITED });
    ServerLimits { total, client, clients: 1000, ..ServerLimits::default() }
}

/// Queues a session at time zero.
fn enqueue(queue: &mut SessionQueue, who: u8, request: ResourceRequest) -> u64 {
    queue.enqueue(client(who), request, at(0)).unwrap()
}

/// Returns the sessions that start, in order.
fn admitted(queue: &mut SessionQueue, now: u64) -> Vec<u64> {
    let decisions = queue.admit(at(now)).into_iter();
    decisions.filter(|decision| decision.outcome.is_ok()).map(|decision| decision.id).collect()
}

/// Returns the sessions ahead and the estimated seconds of a waiting session.
fn estimate(queue: &SessionQueue, id: u64, now: u64) -> (usize, Option<u64>) {
    let estimate = queue.estimate(id, at(now)).unwrap();
    (estimate.ahead, estimate.wait.map(|wait| wait.as_secs()))
}

#[test]
fn ipv6_client_is_its_64_prefix() {
    let of = |text: &str| Client::of(text.parse().unwrap());
    assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff::9"));
    assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
    assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
    assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    assert_eq!(of("2001:db8:1:2::1").to_string(), "2001:db8:1:2::/64");
}

#[test]
fn sessions_start_in_order_of_arrival() {
    let mut queue = SessionQueue::new(sessions(1, 1));
    let ids = [0, 0, 1, 2, 1].map(|who| enqueue(&mut queue, who, seconds(10)));
    let (mut order, mut now) = (Vec::new(), 0);
    while let [id] = admitted(&mut queue, now)[..] {
        order.push(id);
        now += 10;
        queue.end(id, at(now));
    }
    assert_eq!(order, ids);
}

#[test]
fn client_at_its_limit_is_skipped() {
    let mut limits = sessions(4, 2);
    limits.client.streams = 8;
    let mut queue = SessionQueue::new(limits);
    let ids = [(0, 6), (0, 4), (0, 1), (1, 8)].map(|(who, count)| enqueue(&mut queue, who, streams(count)));
    let [first, large, small, other] = ids;
    // The small session has room, but another session of its client waits before it.
    assert_eq!(admitted(&mut queue, 0), [first, other]);
    queue.end(first, at(10));
    assert_eq!(admitted(&mut queue, 10), [large, small]);
}

#[test]
fn large_session_is_not_starved() {
    let mut limits = sessions(4, 1);
    limits.total.streams = 10;
    let mut queue = SessionQueue::new(limits);
    let ids = [(0, 6), (0, 1), (1, 8), (2, 1)].map(|(who, count)| enqueue(&mut queue, who, streams(count)));
    let [first, own, large, small] = ids;
    // The second session of client 0 waits for its first. The large session waits for streams, and the small session
    // for the large session.
    assert_eq!(admitted(&mut queue, 0), [first]);
    queue.end(first, at(10));
    assert_eq!(admitted(&mut queue, 10), [own, large, small]);
}

#[test]
fn waiting_session_learns_place_and_wait() {
    let mut queue = SessionQueue::new(sessions(2, 2));
    for (who, time) in [(0, 10), (1, 30), (2, 10), (3, 8), (4, 10)] {
        enqueue(&mut queue, who, seconds(time));
    }
    assert_eq!(admitted(&mut queue, 0), [0, 1]);
    // 6 and 26 seconds are left of the two running sessions.
    assert_eq!([2, 3, 4].map(|id| estimate(&queue, id, 4)), [(0, Some(16)), (1, Some(21)), (2, Some(25))]);
    queue.leave(3);
    assert_eq!((estimate(&queue, 4, 4), queue.estimate(3, at(4))), ((1, Some(21)), None));
}

#[test]
fn unknown_times_count_with_the_mean() {
    let mut queue = SessionQueue::new(sessions(1, 1));
    let copy = ResourceRequest { streams: 1, unbounded: true, ..ResourceRequest::default() };
    let ids = [0, 1, 2].map(|who| enqueue(&mut queue, who, copy));
    assert_eq!(admitted(&mut queue, 0), [ids[0]]);
    assert_eq!([1, 2].map(|at| estimate(&queue, ids[at], 5)), [(0, None), (1, None)]);
    queue.end(ids[0], at(20));
    assert_eq!(admitted(&mut queue, 20), [ids[1]]);
    let last = queue.enqueue(client(3), seconds(5), at(20)).unwrap();
    assert_eq!([ids[2], last].map(|id| estimate(&queue, id, 25)), [(0, Some(20)), (1, Some(40))]);
}

#[test]
fn wait_is_unknown_after_overtime() {
    let mut queue = SessionQueue::new(sessions(1, 1));
    let late = ResourceRequest { grace: Duration::from_secs(30), ..seconds(10) };
    let [first, next] = [0, 1].map(|who| enqueue(&mut queue, who, late));
    assert_eq!(admitted(&mut queue, 0), [first]);
    let waits = [0, 20, 39, 40].map(|now| estimate(&queue, next, now).1);
    assert_eq!(waits, [Some(40), Some(20), Some(1), None]);
}

#[test]
fn waiting_session_learns_the_scope_of_its_limit() {
    let mut queue = SessionQueue::new(sessions(2, 1));
    let ids = [0, 0, 1, 1, 2].map(|who| enqueue(&mut queue, who, seconds(10)));
    assert_eq!(admitted(&mut queue, 0), [ids[0], ids[2]]);
    let scopes = [1, 3, 4].map(|at| queue.estimate(ids[at], Instant::ZERO).unwrap());
    assert_eq!(scopes.map(|scope| scope.limited_by), [LimitScope::Client, LimitScope::Client, LimitScope::Total]);
    assert_eq!(scopes.map(|scope| scope.ahead), [0, 0, 2], "only its own client's sessions are ahead of the first two");
}

#[test]
fn impossible_requests_are_refused_at_once() {
    let limits = ServerLimits { session_streams: 4, test_time: Duration::from_secs(60), ..sessions(1, 1) };
    let mut queue = SessionQueue::new(limits);
    assert_eq!(queue.enqueue(client(0), streams(5), at(0)), Err(Denial::Streams { requested: 5, max: 4 }));
    let long = queue.enqueue(client(0), seconds(61), at(0)).unwrap_err();
    assert_eq!(long.to_string(), "a test of 61 s requested, but the server allows 60 s");
}

#[test]
fn full_queue_refuses_with_a_hint() {
    let mut limits = sessions(1, 1);
    (limits.total.queue, limits.client.queue) = (3, 2);
    let mut queue = SessionQueue::new(limits);
    for who in [0, 0, 0] {
        enqueue(&mut queue, who, seconds(9));
        queue.admit(at(0));
    }
    let full = queue.enqueue(client(0), seconds(9), at(0)).unwrap_err();
    let (scope, limited_by, wait) = (LimitScope::Client, LimitScope::Client, Some(Duration::from_secs(27)));
    assert_eq!(full, Denial::QueueFull { limited_by, scope, waiting: 2, wait });
    let text = "this client has reached its limit on the server, and 2 sessions of this client are waiting";
    assert_eq!(full.to_string(), text);
    assert_eq!(full.hint(), "try again in 28 s");
    let gone = enqueue(&mut queue, 1, seconds(9));
    let full = queue.enqueue(client(2), seconds(9), at(0)).unwrap_err();
    assert_eq!(full.to_string(), "the server is full, and 3 sessions of all clients together are waiting");
    queue.leave(gone);
    enqueue(&mut queue, 2, seconds(9));
}

#[test]
fn queue_length_zero_refuses_at_once() {
    for (total, own, scope) in [(0, 9, LimitScope::Total), (9, 0, LimitScope::Client), (0, 0, LimitScope::Client)] {
        let mut limits = sessions(1, 1);
        (limits.total.queue, limits.client.queue) = (total, own);
        let mut queue = SessionQueue::new(limits);
        let first = enqueue(&mut queue, 0, seconds(10));
        assert_eq!(admitted(&mut queue, 0), [first]);
        for (who, limited_by) in [(0, LimitScope::Client), (1, LimitScope::Total)] {
            let denied = queue.enqueue(client(who), seconds(10), at(1)).unwrap_err();
            let wait = Some(Duration::from_secs(9));
            assert_eq!(denied, Denial::QueueFull { limited_by, scope, waiting: 0, wait });
            assert_eq!(denied.to_string(), format!("{}, and no session may wait", limited_by.full_message()));
        }
        queue.end(first, at(10));
        let next = enqueue(&mut queue, 1, seconds(10));
        assert_eq!(admitted(&mut queue, 10), [next]);
    }
}

#[test]
fn bytes_and_time_return_after_the_window() {
    let mut limits = ServerLimits { quota_window: Duration::from_secs(3600), ..sessions(4, 4) };
    (limits.client.bytes, limits.client.time) = (Some(Bytes(1000)), Some(Duration::from_secs(100)));
    let mut queue = SessionQueue::new(limits);
    let id = enqueue(&mut queue, 0, seconds(60));
    let granted = queue.admit(at(0))[0].outcome.unwrap();
    assert_eq!((granted.bytes, granted.time), (Some(Bytes(1000)), Some(Duration::from_secs(60))));
    assert_eq!(queue.take(id, Bytes(900), at(1)), Bytes(900));
    assert_eq!(queue.take(id, Bytes(900), at(2)), Bytes(100), "no more than is left");
    queue.refund(id, Bytes(40));
    queue.end(id, at(60));
    let bytes = ResourceRequest { bytes: Some(Bytes(41)), ..seconds(1) };
    let denied = queue.enqueue(client(0), bytes, at(60)).unwrap_err();
    assert_eq!(denied.to_string(), "byte quota of this client: 40 B of 1 kB per 1 h left, 41 B requested");
    assert_eq!(denied.hint(), "copy 40 B or less, or try again in 1 h; --client-bytes of lfn serve sets the limit");
    let denied = queue.enqueue(client(0), seconds(41), at(60)).unwrap_err();
    assert_eq!(denied.to_string(), "time quota of this client: 40 s of 100 s per 1 h left, 41 s requested");
    queue.enqueue(client(1), seconds(60), at(60)).expect("another client has its own");
    queue.enqueue(client(0), seconds(60), at(3600 + 121)).expect("all of it came back");
}

/// A session whose quota is used up while it waits is refused.
#[test]
fn quota_is_checked_again_after_the_wait() {
    let mut limits = sessions(1, 4);
    limits.client.time = Some(Duration::from_secs(100));
    let mut queue = SessionQueue::new(limits);
    let [first, second] = [100, 90].map(|time| enqueue(&mut queue, 0, seconds(time)));
    assert_eq!(admitted(&mut queue, 0), [first]);
    assert!(matches!(queue.charge_time(first, at(100)), Err(Denial::Quota { scope: LimitScope::Client, .. })));
    queue.end(first, at(100));
    let decisions = queue.admit(at(100));
    assert_eq!(decisions.len(), 1);
    assert!(decisions[0].id == second && decisions[0].outcome.is_err(), "{decisions:?}");
}

#[test]
fn byte_quota_is_checked_before_moving_data() {
    let mut limits = ServerLimits { quota_window: Duration::from_secs(3600), ..sessions(4, 4) };
    limits.client.bytes = Some(Bytes(1000));
    let mut queue = SessionQueue::new(limits);
    assert!(queue.counts_bytes() && !SessionQueue::new(sessions(4, 4)).counts_bytes());
    let [one, other] = [0, 0].map(|who| enqueue(&mut queue, who, seconds(60)));
    queue.admit(at(0));
    assert_eq!(queue.affords(one, Bytes(1000), Bytes(1000), at(0)), Ok(()));
    // Bytes that the session took belong to it, not to the other session.
    queue.take(one, Bytes(600), at(1));
    assert_eq!(queue.affords(one, Bytes(1000), Bytes(100), at(1)), Ok(()));
    let denied = queue.affords(one, Bytes(1001), Bytes(301), at(1)).unwrap_err();
    assert_eq!(denied.to_string(), "byte quota of this client: 300 B of 1 kB per 1 h left, 301 B requested");
    assert_eq!(queue.affords(other, Bytes(400), Bytes(400), at(1)), Ok(()));
    let denied = queue.affords(other, Bytes(u64::MAX), Bytes(u64::MAX), at(1)).unwrap_err();
    assert!(matches!(denied, Denial::Quota { remaining: 400, .. }), "{denied:?}");
    // The window has passed, so the full quota is available again.
    assert_eq!(queue.affords(one, Bytes(1600), Bytes(1), at(3600 + 121)), Ok(()));
}

#[test]
fn rate_is_divided_evenly_among_waiting_sessions() {
    let mut limits = sessions(4, 4);
    limits.total.rate = Some(BitRate(1000));
    let mut queue = SessionQueue::new(limits);
    let id = enqueue(&mut queue, 0, seconds(10));
    assert_eq!(queue.admit(at(0))[0].outcome.unwrap().rate, Some(BitRate(1000)));
    for who in 1..6 {
        enqueue(&mut queue, who, seconds(10));
    }
    assert!(queue.admit(at(1)).is_empty(), "nothing is left of the rate");
    queue.end(id, at(10));
    let rates: Vec<_> = queue.admit(at(10)).iter().map(|decision| decision.outcome.unwrap().rate.unwrap().0).collect();
    assert_eq!(rates, [250, 250, 250, 250]);
    // A session that requests less leaves the rest to others.
    let mut queue = SessionQueue::new(limits);
    enqueue(&mut queue, 0, ResourceRequest { rate: Some(BitRate(100)), ..seconds(10) });
    queue.admit(at(0));
    enqueue(&mut queue, 1, seconds(10));
    assert_eq!(queue.admit(at(0))[0].outcome.unwrap().rate, Some(BitRate(900)));
}

#[test]
fn maximum_requests_do_not_overflow() {
    let mut queue = SessionQueue::new(sessions(10, 10));
    let (bytes, rate) = (Some(Bytes(u64::MAX)), Some(BitRate(u64::MAX)));
    let most = ResourceRequest { streams: u16::MAX, bytes, rate, unbounded: true, grace: Duration::MAX, ..seconds(0) };
    assert!(matches!(queue.enqueue(client(0), most, at(0)), Err(Denial::Streams { .. })));
    for who in 0..10 {
        for rate in [BitRate(u64::MAX), BitRate(0)] {
            enqueue(&mut queue, who, ResourceRequest { streams: 256, time: None, rate: Some(rate), ..most });
        }
    }
    let running = admitted(&mut queue, 0);
    assert_eq!(running.len(), 10);
    for id in &running {
        assert_eq!(queue.take(*id, Bytes(u64::MAX), at(1)), Bytes(u64::MAX));
    }
    assert_eq!(queue.estimate(19, at(2)).unwrap().ahead, 9);
    running.into_iter().for_each(|id| queue.end(id, at(3)));
}

/// Uncounted sessions never wait, but each costs threads and memory.
#[test]
fn uncounted_sessions_are_limited() {
    let mut queue = SessionQueue::new(sessions(1, 1));
    let ask = ResourceRequest { uncounted: true, ..seconds(10) };
    let running: Vec<u64> = (0..64).map(|_| enqueue(&mut queue, 0, ask)).collect();
    assert_eq!(admitted(&mut queue, 0).len(), 64);
    assert!(matches!(queue.enqueue(client(1), ask, at(0)), Err(Denial::QueueFull { waiting: 0, .. })));
    for who in [0, 0, 1] {
        enqueue(&mut queue, who, seconds(10));
    }
    queue.end(running[0], at(0));
    // The sessions that wait before it do not block it.
    enqueue(&mut queue, 0, ask);
    assert_eq!(admitted(&mut queue, 0).len(), 2);
}

#[test]
fn stopping_queue_refuses_all_sessions() {
    let mut queue = SessionQueue::new(sessions(1, 1));
    let [running, waiting] = [0, 1].map(|who| enqueue(&mut queue, who, seconds(10)));
    queue.admit(at(0));
    let decisions = queue.stop();
    assert_eq!((decisions.len(), decisions[0].id, decisions[0].outcome), (1, waiting, Err(Denial::Stopping)));
    assert_eq!(queue.enqueue(client(1), seconds(10), at(0)), Err(Denial::Stopping));
    assert_eq!((queue.running(), queue.waiting()), (1, 0));
    queue.end(running, at(10));
    assert_eq!(queue.running(), 0);
}

/// Actions on a queue.
#[derive(Clone, Debug)]
enum Step {
    Ask { who: u8, streams: u16, time: Option<u64>, bytes: Option<u64>, rate: Option<u64> },
    Leave(usize),
    Move(usize, u64),
    Spend(usize),
    End(usize),
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let ask = (0..4u8, 1..6u16, prop::option::of(1..50u64), prop::option::of(1..400u64), prop::option::of(1..900u64))
        .prop_map(|(who, streams, time, bytes, rate)| Step::Ask { who, streams, time, bytes, rate });
    let step = prop_oneof![
        4 => ask,
        1 => any::<usize>().prop_map(Step::Leave),
        3 => (any::<usize>(), 0..300u64).prop_map(|(at, bytes)| Step::Move(at, bytes)),
        1 => any::<usize>().prop_map(Step::Spend),
        3 => any::<usize>().prop_map(Step::End),
        2 => (0..40u64).prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 1..120)
}

/// A queue and its expected state.
struct Model {
    queue: SessionQueue,
    limits: ServerLimits,
    now: u64,
    waiting: VecDeque<(u64, u8)>,
    running: BTreeMap<u64, (u8, ResourceGrant)>,
    /// Time, client and bytes.
    moved: Vec<(u64, u8, u64)>,
}

impl Model {
    fn step(&mut self, step: &Step) {
        let now = at(self.now);
        let pick = |index: usize, length: usize| (length > 0).then(|| index % length);
        let running: Vec<u64> = self.running.keys().copied().collect();
        match *step {
            Step::Ask { who, streams, time, bytes, rate } => {
                let time = time.map(Duration::from_secs);
                let ask = ResourceRequest {
                    streams,
                    time,
                    bytes: bytes.map(Bytes),
                    rate: rate.map(BitRate),
                    ..ResourceRequest::default()
                };
                if let Ok(id) = self.queue.enqueue(client(who), ask, now) {
                    self.waiting.push_back((id, who));
                }
            }
            Step::Leave(index) => {
                if let Some((id, _)) = pick(index, self.waiting.len()).and_then(|at| self.waiting.remove(at)) {
                    self.queue.leave(id);
                }
            }
            Step::Move(index, bytes) => {
                let Some(id) = pick(index, running.len()).map(|at| running[at]) else { return };
                let took = self.queue.take(id, Bytes(bytes), now);
                self.moved.push((self.now, self.running[&id].0, took.0));
            }
            Step::Spend(index) => {
                if let Some(id) = pick(index, running.len()).map(|at| running[at]) {
                    let _ = self.queue.charge_time(id, now);
                }
            }
            Step::End(index) => {
                if let Some(id) = pick(index, running.len()).map(|at| running[at]) {
                    self.queue.end(id, now);
                    self.running.remove(&id);
                }
            }
            Step::Pass(seconds) => self.now += seconds,
        }
        self.admit();
    }

    fn admit(&mut self) {
        for decision in self.queue.admit(at(self.now)) {
            let place = self.waiting.iter().position(|(id, _)| *id == decision.id).expect("only who waits has a turn");
            let (_, who) = self.waiting.remove(place).unwrap();
            if let Ok(allowed) = decision.outcome {
                self.running.insert(decision.id, (who, allowed));
            }
        }
    }

    fn check(&self) {
        assert_eq!((self.queue.running(), self.queue.waiting()), (self.running.len(), self.waiting.len()));
        let within = |share: &ResourceLimits, whose: Option<u8>| {
            let mine = || self.running.values().filter(|(who, _)| whose.is_none_or(|whose| whose == *who));
            assert!(mine().count() <= share.sessions as usize);
            assert!(mine().map(|(_, allowed)| u32::from(allowed.streams)).sum::<u32>() <= share.streams);
            let rate: u64 = mine().map(|(_, allowed)| allowed.rate.expect("a part of the rate").0).sum();
            assert!(rate <= share.rate.unwrap().0, "{rate}");
            // In the window that ends now.
            let since = self.now.saturating_sub(self.limits.quota_window.as_secs());
            let counts = |(when, who, _): &&(u64, u8, u64)| *when >= since && whose.is_none_or(|whose| whose == *who);
            let moved: u64 = self.moved.iter().filter(counts).map(|(.., bytes)| bytes).sum();
            assert!(moved <= share.bytes.unwrap().0, "{moved}");
        };
        within(&self.limits.total, None);
        (0..4).for_each(|who| within(&self.limits.client, Some(who)));
        let mut clients: Vec<u8> = self.running.values().map(|(who, _)| *who).collect();
        clients.sort_unstable();
        clients.dedup();
        assert!(clients.len() <= self.limits.clients as usize);
        for (place, (id, _)) in self.waiting.iter().enumerate() {
            assert!(self.queue.estimate(*id, at(self.now)).unwrap().ahead <= place);
        }
    }
}

proptest! {
    #[test]
    fn limits_hold_and_every_session_gets_a_turn(steps in steps()) {
        let all = ResourceLimits {
            sessions: 4, streams: 12, rate: Some(BitRate(1000)), bytes: Some(Bytes(2000)),
            time: Some(Duration::from_secs(600)), queue: 12,
        };
        let own = ResourceLimits {
            sessions: 2, streams: 8, rate: Some(BitRate(600)), bytes: Some(Bytes(900)),
            time: Some(Duration::from_secs(300)), queue: 5,
        };
        let limits = ServerLimits {
            total: all, client: own, clients: 3, session_streams: 5, test_time: Duration::from_secs(40),
            quota_window: Duration::from_secs(120),
        };
        let (waiting, running) = (VecDeque::new(), BTreeMap::new());
        let mut model = Model { queue: SessionQueue::new(limits), limits, now: 0, waiting, running, moved: Vec::new() };
        for step in &steps {
            model.step(step);
            model.check();
        }
        // Every waiting session gets its turn after the sessions before it end, in whatever order they end.
        let mut rounds = 0;
        while !model.waiting.is_empty() {
            prop_assert!(rounds <= 12, "still waiting: {:?}", model.waiting);
            rounds += 1;
            while let Some(id) = model.running.keys().next().copied() {
                model.queue.end(id, at(model.now));
                model.running.remove(&id);
            }
            model.admit();
            model.check();
        }
    }
}
