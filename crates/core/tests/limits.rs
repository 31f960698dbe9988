//! Quotas and queue in virtual time: limits always hold, no session is starved, and waiting sessions learn their wait.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking, its helpers too")]

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use lfn_core::limits::{AdmissionGate, Client, Denial, QuotaLimits, QuotaScope, Quotas, SessionDemand, SessionGrant};
use lfn_core::time::Instant;
use lfn_core::units::{BitRate, Bytes};
use proptest::prelude::*;

const NOBODY_LIMITS: QuotaLimits =
    QuotaLimits { sessions: 1000, streams: 100_000, rate: None, bytes: None, time: None };

fn client(number: u8) -> Client {
    Client::of(IpAddr::V4(Ipv4Addr::new(192, 0, 2, number)))
}

fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

fn seconds(seconds: u64) -> SessionDemand {
    SessionDemand { streams: 1, time: Some(Duration::from_secs(seconds)), ..SessionDemand::default() }
}

fn quotas(all: u32, own: u32) -> Quotas {
    Quotas {
        all: QuotaLimits { sessions: all, ..NOBODY_LIMITS },
        client: QuotaLimits { sessions: own, ..NOBODY_LIMITS },
        clients: 1000,
        ..Quotas::default()
    }
}

/// Returns the admitted sessions in order.
fn admitted(gate: &mut AdmissionGate, now: Instant) -> Vec<u64> {
    gate.admit(now).into_iter().filter(|turn| turn.outcome.is_ok()).map(|turn| turn.id).collect()
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
fn clients_take_turns_and_sessions_keep_order() {
    let mut gate = AdmissionGate::new(quotas(1, 1));
    let mut ids = HashMap::new();
    // Client 0 sends four requests before any other client.
    for (name, who) in [("a1", 0), ("a2", 0), ("a3", 0), ("a4", 0), ("b1", 1), ("c1", 2), ("b2", 1)] {
        ids.insert(gate.enqueue(client(who), seconds(10), at(0)).unwrap(), name);
    }
    let mut order = Vec::new();
    let mut now = 0;
    while let [id] = admitted(&mut gate, at(now))[..] {
        order.push(ids[&id]);
        now += 10;
        gate.end(id, at(now));
    }
    assert_eq!(order, ["a1", "b1", "c1", "a2", "b2", "a3", "a4"]);
}

#[test]
fn large_session_is_not_starved() {
    let mut limits = quotas(4, 1);
    limits.all.streams = 10;
    let mut gate = AdmissionGate::new(limits);
    let of = |streams| SessionDemand { streams, ..seconds(10) };
    let first = gate.enqueue(client(0), of(6), at(0)).unwrap();
    let own = gate.enqueue(client(0), of(1), at(0)).unwrap();
    let large = gate.enqueue(client(1), of(8), at(0)).unwrap();
    let small = gate.enqueue(client(2), of(1), at(0)).unwrap();
    // The second session of client 0 waits for its first. The large session waits for streams, and the small session
    // for the large session.
    assert_eq!(admitted(&mut gate, at(0)), [first]);
    gate.end(first, at(10));
    assert_eq!(admitted(&mut gate, at(10)), [large, small, own], "client 0 has just had its turn");
}

#[test]
fn waiting_session_learns_position_and_wait() {
    let mut gate = AdmissionGate::new(quotas(2, 2));
    for who in 0..2 {
        gate.enqueue(client(who), seconds(10 + 20 * u64::from(who)), at(0)).unwrap();
    }
    assert_eq!(admitted(&mut gate, at(0)), [0, 1]);
    for who in 2..5 {
        gate.enqueue(client(who), seconds(10), at(0)).unwrap();
    }
    assert!(admitted(&mut gate, at(4)).is_empty());
    let expected = gate.expected(at(4));
    let told = |id| (expected[&id].ahead, expected[&id].wait.map(|wait| wait.as_secs()));
    // One second of overhead per session: free at 11, 22, 31.
    assert_eq!([told(2), told(3), told(4)], [(0, Some(7)), (1, Some(18)), (2, Some(27))]);
    // The wait for a copy without declared duration and without progress is unknown.
    let mut gate = AdmissionGate::new(quotas(1, 1));
    let copy = SessionDemand { streams: 1, bytes: Some(Bytes(1000)), unbounded: true, ..SessionDemand::default() };
    let copy = gate.enqueue(client(0), copy, at(0)).unwrap();
    assert_eq!(admitted(&mut gate, at(0)), [copy]);
    let waits = gate.enqueue(client(1), seconds(10), at(0)).unwrap();
    let behind = gate.enqueue(client(1), seconds(10), at(0)).unwrap();
    let expected = gate.expected(at(0));
    assert_eq!((expected[&waits].wait, expected[&waits].ahead), (None, 0));
    assert_eq!((expected[&behind].wait, expected[&behind].ahead), (None, 1));
    // One quarter in five seconds: fifteen more seconds, and one second of overhead.
    assert_eq!(gate.take(copy, Bytes(1000), at(5)), Bytes(1000));
    assert_eq!(gate.expected(at(5))[&waits].wait, None, "what is taken beforehand is not moved");
    gate.moved(copy, Bytes(250));
    assert_eq!(gate.expected(at(5))[&waits].wait, Some(Duration::from_secs(16)));
}

#[test]
fn wait_is_unknown_after_overtime() {
    let mut gate = AdmissionGate::new(quotas(1, 1));
    let late = SessionDemand { grace: Duration::from_secs(30), ..seconds(10) };
    gate.enqueue(client(0), late, at(0)).unwrap();
    assert_eq!(admitted(&mut gate, at(0)), [0]);
    let next = gate.enqueue(client(1), late, at(0)).unwrap();
    let last = gate.enqueue(client(1), seconds(10), at(0)).unwrap();
    let told = |gate: &AdmissionGate, now, id| gate.expected(at(now))[&id].wait.map(|wait| wait.as_secs());
    assert_eq!((told(&gate, 0, next), told(&gate, 0, last)), (Some(41), Some(82)));
    assert_eq!((told(&gate, 20, next), told(&gate, 40, next)), (Some(21), Some(1)));
    assert_eq!((told(&gate, 41, next), told(&gate, 60, last)), (None, None));
}

#[test]
fn waiting_session_learns_quota_scope() {
    let mut gate = AdmissionGate::new(quotas(2, 1));
    for who in [0, 0, 1, 1, 2] {
        gate.enqueue(client(who), seconds(10), at(0)).unwrap();
        gate.admit(at(0));
    }
    let expected = gate.expected(at(0));
    let limits = [1, 3, 4].map(|id| expected[&id].limited_by);
    assert_eq!(limits, [QuotaScope::Client, QuotaScope::Client, QuotaScope::All]);
}

#[test]
fn impossible_demands_are_rejected_at_once() {
    let mut gate =
        AdmissionGate::new(Quotas { session_streams: 4, session_time: Duration::from_secs(60), ..quotas(1, 1) });
    let many = SessionDemand { streams: 5, ..seconds(1) };
    assert_eq!(gate.enqueue(client(0), many, at(0)), Err(Denial::Streams { requested: 5, max: 4 }));
    let long = gate.enqueue(client(0), seconds(61), at(0)).unwrap_err();
    assert_eq!(long.to_string(), "a test of 61 s requested, but the server allows 60 s");
    let mut gate = AdmissionGate::new(Quotas { queue: 3, client_queue: 2, ..quotas(1, 1) });
    for who in [0, 0, 0] {
        gate.enqueue(client(who), seconds(9), at(0)).unwrap_or_else(|denied| panic!("{denied}"));
        gate.admit(at(0));
    }
    let full = gate.enqueue(client(0), seconds(9), at(0)).unwrap_err();
    let (scope, limited_by, wait) = (QuotaScope::Client, QuotaScope::Client, Some(Duration::from_secs(20)));
    assert_eq!(full, Denial::QueueFull { limited_by, scope, waiting: 2, wait });
    let text = "this client has reached its limit on the server, and 2 sessions of this client are waiting";
    assert_eq!(full.to_string(), text);
    assert_eq!(full.hint(), "try again in 21 s");
    gate.enqueue(client(1), seconds(9), at(0)).unwrap();
    assert!(matches!(
        gate.enqueue(client(2), seconds(9), at(0)),
        Err(Denial::QueueFull { scope: QuotaScope::All, .. })
    ));
}

#[test]
fn queue_length_zero_rejects_at_once() {
    for (queue, client_queue, scope) in
        [(0, 9, QuotaScope::All), (9, 0, QuotaScope::Client), (0, 0, QuotaScope::Client)]
    {
        let mut gate = AdmissionGate::new(Quotas { queue, client_queue, ..quotas(1, 1) });
        let first = gate.enqueue(client(0), seconds(10), at(0)).unwrap();
        assert_eq!(admitted(&mut gate, at(0)), [first]);
        for (who, limited_by) in [(0, QuotaScope::Client), (1, QuotaScope::All)] {
            let denied = gate.enqueue(client(who), seconds(10), at(1)).unwrap_err();
            assert_eq!(denied, Denial::QueueFull { limited_by, scope, waiting: 0, wait: None });
            let full = ["this client has reached its limit on the server", "the server is full"];
            assert_eq!(denied.to_string(), format!("{}, and no session may wait", full[usize::from(who)]));
        }
        gate.end(first, at(10));
        let next = gate.enqueue(client(1), seconds(10), at(10)).unwrap();
        assert_eq!(admitted(&mut gate, at(10)), [next]);
    }
}

#[test]
fn bytes_and_time_return_after_the_window() {
    let mut limits = quotas(4, 4);
    limits.window = Duration::from_secs(3600);
    (limits.client.bytes, limits.client.time) = (Some(Bytes(1000)), Some(Duration::from_secs(100)));
    let mut gate = AdmissionGate::new(limits);
    let id = gate.enqueue(client(0), seconds(60), at(0)).unwrap();
    let allowed = gate.admit(at(0))[0].outcome.unwrap();
    assert_eq!((allowed.bytes, allowed.time), (Some(Bytes(1000)), Some(Duration::from_secs(60))));
    assert_eq!(gate.take(id, Bytes(900), at(1)), Bytes(900));
    assert_eq!(gate.take(id, Bytes(900), at(2)), Bytes(100), "no more than is left");
    gate.refund(id, Bytes(40));
    gate.end(id, at(60));
    let bytes = SessionDemand { bytes: Some(Bytes(41)), ..seconds(1) };
    let denied = gate.enqueue(client(0), bytes, at(60)).unwrap_err();
    assert!(denied.to_string().starts_with("byte quota of this client: 40 B of 1 kB per 1 h left"), "{denied}");
    assert!(denied.to_string().ends_with("41 B requested"), "{denied}");
    let denied = gate.enqueue(client(0), seconds(41), at(60)).unwrap_err();
    assert!(matches!(denied, Denial::Seconds { remaining, .. } if remaining == Duration::from_secs(40)), "{denied:?}");
    gate.enqueue(client(1), seconds(60), at(60)).expect("another client has its own");
    gate.enqueue(client(0), seconds(60), at(3600 + 121)).expect("all of it came back");
    // If the quota is used up while a session waits, the session is rejected at its turn.
    let mut gate = AdmissionGate::new(Quotas { all: QuotaLimits { sessions: 1, ..limits.all }, ..limits });
    let first = gate.enqueue(client(0), seconds(100), at(0)).unwrap();
    let second = gate.enqueue(client(0), seconds(90), at(0)).unwrap();
    assert_eq!(admitted(&mut gate, at(0)), [first]);
    assert!(matches!(gate.spend(first, at(100)), Err(Denial::Seconds { scope: QuotaScope::Client, .. })));
    gate.end(first, at(100));
    let turns = gate.admit(at(100));
    assert_eq!(turns.len(), 1);
    assert!(turns[0].id == second && turns[0].outcome.is_err(), "{turns:?}");
}

#[test]
fn byte_quota_is_checked_before_moving_data() {
    let mut limits = quotas(4, 4);
    limits.window = Duration::from_secs(3600);
    limits.client.bytes = Some(Bytes(1000));
    let mut gate = AdmissionGate::new(limits);
    assert!(gate.counts_bytes() && !AdmissionGate::new(quotas(4, 4)).counts_bytes());
    let [one, other] = [0, 0].map(|who| gate.enqueue(client(who), seconds(60), at(0)).unwrap());
    gate.admit(at(0));
    assert_eq!(gate.affords(one, Bytes(1000), Bytes(1000), at(0)), Ok(()));
    // Bytes that the session took belong to it, not to the other session.
    gate.take(one, Bytes(600), at(1));
    assert_eq!(gate.affords(one, Bytes(1000), Bytes(100), at(1)), Ok(()));
    let denied = gate.affords(one, Bytes(1001), Bytes(301), at(1)).unwrap_err();
    assert!(denied.to_string().starts_with("byte quota of this client: 300 B of 1 kB per 1 h left"), "{denied}");
    assert!(denied.to_string().ends_with("301 B requested"), "{denied}");
    assert_eq!(gate.affords(other, Bytes(400), Bytes(400), at(1)), Ok(()));
    let denied = gate.affords(other, Bytes(u64::MAX), Bytes(u64::MAX), at(1)).unwrap_err();
    assert!(matches!(denied, Denial::Bytes { remaining: Bytes(400), .. }), "{denied:?}");
    // The window has passed, so the full quota is available again.
    assert_eq!(gate.affords(one, Bytes(1600), Bytes(1), at(3600 + 121)), Ok(()));
}

#[test]
fn rate_is_divided_evenly_among_waiting_sessions() {
    let mut limits = quotas(4, 4);
    limits.all.rate = Some(BitRate(1000));
    let mut gate = AdmissionGate::new(limits);
    let id = gate.enqueue(client(0), seconds(10), at(0)).unwrap();
    assert_eq!(gate.admit(at(0))[0].outcome.unwrap().rate, Some(BitRate(1000)));
    for who in 1..6 {
        gate.enqueue(client(who), seconds(10), at(0)).unwrap();
    }
    assert!(gate.admit(at(1)).is_empty(), "nothing is left of the rate, though there are places");
    gate.end(id, at(10));
    let rates: Vec<_> = gate.admit(at(10)).iter().map(|turn| turn.outcome.unwrap().rate.unwrap().0).collect();
    assert_eq!(rates, [250, 250, 250, 250]);
    // A session that requests less leaves the rest to others.
    let mut gate = AdmissionGate::new(limits);
    gate.enqueue(client(0), SessionDemand { rate: Some(BitRate(100)), ..seconds(10) }, at(0)).unwrap();
    gate.admit(at(0));
    gate.enqueue(client(1), seconds(10), at(0)).unwrap();
    assert_eq!(gate.admit(at(0))[0].outcome.unwrap().rate, Some(BitRate(900)));
}

#[test]
fn maximum_demands_do_not_overflow() {
    let mut gate = AdmissionGate::new(quotas(10, 10));
    let most = SessionDemand {
        streams: u16::MAX,
        time: None,
        bytes: Some(Bytes(u64::MAX)),
        rate: Some(BitRate(u64::MAX)),
        unbounded: true,
        grace: Duration::MAX,
        uncounted: false,
    };
    assert!(matches!(gate.enqueue(client(0), most, at(0)), Err(Denial::Streams { .. })));
    for who in 0..10 {
        for rate in [BitRate(u64::MAX), BitRate(0)] {
            gate.enqueue(client(who), SessionDemand { streams: 256, rate: Some(rate), ..most }, at(0)).unwrap();
        }
    }
    let inside = admitted(&mut gate, at(0));
    assert_eq!(inside.len(), 10);
    for id in &inside {
        assert_eq!(gate.take(*id, Bytes(u64::MAX), at(1)), Bytes(u64::MAX));
    }
    assert_eq!(gate.expected(at(2)).len(), 10);
    inside.into_iter().for_each(|id| gate.end(id, at(3)));
}

/// Uncounted sessions never wait, but each costs threads and memory.
#[test]
fn uncounted_sessions_are_limited() {
    let mut gate = AdmissionGate::new(quotas(1, 1));
    let ask = SessionDemand { uncounted: true, ..seconds(10) };
    let inside: Vec<u64> = (0..64).map(|_| gate.enqueue(client(0), ask, at(0)).unwrap()).collect();
    assert_eq!(admitted(&mut gate, at(0)), inside);
    assert!(matches!(gate.enqueue(client(1), ask, at(0)), Err(Denial::QueueFull { waiting: 0, .. })));
    gate.enqueue(client(0), seconds(10), at(0)).unwrap();
    gate.end(inside[0], at(0));
    gate.enqueue(client(1), ask, at(0)).unwrap();
    assert_eq!(admitted(&mut gate, at(0)).len(), 2);
}

#[test]
fn stopping_gate_rejects_all_sessions() {
    let mut gate = AdmissionGate::new(quotas(1, 1));
    let inside = gate.enqueue(client(0), seconds(10), at(0)).unwrap();
    gate.admit(at(0));
    let waits = gate.enqueue(client(1), seconds(10), at(0)).unwrap();
    let turns = gate.stop();
    assert_eq!((turns.len(), turns[0].id, turns[0].outcome), (1, waits, Err(Denial::Stopping)));
    assert_eq!(gate.enqueue(client(1), seconds(10), at(0)), Err(Denial::Stopping));
    assert_eq!((gate.running(), gate.waiting()), (1, 0));
    gate.end(inside, at(10));
    assert_eq!(gate.running(), 0);
}

/// Actions on a gate.
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

/// A gate and its expected state.
struct Model {
    gate: AdmissionGate,
    quotas: Quotas,
    now: u64,
    waiting: VecDeque<(u64, u8)>,
    running: BTreeMap<u64, (u8, SessionGrant)>,
    /// Time, client and bytes.
    moved: Vec<(u64, u8, u64)>,
}

impl Model {
    fn step(&mut self, step: &Step) {
        let now = at(self.now);
        let pick = |index: usize, length: usize| (length > 0).then(|| index % length);
        let inside: Vec<u64> = self.running.keys().copied().collect();
        match *step {
            Step::Ask { who, streams, time, bytes, rate } => {
                let time = time.map(Duration::from_secs);
                let ask = SessionDemand {
                    streams,
                    time,
                    bytes: bytes.map(Bytes),
                    rate: rate.map(BitRate),
                    ..SessionDemand::default()
                };
                if let Ok(id) = self.gate.enqueue(client(who), ask, now) {
                    self.waiting.push_back((id, who));
                }
            }
            Step::Leave(index) => {
                if let Some((id, _)) = pick(index, self.waiting.len()).and_then(|at| self.waiting.remove(at)) {
                    self.gate.leave(id);
                }
            }
            Step::Move(index, bytes) => {
                let Some(id) = pick(index, inside.len()).map(|at| inside[at]) else { return };
                let took = self.gate.take(id, Bytes(bytes), now);
                self.moved.push((self.now, self.running[&id].0, took.0));
            }
            Step::Spend(index) => {
                if let Some(id) = pick(index, inside.len()).map(|at| inside[at]) {
                    let _ = self.gate.spend(id, now);
                }
            }
            Step::End(index) => {
                if let Some(id) = pick(index, inside.len()).map(|at| inside[at]) {
                    self.gate.end(id, now);
                    self.running.remove(&id);
                }
            }
            Step::Pass(seconds) => self.now += seconds,
        }
        self.admit();
    }

    fn admit(&mut self) {
        for turn in self.gate.admit(at(self.now)) {
            let place = self.waiting.iter().position(|(id, _)| *id == turn.id).expect("only who waits has a turn");
            let (_, who) = self.waiting.remove(place).unwrap();
            if let Ok(allowed) = turn.outcome {
                self.running.insert(turn.id, (who, allowed));
            }
        }
    }

    fn check(&self) {
        assert_eq!((self.gate.running(), self.gate.waiting()), (self.running.len(), self.waiting.len()));
        let within = |share: &QuotaLimits, whose: Option<u8>| {
            let mine = || self.running.values().filter(|(who, _)| whose.is_none_or(|whose| whose == *who));
            assert!(mine().count() <= share.sessions as usize);
            assert!(mine().map(|(_, allowed)| u32::from(allowed.streams)).sum::<u32>() <= share.streams);
            let rate: u64 = mine().map(|(_, allowed)| allowed.rate.expect("a part of the rate").0).sum();
            assert!(rate <= share.rate.unwrap().0, "{rate}");
            // In the window that ends now.
            let since = self.now.saturating_sub(self.quotas.window.as_secs());
            let counts = |(when, who, _): &&(u64, u8, u64)| *when >= since && whose.is_none_or(|whose| whose == *who);
            let moved: u64 = self.moved.iter().filter(counts).map(|(.., bytes)| bytes).sum();
            assert!(moved <= share.bytes.unwrap().0, "{moved}");
        };
        within(&self.quotas.all, None);
        (0..4).for_each(|who| within(&self.quotas.client, Some(who)));
        let mut clients: Vec<u8> = self.running.values().map(|(who, _)| *who).collect();
        clients.sort_unstable();
        clients.dedup();
        assert!(clients.len() <= self.quotas.clients as usize);
        let expected = self.gate.expected(at(self.now));
        assert_eq!(expected.len(), self.waiting.len());
        let mut ahead: Vec<usize> = expected.values().map(|expected| expected.ahead).collect();
        ahead.sort_unstable();
        assert!(ahead.iter().copied().eq(0..ahead.len()), "{ahead:?}");
    }
}

proptest! {
    #[test]
    fn limits_hold_and_every_session_gets_a_turn(steps in steps()) {
        let all = QuotaLimits {
            sessions: 4, streams: 12, rate: Some(BitRate(1000)), bytes: Some(Bytes(2000)),
            time: Some(Duration::from_secs(600)),
        };
        let own = QuotaLimits {
            sessions: 2, streams: 8, rate: Some(BitRate(600)), bytes: Some(Bytes(900)),
            time: Some(Duration::from_secs(300)),
        };
        let quotas = Quotas {
            all, client: own, clients: 3, session_streams: 5, session_time: Duration::from_secs(40),
            window: Duration::from_secs(120), queue: 12, client_queue: 5,
        };
        let (waiting, running) = (VecDeque::new(), BTreeMap::new());
        let mut model = Model { gate: AdmissionGate::new(quotas), quotas, now: 0, waiting, running, moved: Vec::new() };
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
                model.gate.end(id, at(model.now));
                model.running.remove(&id);
            }
            model.admit();
            model.check();
        }
    }

    /// Two greedy clients delay the third client by at most one session each.
    #[test]
    fn greedy_client_delays_others_by_one_turn(greedy in 1..40usize, places in 1..4u32) {
        let mut gate = AdmissionGate::new(Quotas { client_queue: 1000, ..quotas(places, places) });
        for who in [0, 1] {
            for _ in 0..greedy {
                gate.enqueue(client(who), seconds(10), at(0)).unwrap();
            }
        }
        let mut running: VecDeque<u64> = admitted(&mut gate, at(0)).into();
        let modest = gate.enqueue(client(2), seconds(10), at(0)).unwrap();
        let mut before = 0;
        for now in 1..100 {
            let turns = admitted(&mut gate, at(now));
            before += turns.iter().take_while(|id| **id != modest).count();
            if turns.contains(&modest) {
                break;
            }
            running.extend(turns);
            let Some(id) = running.pop_front() else { break };
            gate.end(id, at(now));
        }
        prop_assert!(before <= 2, "{before} went before");
    }
}
