//! `lfn mesh` over five network namespaces, joined by emulated links as the sites of the vBNS in 1997.
//!
//! Each site has a link to one router. The delays of two links add up to the RTTs of the report of 1997: 40 ms between NCAR and
//! SDSC, 36 ms between NCAR and PSC, 62 ms between SDSC and PSC.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use lfn_base::units::BitRate;
use lfn_mesh::archive::{Archive, EntryFilter};
use lfn_mesh::entry::{Entry, EntryKind, Outcome};
use lfn_mesh::spool::Spool;
use lfn_sys::namespace::NetNamespace;
use lfn_sys::sysctl;
use rustix::mount::{MountFlags, mount};

use crate::support::harness::{Needs, Test, Weight, tests_of};
use crate::support::sandbox::{self, Running};
use crate::support::{eventually, lfn, missing_program, run_scenario, skip::skip, stdout};

/// Name of this module in the names of its tests and roles.
const MODULE: &str = "mesh";

/// Sites with the RTT of their links.
const SITES: [(&str, u8); 5] = [("ncar", 7), ("sdsc", 33), ("psc", 29), ("ncsa", 12), ("ctc", 25)];

pub fn tests() -> Vec<Test> {
    tests_of(
        MODULE,
        Weight::Waiting,
        &[
            ("five_sites_measure_each_other", Needs::Namespaces, || scenario("five-sites")),
            ("outages_and_kills_lose_no_entry", Needs::Namespaces, || scenario("outages")),
            ("full_disks_lose_no_entry", Needs::Namespaces, || scenario("full-disks")),
        ],
    )
}

fn scenario(name: &str) {
    match missing_program(&["ip", "curl"]) {
        Some(missing) => skip(&format!("{MODULE}::{name}"), &missing),
        None => run_scenario(MODULE, name),
    }
}

pub fn act(role: &str) {
    sandbox::enter();
    match role {
        "five-sites" => five_sites(),
        "outages" => outages(),
        "full-disks" => full_disks(),
        other => panic!("no scenario '{other}'"),
    }
}

/// The network, the hub in the namespace of the first site, and one agent in each site.
struct Mesh {
    directory: tempfile::TempDir,
    sites: Vec<NetNamespace>,
    /// The router.
    _core: NetNamespace,
    _links: Vec<Running>,
    hub: Option<Running>,
    agents: Vec<Option<Running>>,
}

impl Mesh {
    /// Starts links, hub and agents. `tests` is the end of the sites file.
    fn start(tests: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let core = NetNamespace::new().unwrap();
        core.run(|| sysctl::write("net.ipv4.ip_forward", "1")).unwrap().unwrap();
        let sites: Vec<_> = SITES.iter().map(|_| NetNamespace::new().unwrap()).collect();
        let mut text = "name = \"vbns\"\n[hub]\naddress = \"10.1.0.2:7324\"\n".to_owned();
        for (number, (name, _)) in SITES.iter().enumerate() {
            text += &format!("[[site]]\nname = \"{name}\"\naddress = \"10.1.{number}.2\"\n");
        }
        text += "[[bottleneck]]\nname = \"access\"\ncapacity = \"135mbit\"\nsites = [\"sdsc\", \"psc\", \"ncsa\", \"ctc\"]\n";
        fs::write(directory.path().join("sites.toml"), text + tests).unwrap();
        let links = (0..SITES.len()).map(|number| link(number, &sites[number], &core)).collect();
        let agents = SITES.iter().map(|_| None).collect();
        let mut mesh = Mesh { directory, sites, _core: core, _links: links, hub: None, agents };
        mesh.start_hub();
        (0..SITES.len()).for_each(|number| mesh.start_agent(number));
        mesh
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn lfn(&self, words: &[&str]) -> Command {
        let mut command = lfn();
        command.arg("mesh").args(words).current_dir(self.directory.path()).env("HOME", self.directory.path());
        command.stdin(Stdio::null());
        command
    }

    fn start_hub(&mut self) {
        let mut command = self.lfn(&["hub", "sites.toml", "--hub-state", "hub"]);
        command.stdout(Stdio::null());
        let mut hub = self.sites[0].run(|| Running::start(&mut command)).unwrap();
        hub.says("listening for agents");
        self.hub = Some(hub);
    }

    fn start_agent(&mut self, number: usize) {
        let name = SITES[number].0;
        let printed = self.lfn(&["ticket", "sites.toml", name, "--hub-state", "hub"]).output().unwrap();
        assert!(printed.status.success(), "{printed:?}");
        let file = format!("{name}.ticket");
        fs::write(self.path(&file), printed.stdout).unwrap();
        let mut command = self.lfn(&["agent", &format!("@{file}"), "--state", name]);
        command.stdout(Stdio::null());
        self.agents[number] = Some(self.sites[number].run(|| Running::start(&mut command)).unwrap());
    }

    fn kill_hub(&mut self) {
        // Running kills its process with SIGKILL when it is dropped.
        self.hub = None;
    }

    fn archive(&self) -> Archive {
        Archive::open_read_only(&self.path("hub/archive.sqlite")).unwrap()
    }

    fn entries(&self) -> Vec<Entry> {
        self.archive().entries(EntryFilter { texts: true, ..EntryFilter::default() }).unwrap()
    }

    /// Waits until the entries of the archive fulfil a condition.
    fn wait_for(&self, what: &str, condition: impl Fn(&[Entry]) -> bool) {
        let waited = (0..4).any(|_| eventually(|| condition(&self.entries())));
        assert!(waited, "{what}: {:#?}", self.entries().iter().map(summary).collect::<Vec<_>>());
    }

    /// Returns a view of the page as text.
    fn page(&self, path: &str) -> String {
        let token = fs::read_to_string(self.path("hub/page-token")).unwrap();
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--fail", "--user", &format!("x:{}", token.trim())]);
        curl.arg(format!("http://127.0.0.1:7380{path}"));
        let output = sandbox::spawn_in(&self.sites[0], curl.stdout(Stdio::piped())).wait_with_output().unwrap();
        assert!(output.status.success(), "{path}: {output:?}");
        stdout(&output)
    }

    /// Stops all agents, and returns the number of entries that they made and those that the archive does not have.
    fn stop_agents(&mut self) -> (u64, Vec<Entry>) {
        for agent in self.agents.drain(..).flatten() {
            agent.signal("TERM");
            let (status, said) = agent.end();
            assert!(status.success(), "{said}");
        }
        let known: BTreeSet<_> = self.entries().iter().map(key).collect();
        let mut made = 0;
        let mut missing = Vec::new();
        for (name, _) in SITES {
            let spool = Spool::open(&self.path(name).join("spool"), u64::MAX).unwrap();
            made += spool.appended();
            let pending = spool.pending_entries(usize::MAX, usize::MAX).unwrap();
            let entries = pending.iter().map(|entry| serde_json::from_str::<Entry>(&entry.json).unwrap());
            missing.extend(entries.filter(|entry| !known.contains(&key(entry))));
        }
        (made, missing)
    }
}

/// Joins a site and the router by an emulated link.
fn link(number: usize, site: &NetNamespace, core: &NetNamespace) -> Running {
    let (site_side, core_side, place) = (format!("s{number}"), format!("c{number}"), number as u8);
    sandbox::join(&site_side, site, "eth0", place);
    sandbox::join(&core_side, core, &format!("eth{number}"), 100 + place);
    site.run(|| sandbox::up("lo")).unwrap();
    sandbox::address(site, "eth0", [10, 1, place, 2]);
    sandbox::address(core, &format!("eth{number}"), [10, 1, place, 1]);
    let gateway = format!("10.1.{number}.1");
    let mut route = Command::new("ip");
    route.args(["route", "add", "default", "via", &gateway]);
    assert!(sandbox::spawn_in(site, &mut route).wait().unwrap().success());
    let rtt = format!("{}ms", SITES[number].1);
    let mut emulate = lfn();
    emulate.args(["emulate", "--rtt", &rtt, "--rate", "155mbit", "--bridge", &site_side, &core_side]);
    let mut running = Running::start(&mut emulate);
    running.says("bridge between");
    running
}

fn key(entry: &Entry) -> (String, String, EntryKind, Duration) {
    (entry.from.clone(), entry.to.clone(), entry.kind, entry.time)
}

fn summary(entry: &Entry) -> String {
    format!("{} {} {:?} {:?} {:?} {:?}", entry.from, entry.to, entry.kind, entry.outcome, entry.goodput, entry.error)
}

/// Pairs of the loads: two of the report, and one more.
const LOADS: &str = "[[group]]\nname = \"report\"\nkind = \"list\"\npairs = [[\"ncar\", \"sdsc\"], [\"ncsa\", \"ctc\"]]\n\
     [[test]]\nname = \"goodput\"\nkind = \"load\"\ngroup = \"report\"\ninterval = \"1min\"\ntime = \"5s\"\n";

const SAMPLES: &str = "[[test]]\nname = \"latency\"\nkind = \"latency\"\ninterval = \"5s\"\ntime = \"1s\"\n\
     [[test]]\nname = \"path\"\nkind = \"path\"\ninterval = \"20s\"\n\
     [[test]]\nname = \"counters\"\nkind = \"counters\"\ninterval = \"20s\"\n";

fn five_sites() {
    let mut mesh = Mesh::start(&format!("{LOADS}{SAMPLES}"));
    let pairs = SITES.len() * (SITES.len() - 1);
    mesh.wait_for("all pairs", |entries| {
        let measured = |kind| {
            let good = entries.iter().filter(|entry| entry.kind == kind && entry.outcome != Outcome::Failed);
            good.map(|entry| (&entry.from, &entry.to)).collect::<BTreeSet<_>>().len()
        };
        measured(EntryKind::Latency) == pairs
            && measured(EntryKind::Path) == pairs
            && measured(EntryKind::Load) == 4
            && measured(EntryKind::Counters) == SITES.len()
    });
    let entries = mesh.entries();
    let of = |kind, from: &str, to: &str| {
        let mut all = entries.iter().filter(|entry| (entry.kind, &*entry.from, &*entry.to) == (kind, from, to));
        all.rfind(|entry| entry.outcome != Outcome::Failed).unwrap()
    };
    for (from, to, rtt) in [("ncar", "sdsc", 40), ("ncar", "psc", 36), ("sdsc", "psc", 62)] {
        let fastest = entries.iter().filter(|entry| (&*entry.from, &*entry.to) == (from, to));
        let fastest = fastest.filter_map(|entry| entry.base_rtt).min().unwrap();
        let expected = Duration::from_millis(rtt);
        assert!(fastest >= expected && fastest < expected * 3 / 2, "{from} {to}: {fastest:?}");
    }
    let load = of(EntryKind::Load, "ncar", "sdsc");
    let (goodput, predicted) = (load.goodput.unwrap(), load.predicted.unwrap());
    assert!(goodput > BitRate(20_000_000) && goodput < BitRate(155_000_000), "{goodput}");
    assert!(predicted > BitRate(100_000_000) && predicted <= BitRate(135_000_000), "{predicted}");
    assert!(!load.verdict.is_empty(), "{load:?}");
    assert_eq!(of(EntryKind::Path, "psc", "ctc").hops, ["10.1.2.1", "10.1.4.2"]);
    let during_load = entries.iter().any(|entry| entry.kind == EntryKind::Latency && entry.marks.own_load);
    assert!(during_load, "no sample is marked");
    let matrix = mesh.page("/");
    assert!(SITES.iter().all(|(name, _)| matrix.contains(name)) && matrix.contains("b/s"), "{matrix}");
    let pair = mesh.page("/pair/ncar/sdsc");
    assert!(pair.contains("10.1.0.1") && pair.contains("Predicted"), "{pair}");
    assert!(mesh.page("/metrics").contains("lfn_mesh_goodput_bits_per_second{from=\"ncar\",to=\"sdsc\"}"));
    let (made, missing) = mesh.stop_agents();
    assert_eq!(mesh.archive().counts().unwrap().entries + missing.len() as u64, made);
}

fn outages() {
    let mut mesh = Mesh::start(SAMPLES);
    mesh.wait_for("first entries", |entries| entries.len() >= 20);
    mesh.kill_hub();
    for agent in mesh.agents.iter_mut().flatten() {
        agent.says("no exchange with the hub");
    }
    let spooled = |mesh: &Mesh, name: &str| spool_bytes(&mesh.path(name).join("spool"));
    let before = spooled(&mesh, "sdsc");
    assert!(eventually(|| spooled(&mesh, "sdsc") > before + 2000));
    // An agent that is killed continues with its saved plan, without the hub.
    mesh.agents[1] = None;
    let killed_at = spooled(&mesh, "sdsc");
    mesh.start_agent(1);
    assert!(eventually(|| spooled(&mesh, "sdsc") > killed_at + 2000));
    let stored = mesh.archive().counts().unwrap().entries;
    mesh.start_hub();
    mesh.wait_for("entries of the outage", |entries| entries.len() as u64 > stored + 20);
    // The hub is killed while it stores entries.
    for _ in 0..3 {
        mesh.kill_hub();
        mesh.start_hub();
    }
    let now = mesh.archive().counts().unwrap().entries;
    mesh.wait_for("entries after the kills", |entries| entries.len() as u64 > now);
    let (made, missing) = mesh.stop_agents();
    let keys: BTreeSet<_> = mesh.entries().iter().map(key).collect();
    let counts = mesh.archive().counts().unwrap();
    assert_eq!(keys.len() as u64, counts.entries);
    assert_eq!(counts.entries + missing.len() as u64, made, "{missing:?}");
}

/// The archive and the spool of an agent are on small disks, which another program fills.
fn full_disks() {
    let mut mesh = Mesh::start(SAMPLES);
    mesh.wait_for("first entries", |entries| entries.len() >= 20);
    for directory in ["hub", "psc"] {
        mesh.kill_hub();
        mesh.agents[2] = None;
        let (place, moved) = (mesh.path(directory), mesh.path("moved"));
        fs::rename(&place, &moved).unwrap();
        fs::create_dir(&place).unwrap();
        mount("tmpfs", &place, "tmpfs", MountFlags::empty(), Some(c"size=8m")).unwrap();
        assert!(Command::new("cp").arg("-a").arg(moved.join(".")).arg(&place).status().unwrap().success());
        fs::remove_dir_all(&moved).unwrap();
        mesh.start_hub();
        mesh.start_agent(2);
        mesh.agents[2].as_mut().unwrap().says("connected to the hub");
        let ballast = place.join("ballast");
        fill(&ballast);
        let agent = mesh.agents[2].as_mut().unwrap();
        agent.says(if directory == "hub" { "disk full" } else { "no measurement: " });
        fs::remove_file(&ballast).unwrap();
        let stored = mesh.archive().counts().unwrap().entries;
        mesh.wait_for("entries after the disk is free", |entries| {
            let of_agent = entries.iter().filter(|entry| entry.from == "psc");
            entries.len() as u64 > stored && of_agent.clone().max_by_key(|entry| entry.time).is_some()
        });
    }
    let (made, missing) = mesh.stop_agents();
    assert_eq!(mesh.archive().counts().unwrap().entries + missing.len() as u64, made, "{missing:?}");
}

/// Writes zeros to a file until the disk is full.
fn fill(ballast: &Path) {
    let mut file = fs::File::create(ballast).unwrap();
    while file.write_all(&[0; 4096]).is_ok() {}
}

/// Returns the length of all segments of a spool.
fn spool_bytes(spool: &Path) -> u64 {
    let files = fs::read_dir(spool).unwrap().flatten();
    files
        .filter(|file| file.file_name().to_string_lossy().ends_with(".entries"))
        .map(|file| file.metadata().unwrap().len())
        .sum()
}
