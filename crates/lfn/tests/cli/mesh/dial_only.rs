//! Hosts that accept no connections: the agent dials the hub and the other hosts, and no host dials the agent.

use std::fs;
use std::process::Stdio;

use lfn_mesh::entry::EntryKind;

use super::running::{Process, Up, entries, has_result, mesh, said};
use crate::support::{eventually, stderr, stdout, unwrapped};

const SITES: &str = "name = \"try\"\n[[site]]\nname = \"near1\"\nhost = \
     [{ name = \"near1\", address = \"127.0.0.1\", rate = \"100gbit\" }]\n\
     [[site]]\nname = \"home\"\nhost = [{ name = \"home\", dial-only = true }]\n\
     [[test]]\nname = \"goodput\"\nkind = \"load\"\ninterval = \"30s\"\ntime = \"1s\"\nbytes = \"50MB\"\n\
     [[test]]\nname = \"latency\"\nkind = \"latency\"\ninterval = \"5s\"\ntime = \"1s\"\n\
     [[test]]\nname = \"path\"\nkind = \"path\"\ninterval = \"5s\"\n";

#[test]
fn dial_only_host_measures_both_directions() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("sites.toml"), SITES).unwrap();
    let up = Up::start(directory.path(), &[]);
    let words = ["ticket", "sites.toml", "home", "--hub-state", "hub", "--ticket-host", &up.listen];
    let ticket = mesh(directory.path(), &words).output().unwrap();
    assert!(ticket.status.success(), "{}", stderr(&ticket));
    let log = directory.path().join("home.log");
    let mut agent = mesh(directory.path(), &["agent", stdout(&ticket).trim(), "--state", "home"]);
    agent.stdout(Stdio::null()).stderr(fs::File::create(&log).unwrap());
    let _agent = Process(agent.spawn().unwrap());
    let measured = [
        (EntryKind::Load, "near1", "home"),
        (EntryKind::Load, "home", "near1"),
        (EntryKind::Latency, "home", "near1"),
        (EntryKind::Path, "home", "near1"),
    ];
    let missing = || {
        let is_missing = |&&(kind, from, to): &&(EntryKind, &str, &str)| !has_result(directory.path(), kind, from, to);
        measured.iter().filter(is_missing).collect::<Vec<_>>()
    };
    let is_complete = eventually(|| missing().is_empty()) || eventually(|| missing().is_empty());
    let home = fs::read_to_string(&log).unwrap();
    assert!(is_complete, "missing: {:?}\n{home}{}", missing(), said(directory.path()));
    assert!(!home.contains("serving tests"), "{home}");
    // The only entries from near1 to home are those that home made.
    assert!(!said(directory.path()).contains("near1 to home"), "{}", said(directory.path()));
    let paths = entries(directory.path()).into_iter().filter(|entry| entry.kind == EntryKind::Path);
    assert!(paths.into_iter().all(|entry| entry.from == "home"));
}

#[test]
fn two_dial_only_hosts_are_a_pair_without_tests() {
    let directory = tempfile::tempdir().unwrap();
    let sites = "name = \"try\"\n[[site]]\nname = \"near1\"\naddress = \"127.0.0.1\"\n\
         [[site]]\nname = \"home1\"\ndial-only = true\n[[site]]\nname = \"home2\"\ndial-only = true\n\
         [[test]]\nname = \"goodput\"\nkind = \"load\"\ninterval = \"1h\"\nbytes = \"50MB\"\n";
    fs::write(directory.path().join("sites.toml"), sites).unwrap();
    let check = mesh(directory.path(), &["check", "sites.toml"]).output().unwrap();
    assert!(check.status.success(), "{}", stderr(&check));
    let plan = unwrapped(&mesh(directory.path(), &["plan", "sites.toml"]).output().unwrap());
    assert!(plan.contains("both hosts are dial-only: neither accepts connections"), "{plan}");
}
