//! The hub of a mesh against agents that are wrong: other names, repeated and malformed results, other requests.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use lfn_api::mesh::MeshError;
use lfn_api::mesh::hub::{HubStart, PageStart, RunningHub, agent_ticket, start};
use lfn_mesh::archive::{Archive, EntryFilter};
use lfn_mesh::entry::{Entry, EntryKind, RawJson};
use lfn_mesh::sync::{AgentServers, HubConnection, NumberedEntry, SyncReply, SyncRequest};
use lfn_session::dial::{self, Target};
use lfn_session::wire::facts::FactsRequest;
use lfn_session::wire::{RefusalCode, Request};
use lfn_session::{Fingerprint, SessionError, Ticket, queue};
use serde_json::json;

use crate::support;

const SITES: &str = "name = \"test\"
[[site]]
name = \"a\"
address = \"192.0.2.1\"
[[site]]
name = \"b\"
address = \"192.0.2.2:9000\"
[[site]]
name = \"c\"
host = [{ name = \"c\", address = \"192.0.2.3\", kind = \"iperf3\" }]
[[group]]
name = \"pairs\"
kind = \"list\"
pairs = [[\"a\", \"b\"]]
[[test]]
name = \"goodput\"
kind = \"load\"
group = \"pairs\"
interval = \"1h\"
time = \"10s\"
";

struct Mesh {
    directory: tempfile::TempDir,
    hub: RunningHub,
}

impl Mesh {
    fn start() -> Self {
        Mesh::start_with(SITES)
    }

    fn start_with(text: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("sites.toml"), text).unwrap();
        let hub = start(&Mesh::options(&directory), |_| ()).unwrap();
        Mesh { directory, hub }
    }

    fn options(directory: &tempfile::TempDir) -> HubStart {
        HubStart {
            sites: directory.path().join("sites.toml"),
            state: directory.path().join("hub"),
            archive: directory.path().join("archive.sqlite"),
            bind: Some(Ipv4Addr::LOCALHOST.into()),
            port: Some(0),
            page: PageStart { address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), certificate: None, insecure: false },
        }
    }

    /// Stops the hub, and starts it again with the same state.
    fn restart(self) -> Self {
        let Mesh { directory, hub } = self;
        drop(hub);
        let hub = start(&Mesh::options(&directory), |_| ()).unwrap();
        Mesh { directory, hub }
    }

    fn ticket(&self, host: &str) -> Ticket {
        let at = self.hub.listen().to_string();
        let directory = self.directory.path();
        agent_ticket(&directory.join("sites.toml"), &directory.join("hub"), host, Some(&at)).unwrap()
    }

    fn connect(&self, host: &str) -> HubConnection {
        HubConnection::open(&Target::new(self.ticket(host)).unwrap()).unwrap()
    }

    fn stored(&self) -> Vec<Entry> {
        let mut archive = Archive::open_read_only(&self.directory.path().join("archive.sqlite")).unwrap();
        archive.entries(EntryFilter { texts: true, ..EntryFilter::default() }).unwrap()
    }
}

fn entry(from: &str, to: &str, seconds: u64) -> RawJson {
    RawJson::of(&Entry::new(EntryKind::Latency, from, to, Duration::from_secs(seconds))).unwrap()
}

fn send(connection: &mut HubConnection, entries: Vec<RawJson>) -> SyncReply {
    let entries = (1..).zip(entries).map(|(number, entry)| NumberedEntry { number, entry }).collect();
    connection.exchange(&SyncRequest { entries, ..SyncRequest::default() }).unwrap()
}

#[test]
fn an_agent_reports_only_for_itself() {
    let mesh = Mesh::start();
    let mut connection = mesh.connect("a");
    let lies = vec![entry("b", "c", 1), entry("a", "b", 2), entry("b", "a", 3), entry("c", "b", 4)];
    let reply = send(&mut connection, lies);
    assert_eq!((reply.host.as_str(), reply.acknowledged, reply.refused.len()), ("a", Some(4), 2));
    assert!(reply.refused[0].reason.contains("agent a must not report b to c"), "{:?}", reply.refused);
    let stored: Vec<_> = mesh.stored().iter().map(|entry| entry.time.as_secs()).collect();
    assert_eq!(stored, [2, 3]);
}

#[test]
fn repeated_and_old_entries_are_stored_once() {
    let mesh = Mesh::start();
    for _ in 0..3 {
        let mut connection = mesh.connect("a");
        let reply = send(&mut connection, vec![entry("a", "b", 1), entry("a", "b", 2), entry("a", "b", 1)]);
        assert_eq!((reply.acknowledged, reply.refused.len()), (Some(3), 0));
    }
    assert_eq!(mesh.stored().len(), 2);
}

#[test]
fn malformed_entries_do_not_stop_the_others() {
    let mesh = Mesh::start();
    let mut connection = mesh.connect("a");
    let changed = |key: &str, value: serde_json::Value| {
        let mut entry: serde_json::Value = serde_json::from_str(entry("a", "b", 9).text()).unwrap();
        entry[key] = value;
        RawJson::of(&entry).unwrap()
    };
    let (hostile, unnamed) = (changed("verdict", json!("x".repeat(100_000))), changed("to", json!("<script>")));
    let [text, empty, null] = [json!("text"), json!({}), json!(null)].map(|value| RawJson::of(&value).unwrap());
    let entries = vec![text, empty, hostile, unnamed, null, entry("a", "b", 5)];
    let reply = send(&mut connection, entries);
    assert_eq!((reply.acknowledged, reply.refused.len(), mesh.stored().len()), (Some(6), 5, 1));
}

#[test]
fn entries_ahead_of_the_hub_are_marked() {
    let mesh = Mesh::start();
    send(&mut mesh.connect("a"), vec![entry("a", "b", 32_000_000_000), entry("a", "b", 5)]);
    let marks: Vec<_> = mesh.stored().iter().map(|entry| entry.marks.clock).collect();
    assert_eq!(marks, [false, true]);
}

#[test]
fn agents_receive_the_plan_and_tickets_of_their_pairs() {
    let mesh = Mesh::start();
    let servers = AgentServers { fingerprint: Fingerprint([7; 32]), port: 9001, stamp_port: Some(9003) };
    let request = SyncRequest { servers: Some(servers), ..SyncRequest::default() };
    let of_b = mesh.connect("b").exchange(&request).unwrap().access.unwrap().access;
    let of_a = mesh.connect("a").exchange(&SyncRequest::default()).unwrap();
    assert!(of_a.plan.unwrap().sites.contains("[[site]]"));
    let access = of_a.access.unwrap();
    assert_eq!(access.access.targets.len(), 1);
    let target = &access.access.targets[0];
    let ticket: Ticket = target.ticket.as_ref().unwrap().parse().unwrap();
    assert_eq!((ticket.host.as_str(), ticket.port, ticket.fingerprint), ("192.0.2.2", 9001, Fingerprint([7; 32])));
    assert_eq!(target.stamp.as_deref(), Some("192.0.2.2:9003"));
    // The server accepts the token of the ticket for this client.
    assert!(of_b.clients.iter().any(|client| client.host == "a" && client.token.matches(&ticket.token)));
    let known = SyncRequest { access: Some(access.digest), ..SyncRequest::default() };
    assert!(mesh.connect("a").exchange(&known).unwrap().access.is_none());
}

#[test]
fn reflectors_without_a_port_are_reached_at_port_862() {
    let cases = [
        ("192.0.2.4", "192.0.2.4:862"),
        ("192.0.2.4:9862", "192.0.2.4:9862"),
        ("reflector.example", "reflector.example:862"),
        ("2001:db8::4", "[2001:db8::4]:862"),
        ("[2001:db8::4]", "[2001:db8::4]:862"),
        ("[2001:db8::4]:9862", "[2001:db8::4]:9862"),
    ];
    for (address, reached) in cases {
        let kind = format!("address = \"{address}\"\nkind = \"stamp\"");
        let sites = SITES.replace("address = \"192.0.2.2:9000\"", &kind).replace("\"load\"", "\"latency\"");
        let mesh = Mesh::start_with(&sites);
        let access = mesh.connect("a").exchange(&SyncRequest::default()).unwrap().access.unwrap().access;
        assert_eq!(access.targets[0].stamp.as_deref(), Some(reached));
    }
}

#[test]
fn only_agents_of_the_plan_may_dial_the_hub() {
    let mesh = Mesh::start();
    let directory = mesh.directory.path();
    let ticket = |host: &str| agent_ticket(&directory.join("sites.toml"), &directory.join("hub"), host, Some("h"));
    assert!(ticket("c").unwrap_err().to_string().contains("no agent host c"));
    let stranger = Ticket { token: lfn_session::identity::new_token().unwrap(), ..mesh.ticket("a") };
    let refused = HubConnection::open(&Target::new(stranger).unwrap()).unwrap_err();
    assert!(matches!(refused, SessionError::Refused(refusal) if refusal.code == RefusalCode::WrongToken));
}

/// Opens a session with another request than that of an agent, or at another server.
fn refusal_of(ticket: Ticket, request: Request) -> String {
    let target = Target::new(ticket).unwrap();
    let mut control = dial::open_control(&target, dial::new_session_id().unwrap(), request).unwrap();
    let admitted = queue::wait_for_admission(&mut control, &target.queue, target.connect_timeout, None, || ());
    let received = admitted.and_then(|_| control.recv::<serde_json::Value>(target.connect_timeout, "before a refusal"));
    received.unwrap_err().to_string()
}

#[test]
fn hubs_and_servers_refuse_requests_for_the_other_one() {
    let mesh = Mesh::start();
    let refused = refusal_of(mesh.ticket("a"), Request::Facts(FactsRequest {}));
    assert!(refused.contains("serves no tests"), "{refused}");
    let server = support::TestServer::start(support::config(), lfn_api::service::new());
    let refused = refusal_of(server.ticket.clone(), Request::Mesh(lfn_session::wire::mesh::MeshRequest {}));
    assert!(refused.contains("not the hub of a mesh"), "{refused}");
}

#[test]
fn a_restarted_hub_has_the_servers_of_agents_that_are_away() {
    let mesh = Mesh::start();
    let servers = AgentServers { fingerprint: Fingerprint([7; 32]), port: 9001, stamp_port: None };
    let request = SyncRequest { servers: Some(servers), ..SyncRequest::default() };
    mesh.connect("b").exchange(&request).unwrap();
    let mesh = mesh.restart();
    let access = mesh.connect("a").exchange(&SyncRequest::default()).unwrap().access.unwrap().access;
    assert!(access.targets[0].ticket.is_some(), "{access:?}");
}

#[test]
fn one_state_directory_has_one_hub() {
    let mesh = Mesh::start();
    let error = start(&Mesh::options(&mesh.directory), |_| ()).unwrap_err();
    assert!(matches!(error, MeshError::StateInUse(_)) && error.hint().is_some(), "{error}");
    mesh.restart();
}

#[test]
fn an_agent_has_a_bounded_number_of_sessions() {
    let mesh = Mesh::start();
    let mut open: Vec<_> = (0..8).map(|_| mesh.connect("a")).collect();
    let target = Target::new(mesh.ticket("a")).unwrap();
    let refused = HubConnection::open(&target).unwrap_err();
    assert!(matches!(&refused, SessionError::Refused(refusal) if refusal.code == RefusalCode::Full), "{refused}");
    mesh.connect("b").exchange(&SyncRequest::default()).unwrap();
    open.pop().unwrap().close();
    let deadline = Instant::now() + Duration::from_secs(30);
    while HubConnection::open(&target).is_err() {
        assert!(Instant::now() < deadline, "the closed session still counts");
    }
}
