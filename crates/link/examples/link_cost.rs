//! Cost of the link model per packet, in CPU time: `cargo run --release -p lfn-link --example link_cost`.
//!
//! Each row feeds arrivals at 95 % of a 10 Gb/s link (FQ-CoDel and RED also at 120 %, so that they drop packets) and
//! takes out due packets, as the emulator does. The figure is the best of five runs. Other load on the machine does not
//! count, except for its effect on the caches.

#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "a benchmark outside the pure part")]

use std::hint::black_box;
use std::time::Duration;

use lfn_base::time::Instant;
use lfn_base::units::{BitRate, Bytes};
use lfn_link::{Link, LinkConfig, LinkEvent, Packet};

const RATE: u64 = 10_000_000_000;

fn main() {
    println!("{:<28} {:>16} {:>16} {:>16}", "ns per range pushed", "singles", "super-packets", "of 2 flows");
    for (name, text, load) in [
        ("drop-tail", "drop-tail", 0.95),
        ("drop-tail, overload", "drop-tail", 1.2),
        ("codel", "codel", 0.95),
        ("codel, overload", "codel", 1.2),
        ("fq-codel", "fq-codel", 0.95),
        ("fq-codel, overload", "fq-codel", 1.2),
        ("red, overload", "red", 1.2),
    ] {
        let cost = |count, flows| best(text, count, flows, load);
        println!("{name:<28} {:>16.0} {:>16.0} {:>16.0}", cost(1, 1), cost(45, 1), cost(45, 2));
    }
}

fn best(discipline: &str, count: u32, flows: u32, load: f64) -> f64 {
    (0..5).map(|_| run(discipline, count, flows, load)).fold(f64::INFINITY, f64::min)
}

/// Measures the nanoseconds per range.
fn run(discipline: &str, count: u32, flows: u32, load: f64) -> f64 {
    const RANGES: u64 = 200_000;
    let config = LinkConfig {
        rate: BitRate(RATE).into(),
        delay: Duration::from_millis(1).into(),
        queue: Bytes(12_500_000).into(),
        discipline: discipline.parse().unwrap(),
        ..LinkConfig::default()
    };
    let mut link = Link::new(&config).unwrap();
    let bytes = u64::from(count) * 1514;
    let gap = (bytes as f64 * 8e9 / RATE as f64 / load) as u64;
    let began = cpu_nanos();
    let mut forwarded = 0_u64;
    for id in 0..RANGES {
        let now = Instant::from_nanos(id * gap);
        let packet = Packet { flow: id as u32 % flows, ..Packet::super_packet(id, count, 1514, 1514) };
        link.push(packet, now);
        black_box(link.next_event_at());
        while let Some(event) = link.poll(now) {
            if let LinkEvent::Forward { packet, .. } = event {
                forwarded += u64::from(packet.count);
            }
        }
    }
    black_box(forwarded);
    (cpu_nanos() - began) as f64 / RANGES as f64
}

/// Returns the CPU time of this process (Linux: the first field of schedstat).
fn cpu_nanos() -> u64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}
