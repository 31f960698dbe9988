//! The rate compared with that of the kernel's own shaper, tbf.
//!
//! Two parallel paths get the same datagrams at the same times. The emulator limits one. The other one is fast and
//! limited by tbf at its entry. Both are measured at arrival by the kernel's timestamps.

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::process::{Command, exit};
use std::time::Duration;
use std::{env, thread};

use lfn_sys::tcp::set_send_buffer;

use crate::support::{path_with_servers, stderr};
use crate::trial::{HEADERS, PORT, Seen, Tap, Trial, one_of, pace, skip};

pub const TAPS: [Tap; 2] = [
    Tap { interface: "lfn0", longest: HEADERS + PAYLOAD, frames: COUNT as usize },
    Tap { interface: "lfn1", longest: HEADERS + PAYLOAD, frames: COUNT as usize },
];
const PAYLOAD: usize = 1200;
/// Rate in bits per second.
const RATE: f64 = 10e6;
/// With this interval, the offered rate is twice the limit.
const INTERVAL: Duration = Duration::from_micros(500);
/// The test takes 7 s.
const COUNT: u32 = 14_000;
/// Omitted nanoseconds: until both queues are full and the first burst of tbf is over.
const OMITTED: u64 = 1_500_000_000;
/// Maximum relative difference of the rates.
const BOUND: f64 = 0.005;
/// Output prefix of a near side without tbf.
const NO_TBF: &str = "no tbf";

/// A queue of 600 ms on each path, so that neither becomes idle while the sender waits for a processor.
const FLAGS: [&str; 8] =
    ["--rtt", "10ms", "--rate", "10mbit", "--queue", "600ms", "--parallel", "rate=200mbit,rtt=10ms,queue=1MB"];

pub fn rate_matches_tbf() {
    one_of(4, || {
        let trial = Trial::run(&FLAGS, "rate");
        if let Some(why) = trial.said.strip_prefix(NO_TBF) {
            skip("the rate against that of tbf", why.trim());
            return Ok(());
        }
        let [ours, tbf] = [0, 1].map(|path| rate(&trial.arrived(path).collect::<Vec<_>>()));
        let what = format!("{ours:.0} b/s, tbf {tbf:.0} b/s");
        println!("{what}");
        let is_near = (ours / tbf - 1.0).abs() <= BOUND && (ours / RATE - 1.0).abs() <= BOUND;
        if is_near && trial.has_only_intended_drops() { Ok(()) } else { Err(what) }
    });
}

/// Returns bits per second, counted like tbf and the emulator with the Ethernet header. The rate is the slope of the
/// received bytes over time (least squares), in which single late packets have little weight.
fn rate(seen: &[Seen]) -> f64 {
    let from = seen[0].at + OMITTED;
    let seconds = |seen: &Seen| (seen.at - from) as f64 / 1e9;
    let steady: Vec<_> = seen.iter().filter(|seen| seen.at >= from).collect();
    let count = steady.len() as f64;
    assert!(count > 3000.0, "{count} packets");
    let (mut bits, mut points) = (0.0, Vec::new());
    for seen in steady {
        bits += seen.frame as f64 * 8.0;
        points.push((seconds(seen), bits));
    }
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let covariance: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    covariance / points.iter().map(|point| (point.0 - x).powi(2)).sum::<f64>()
}

/// Traffic of the near side.
pub fn offer() {
    if let Err(why) = shape("lfn1") {
        println!("{NO_TBF} {why}");
        exit(0);
    }
    // Several sockets, because packets in tbf count against the send buffer, and tbf must hold its whole queue.
    let socket = || {
        let socket = UdpSocket::bind(("0.0.0.0", 0)).unwrap();
        set_send_buffer(&socket, 1 << 20).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    };
    let sockets = [socket(), socket(), socket(), socket()];
    let hosts = ["LFN_FAR", "LFN_FAR1"].map(|name| env::var(name).unwrap());
    let mut payload = [0; PAYLOAD];
    pace(COUNT, INTERVAL, |number| {
        payload[..4].copy_from_slice(&number.to_be_bytes());
        for host in &hosts {
            match sockets[number as usize % sockets.len()].send_to(&payload, (host.as_str(), PORT)) {
                // Equivalent to a drop by a full queue.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                other => assert_eq!(other.unwrap(), PAYLOAD),
            }
        }
    });
    // The last captured packets leave the queue 600 ms later.
    thread::sleep(Duration::from_millis(800));
}

/// Limits an interface with tbf. The bucket holds 80 ms, so a timer that is late by up to this time does not reduce the
/// rate.
fn shape(interface: &str) -> Result<(), String> {
    let arguments = format!("qdisc add dev {interface} root tbf rate 10mbit burst 100000 limit 750000");
    let output = Command::new("tc").env("PATH", path_with_servers()).args(arguments.split(' ')).output().unwrap();
    if output.status.success() { Ok(()) } else { Err(stderr(&output)) }
}
