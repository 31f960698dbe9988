//! One trial: a copy, a fault, the same command again until it succeeds, and checks of the destination in between.

mod ranks;

use std::collections::BTreeMap;
use std::fs::{self, File, FileTimes};
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use lfn_base::random_data::fill_random;
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, setrlimit};
use serde_json::Value;

use super::clock::{self, Clock};
use super::fault::Fault;
use super::proxy::Proxy;
use crate::support::{lfn, lfn_path};

/// A command that runs longer than this hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// An undisturbed copy succeeds within this number of attempts.
const ATTEMPTS: usize = 4;

/// Makes this test binary a server with this limit on file size, in bytes.
const LIMITED: &str = "TEST_LFN_FILE_LIMIT";

/// Observations of a trial.
pub struct Seen {
    /// The copy was running when the fault was injected.
    pub struck: bool,
    /// The fault left blocks that the next attempt can resume from.
    pub resumable: bool,
    /// The next attempt resumed from them.
    pub resumed: bool,
}

/// Generator of the trial's values (splitmix64, Steele, Lea and Flood 2014).
pub struct Draw(u64);

impl Draw {
    pub fn new(seed: u64) -> Self {
        Draw(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, most: u64) -> u64 {
        self.next() % most
    }
}

/// A trial, see the module documentation.
pub struct Trial {
    pub fault: Fault,
    up: bool,
    clear: bool,
    streams: u64,
    /// Moving clocks of the client, the server, or both.
    clocks: [Option<Clock>; 2],
    draw: Draw,
    home: tempfile::TempDir,
    /// Contents of the source before the fault, and after a fault that changes the source.
    versions: Vec<BTreeMap<PathBuf, Vec<u8>>>,
}

struct Server {
    child: Child,
    ticket: String,
    address: SocketAddr,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        clock::sweep(self.child.id());
    }
}

/// Runs this process as a server with a limit on file size, if it was started as one.
pub fn as_limited_server() -> Option<ExitCode> {
    let limit: u64 = std::env::var(LIMITED).ok()?.parse().unwrap();
    setrlimit(Resource::Fsize, Rlimit { current: Some(limit), maximum: None }).unwrap();
    let error = Command::new(lfn_path()).args(std::env::args_os().skip(1)).exec();
    panic!("{error}");
}

/// A server with a moved clock writes its audit log with the moved time, and continues to serve a client with a correct
/// clock.
pub fn clock_moves() {
    let mut trial = Trial::new(0);
    trial.up = true;
    trial.create_files();
    trial.clocks[1] = Some(Clock::new(trial.home.path().join("far/clock")));
    let server = trial.serve(None, None);
    for offset in ["+0", "+3650d", "-3650d"] {
        trial.clocks[1].iter().for_each(|clock| clock.set(offset));
        let done = finish(trial.command(&server.ticket, &[]).spawn().unwrap()).unwrap();
        assert!(done.status.success(), "{offset}: {}", text(&done.stderr));
    }
    trial.check_complete(false).unwrap();
    let account = fs::read_to_string(trial.account()).unwrap();
    let lines = account.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let opened = lines.filter(|line| line["event"] == "opened");
    let years: Vec<i32> = opened.map(|line| line["time"].as_str().unwrap()[..4].parse().unwrap()).collect();
    assert!(matches!(years[..], [now, ahead, back] if ahead - now >= 9 && now - back >= 9), "{years:?}");
}

impl Trial {
    pub fn new(seed: u64) -> Trial {
        let mut draw = Draw(seed);
        let fault = Fault::ALL[(seed % Fault::ALL.len() as u64) as usize];
        let variant = seed / Fault::ALL.len() as u64;
        // The server's disk fills up.
        let up = variant.is_multiple_of(2) || fault == Fault::DiskFull;
        let home = tempfile::tempdir().unwrap();
        let mut trial = Trial {
            fault,
            clocks: [None, None],
            up,
            clear: (variant / 2).is_multiple_of(2),
            streams: 1 + draw.below(6),
            home,
            versions: Vec::new(),
            draw,
        };
        for side in ["near", "far", "state"] {
            fs::create_dir(trial.home.path().join(side)).unwrap();
        }
        if fault == Fault::ClockJump {
            // Below the root, because a server with landlock can read nothing else.
            let sides = 1 + trial.draw.below(3);
            let clock = |side: u64| Clock::new(trial.home.path().join(format!("far/clock{side}")));
            trial.clocks = [0, 1].map(|side| (sides & 1 << side != 0).then(|| clock(side)));
        }
        trial
    }

    pub fn run(mut self) -> Result<Seen, String> {
        if self.fault.has_ranks() {
            return self.run_ranks();
        }
        self.create_files();
        let limit = (self.fault == Fault::DiskFull).then_some(1 << 20);
        let mut server = self.serve(None, limit);
        let proxy = Proxy::start(server.address);
        let ticket = server.ticket.replace(&server.address.to_string(), &proxy.address.to_string());
        let other = (self.fault == Fault::StripeCut).then(|| Proxy::start(server.address));
        let stripes = other.as_ref().map(|other| format!("127.0.0.2={},127.0.0.3={}", proxy.address, other.address));
        let flags: Vec<&str> = stripes.iter().flat_map(|stripes| ["--stripe", stripes.as_str()]).collect();
        let mut client = self.command(&ticket, &flags).spawn().unwrap();
        let second = (self.fault == Fault::TwoCopies).then(|| {
            thread::sleep(Duration::from_millis(self.draw.below(60)));
            self.command(&server.ticket, &[]).spawn().unwrap()
        });
        let struck = self.inject_fault(&mut client, &mut server, &proxy);
        let mut done = finish(client)?;
        if let Some(second) = second {
            finish(second)?;
        }
        self.check_final_names()?;
        let left = self.change_remains();
        if limit.is_some() {
            drop(server);
            server = self.serve(None, None);
        }
        if self.fault == Fault::StripeCut && !done.status.success() {
            return Err(format!("the other stripe did not complete the copy: {}", text(&done.stderr)));
        }
        let (mut resumed, mut attempts) = (false, 0);
        while !done.status.success() {
            if attempts == ATTEMPTS {
                return Err(format!("not done after {ATTEMPTS} attempts: {}", text(&done.stderr)));
            }
            attempts += 1;
            let flags: &[&str] = if self.fault.changes_source() { &["--force"] } else { &[] };
            done = finish(self.command(&server.ticket, flags).spawn().unwrap())?;
            self.check_final_names()?;
            resumed |= kept(&done) > 0;
        }
        self.check_complete(attempts > 0)?;
        let resumable = attempts > 0 && left && !self.fault.changes_source() && self.fault != Fault::JournalTorn;
        let resumable = resumable && !matches!(self.fault, Fault::JournalForged | Fault::PartialMeddled);
        if resumable && !resumed {
            return Err("blocks were left, and it did not go on from them".to_owned());
        }
        Ok(Seen { struck, resumable, resumed })
    }

    /// Creates a tree of some files, one of which has many blocks.
    fn create_files(&mut self) {
        let source = self.source();
        let mut files = BTreeMap::new();
        let large = 1_000_000 + self.draw.below(20_000_000);
        files.insert(PathBuf::from("large"), large);
        for n in 0..3 + self.draw.below(30) {
            let folder = ["", "a/", "a/b/"][self.draw.below(3) as usize];
            let length = self.draw.below(3) * self.draw.below(100_000);
            files.insert(PathBuf::from(format!("{folder}{n}")), length);
        }
        let mut version = BTreeMap::new();
        for (name, length) in files {
            let mut content = vec![0; length as usize];
            fill_random(self.draw.next(), 0, &mut content);
            let path = source.join(&name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, &content).unwrap();
            version.insert(name, content);
        }
        self.versions.push(version);
    }

    fn source(&self) -> PathBuf {
        self.home.path().join(if self.up { "near/data" } else { "far/data" })
    }

    fn destination(&self) -> PathBuf {
        self.home.path().join(if self.up { "far/data" } else { "near/data" })
    }

    /// Returns the path of the audit log of a server with a moving clock.
    fn account(&self) -> PathBuf {
        self.home.path().join("state/audit")
    }

    /// Starts a server with the same key and token each time.
    fn serve(&self, port: Option<u16>, limit: Option<u64>) -> Server {
        let mut command = match limit {
            Some(limit) => {
                let mut command = Command::new(std::env::current_exe().unwrap());
                command.env(LIMITED, limit.to_string());
                command
            }
            None => lfn(),
        };
        let port = port.unwrap_or(0).to_string();
        command.args([
            "serve",
            "--quiet",
            "--bind",
            "127.0.0.1",
            "--ticket-host",
            "127.0.0.1",
            "--port",
            &port,
            "--root",
        ]);
        command.arg(self.home.path().join("far")).env("HOME", self.home.path().join("state"));
        command.env_remove("XDG_STATE_HOME").env_remove("XDG_CONFIG_HOME");
        if let [_, Some(clock)] = &self.clocks {
            clock.rules(&mut command);
            command.arg("--audit").arg(self.account());
        }
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
            let mut ticket = String::new();
            BufReader::new(child.stdout.take().unwrap()).read_line(&mut ticket).unwrap();
            if let Some(address) = ticket.split_once('@').and_then(|(_, rest)| rest.split_once('#')) {
                let address = address.0.parse().unwrap();
                return Server { child, ticket: ticket.trim().to_owned(), address };
            }
            // The previous owner of the port has not ended yet.
            let _ = child.wait();
            assert!(Instant::now() < deadline, "the server does not start again");
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn command(&self, ticket: &str, flags: &[&str]) -> Command {
        let places = if self.up { ["data", "far:"] } else { ["far:data", "."] };
        self.command_with(ticket, &places, flags)
    }

    fn command_with(&self, ticket: &str, places: &[&str], flags: &[&str]) -> Command {
        let mut command = lfn();
        command.arg("copy").args(places).args(["--json", "--block-size", "64KiB", "--retry-for", "20s"]).args(flags);
        command.args(["--streams", &self.streams.to_string()]);
        if self.clear {
            command.arg("--clear-data");
        }
        if let [Some(clock), _] = &self.clocks {
            clock.rules(&mut command);
        }
        command.current_dir(self.home.path().join("near")).env("HOME", self.home.path());
        command.env("LFN_FAR_TICKET", ticket).env_remove("LFN_PATH").env_remove("LFN_EMULATED");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Injects the fault at a random moment. Returns whether the copy was still running.
    fn inject_fault(&mut self, client: &mut Child, server: &mut Server, proxy: &Proxy) -> bool {
        let length: u64 = self.versions[0].values().map(|content| content.len() as u64).sum();
        let mut moment = self.draw.below(length + length / 8);
        if self.fault == Fault::StripeCut {
            // The relay carries one of two stripes.
            moment /= 2;
        }
        if self.fault == Fault::Corruption {
            // The fault must come after the client's first message, because it would only end the session before its
            // start.
            proxy.flip_after(20_000 + moment);
        }
        let deadline = Instant::now() + PATIENCE;
        while proxy.passed() < moment && client.try_wait().unwrap().is_none() && Instant::now() < deadline {
            thread::sleep(Duration::from_micros(500));
        }
        let start_with_events = client.try_wait().unwrap().is_none();
        let pause = Duration::from_millis(self.draw.below(400));
        match self.fault {
            fault if fault.kills_client() => {
                let _ = client.kill();
                let _ = client.wait();
            }
            Fault::ServerKilled => {
                server.child.kill().unwrap();
                server.child.wait().unwrap();
                thread::sleep(pause);
                *server = self.serve(Some(server.address.port()), None);
            }
            Fault::ServerRestarted => {
                for signal in [Signal::TERM, Signal::INT] {
                    let _ = kill_process(Pid::from_child(&server.child), signal);
                    thread::sleep(Duration::from_millis(5));
                }
                server.child.wait().unwrap();
                thread::sleep(pause);
                *server = self.serve(Some(server.address.port()), None);
            }
            Fault::ClockJump => self.move_clocks(client, pause),
            Fault::Outage => proxy.hold(pause),
            Fault::StripeCut => {
                proxy.hold(10 * pause);
                if self.draw.below(2) == 0 {
                    proxy.reset();
                }
            }
            Fault::Reset => proxy.reset(),
            fault if fault.changes_source() => self.change_source(),
            _ => {}
        }
        start_with_events
    }

    /// Moves the clocks several times while the copy runs: far ahead, back, and to the true time.
    fn move_clocks(&mut self, client: &mut Child, pause: Duration) {
        for _ in 0..1 + self.draw.below(3) {
            let offset = ["+3650d", "-2d", "-3650d", "+3h", "+0"][self.draw.below(5) as usize];
            self.clocks.iter().flatten().for_each(|clock| clock.set(offset));
            if client.try_wait().unwrap().is_none() {
                thread::sleep(pause / 20);
            }
        }
    }

    fn change_source(&mut self) {
        let path = self.source().join("large");
        let mut content = fs::read(&path).unwrap();
        match self.fault {
            Fault::SourceTruncated => content.truncate(self.draw.below(content.len() as u64) as usize),
            Fault::SourceGrown => content.extend(vec![7; 1 + self.draw.below(200_000) as usize]),
            Fault::SourceReplaced => content.iter_mut().for_each(|byte| *byte ^= 1),
            _ => content[0] ^= 1,
        }
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        match self.fault {
            Fault::SourceReplaced => {
                fs::write(path.with_extension("new"), &content).unwrap();
                fs::rename(path.with_extension("new"), &path).unwrap();
            }
            Fault::SourceTruncated => file.set_len(content.len() as u64).unwrap(),
            Fault::SourceGrown => {
                let old = self.versions[0][Path::new("large")].len();
                file.write_all_at(&content[old..], old as u64).unwrap();
            }
            _ => file.write_all_at(&content[..1], 0).unwrap(),
        }
        let mut version = self.versions[0].clone();
        version.insert("large".into(), content);
        self.versions.push(version);
    }

    /// Returns whether there is a journal with at least one block of the large file. Changes the remains if this is the
    /// fault.
    fn change_remains(&mut self) -> bool {
        let [journal, partial] =
            ["journal", "partial"].map(|kind| self.destination().join(format!(".large.lfn-{kind}")));
        let Ok(mut bytes) = fs::read(&journal) else { return false };
        match self.fault {
            Fault::TimesJump => {
                let years = Duration::from_secs(10 * 365 * 86_400);
                let now = SystemTime::now();
                let time = if self.draw.below(2) == 0 { now + years } else { now - years };
                for path in [&journal, &partial] {
                    let file = File::options().write(true).open(path).unwrap();
                    file.set_times(FileTimes::new().set_modified(time)).unwrap();
                }
            }
            Fault::JournalTorn => {
                let at = self.draw.below(bytes.len() as u64 + 1);
                File::options().write(true).open(&journal).unwrap().set_len(at).unwrap();
            }
            Fault::JournalForged if !bytes.is_empty() => {
                for _ in 0..1 + self.draw.below(4) {
                    let at = self.draw.below(bytes.len() as u64) as usize;
                    bytes[at] ^= 1 << self.draw.below(8);
                }
                fs::write(&journal, &bytes).unwrap();
            }
            Fault::PartialMeddled => {
                let Ok(file) = File::options().read(true).write(true).open(&partial) else { return false };
                // A write while a copy holds the lock is not part of this test.
                while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
                    thread::sleep(Duration::from_millis(1));
                }
                if !partial.exists() {
                    return false;
                }
                for _ in 0..1 + self.draw.below(4) {
                    let (at, mut byte) = (self.draw.below(file.metadata().unwrap().len().max(1)), [0]);
                    if file.read_at(&mut byte, at).unwrap() == 1 {
                        file.write_all_at(&[byte[0] ^ 1], at).unwrap();
                    }
                }
            }
            _ => {}
        }
        // A record has at least 44 bytes. The header before the first record contains names and is longer than one
        // record.
        bytes.len() > 400
    }

    /// Checks that every final name has a complete version of its file.
    fn check_final_names(&self) -> Result<(), String> {
        for (name, content) in read_tree(&self.destination()) {
            let file = name.file_name().unwrap().to_string_lossy();
            if file.starts_with('.') && (file.ends_with(".lfn-partial") || file.ends_with(".lfn-journal")) {
                continue;
            }
            if !self.versions.iter().any(|version| version.get(&name) == Some(&content)) {
                return Err(format!("{} has {} bytes that are no version of it", name.display(), content.len()));
            }
        }
        Ok(())
    }

    /// Checks that the destination equals the source and has no other files.
    fn check_complete(&self, anew: bool) -> Result<(), String> {
        let there = read_tree(&self.destination());
        let names = |tree: &BTreeMap<PathBuf, Vec<u8>>| tree.keys().cloned().collect::<Vec<_>>();
        if names(&there) != names(&self.versions[0]) {
            return Err(format!("done, and there are {:?} instead of {:?}", names(&there), names(&self.versions[0])));
        }
        // A source that changed after it was sent is only sent again by a new command.
        let last = self.versions.last().unwrap();
        let whole = |version: &BTreeMap<PathBuf, Vec<u8>>| *version == there;
        if whole(last) || (!anew && self.versions.iter().any(whole)) {
            Ok(())
        } else {
            Err("done, and not equal".into())
        }
    }
}

pub fn read_tree(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut files, mut folders) = (BTreeMap::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let mut content = Vec::new();
                // A file that is removed at this moment does not exist.
                if File::open(&path).and_then(|mut file| file.read_to_end(&mut content)).is_ok() {
                    files.insert(path.strip_prefix(root).unwrap().to_owned(), content);
                }
            }
        }
    }
    files
}

/// Waits for a command that must end by itself.
pub fn finish(mut child: Child) -> Result<Output, String> {
    let deadline = Instant::now() + PATIENCE;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            let _ = child.kill();
            let output = child.wait_with_output().unwrap();
            return Err(format!("still running after {PATIENCE:?}: {}", text(&output.stderr)));
        }
        thread::sleep(Duration::from_millis(2));
    }
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    clock::sweep(pid);
    let panicked = text(&output.stderr).contains("panicked");
    if panicked { Err(text(&output.stderr)) } else { Ok(output) }
}

fn kept(output: &Output) -> u64 {
    serde_json::from_slice::<Value>(&output.stdout)
        .ok()
        .and_then(|report| report["counts"]["resumed_bytes"].as_u64())
        .unwrap_or(0)
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().replace('\n', " / ")
}
