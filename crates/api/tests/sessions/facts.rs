//! Facts of both hosts: between two ends of this version, with an earlier server, and with a hostile one.

use std::time::{Duration, Instant};

use lfn_api::service;
use lfn_measure::facts;
use lfn_session::server::{ServerConfig, ServerSession, Service};
use lfn_session::wire::{Refusal, RefusalCode, Request};
use lfn_session::{Rights, SessionError};
use serde_json::json;
use support::TestServer;

use crate::support;

fn served(service: impl Service) -> TestServer {
    TestServer::start(support::config(), service)
}

#[test]
fn both_ends_report_their_facts() {
    let server = served(service::new());
    let ends = facts::of_both_ends(&server.target()).unwrap();
    let (near, far) = (ends.near.unwrap(), ends.far.unwrap());
    assert_eq!((&near.release, &near.sysctls), (&far.release, &far.sysctls), "both ends are this host");
    assert!(near.sysctls.contains_key("net.ipv4.tcp_wmem") && !near.congestion_available.is_empty(), "{near:?}");
    for facts in [near, far] {
        assert!(facts.interface.is_some_and(|interface| interface.loopback));
        assert!(facts.route.is_some_and(|route| route.gateway.is_none()));
    }
    assert!(server.log.lock().iter().any(|event| event.contains("facts")), "{:?}", server.log.lock());
}

#[test]
fn facts_need_the_right_to_test() {
    for (rights, permitted) in [("test", true), ("create", false)] {
        let rights: Rights = rights.parse().unwrap();
        let server = TestServer::start(ServerConfig { rights, ..support::config() }, service::new());
        let found = facts::of_both_ends(&server.target());
        assert_eq!(found.is_ok_and(|ends| ends.far.is_some()), permitted, "{rights:?}");
    }
}

/// An earlier version cannot parse the request.
#[test]
fn earlier_server_leaves_the_far_facts_absent() {
    let server = served(|_, _| {
        Err(SessionError::Refused(Refusal::new(RefusalCode::BadMessage, "unknown variant `facts`, expected `test`")))
    });
    let ends = facts::of_both_ends(&server.target()).unwrap();
    assert_eq!(ends.far, None);
    let notes = ends.near.unwrap().unreadable;
    assert!(!notes.contains(&facts::EARLIER_VERSION.to_owned()), "{notes:?}");
}

#[test]
fn other_refusals_are_errors() {
    let server = served(|_, _| Err(SessionError::Refused(Refusal::new(RefusalCode::Forbidden, "no"))));
    let error = facts::of_both_ends(&server.target()).unwrap_err();
    assert!(matches!(error, SessionError::Refused(refusal) if refusal.code == RefusalCode::Forbidden));
}

#[test]
fn facts_of_a_hostile_server_are_bounded() {
    fn serve(session: &mut ServerSession, _: &Request) -> Result<(), SessionError> {
        let sysctls: serde_json::Map<_, _> = (0..500).map(|n| (format!("a{n};reboot"), json!("$(reboot)"))).collect();
        session.control.send(&json!({ "unknown": [{}], "facts": {
            "release": "\u{1b}[2J".repeat(100), "is_root": true, "sysctls": sysctls,
            "congestion_available": ["`reboot`"], "congestion_allowed": [],
            "interface": { "name": "eth0\nroot: reboot", "mtu_bytes": 1500 },
            "unreadable": ["x\r\ny"], "unknown": { "a": 1 },
        } }))
    }
    let server = served(serve);
    let far = facts::of_both_ends(&server.target()).unwrap().far.unwrap();
    assert_eq!((far.sysctls.len(), far.release.chars().count()), (128, 64));
    assert!(far.sysctls.iter().all(|(name, value)| name.ends_with("_reboot") && value == "__reboot_"), "{far:?}");
    assert_eq!(far.congestion_available, ["_reboot_"]);
    assert_eq!(far.interface.unwrap().name, "eth0_root:_reboot");
    assert_eq!(far.unreadable, ["x  y"]);
}

#[test]
fn too_long_or_false_facts_are_errors() {
    fn long(session: &mut ServerSession, _: &Request) -> Result<(), SessionError> {
        session.control.send(&json!({ "facts": { "release": "x".repeat(100_000) } }))
    }
    fn huge(session: &mut ServerSession, _: &Request) -> Result<(), SessionError> {
        session.control.send(&json!({ "facts": {
            "release": "6.8.0", "is_root": false, "sysctls": {}, "congestion_available": [], "congestion_allowed": [],
            "memory_bytes": u64::MAX,
        } }))
    }
    fn other(session: &mut ServerSession, _: &Request) -> Result<(), SessionError> {
        session.control.send(&json!({ "facts": [1, 2, 3] }))
    }
    for service in [long, huge, other] {
        let server = served(service);
        let error = facts::of_both_ends(&server.target()).unwrap_err();
        assert!(matches!(error, SessionError::Frame(_)), "{error:?}");
    }
}

#[test]
fn silent_server_is_left_in_time() {
    fn serve(session: &mut ServerSession, _: &Request) -> Result<(), SessionError> {
        let ended = session.control.recv::<()>(Duration::from_secs(60), "in a test");
        assert!(ended.is_err(), "the client gives up");
        Ok(())
    }
    let server = served(serve);
    let mut target = server.target();
    target.connect_timeout = Duration::from_secs(1);
    let begun = Instant::now();
    let error = facts::of_both_ends(&target).unwrap_err();
    assert!(matches!(error, SessionError::Timeout { .. }), "{error:?}");
    assert!(begun.elapsed() < Duration::from_secs(30));
}
