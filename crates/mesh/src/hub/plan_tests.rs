//! Tests of the announced plans, with a clock that stands still until a test moves it.

use std::cell::Cell;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::{Hub, HubEvent, HubOptions, HubPlan, MeshSecret};
use crate::archive::Archive;
use crate::entry::{Entry, EntryKind, RawJson};
use crate::sync::{NumberedEntry, SyncRequest};

thread_local! {
    static NOW: Cell<u64> = const { Cell::new(0) };
}

fn clock() -> Duration {
    NOW.with(|now| Duration::from_secs(now.get()))
}

fn file(site: &str) -> HubPlan {
    let test = "[[test]]\nname = \"t\"\nkind = \"load\"\ninterval = \"1h\"\ntime = \"10s\"\n";
    let sites = format!(
        "[[site]]\nname = \"a\"\naddress = \"a.example\"\n[[site]]\nname = \"{site}\"\naddress = \"b.example\"\n"
    );
    HubPlan::parse(format!("name = \"m\"\n{sites}{test}")).unwrap()
}

/// Starts a hub at a time in seconds, with the sites file that has a site of this name.
fn hub(directory: &Path, now: u64, site: &str) -> Hub {
    start(directory, now, file(site)).0
}

type Events = Arc<Mutex<Vec<HubEvent>>>;

/// Starts a hub at a time in seconds, and returns the list to which it adds its events.
fn start(directory: &Path, now: u64, plan: HubPlan) -> (Hub, Events) {
    NOW.set(now);
    let options = HubOptions {
        plan,
        plan_file: directory.join("plan.json"),
        secret: MeshSecret::from_bytes([7; 32]),
        registry: directory.join("agents.json"),
        tickets: Default::default(),
        keep_detail: Duration::from_secs(1000),
        clock,
    };
    let events = Events::default();
    let log = events.clone();
    let archive = Archive::open(&directory.join("archive")).unwrap();
    let hub = Hub::start(options, archive, move |event| log.lock().unwrap().push(event.clone())).unwrap();
    (hub, events)
}

fn peer() -> SocketAddr {
    "192.0.2.1:40000".parse().unwrap()
}

/// Returns a sites file in which the hosts a, b, c and d have these pairs.
fn pairs(sites: &str, pairs: &[(&str, &str)]) -> HubPlan {
    let sites: String =
        sites.chars().map(|name| format!("[[site]]\nname = \"{name}\"\naddress = \"{name}.example\"\n")).collect();
    let pairs: Vec<String> = pairs.iter().map(|(from, to)| format!("[\"{from}\", \"{to}\"]")).collect();
    let group = format!("[[group]]\nname = \"g\"\nkind = \"list\"\npairs = [{}]\n", pairs.join(", "));
    let test = "[[test]]\nname = \"t\"\nkind = \"load\"\ngroup = \"g\"\ninterval = \"1h\"\ntime = \"10s\"\n";
    HubPlan::parse(format!("name = \"m\"\n{sites}{group}{test}")).unwrap()
}

/// Returns the clients of an agent in its access list, which are also its targets.
fn clients(hub: &Hub, agent: &str) -> Vec<String> {
    let access = hub.answer(agent, peer(), SyncRequest::default()).unwrap().access.unwrap().access;
    let targets: Vec<_> = access.targets.iter().map(|target| target.host.clone()).collect();
    let clients: Vec<_> = access.clients.into_iter().map(|client| client.host).collect();
    assert_eq!(clients, targets);
    clients
}

/// Returns the name of the second site of the announced plan, and the second from which the plan is valid.
fn announced(hub: &Hub) -> (String, u64) {
    let plan = hub.plan();
    (plan.sites.sites[1].name.clone(), plan.valid_from.as_secs())
}

#[test]
fn a_hub_announces_one_plan_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let first = hub(directory.path(), 6000, "first");
    assert_eq!(announced(&first), ("first".to_owned(), 0));
    // Notice, slot and guard are 107 s; plans begin with a minute.
    assert_eq!(first.announce(file("second")), Some(Duration::from_secs(6120)));
    assert_eq!(first.announce(file("third")), None);
    assert_eq!(announced(&first), ("second".to_owned(), 6120));
    NOW.set(6119);
    assert!(first.is_plan_pending());
    NOW.set(6120);
    assert!(!first.is_plan_pending());
    assert_eq!(first.announce(file("third")), Some(Duration::from_secs(6240)));
}

#[test]
fn a_restarted_hub_announces_the_same_time() {
    let directory = tempfile::tempdir().unwrap();
    let start = |now, site| announced(&hub(directory.path(), now, site));
    assert_eq!(start(6000, "first"), ("first".to_owned(), 0));
    // The file changed while the hub was down.
    assert_eq!(start(6001, "second"), ("second".to_owned(), 6120));
    assert_eq!(start(6002, "second"), ("second".to_owned(), 6120));
    // It changed again before the agents followed the first change.
    assert_eq!(start(6003, "third"), ("second".to_owned(), 6120));
    assert_eq!(start(6120, "third"), ("third".to_owned(), 6240));
    std::fs::write(directory.path().join("plan.json"), "{").unwrap();
    assert_eq!(start(9000, "third"), ("third".to_owned(), 0));
}

#[test]
fn agents_receive_a_plan_with_its_time_once() {
    let directory = tempfile::tempdir().unwrap();
    let hub = hub(directory.path(), 6000, "first");
    let ask = |plan: Option<&str>| {
        let request = SyncRequest { plan: plan.map(str::to_owned), ..SyncRequest::default() };
        hub.answer("a", peer(), request).unwrap().plan
    };
    let first = ask(None).unwrap();
    assert_eq!((first.valid_from, ask(Some(&first.digest))), (Duration::ZERO, None));
    hub.announce(file("second"));
    let second = ask(Some(&first.digest)).unwrap();
    assert_eq!((second.valid_from, ask(Some(&second.digest))), (Duration::from_secs(6120), None));
    assert!(second.sites.contains("second"));
    // The same file has another time after it was away.
    NOW.set(6120);
    hub.announce(file("first"));
    assert_eq!(ask(Some(&first.digest)).unwrap().valid_from, Duration::from_secs(6240));
}

#[test]
fn a_saved_time_far_in_the_future_is_ignored() {
    let directory = tempfile::tempdir().unwrap();
    let years = 300_000_000;
    let first = hub(directory.path(), 6000, "first");
    // The clock of the hub is years ahead when the sites file changes.
    NOW.set(years);
    assert_eq!(first.announce(file("second")), Some(Duration::from_secs(years + 120)));
    drop(first);
    for now_in_file in ["second", "third"] {
        std::fs::copy(directory.path().join("plan.json"), directory.path().join("saved")).unwrap();
        let (again, events) = start(directory.path(), 6001, file(now_in_file));
        assert_eq!(announced(&again), (now_in_file.to_owned(), 6120));
        let was = Duration::from_secs(years + 120);
        let event = HubEvent::AnnouncedAgain { was, valid_from: Duration::from_secs(6120) };
        assert_eq!(*events.lock().unwrap(), [event]);
        std::fs::rename(directory.path().join("saved"), directory.path().join("plan.json")).unwrap();
    }
}

#[test]
fn a_running_hub_announces_again_after_its_clock_was_set_back() {
    let directory = tempfile::tempdir().unwrap();
    let years = 300_000_000;
    let (hub, events) = start(directory.path(), 6000, file("first"));
    NOW.set(years);
    hub.announce(file("second"));
    NOW.set(6001);
    assert!(hub.is_plan_pending());
    assert_eq!(announced(&hub), ("second".to_owned(), 6120));
    assert_eq!(events.lock().unwrap().len(), 1);
    NOW.set(6120);
    assert!(!hub.is_plan_pending());
    assert_eq!(announced(&self::hub(directory.path(), 6121, "second")), ("second".to_owned(), 6120));
}

#[test]
fn partners_of_both_plans_have_access_until_the_change() {
    let directory = tempfile::tempdir().unwrap();
    let hub = start(directory.path(), 6000, pairs("abcd", &[("a", "b"), ("a", "c")])).0;
    assert_eq!(clients(&hub, "a"), ["b", "c"]);
    let second = || pairs("abcd", &[("a", "c"), ("a", "d")]);
    assert_eq!(hub.announce(second()), Some(Duration::from_secs(6120)));
    assert_eq!(clients(&hub, "a"), ["b", "c", "d"]);
    drop(hub);
    let again = start(directory.path(), 6001, second()).0;
    assert_eq!(
        (clients(&again, "a"), clients(&again, "b")),
        (vec!["b".into(), "c".into(), "d".into()], vec!["a".into()])
    );
    NOW.set(6120);
    assert_eq!(clients(&again, "a"), ["c", "d"]);
}

#[test]
fn removed_hosts_lose_their_access_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let all = [("a", "b"), ("a", "c"), ("a", "d")];
    let (hub, events) = start(directory.path(), 6000, pairs("abcd", &all));
    hub.announce(pairs("abc", &all[..2]));
    // The announced plan removes d.
    assert_eq!(
        (clients(&hub, "a"), hub.agents()),
        (vec!["b".into(), "c".into()], vec!["a".into(), "b".into(), "c".into()])
    );
    let refusal = hub.answer("d", peer(), SyncRequest::default()).unwrap_err();
    assert!(refusal.message.contains("no host d"), "{refusal:?}");
    // The file changes again before the plan is valid.
    let third = || pairs("ab", &all[..1]);
    hub.remove_missing_hosts(third().sites);
    assert_eq!((clients(&hub, "a"), hub.agents()), (vec!["b".to_owned()], vec!["a".into(), "b".into()]));
    assert!(hub.answer("c", peer(), SyncRequest::default()).is_err());
    assert!(events.lock().unwrap().contains(&HubEvent::HostsRemoved { hosts: vec!["c".into()] }));
    drop(hub);
    let again = start(directory.path(), 6001, third()).0;
    assert_eq!((clients(&again, "a"), again.agents()), (vec!["b".to_owned()], vec!["a".into(), "b".into()]));
}

#[test]
fn a_second_instance_is_refused_and_logged_once() {
    let directory = tempfile::tempdir().unwrap();
    let (hub, events) = start(directory.path(), 6000, file("b"));
    let ask = |instance: &str| {
        hub.answer("a", peer(), SyncRequest { instance: instance.to_owned(), ..SyncRequest::default() })
    };
    ask("one").unwrap();
    for _ in 0..2 {
        let refusal = ask("two").unwrap_err();
        assert!(refusal.message.contains("ticket of a") && refusal.hint.is_some(), "{refusal:?}");
    }
    let is_second = |event: &&HubEvent| matches!(event, HubEvent::SecondInstance { .. });
    assert_eq!(events.lock().unwrap().iter().filter(is_second).count(), 1);
    NOW.set(6060);
    ask("two").unwrap();
}

#[test]
fn entries_about_unknown_hosts_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let seconds = Duration::from_secs(5000);
    let entry = |to: &str| Entry::new(EntryKind::Load, "a", to, seconds);
    Archive::open(&directory.path().join("archive")).unwrap().insert(&[entry("old")], seconds).unwrap();
    let hub = hub(directory.path(), 6000, "b");
    let entries = (1..).zip(["b", "old", "unknown"]);
    let entries = entries.map(|(number, to)| NumberedEntry { number, entry: RawJson::of(&entry(to)).unwrap() });
    let request = SyncRequest { entries: entries.collect(), ..SyncRequest::default() };
    let reply = hub.answer("a", peer(), request).unwrap();
    let refused: Vec<_> = reply.refused.iter().map(|refused| refused.number).collect();
    assert_eq!((refused, reply.acknowledged), (vec![3], Some(3)));
}
