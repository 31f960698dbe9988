//! Limits and queue in virtual time: limits always hold, no session is starved, and waiting sessions learn their wait.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking, its helpers too")]

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use lfn_base::time::Instant;
use lfn_base::units::{BitRate, Bytes};
use lfn_session::limits::{
    Client, Denial, LimitScope, QueueDecision, ResourceGrant, ResourceLimits, ResourceRequest, ServerLimits,
    SessionQueue,
};
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

/// Returns limits with this number of sessions in total and per client.
fn sessions(total: u32, own: u32) -> ServerLimits {
    let [total, client] = [total, own].map(|sessions| ResourceLimits { sessions, ..UNLIMITED });
    ServerLimits { total, client, clients: 1000, ..ServerLimits::default() }
}

/// Requests a session at time zero.
fn request(queue: &mut SessionQueue, who: u8, request: ResourceRequest) -> u64 {
    queue.request(client(who), request, at(0)).unwrap()
}

fn is_running(queue: &SessionQueue, id: u64) -> bool {
    queue.grant(id).is_some()
}

/// Returns the sessions ahead and the estimated seconds of a waiting session.
fn position(queue: &SessionQueue, id: u64, now: u64) -> (u32, Option<u64>) {
    let position = queue.position(id, at(now)).unwrap();
    (position.ahead, position.expected_wait().map(|wait| wait.as_secs()))
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

/// Returns the sessions that start at first, and after each end of the oldest running session. The requests are clients
/// with their streams.
fn order_of_starts(limits: ServerLimits, requests: &[(u8, u16)]) -> Vec<Vec<u64>> {
    let mut queue = SessionQueue::new(limits);
    for (who, streams) in requests {
        request(&mut queue, *who, ResourceRequest { streams: *streams, ..seconds(10) });
    }
    let mut running: Vec<u64> = (0..requests.len() as u64).filter(|id| is_running(&queue, *id)).collect();
    let mut starts = vec![running.clone()];
    while queue.waiting() > 0 {
        let started: Vec<u64> = queue.end(running.remove(0), at(10)).iter().map(|decision| decision.id).collect();
        running.extend(&started);
        starts.push(started);
    }
    starts
}

#[test]
fn sessions_start_in_order_of_arrival() {
    let order = order_of_starts(sessions(1, 1), &[(0, 1), (0, 1), (1, 1), (2, 1), (1, 1)]);
    assert_eq!(order, [[0], [1], [2], [3], [4]]);
}

#[test]
fn client_at_its_limit_is_skipped() {
    let mut limits = sessions(4, 2);
    limits.client.streams = 8;
    // Session 2 has room, but another session of its client waits before it.
    let order = order_of_starts(limits, &[(0, 6), (0, 4), (0, 1), (1, 8)]);
    assert_eq!(order, [[0, 3], [1, 2]]);
}

#[test]
fn session_that_waits_for_a_total_limit_is_not_overtaken() {
    let mut limits = sessions(4, 1);
    limits.total.streams = 10;
    let order = order_of_starts(limits, &[(0, 6), (0, 1), (1, 8), (2, 1)]);
    assert_eq!(order, [vec![0], vec![1, 2, 3]]);
    let limits = ServerLimits { clients: 1, ..sessions(4, 4) };
    assert_eq!(order_of_starts(limits, &[(0, 1), (1, 1), (0, 1)]), [[0], [1], [2]]);
}

#[test]
fn waiting_session_learns_place_and_wait() {
    let mut queue = SessionQueue::new(sessions(2, 2));
    for (who, time) in [(0, 10), (1, 30), (2, 10), (3, 8), (4, 10)] {
        request(&mut queue, who, seconds(time));
    }
    // 6 and 26 seconds are left of the two running sessions.
    assert_eq!([2, 3, 4].map(|id| position(&queue, id, 4)), [(0, Some(16)), (1, Some(21)), (2, Some(25))]);
    assert!(queue.end(3, at(4)).is_empty(), "a session leaves the queue");
    assert_eq!((position(&queue, 4, 4), queue.position(3, at(4))), ((1, Some(21)), None));
}

#[test]
fn unknown_times_count_with_the_mean() {
    let mut queue = SessionQueue::new(sessions(1, 1));
    let copy = ResourceRequest { streams: 1, unbounded: true, ..ResourceRequest::default() };
    let ids = [0, 1, 2].map(|who| request(&mut queue, who, copy));
    assert_eq!([1, 2].map(|at| position(&queue, ids[at], 5)), [(0, None), (1, None)]);
    queue.end(ids[0], at(20));
    let last = queue.request(client(3), seconds(5), at(20)).unwrap();
    assert_eq!([ids[2], last].map(|id| position(&queue, id, 25)), [(0, Some(20)), (1, Some(40))]);
}

#[test]
fn wait_is_unknown_after_overtime() {
    let mut queue = SessionQueue::new(sessions(1, 1));
    let late = ResourceRequest { grace: Duration::from_secs(30), ..seconds(10) };
    let next = [0, 1].map(|who| request(&mut queue, who, late))[1];
    let waits = [0, 20, 39, 40].map(|now| position(&queue, next, now).1);
    assert_eq!(waits, [Some(40), Some(20), Some(1), None]);
}

#[test]
fn waiting_session_learns_the_scope_of_its_limit() {
    let mut queue = SessionQueue::new(sessions(2, 1));
    let ids = [0, 0, 1, 1, 2].map(|who| request(&mut queue, who, seconds(10)));
    let positions = [1, 3, 4].map(|at| queue.position(ids[at], Instant::ZERO).unwrap());
    assert_eq!(positions.map(|position| position.own_limit), [true, true, false]);
    assert_eq!(positions.map(|position| position.ahead), [0, 0, 2], "only sessions that wait for the same limit");
}

#[test]
fn impossible_requests_are_refused_at_once() {
    let limits = ServerLimits { session_streams: 4, test_time: Duration::from_secs(60), ..sessions(1, 1) };
    let mut queue = SessionQueue::new(limits);
    let wide = ResourceRequest { streams: 5, ..seconds(10) };
    assert_eq!(queue.request(client(0), wide, at(0)), Err(Denial::Streams { requested: 5, max: 4 }));
    let long = queue.request(client(0), seconds(61), at(0)).unwrap_err();
    assert_eq!(long.to_string(), "a test of 61 s requested, but the server allows 60 s");
}

/// Checks the refusal of a client after the sessions of the accepted clients.
fn check_full_queue(total: u32, own: u32, accepted: &[u8], refused: u8, text: &str) {
    let mut limits = sessions(1, 1);
    (limits.total.queue, limits.client.queue) = (total, own);
    let mut queue = SessionQueue::new(limits);
    let ids: Vec<u64> = accepted.iter().map(|who| request(&mut queue, *who, seconds(9))).collect();
    let denial = queue.request(client(refused), seconds(9), at(0)).unwrap_err();
    assert_eq!((denial.to_string(), denial.hint()), (text.into(), format!("try again in {} s", 9 * ids.len() + 1)));
    // A session that ends or leaves gives its place to another.
    queue.end(*ids.last().unwrap(), at(1));
    request(&mut queue, refused, seconds(9));
}

#[test]
fn full_queue_refuses_with_a_hint() {
    let own = "this client has reached its limit on the server, and";
    check_full_queue(3, 2, &[0, 0, 0], 0, &format!("{own} 2 sessions of this client are waiting"));
    let total = "the server is full, and 3 sessions of all clients together are waiting";
    check_full_queue(3, 2, &[0, 0, 0, 1], 2, total);
    for [total, client] in [[0, 9], [9, 0], [0, 0]] {
        check_full_queue(total, client, &[0], 0, &format!("{own} no session may wait"));
        check_full_queue(total, client, &[0], 1, "the server is full, and no session may wait");
    }
}

#[test]
fn bytes_and_time_return_after_the_window() {
    let mut limits = ServerLimits { quota_window: Duration::from_secs(3600), ..sessions(4, 4) };
    (limits.client.bytes, limits.client.time) = (Some(Bytes(1000)), Some(Duration::from_secs(100)));
    let mut queue = SessionQueue::new(limits);
    let id = request(&mut queue, 0, seconds(60));
    let granted = queue.grant(id).unwrap();
    assert_eq!((granted.bytes, granted.time), (Some(Bytes(1000)), Some(Duration::from_secs(60))));
    assert_eq!(queue.take(id, Bytes(900), at(1)), Bytes(900));
    assert_eq!(queue.take(id, Bytes(900), at(2)), Bytes(100), "no more than is left");
    queue.refund(id, Bytes(40));
    queue.end(id, at(60));
    let bytes = ResourceRequest { bytes: Some(Bytes(41)), ..seconds(1) };
    let cases = [
        (
            bytes,
            "byte quota of this client: 40 B of 1 kB per 1 h left, 41 B requested",
            "copy 40 B or less, or try again in 1 h; --client-bytes of lfn serve sets the limit",
        ),
        (
            seconds(41),
            "time quota of this client: 40 s of 100 s per 1 h left, 41 s requested",
            "use --time 40 or less, or try again in 1 h 01 min; --client-time of lfn serve sets the limit",
        ),
    ];
    for (request, text, hint) in cases {
        let denial = queue.request(client(0), request, at(60)).unwrap_err();
        assert_eq!((denial.to_string().as_str(), denial.hint().as_str()), (text, hint));
    }
    queue.request(client(1), seconds(60), at(60)).expect("another client has its own");
    queue.request(client(0), seconds(60), at(3600 + 121)).expect("all of it came back");
}

/// A session whose quota is used up while it waits is refused.
#[test]
fn quota_is_checked_again_after_the_wait() {
    let mut limits = sessions(1, 4);
    limits.client.time = Some(Duration::from_secs(100));
    let mut queue = SessionQueue::new(limits);
    let [first, second] = [100, 90].map(|time| request(&mut queue, 0, seconds(time)));
    assert!(matches!(queue.charge_time(first, at(100)), Err(Denial::Quota { scope: LimitScope::Client, .. })));
    let decisions = queue.end(first, at(100));
    assert!(matches!(decisions[..], [QueueDecision { id, outcome: Err(_) }] if id == second), "{decisions:?}");
}

#[test]
fn byte_quota_is_checked_before_moving_data() {
    let mut limits = ServerLimits { quota_window: Duration::from_secs(3600), ..sessions(4, 4) };
    limits.client.bytes = Some(Bytes(1000));
    let mut queue = SessionQueue::new(limits);
    assert!(queue.counts_bytes() && !SessionQueue::new(sessions(4, 4)).counts_bytes());
    let [one, other] = [0, 0].map(|who| request(&mut queue, who, seconds(60)));
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
    let ids: Vec<u64> = (0..6).map(|who| request(&mut queue, who, seconds(10))).collect();
    assert_eq!(queue.grant(ids[0]).unwrap().rate, Some(BitRate(1000)));
    assert_eq!(queue.waiting(), 5, "nothing is left of the rate");
    let decisions = queue.end(ids[0], at(10));
    let rates: Vec<_> = decisions.iter().map(|decision| decision.outcome.unwrap().rate.unwrap().0).collect();
    assert_eq!(rates, [250, 250, 250, 250]);
    // A session that requests less leaves the rest to others.
    let mut queue = SessionQueue::new(limits);
    request(&mut queue, 0, ResourceRequest { rate: Some(BitRate(100)), ..seconds(10) });
    let rest = request(&mut queue, 1, seconds(10));
    assert_eq!(queue.grant(rest).unwrap().rate, Some(BitRate(900)));
}

#[test]
fn maximum_requests_do_not_overflow() {
    let mut queue = SessionQueue::new(sessions(10, 10));
    let (bytes, rate) = (Some(Bytes(u64::MAX)), Some(BitRate(u64::MAX)));
    let most = ResourceRequest { streams: u16::MAX, bytes, rate, unbounded: true, grace: Duration::MAX, ..seconds(0) };
    assert!(matches!(queue.request(client(0), most, at(0)), Err(Denial::Streams { .. })));
    for who in 0..10 {
        for rate in [BitRate(u64::MAX), BitRate(0)] {
            request(&mut queue, who, ResourceRequest { streams: 256, time: None, rate: Some(rate), ..most });
        }
    }
    assert_eq!((queue.running(), queue.position(19, at(2)).unwrap().ahead), (10, 9));
    for id in 0..10 {
        assert_eq!(queue.take(id, Bytes(u64::MAX), at(1)), Bytes(u64::MAX));
        queue.end(id, at(3));
    }
}

/// Uncounted sessions never wait, but each costs threads and memory.
#[test]
fn uncounted_sessions_are_limited() {
    let mut queue = SessionQueue::new(sessions(1, 1));
    let uncounted = ResourceRequest { uncounted: true, ..seconds(10) };
    let ids: Vec<u64> = (0..64).map(|_| request(&mut queue, 0, uncounted)).collect();
    assert!(ids.iter().all(|id| is_running(&queue, *id)));
    assert!(matches!(queue.request(client(1), uncounted, at(0)), Err(Denial::QueueFull { waiting: 0, .. })));
    for who in [0, 0, 1] {
        request(&mut queue, who, seconds(10));
    }
    queue.end(ids[0], at(0));
    // The sessions that wait do not block it.
    let next = request(&mut queue, 0, uncounted);
    assert!(is_running(&queue, next));
    assert_eq!(queue.waiting(), 2);
}

#[test]
fn stopping_queue_refuses_all_sessions() {
    let mut queue = SessionQueue::new(sessions(1, 1));
    let [running, id] = [0, 1].map(|who| request(&mut queue, who, seconds(10)));
    assert_eq!(queue.stop(), [QueueDecision { id, outcome: Err(Denial::Stopping) }]);
    assert_eq!(queue.request(client(1), seconds(10), at(0)), Err(Denial::Stopping));
    assert_eq!((queue.running(), queue.waiting()), (1, 0));
    assert!(queue.end(running, at(10)).is_empty());
}

/// Actions on a queue. Numbers select one of the sessions.
#[derive(Clone, Debug)]
enum Step {
    Request { who: u8, request: ResourceRequest },
    Take { number: usize, bytes: u64 },
    ChargeTime(usize),
    End(usize),
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let optional = |max: u64| prop::option::of(1..max);
    let request =
        (0..4u8, 1..6u16, optional(50), optional(400), optional(900)).prop_map(|(who, streams, time, bytes, rate)| {
            let (time, bytes, rate) = (time.map(Duration::from_secs), bytes.map(Bytes), rate.map(BitRate));
            Step::Request { who, request: ResourceRequest { streams, time, bytes, rate, ..ResourceRequest::default() } }
        });
    let step = prop_oneof![
        4 => request,
        3 => (any::<usize>(), 0..300u64).prop_map(|(number, bytes)| Step::Take { number, bytes }),
        1 => any::<usize>().prop_map(Step::ChargeTime),
        4 => any::<usize>().prop_map(Step::End),
        2 => (0..40u64).prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 1..120)
}

/// A queue, and the sessions and grants that its answers announced.
struct Model {
    queue: SessionQueue,
    limits: ServerLimits,
    now: u64,
    /// Client and grant of each session; a waiting session has no grant.
    sessions: BTreeMap<u64, (u8, Option<ResourceGrant>)>,
    /// Time, client and bytes.
    moved: Vec<(u64, u8, u64)>,
}

impl Model {
    fn step(&mut self, step: &Step) {
        let now = at(self.now);
        let pick = |number: usize| self.sessions.iter().nth(number % self.sessions.len().max(1)).map(|(id, _)| *id);
        match *step {
            Step::Request { who, request } => {
                if let Ok(id) = self.queue.request(client(who), request, now) {
                    self.sessions.insert(id, (who, self.queue.grant(id)));
                }
            }
            Step::Take { number, bytes } => {
                let Some(id) = pick(number) else { return };
                self.moved.push((self.now, self.sessions[&id].0, self.queue.take(id, Bytes(bytes), now).0));
            }
            Step::ChargeTime(number) => {
                let _ = pick(number).map(|id| self.queue.charge_time(id, now));
            }
            Step::End(number) => {
                if let Some(id) = pick(number) {
                    self.end(id);
                }
            }
            Step::Pass(seconds) => self.now += seconds,
        }
    }

    fn end(&mut self, id: u64) {
        self.sessions.remove(&id);
        for QueueDecision { id, outcome } in self.queue.end(id, at(self.now)) {
            let session = self.sessions.get_mut(&id).filter(|(_, grant)| grant.is_none()).expect("a waiting session");
            match outcome {
                Ok(grant) => session.1 = Some(grant),
                Err(_) => drop(self.sessions.remove(&id)),
            }
        }
    }

    fn check(&self) {
        let running: Vec<(u8, ResourceGrant)> =
            self.sessions.values().filter_map(|(who, grant)| Some((*who, (*grant)?))).collect();
        assert_eq!((self.queue.running(), self.queue.waiting()), (running.len(), self.sessions.len() - running.len()));
        let within = |limits: &ResourceLimits, whose: Option<u8>| {
            let counted = || running.iter().filter(|(who, _)| whose.is_none_or(|whose| whose == *who));
            assert!(counted().count() <= limits.sessions as usize);
            assert!(counted().map(|(_, grant)| u32::from(grant.streams)).sum::<u32>() <= limits.streams);
            let rate: u64 = counted().map(|(_, grant)| grant.rate.expect("a part of the rate").0).sum();
            assert!(rate <= limits.rate.unwrap().0, "{rate}");
            // In the window that ends now.
            let since = self.now.saturating_sub(self.limits.quota_window.as_secs());
            let counts = |(when, who, _): &&(u64, u8, u64)| *when >= since && whose.is_none_or(|whose| whose == *who);
            let moved: u64 = self.moved.iter().filter(counts).map(|(.., bytes)| bytes).sum();
            assert!(moved <= limits.bytes.unwrap().0, "{moved}");
        };
        within(&self.limits.total, None);
        (0..4).for_each(|who| within(&self.limits.client, Some(who)));
        let clients = (0..4).filter(|client| running.iter().any(|(who, _)| who == client)).count();
        assert!(clients <= self.limits.clients as usize);
        let waiting = self.sessions.iter().filter(|(_, (_, grant))| grant.is_none());
        for (place, (id, _)) in waiting.enumerate() {
            assert!(self.queue.position(*id, at(self.now)).unwrap().ahead as usize <= place);
        }
    }
}

proptest! {
    #[test]
    fn limits_hold_and_every_session_gets_a_turn(steps in steps()) {
        let total = ResourceLimits {
            sessions: 4, streams: 12, rate: Some(BitRate(1000)), bytes: Some(Bytes(2000)),
            time: Some(Duration::from_secs(600)), queue: 12,
        };
        let own = ResourceLimits {
            sessions: 2, streams: 8, rate: Some(BitRate(600)), bytes: Some(Bytes(900)),
            time: Some(Duration::from_secs(300)), queue: 5,
        };
        let limits = ServerLimits {
            total, client: own, clients: 3, session_streams: 5, test_time: Duration::from_secs(40),
            quota_window: Duration::from_secs(120),
        };
        let queue = SessionQueue::new(limits);
        let mut model = Model { queue, limits, now: 0, sessions: BTreeMap::new(), moved: Vec::new() };
        for step in &steps {
            model.step(step);
            model.check();
        }
        // Every waiting session gets its turn after the sessions before it end, in whatever order they end.
        for _ in 0..=12 {
            let running: Vec<u64> =
                model.sessions.iter().filter(|(_, (_, grant))| grant.is_some()).map(|(id, _)| *id).collect();
            running.into_iter().for_each(|id| model.end(id));
            model.check();
        }
        prop_assert!(model.sessions.is_empty(), "still waiting: {:?}", model.sessions);
    }
}
