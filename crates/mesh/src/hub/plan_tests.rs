//! Tests of the announced plans, with a clock that stands still until a test moves it.

use std::cell::Cell;
use std::path::Path;
use std::time::Duration;

use super::{Hub, HubOptions, HubPlan, MeshSecret};
use crate::archive::Archive;
use crate::sync::SyncRequest;

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
    NOW.set(now);
    let options = HubOptions {
        plan: file(site),
        plan_file: directory.join("plan.json"),
        secret: MeshSecret::from_bytes([7; 32]),
        registry: directory.join("agents.json"),
        tickets: Default::default(),
        keep_detail: Duration::from_secs(1000),
        clock,
    };
    Hub::start(options, Archive::open(&directory.join("archive")).unwrap(), |_| ()).unwrap()
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
    let peer = "192.0.2.1:40000".parse().unwrap();
    let ask = |plan: Option<&str>| {
        let request = SyncRequest { plan: plan.map(str::to_owned), ..SyncRequest::default() };
        hub.answer("a", peer, request).unwrap().plan
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
