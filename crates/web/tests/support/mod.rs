//! A mesh with every state, in an archive of a temporary directory, and a client of HTTP.

#![allow(dead_code, reason = "each test program uses a part")]

pub mod browser;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lfn_base::date;
use lfn_base::units::BitRate;
use lfn_mesh::archive::Archive;
use lfn_mesh::entry::{Entry, EntryFinding, EntryKind, Marks, Outcome};
use lfn_mesh::sites::Sites;
use lfn_web::{Limits, MeshView, PageOptions, PageServer};
use tempfile::TempDir;

pub const TOKEN: &str = "a-token-of-the-page-for-tests";

pub const SITES: &str = r#"
name = "vBNS"
[[site]]
name = "NCAR"
place = "Boulder"
contacts = [{ name = "Marla", mail = "noc@ncar.example", role = "technical" }]
host = [{ name = "aztec", address = "192.0.2.1:7323", rate = "155mbit" }, { name = "winterpark", address = "192.0.2.2" }]
[[site]]
name = "SDSC"
place = "San Diego"
host = [{ name = "c90-sdsc", address = "192.0.2.3" }]
[[site]]
name = "PSC"
place = "Pittsburgh"
host = [{ name = "c90-psc", address = "192.0.2.4", kind = "iperf3" }]
[[site]]
name = "CTC"
host = [{ name = "sp2", address = "192.0.2.5" }]
[[site]]
name = "NCSA"
host = [{ name = "origin", address = "192.0.2.6" }]
[[operator]]
name = "MCI"
contacts = [{ name = "Engineering", mail = "engineering@mci.example", role = "operator" }]
[[circuit]]
name = "ds3-west"
between = ["NCAR", "SDSC"]
operator = "MCI"
capacity = "135mbit"
rtt = "40ms"
[[test]]
name = "goodput"
kind = "load"
interval = "6h"
time = "10s"
[[test]]
name = "delay"
kind = "latency"
interval = "15min"
time = "10s"
[[maintenance]]
site = "PSC"
start = 2026-11-22T02:00:00Z
duration = "2h"
reason = "new router"
"#;

/// The time of all tests.
pub fn now() -> Duration {
    date::parse("2026-11-20T06:40:00Z").unwrap()
}

/// A mesh whose clock stands still.
pub struct FixedMesh {
    pub sites: Arc<Sites>,
    pub valid_from: Duration,
}

impl MeshView for FixedMesh {
    fn sites(&self) -> Arc<Sites> {
        Arc::clone(&self.sites)
    }

    fn valid_from(&self) -> Duration {
        self.valid_from
    }

    fn now(&self) -> Duration {
        now()
    }
}

pub fn mesh(text: &str) -> Arc<FixedMesh> {
    let sites = Sites::parse(text).unwrap_or_else(|errors| panic!("{errors:?}"));
    Arc::new(FixedMesh { sites: Arc::new(sites), valid_from: Duration::ZERO })
}

pub fn options(archive: &Path) -> PageOptions {
    PageOptions {
        address: "127.0.0.1:0".parse().unwrap(),
        token: TOKEN.to_owned(),
        archive: archive.to_owned(),
        certificate: None,
        insecure: false,
        limits: Limits::default(),
    }
}

/// A running page over an archive with the entries.
pub struct Page {
    pub server: PageServer,
    pub directory: TempDir,
}

/// Starts a page over the five sites of the vBNS.
pub fn start(entries: &[Entry]) -> Page {
    start_with(SITES, entries, Limits::default())
}

pub fn start_with(sites: &str, entries: &[Entry], limits: Limits) -> Page {
    start_mesh(mesh(sites), entries, limits)
}

pub fn start_mesh(mesh: Arc<FixedMesh>, entries: &[Entry], limits: Limits) -> Page {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("archive.db");
    let mut archive = Archive::open(&path).unwrap();
    for batch in entries.chunks(10_000) {
        archive.insert(batch, now()).unwrap();
    }
    drop(archive);
    let server = PageServer::bind(PageOptions { limits, ..options(&path) }, mesh).unwrap();
    Page { server, directory }
}

/// An answer, with its header in lower case.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub header: String,
    pub body: String,
}

impl Page {
    /// Requests an address as a browser with the token.
    pub fn html(&self, address: &str) -> Answer {
        self.get(address, &format!("Authorization: Bearer {TOKEN}\r\nAccept: text/html\r\n"))
    }

    /// Requests an address as curl with the token.
    pub fn text(&self, address: &str) -> Answer {
        self.get(address, &format!("Authorization: Bearer {TOKEN}\r\nAccept: */*\r\n"))
    }

    pub fn get(&self, address: &str, header: &str) -> Answer {
        let request = format!("GET {address} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{header}\r\n");
        send(self.server.address(), request.as_bytes())
    }
}

/// Sends a request and reads the answer to its end.
pub fn send(address: SocketAddr, request: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.write_all(request).unwrap();
    read_answer(&mut stream)
}

/// Reads an answer up to the end of the connection.
pub fn read_answer(stream: &mut impl Read) -> Answer {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let (header, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no header: {text:?}"));
    let status = header.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, header: header.to_lowercase(), body: body.to_owned() }
}

pub fn ago(seconds: u64) -> Duration {
    now() - Duration::from_secs(seconds)
}

pub fn load(from: &str, to: &str, time: Duration, outcome: Outcome) -> Entry {
    let entry = Entry {
        test: "goodput".to_owned(),
        goodput: (outcome != Outcome::Failed).then_some(BitRate(118_000_000)),
        predicted: Some(BitRate(129_000_000)),
        capacity: Some(BitRate(135_000_000)),
        base_rtt: Some(Duration::from_millis(40)),
        duration: Some(Duration::from_secs(10)),
        outcome,
        ..Entry::new(EntryKind::Load, from, to, time)
    };
    match outcome {
        Outcome::Good => Entry { verdict: "limited by the path (no other bottleneck found)".to_owned(), ..entry },
        Outcome::Failed => Entry { error: Some("connection refused".to_owned()), ..entry },
        Outcome::Limited => Entry {
            goodput: Some(BitRate(9_850_000)),
            verdict: "limited by the receive window".to_owned(),
            findings: vec![EntryFinding {
                name: "window_scale".to_owned(),
                summary: "the receiver offers no window scale: at most 64 KiB are in flight, and the path needs 675 kB"
                    .to_owned(),
                remedy: "sysctl -w net.ipv4.tcp_window_scaling=1".to_owned(),
                host: Some(to.to_owned()),
            }],
            ..entry
        },
        Outcome::Unknown => entry,
    }
}

pub fn latency(from: &str, to: &str, time: Duration) -> Entry {
    Entry {
        test: "delay".to_owned(),
        base_rtt: Some(Duration::from_micros(40_120)),
        rtt: Some(Duration::from_micros(40_410)),
        max_rtt: Some(Duration::from_micros(44_900)),
        one_way_delay: Some(Duration::from_micros(20_050)),
        packets: Some(100),
        lost_packets: Some(0),
        outcome: Outcome::Good,
        ..Entry::new(EntryKind::Latency, from, to, time)
    }
}

/// A number from 0 to 1 that looks random.
pub fn noise(seed: u64) -> f64 {
    (seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f64 / f64::from(1 << 24)
}

/// A week of five sites: good pairs, a missing window scale since yesterday, an outage, a silent host and a path change.
pub fn vbns_week() -> Vec<Entry> {
    const HOSTS: [&str; 6] = ["aztec", "winterpark", "c90-sdsc", "c90-psc", "sp2", "origin"];
    let mut entries = Vec::new();
    for (number, from) in HOSTS.into_iter().enumerate() {
        for (other, to) in HOSTS.into_iter().enumerate().filter(|(other, _)| *other != number) {
            if (from, to) == ("aztec", "winterpark") || (from, to) == ("winterpark", "aztec") {
                continue;
            }
            pair_week(&mut entries, from, to, (number * 7 + other) as u64);
        }
    }
    entries
}

fn pair_week(entries: &mut Vec<Entry>, from: &str, to: &str, seed: u64) {
    let is_silent = from == "sp2";
    let has_no_scale = to == "c90-psc";
    for place in (0..28_u64).rev() {
        let age = place * 6 * 3600 + 1200 + seed * 60;
        // The host is silent for two days, and the mesh was down for a day.
        if (is_silent && age < 2 * 86_400) || (80..105).contains(&(age / 3600)) {
            continue;
        }
        let outcome = match () {
            () if has_no_scale && age < 86_400 => Outcome::Limited,
            () if (from, to) == ("origin", "c90-sdsc") && age < 6 * 3600 => Outcome::Failed,
            () if (from, to) == ("origin", "aztec") => Outcome::Unknown,
            () => Outcome::Good,
        };
        let mut entry = load(from, to, ago(age), outcome);
        if outcome == Outcome::Good {
            let rate = 116e6 + 8e6 * noise(seed * 100 + place);
            entry.goodput = Some(BitRate(rate as u64));
        }
        entry.marks = Marks { maintenance: (120..132).contains(&(age / 3600)), ..Marks::default() };
        let scale = if outcome == Outcome::Limited { "absent" } else { "7" };
        let conditions = [
            ("sender.kernel", "6.1.0-38"),
            ("receiver.kernel", "6.1.0-38"),
            ("congestion", "cubic"),
            ("receiver.window_scale", scale),
            ("receiver.rcvbuf", "1.35 MB"),
            ("lfn", "0.1.0"),
        ];
        entry.conditions = conditions.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        entries.push(entry);
    }
    for place in (0..7 * 96_u64).rev() {
        let age = place * 900 + 60 + seed;
        if (is_silent && age < 2 * 86_400) || (80..105).contains(&(age / 3600)) {
            continue;
        }
        let mut entry = latency(from, to, ago(age));
        let is_loaded = age % (6 * 3600) < 1100;
        let extra = 300.0 * noise(seed * 1000 + place) + if is_loaded { 9000.0 } else { 0.0 };
        entry.rtt = entry.base_rtt.map(|rtt| rtt + Duration::from_micros(extra as u64));
        entry.lost_packets = Some(u64::from(noise(seed + place) > 0.97) * 2);
        entry.marks.own_load = is_loaded;
        entries.push(entry);
    }
    for (age, hop) in [(5 * 86_400, "cs-atm0-0-4.den.vbns.net"), (3600, "cs-atm0-0-9.hay.vbns.net")] {
        let hops = [format!("ns-vbns.{from}.example"), hop.to_owned(), String::new(), format!("{to}.example")];
        let entry = Entry::new(EntryKind::Path, from, to, ago(age + seed));
        entries.push(Entry { hops: hops.into(), outcome: Outcome::Good, ..entry });
    }
}
