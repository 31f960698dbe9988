//! One run of `lfn emulate` with this program on both sides of it, and what the kernel saw at their interfaces.
//!
//! A tap is a packet socket in the side's own namespace, which the emulator knows nothing of. Its ring holds a whole run,
//! so that nobody has to keep up with it while the run lasts. The two sides agree through files: far says that it is
//! ready, near that it is done, and far that it has written down what it saw.

use std::env;
use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use lfn_net::emulator::{DirectionLedger, Outcome};
use lfn_sys::netlink::Netlink;
use lfn_sys::packet::{Lengths, PacketSocket, ReceiveRing, Room, VNET_HEADER};

use crate::support::{eventually, lfn, stderr};

/// Names what this program does when it is run on one side of a path.
pub const ROLE: &str = "LFN_TEST_ROLE";
/// Names the directory in which both sides meet.
const HOME: &str = "LFN_TEST_HOME";
/// Of the far side.
pub const PORT: u16 = 9000;
/// Bytes before the payload of a datagram: Ethernet, IPv4, UDP.
pub const HEADERS: usize = 14 + 20 + 8;

/// What is to be seen at one interface, `lfn0` being that of the first path.
pub struct Tap {
    pub interface: &'static str,
    /// Frames this long or shorter; longer ones are not seen.
    pub longest: usize,
    /// How many at most.
    pub frames: usize,
}

/// A datagram that was seen; those of a super-packet were seen at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Number of the path.
    pub path: u8,
    /// When it was at the interface, nanoseconds of the kernel's clock.
    pub at: u64,
    /// The port it is for.
    pub to: u16,
    /// Bytes of the frame it was in, with the Ethernet header.
    pub frame: usize,
    /// What its payload begins with.
    pub number: u32,
}

/// What came of a run.
pub struct Trial {
    pub outcome: Outcome,
    pub near: Vec<Seen>,
    pub far: Vec<Seen>,
    /// What the near side wrote to stdout.
    pub said: String,
}

impl Trial {
    /// Runs this program as `near NAME` and `far NAME`.
    pub fn run(flags: &[&str], name: &str) -> Trial {
        let (near, far) = (format!("near {name}"), format!("far {name}"));
        Self::run_as(flags, &near, &far)
    }

    /// Runs this program in these roles over a path.
    pub fn run_as(flags: &[&str], near: &str, far: &str) -> Trial {
        let home = tempfile::tempdir().unwrap();
        let report = home.path().join("report.json");
        let mut command = lfn();
        command.env(HOME, home.path()).args(["emulate", "--force", "--far", &shell(far), "--report"]).arg(&report);
        let output = command.args(flags).args(["--", "sh", "-c", &shell(near)]).output().unwrap();
        // 4 is right on a machine too busy to be faithful.
        assert!(matches!(output.status.code(), Some(0 | 4)), "{}", stderr(&output));
        Trial {
            outcome: serde_json::from_str(&fs::read_to_string(report).unwrap()).unwrap(),
            near: read(&home.path().join("near")),
            far: read(&home.path().join("far")),
            said: String::from_utf8(output.stdout).unwrap(),
        }
    }

    /// What was seen at the far side of a path, of what near sent.
    pub fn arrived(&self, path: u8) -> impl Iterator<Item = Seen> {
        self.far.iter().copied().filter(move |seen| seen.path == path && seen.to == PORT)
    }

    /// Whether every drop was the link's own.
    pub fn lost_nothing_else(&self) -> bool {
        let ways = self.outcome.ledger.paths.iter().flat_map(|path| [&path.near_to_far, &path.far_to_near]);
        let other = |way: &DirectionLedger| {
            let other = way.unmodelled;
            other.kernel + other.no_room + other.send_failed + other.interface
        };
        ways.map(other).sum::<u64>() == 0
    }
}

/// The first of a few trials that `is_good` accepts, or a panic that says what was wrong with each.
pub fn one_of<T>(tries: usize, mut trial: impl FnMut() -> Result<T, String>) -> T {
    let mut wrong = Vec::new();
    for _ in 0..tries {
        match trial() {
            Ok(result) => return result,
            Err(why) => wrong.push(why),
        }
    }
    panic!("none of {tries} tries was good: {wrong:#?}")
}

/// Says that something was not judged, for want of a part of the kernel or of a program; where CI is, it is there.
pub fn skip(what: &str, why: &str) {
    assert!(env::var_os("CI").is_none_or(|ci| ci != "true"), "{what}: {why}");
    eprintln!("SKIPPED: {what}: {why}");
}

/// A shell command that runs this binary in a role.
fn shell(role: &str) -> String {
    let program = env::current_exe().unwrap();
    format!("{ROLE}='{role}' exec '{}'", program.display())
}

/// Where both sides meet, from one of them.
pub fn home() -> PathBuf {
    PathBuf::from(env::var_os(HOME).unwrap())
}

/// The near side: traffic between two taps' opening and reading.
pub fn near(taps: &[Tap], traffic: fn()) {
    let home = home();
    assert!(eventually(|| home.join("ready").exists()), "the far side is ready");
    let taps: Vec<_> = taps.iter().map(OpenTap::new).collect();
    traffic();
    write(&home.join("near"), taps);
    fs::write(home.join("done"), "").unwrap();
    assert!(eventually(|| home.join("far").exists()), "the far side says what it saw");
}

/// The far side: taps, and a socket on which something answers, until near is done.
pub fn far(taps: &[Tap], serve: fn(&UdpSocket)) {
    let home = home();
    let taps: Vec<_> = taps.iter().map(OpenTap::new).collect();
    let socket = UdpSocket::bind(("0.0.0.0", PORT)).unwrap();
    thread::spawn(move || serve(&socket));
    fs::write(home.join("ready"), "").unwrap();
    assert!(eventually(|| home.join("done").exists()), "the near side is done");
    write(&home.join("far"), taps);
    thread::sleep(Duration::from_secs(60));
}

/// Nobody reads; but without a socket there would be an ICMP message back for each datagram.
pub fn hold(_: &UdpSocket) {
    thread::sleep(Duration::from_secs(600));
}

/// Does something `count` times, `each` apart on the whole: what came late is caught up with.
pub fn pace(count: u32, each: Duration, mut work: impl FnMut(u32)) {
    let start = Instant::now();
    for turn in 0..count {
        thread::sleep((each * turn).saturating_sub(start.elapsed()));
        work(turn);
    }
}

struct OpenTap {
    path: u8,
    socket: PacketSocket,
    ring: ReceiveRing,
}

impl OpenTap {
    fn new(tap: &Tap) -> OpenTap {
        let path = tap.interface.strip_prefix("lfn").unwrap().parse().unwrap();
        let index = Netlink::open().unwrap().index(tap.interface).unwrap();
        let socket = PacketSocket::open_tap(index, Lengths::UpTo(tap.longest as u32)).unwrap();
        // As much again for what a slot has besides the frame.
        let bytes = tap.frames * (tap.longest + 256) + (1 << 20);
        let ring = ReceiveRing::new(&socket, Room::Frames(tap.longest), bytes).unwrap();
        OpenTap { path, socket, ring }
    }

    fn drain(mut self) -> Vec<Seen> {
        let mut all = Vec::new();
        while let Some(frame) = self.ring.take().unwrap() {
            all.extend(datagrams(self.ring.bytes(frame.slot), frame.stamp, self.path));
            self.ring.give_back(frame.slot);
        }
        assert_eq!(self.socket.take_dropped().unwrap(), 0, "the tap had room for all");
        all
    }
}

/// The numbered datagrams in a frame behind its virtual-net header; nothing if it is none of UDP over IPv4.
fn datagrams(bytes: &[u8], at: u64, path: u8) -> Vec<Seen> {
    let (header, frame) = bytes.split_at(VNET_HEADER);
    if frame.len() < HEADERS + 4 || frame[12..15] != [0x08, 0x00, 0x45] || frame[23] != 17 {
        return Vec::new();
    }
    // `gso_size` of struct virtio_net_hdr: payload of each segment, or zero.
    let segment = match u16::from_ne_bytes([header[4], header[5]]) {
        0 => frame.len(),
        size => usize::from(size),
    };
    let to = u16::from_be_bytes([frame[36], frame[37]]);
    let each = |payload: &[u8]| Seen {
        path,
        at,
        to,
        frame: frame.len(),
        number: u32::from_be_bytes(*payload.first_chunk().unwrap()),
    };
    frame[HEADERS..].chunks(segment).map(each).collect()
}

/// Appears with all that is in it.
fn write(file: &Path, taps: Vec<OpenTap>) {
    let line = |seen: Seen| format!("{} {} {} {} {}\n", seen.path, seen.at, seen.to, seen.frame, seen.number);
    let text: String = taps.into_iter().flat_map(OpenTap::drain).map(line).collect();
    let unfinished = file.with_extension("unfinished");
    fs::write(&unfinished, text).unwrap();
    fs::rename(unfinished, file).unwrap();
}

/// Nothing where the sides had no taps.
fn read(file: &Path) -> Vec<Seen> {
    let each = |line: &str| {
        let fields: Vec<u64> = line.split(' ').map(|field| field.parse().unwrap()).collect();
        let [path, at, to, frame, number] = fields[..] else { panic!("{line}") };
        Seen { path: path as u8, at, to: to as u16, frame: frame as usize, number: number as u32 }
    };
    fs::read_to_string(file).unwrap_or_default().lines().map(each).collect()
}
