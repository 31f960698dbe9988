//! The lost packets, known by the numbers of the packets that arrive.
//!
//! Two paths carry the same datagrams. One loses independently, and one loses in bursts. The number of losses, their
//! runs and their distances are compared with the models, as `loss_laws` does for a million packets in virtual time.
//! One seed loses the same datagrams whether the kernel delivers them one by one or forty at once.

use std::collections::BTreeSet;
use std::env;
use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

use quinn_udp::{Transmit, UdpSocketState};

use super::statistics::{assert_binomial, assert_geometric, gaps, mean, runs, share};
use super::trial::{HEADERS, PORT, Tap, Trial, pace};
use crate::support::rate::undisturbed;

/// 2 % in both cases: independent, and in bursts of 4 on average.
const FLAGS: [&str; 12] = [
    "--rtt",
    "4ms",
    "--rate",
    "200mbit",
    "--queue",
    "20MB",
    "--loss",
    "2%",
    "--parallel",
    "rate=200mbit,rtt=4ms,queue=20MB,loss=gilbert:loss=2%:burst=4",
    "--seed",
    "1995",
];
const LOSS: f64 = 0.02;
const BURST: f64 = 4.0;
const COUNT: u32 = 100_000;
const PAYLOAD: usize = 58;
pub const TAPS: [Tap; 2] = taps(HEADERS + PAYLOAD, COUNT as usize);

/// Datagrams on each path, sent one by one and as super-packets.
const NUMBERS: u32 = 12_000;
/// Datagrams in a super-packet.
const TOGETHER: u32 = 40;
/// Payload of each datagram in bytes.
const SEGMENT: usize = 200;
/// Longer frames are not captured, so that merged datagrams are not counted.
pub const TAPS_OF_SINGLES: [Tap; 2] = taps(HEADERS + SEGMENT, NUMBERS as usize);
/// A super-packet can leave in several parts, in the worst case single datagrams. This number of slots is always
/// enough.
pub const TAPS_OF_SUPERS: [Tap; 2] = taps(HEADERS + SEGMENT * TOGETHER as usize, NUMBERS as usize / 2);

const fn taps(longest: usize, frames: usize) -> [Tap; 2] {
    [Tap { interface: "lfn0", longest, frames }, Tap { interface: "lfn1", longest, frames }]
}

pub fn loss_share_and_bursts_match_the_setting() {
    let trial = accurate_trial(|| Trial::run(&FLAGS, "loss"));
    let [independent, bursts] = [0, 1].map(|path| loss_flags(&trial, path));
    assert_binomial(share(&independent) * f64::from(COUNT), f64::from(COUNT), LOSS, "independent");
    assert_geometric(&gaps(&independent), LOSS, "independent, gaps");
    assert_geometric(&runs(&independent, true), 1.0 - LOSS, "independent, runs");
    // Rate of bursts that gives this share of lost packets.
    let begin = LOSS / (1.0 - LOSS) / BURST;
    let lost = runs(&bursts, true);
    assert!((mean(&lost) / BURST - 1.0).abs() < 0.25, "bursts of {}", mean(&lost));
    assert_geometric(&lost, 1.0 / BURST, "bursts");
    assert_geometric(&runs(&bursts, false), begin, "between bursts");
}

/// Returns whether each datagram is lost. Asserts that none is duplicated or reordered.
fn loss_flags(trial: &Trial, path: u8) -> Vec<bool> {
    let mut outcomes = vec![true; COUNT as usize];
    let mut next = 0;
    for seen in trial.arrived(path) {
        assert!(seen.number >= next, "{} after {next}", seen.number);
        next = seen.number + 1;
        outcomes[seen.number as usize] = false;
    }
    outcomes
}

pub fn super_packets_lose_the_same_as_single_packets() {
    let singles = accurate_trial(|| Trial::run(&FLAGS, "singles"));
    let supers = accurate_trial(|| Trial::run(&FLAGS, "supers"));
    let is_long = |frame: usize| frame > HEADERS + SEGMENT;
    assert!(supers.near.iter().all(|seen| seen.frame == HEADERS + SEGMENT * TOGETHER as usize), "super-packets left");
    assert!(supers.far.iter().any(|seen| is_long(seen.frame)), "and arrived");
    assert!(!singles.near.iter().chain(&singles.far).any(|seen| is_long(seen.frame)), "single packets throughout");
    for path in [0, 1] {
        let [one_by_one, together] = [&singles, &supers].map(|trial| missing(trial, path));
        assert!((100..600).contains(&together.len()), "{} lost", together.len());
        assert_eq!(one_by_one, together, "path {path}");
    }
}

/// Returns the numbers that left and did not arrive.
fn missing(trial: &Trial, path: u8) -> BTreeSet<u32> {
    let arrived: BTreeSet<u32> = trial.arrived(path).map(|seen| seen.number).collect();
    let left: BTreeSet<u32> = trial.near.iter().filter(|seen| seen.path == path).map(|seen| seen.number).collect();
    assert_eq!(left.len(), NUMBERS as usize, "all left");
    left.difference(&arrived).copied().collect()
}

/// Runs trials until one has no loss outside the model. Only the emulator's report shows this.
fn accurate_trial(run: impl Fn() -> Trial) -> Trial {
    undisturbed("drops of the link only", 3, || {
        Some(run()).filter(Trial::has_only_intended_drops).ok_or_else(|| "a drop that is not the link's".into())
    })
}

/// Near side: eight datagrams per path every millisecond, a fraction of the link's rate.
pub fn number() {
    const EACH: u32 = 8;
    let (socket, far) = socket();
    let mut payload = [0; PAYLOAD];
    pace(COUNT / EACH, Duration::from_millis(1), |turn| {
        for number in turn * EACH..(turn + 1) * EACH {
            payload[..4].copy_from_slice(&number.to_be_bytes());
            far.iter().for_each(|far| assert_eq!(socket.send_to(&payload, far).unwrap(), PAYLOAD));
        }
    });
    thread::sleep(DRAINED);
}

/// Time after the last datagram until it must have arrived.
const DRAINED: Duration = Duration::from_millis(500);

/// Near side that sends datagrams one by one.
pub fn send_singles() {
    let (socket, far) = socket();
    pace(NUMBERS / TOGETHER, Duration::from_millis(8), |turn| {
        for datagram in datagrams(turn).chunks(SEGMENT) {
            far.iter().for_each(|far| assert_eq!(socket.send_to(datagram, far).unwrap(), SEGMENT));
        }
    });
    thread::sleep(DRAINED);
}

/// Near side that gives the kernel many datagrams at once, to be split as late as possible (`UDP_SEGMENT`).
pub fn send_super_packets() {
    let (socket, far) = socket();
    let state = UdpSocketState::new((&socket).into()).unwrap();
    socket.set_nonblocking(false).unwrap();
    pace(NUMBERS / TOGETHER, Duration::from_millis(8), |turn| {
        let contents = datagrams(turn);
        for destination in far {
            let segment_size = Some(SEGMENT);
            let transmit = Transmit { destination, ecn: None, contents: &contents, segment_size, src_ip: None };
            state.try_send((&socket).into(), &transmit).unwrap();
        }
    });
    thread::sleep(DRAINED);
}

/// Returns the datagrams of one turn in sequence.
fn datagrams(turn: u32) -> Vec<u8> {
    let mut bytes = vec![0; SEGMENT * TOGETHER as usize];
    for (datagram, number) in bytes.chunks_mut(SEGMENT).zip(turn * TOGETHER..) {
        datagram[..4].copy_from_slice(&number.to_be_bytes());
    }
    bytes
}

fn socket() -> (UdpSocket, [SocketAddr; 2]) {
    let far = ["LFN_FAR", "LFN_FAR1"].map(|name| SocketAddr::new(env::var(name).unwrap().parse().unwrap(), PORT));
    (UdpSocket::bind(("0.0.0.0", 0)).unwrap(), far)
}
