//! The delay of each direction, measured with the kernel's timestamps at both ends.
//!
//! All namespaces have the same clock, so a one-way delay is the difference of two timestamps. The directions have
//! different delays, so that an error of one cannot compensate an error of the other.

use std::collections::HashMap;
use std::env;
use std::net::UdpSocket;
use std::thread;
use std::time::Duration;

use super::trial::{HEADERS, PORT, Seen, Tap, Trial};
use crate::support::rate::TWO_OF_THREE;

pub const TAPS: [Tap; 1] = [Tap { interface: "lfn0", longest: HEADERS + PAYLOAD, frames: 4 * PROBES as usize }];
const PAYLOAD: usize = 58;
const PROBES: u32 = 400;
const FLAGS: [&str; 6] = ["--forward-delay", "30ms", "--return-delay", "12ms", "--rate", "80mbit"];
/// Expected delay of each direction in nanoseconds: the set delay, and 100 bytes at 80 Mb/s.
const FORWARD: i64 = 30_000_000 + 10_000;
const BACK: i64 = 12_000_000 + 10_000;
/// Nanoseconds that a packet may be early. Calibration subtracts the idle latency, which can be too much by this.
const EARLY: i64 = 20_000;
/// Maximum lateness in nanoseconds of the fastest packet, and of half of the packets.
const LATE: [i64; 2] = [100_000, 300_000];

pub fn each_direction_has_its_delay() {
    let measure = || {
        let trial = Trial::run(&FLAGS, "delay");
        let is_forward = |seen: &Seen| seen.to == PORT;
        let forward = late(&trial.near, &trial.far, is_forward, FORWARD);
        let back = late(&trial.far, &trial.near, |seen| !is_forward(seen), BACK);
        judge("forward", &forward).and_then(|()| judge("back", &back))
    };
    TWO_OF_THREE.require_serial("both delays", measure, Result::is_ok);
}

/// Returns the lateness of the packets in order, in nanoseconds.
fn late(left: &[Seen], arrived: &[Seen], of: impl Fn(&Seen) -> bool, delay: i64) -> Vec<i64> {
    let left: HashMap<u32, u64> = left.iter().filter(|seen| of(seen)).map(|seen| (seen.number, seen.at)).collect();
    let arrived = arrived.iter().filter(|seen| of(seen));
    let mut late: Vec<i64> = arrived.map(|seen| (seen.at - left[&seen.number]) as i64 - delay).collect();
    late.sort_unstable();
    late
}

fn judge(way: &str, late: &[i64]) -> Result<(), String> {
    if late.len() < PROBES as usize {
        return Err(format!("{way}: {} of {PROBES} probes arrived", late.len()));
    }
    let (least, half) = (late[0], late[late.len() / 2]);
    let what = format!("{way}: late by {least} ns at least, {half} ns half of the time");
    println!("{what}");
    if (-EARLY..=LATE[0]).contains(&least) && half <= LATE[1] { Ok(()) } else { Err(what) }
}

/// Traffic of the near side.
pub fn ask() {
    let socket = UdpSocket::bind(("0.0.0.0", 0)).unwrap();
    let far = env::var("LFN_FAR").unwrap();
    for number in 0..PROBES {
        let mut payload = [0; PAYLOAD];
        payload[..4].copy_from_slice(&number.to_be_bytes());
        socket.send_to(&payload, (far.as_str(), PORT)).unwrap();
        // The interval varies, so that no timer of the kernel is synchronous with it.
        thread::sleep(Duration::from_micros(4000 + 137 * u64::from(number % 8)));
    }
    thread::sleep(Duration::from_millis(300));
}

/// The far side returns every datagram unchanged.
pub fn answer(socket: &UdpSocket) {
    let mut payload = [0; PAYLOAD];
    while let Ok((length, from)) = socket.recv_from(&mut payload) {
        socket.send_to(&payload[..length], from).unwrap();
    }
}
