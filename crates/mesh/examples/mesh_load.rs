//! Generates the data of `bench/mesh`.
//!
//! - `mesh_load archive FILE PAIRS ENTRIES` fills a new archive, and prints the rates of large and of single transactions.
//! - `mesh_load spool DIRECTORY ENTRIES FROM TO` fills the spool of an agent.
//! - `mesh_load sites HOSTS` prints a sites file with hosts `h0000`, `h0001` … in one group of pairs.

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on fails")]
#![allow(clippy::print_stdout, reason = "the output of a benchmark")]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use lfn_base::units::{BitRate, Bytes};
use lfn_mesh::archive::Archive;
use lfn_mesh::entry::{Entry, EntryFinding, EntryKind, Outcome};
use lfn_mesh::spool::Spool;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// Time of the newest entry: 2026-11-28 00:00 UTC.
const END: u64 = 1_795_824_000;

/// Time between two entries of a pair.
const INTERVAL: u64 = 900;

/// Entries of one transaction.
const BATCH: usize = 5_000;

/// Entries that are stored one by one.
const SINGLE: u64 = 2_000;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["archive", file, pairs, entries] => archive(Path::new(file), pairs.parse().unwrap(), entries.parse().unwrap()),
        ["spool", directory, entries, from, to] => spool(Path::new(directory), entries.parse().unwrap(), from, to),
        ["sites", hosts] => sites(hosts.parse().unwrap()),
        _ => panic!("unknown arguments: see the head of this file"),
    }
}

/// Returns the name of a host.
fn host(number: u64) -> String {
    format!("h{number:04}")
}

/// Returns an entry with figures as a real one has them. Three of four entries are latencies.
fn entry(random: &mut Pcg64, from: &str, to: &str, time: u64, number: u64) -> Entry {
    let time = Duration::from_millis(time * 1000 + random.random_range(0..1000));
    let rtt = Duration::from_micros(40_000 + random.random_range(0..900));
    let conditions = [("kernel", "6.18.1"), ("congestion", "cubic"), ("receive_buffer", "6291456"), ("tool", "lfn")];
    let kind = if number.is_multiple_of(4) { EntryKind::Load } else { EntryKind::Latency };
    let mut entry = Entry {
        test: "every-15-min".to_owned(),
        duration: Some(Duration::from_secs(10)),
        base_rtt: Some(rtt),
        outcome: Outcome::Good,
        ..Entry::new(kind, from, to, time)
    };
    if kind == EntryKind::Load {
        let goodput = random.random_range(7_000_000_000..9_400_000_000);
        entry.goodput = Some(BitRate(goodput));
        entry.bytes = Some(Bytes(goodput * 10 / 8));
        entry.predicted = Some(BitRate(9_412_000_000));
        entry.capacity = Some(BitRate(10_000_000_000));
        entry.verdict = "limited by the path (no other bottleneck found)".to_owned();
        if random.random_ratio(1, 10) {
            entry.outcome = Outcome::Limited;
            entry.verdict = "limited by the receive window".to_owned();
            entry.findings = vec![EntryFinding {
                name: "small receive window".to_owned(),
                summary: "the receive window limits the goodput to 7.9 Gb/s".to_owned(),
                remedy: "increase net.ipv4.tcp_rmem".to_owned(),
                host: None,
            }];
        }
        entry.retransmits = Some(random.random_range(0..500));
        entry.conditions = conditions.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        entry.hops = ["192.0.2.1", "198.51.100.9", "203.0.113.5"].map(str::to_owned).into();
    } else {
        entry.rtt = Some(rtt + Duration::from_micros(80));
        entry.max_rtt = Some(rtt * 2);
        entry.one_way_delay = Some(rtt / 2);
        entry.packets = Some(100);
        entry.lost_packets = Some(u64::from(random.random_ratio(1, 50)));
    }
    entry
}

fn archive(file: &Path, pairs: u64, entries: u64) {
    let mut archive = Archive::open(file).unwrap();
    let mut random = Pcg64::seed_from_u64(28);
    let now = Duration::from_secs(END);
    let of_pair = entries / pairs;
    let start = Instant::now();
    let mut batch = Vec::with_capacity(BATCH);
    for number in 0..of_pair {
        for pair in 0..pairs {
            let (from, to) = (host(pair), host((pair + 1) % pairs));
            batch.push(entry(&mut random, &from, &to, END - (of_pair - number) * INTERVAL, number));
            if batch.len() == BATCH {
                archive.insert(&batch, now).unwrap();
                batch.clear();
            }
        }
    }
    archive.insert(&batch, now).unwrap();
    report("entries a second, 5,000 in a transaction", of_pair * pairs, start);
    let start = Instant::now();
    for number in 0..SINGLE {
        let (from, to) = (host(number % pairs), host((number + 1) % pairs));
        let single = entry(&mut random, &from, &to, END, number);
        archive.insert(&[single], now).unwrap();
    }
    report("entries a second, one in a transaction", SINGLE, start);
    let counts = archive.counts().unwrap();
    println!("{} entries\n{} bytes", counts.entries, counts.bytes.0);
    let start = Instant::now();
    assert_eq!(archive.latest().unwrap().len() as u64, 2 * pairs);
    println!("{:.1} ms: newest entry of each pair", start.elapsed().as_secs_f64() * 1e3);
}

fn report(what: &str, count: u64, start: Instant) {
    println!("{:.0} {what}", count as f64 / start.elapsed().as_secs_f64());
}

fn spool(directory: &Path, entries: u64, from: &str, to: &str) {
    let mut spool = Spool::open(directory, u64::MAX).unwrap();
    let mut random = Pcg64::seed_from_u64(29);
    let start = Instant::now();
    for number in 0..entries {
        spool.append(&entry(&mut random, from, to, END + number, number)).unwrap();
    }
    report("entries a second into the spool, each on disk", entries, start);
}

/// Prints a mesh in which each host tests with the next one.
fn sites(hosts: u64) {
    println!("name = \"bench\"");
    let mut text = BTreeMap::new();
    for number in 0..hosts {
        let address = format!("127.0.0.1:{}", 20_000 + 3 * number);
        text.insert(number, format!("[[site]]\nname = \"{}\"\naddress = \"{address}\"", host(number)));
    }
    text.values().for_each(|site| println!("{site}"));
    let pairs: Vec<_> = (0..hosts).map(|n| format!("[\"{}\", \"{}\"]", host(n), host((n + 1) % hosts))).collect();
    println!("[[group]]\nname = \"ring\"\nkind = \"list\"\npairs = [{}]", pairs.join(", "));
    println!(
        "[[test]]\nname = \"every-15-min\"\nkind = \"load\"\ngroup = \"ring\"\ninterval = \"1h\"\ntime = \"5s\"\nbytes = \"1GB\""
    );
    println!(
        "[[test]]\nname = \"latency\"\nkind = \"latency\"\ngroup = \"ring\"\ninterval = \"15min\"\ntime = \"10s\""
    );
}
