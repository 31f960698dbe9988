//! Hosts without an agent as targets: `lfn serve` and a STAMP reflector.

use std::fs;

use lfn_mesh::entry::{EntryKind, Outcome};

use super::running::{Up, entries, free_udp_port, has_result, said};
use crate::support::server::Server;
use crate::support::{eventually, lfn, stderr};

/// Pairs that the agent on `near1` measures.
const MEASURED: [(EntryKind, &str, &str); 6] = [
    (EntryKind::Load, "near1", "far1"),
    (EntryKind::Load, "far1", "near1"),
    (EntryKind::Path, "near1", "far1"),
    (EntryKind::Path, "near1", "far2"),
    (EntryKind::Latency, "near1", "far2"),
    (EntryKind::Latency, "far2", "near1"),
];

#[test]
fn lfn_servers_and_stamp_reflectors_are_targets() {
    let directory = tempfile::tempdir().unwrap();
    let stamp = free_udp_port();
    let far1 = Server::start(&[]);
    let _far2 = Server::start(&[&format!("--stamp={stamp}")]);
    let mut add = lfn();
    add.args(["hosts", "add", "far1", &far1.ticket]).env("HOME", directory.path()).env_remove("XDG_CONFIG_HOME");
    let added = add.output().unwrap();
    assert!(added.status.success(), "{}", stderr(&added));
    let sites = format!(
        "name = \"try\"\n[[site]]\nname = \"near1\"\naddress = \"127.0.0.1\"\n\
         [[site]]\nname = \"far1\"\nhost = [{{ name = \"far1\", address = \"127.0.0.2\", kind = \"serve\", rate = \"200mbit\" }}]\n\
         [[site]]\nname = \"far2\"\nhost = [{{ name = \"far2\", address = \"127.0.0.1:{stamp}\", kind = \"stamp\" }}]\n\
         [[group]]\nname = \"reflected\"\nkind = \"mesh\"\nmembers = [\"near1\", \"far2\"]\n\
         [[test]]\nname = \"goodput\"\nkind = \"load\"\ninterval = \"30s\"\ntime = \"1s\"\nbytes = \"50MB\"\n\
         [[test]]\nname = \"latency\"\nkind = \"latency\"\ngroup = \"reflected\"\ninterval = \"5s\"\ntime = \"1s\"\n\
         [[test]]\nname = \"path\"\nkind = \"path\"\ninterval = \"5s\"\n"
    );
    fs::write(directory.path().join("sites.toml"), sites).unwrap();
    let _up = Up::start(directory.path(), &[]);
    let is_complete = || MEASURED.iter().all(|&(kind, from, to)| has_result(directory.path(), kind, from, to));
    assert!(eventually(is_complete) || eventually(is_complete), "{}", said(directory.path()));
    let stored = entries(directory.path());
    for entry in stored.iter().filter(|entry| entry.outcome != Outcome::Failed) {
        let key = (entry.kind, &*entry.from, &*entry.to);
        assert!(MEASURED.contains(&key), "{entry:?}");
        match entry.kind {
            EntryKind::Load => {
                assert_eq!(entry.conditions.get("tool").map(String::as_str), Some("lfn"));
                // The path is faster than its rate. The load still ends after rate × time, which is less than its bytes.
                assert!(entry.goodput.is_some() && entry.bytes.is_some_and(|bytes| bytes.0 <= 25_100_000), "{entry:?}");
            }
            EntryKind::Latency => assert!(entry.rtt.is_some(), "{entry:?}"),
            _ => assert_eq!(entry.hops, ["127.0.0.1"]),
        }
    }
    let failed: Vec<_> = stored.iter().filter_map(|entry| entry.error.as_ref()).collect();
    assert!(failed.is_empty(), "{failed:?}");
}
