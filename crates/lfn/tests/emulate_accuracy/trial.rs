//! One run of `lfn emulate` with this program on both sides, and the packets that the kernel saw at their interfaces.
//!
//! A tap is a packet socket in the namespace of a side. The emulator does not know it. Its ring holds a whole run, so
//! no program must keep up with it. The two sides communicate through files: far reports that it is ready, near that it
//! has finished, and far that it has written its observations.

use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use lfn_emulate::{DirectionReport, RunOutcome};
use lfn_sys::netlink::Netlink;
use lfn_sys::packet::{LengthFilter, PacketSocket, ReceiveRing, SlotSize, VNET_HEADER};

use crate::support::{eventually, lfn, stderr};

/// Role of this program on one side of a path.
pub const ROLE: &str = "TEST_LFN_ROLE";
/// Directory in which both sides exchange files.
const HOME: &str = "TEST_LFN_HOME";
/// Port of the far side.
pub const PORT: u16 = 9000;
/// Bytes before the payload of a datagram: Ethernet, IPv4, UDP.
pub const HEADERS: usize = 14 + 20 + 8;

/// Capture at one interface. `lfn0` is the interface of the first path.
pub struct Tap {
    pub interface: &'static str,
    /// Maximum length of captured frames. Longer frames are ignored.
    pub longest: usize,
    /// Maximum number of frames.
    pub frames: usize,
}

/// A captured datagram. The datagrams of a super-packet are captured at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Number of the path.
    pub path: u8,
    /// Time at the interface, in nanoseconds of the kernel's clock.
    pub at: u64,
    /// Destination port of the datagram.
    pub to: u16,
    /// Bytes of its frame, with the Ethernet header.
    pub frame: usize,
    /// First number in its payload.
    pub number: u32,
}

/// Results of a run.
pub struct Trial {
    pub outcome: RunOutcome,
    pub near: Vec<Seen>,
    pub far: Vec<Seen>,
    /// Standard output of the near side.
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
        command
            .env(HOME, home.path())
            .args(["emulate", "--force", "--far-command", &shell(far), "--report"])
            .arg(&report);
        let output = command.args(flags).args(["--", "sh", "-c", &shell(near)]).output().unwrap();
        // On a machine that is too busy for an accurate emulation, exit code 4 is correct.
        assert!(matches!(output.status.code(), Some(0 | 4)), "{}", stderr(&output));
        Trial {
            outcome: serde_json::from_str(&fs::read_to_string(report).unwrap()).unwrap(),
            near: read(&home.path().join("near")),
            far: read(&home.path().join("far")),
            said: String::from_utf8(output.stdout).unwrap(),
        }
    }

    /// Returns the packets from near that arrived at the far side of a path.
    pub fn arrived(&self, path: u8) -> impl Iterator<Item = Seen> {
        self.far.iter().copied().filter(move |seen| seen.path == path && seen.to == PORT)
    }

    /// Returns whether every drop was intended by the link.
    pub fn has_only_intended_drops(&self) -> bool {
        let ways = self.outcome.accuracy_report.paths.iter().flat_map(|path| [&path.near_to_far, &path.far_to_near]);
        let other = |way: &DirectionReport| {
            let other = way.unmodelled;
            other.socket_buffer_full + other.ring_full + other.send_failed + other.interface_dropped
        };
        ways.map(other).sum::<u64>() == 0
    }
}

/// Returns the first of several trials that `trial` accepts. Otherwise panics with the error of each.
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

/// Reports that a comparison was skipped because a kernel feature or a program is missing. In CI all of them exist.
pub fn skip(what: &str, why: &str) {
    assert!(env::var_os("CI").is_none_or(|ci| ci != "true"), "{what}: {why}");
    eprintln!("SKIPPED: {what}: {why}");
}

/// Returns a shell command that runs this binary in a role.
fn shell(role: &str) -> String {
    let program = env::current_exe().unwrap();
    format!("{ROLE}='{role}' exec '{}'", program.display())
}

/// Returns the shared directory of both sides.
pub fn home() -> PathBuf {
    PathBuf::from(env::var_os(HOME).unwrap())
}

/// Near side: opens the taps, sends the traffic, and reads the taps.
pub fn near(taps: &[Tap], traffic: fn()) {
    let home = home();
    assert!(eventually(|| home.join("ready").exists()), "the far side is ready");
    let taps: Vec<_> = taps.iter().map(OpenTap::new).collect();
    traffic();
    write(&home.join("near"), taps);
    fs::write(home.join("done"), "").unwrap();
    assert!(eventually(|| home.join("far").exists()), "the far side says what it saw");
}

/// Far side: opens the taps, and answers on a socket until near has finished.
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

/// Keeps a socket without a reader. Without a socket, each datagram would cause an ICMP error.
pub fn hold(_: &UdpSocket) {
    thread::sleep(Duration::from_secs(600));
}

/// Calls `work` `count` times at this interval. A late call is caught up.
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
        let socket = PacketSocket::open_tap(index, LengthFilter::UpTo(tap.longest as u32)).unwrap();
        // Includes the overhead of a slot in addition to the frame.
        let bytes = tap.frames * (tap.longest + 256) + (1 << 20);
        let ring = ReceiveRing::new(&socket, SlotSize::Frames(tap.longest), bytes).unwrap();
        OpenTap { path, socket, ring }
    }

    fn drain(mut self) -> Vec<Seen> {
        let mut all = Vec::new();
        while let Some(frame) = self.ring.take().unwrap() {
            all.extend(datagrams(self.ring.bytes(frame.slot), frame.timestamp, self.path));
            self.ring.give_back(frame.slot);
        }
        assert_eq!(self.socket.take_dropped().unwrap(), 0, "the tap had room for all");
        all
    }
}

/// Returns the numbered datagrams in a frame after its virtual-net header, or none if it is not UDP over IPv4.
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

/// Writes a file that is complete when it appears.
fn write(file: &Path, taps: Vec<OpenTap>) {
    let line = |seen: Seen| format!("{} {} {} {} {}\n", seen.path, seen.at, seen.to, seen.frame, seen.number);
    let text: String = taps.into_iter().flat_map(OpenTap::drain).map(line).collect();
    let unfinished = file.with_extension("unfinished");
    fs::write(&unfinished, text).unwrap();
    fs::rename(unfinished, file).unwrap();
}

/// Returns no packets if the sides had no taps.
fn read(file: &Path) -> Vec<Seen> {
    let each = |line: &str| {
        let fields: Vec<u64> = line.split(' ').map(|field| field.parse().unwrap()).collect();
        let [path, at, to, frame, number] = fields[..] else { panic!("{line}") };
        Seen { path: path as u8, at, to: to as u16, frame: frame as usize, number: number as u32 }
    };
    fs::read_to_string(file).unwrap_or_default().lines().map(each).collect()
}
