//! `lfn copy` run as a user runs it, with its own `lfn serve` on loopback. This file has the test server and successful
//! copies. The modules have refused and interrupted copies, disk faults and other topics.

mod archive;
mod clean;
mod delete;
mod disks;
mod filters;
mod integrity;
mod interrupted;
mod large_trees;
mod local;
mod open_files;
mod output;
mod queue;
mod ranks;
mod refused;
mod ssh;
mod stripes;
mod third_party;
mod trees;

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lfn_base::path::PathProfile;
use lfn_base::random_data::fill_random;
use lfn_base::units::BitRate;
use serde_json::Value;

use crate::support::schema::{assert_valid, check_document};
use crate::support::server::{Server, text};
use crate::support::skip::skip;
use crate::support::{is_root, lfn, missing_program};

/// A command that runs longer than this hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server with its root, and a directory for the near side.
struct Pair {
    server: Server,
    home: tempfile::TempDir,
}

impl Pair {
    fn new() -> Self {
        Pair::serving(true)
    }

    fn serving(root: bool) -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("near")).unwrap();
        fs::create_dir(home.path().join("far")).unwrap();
        let far = home.path().join("far");
        let flags: &[&str] = if root { &["--root", far.to_str().unwrap()] } else { &[] };
        Pair { server: Server::start(flags), home }
    }

    fn near(&self, name: &str) -> PathBuf {
        self.home.path().join("near").join(name)
    }

    fn far(&self, name: &str) -> PathBuf {
        self.home.path().join("far").join(name)
    }

    /// Returns `lfn copy` in the near directory. `far` is the server of this pair.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = lfn();
        command.arg("copy").args(args).current_dir(self.home.path().join("near"));
        command.env("LFN_FAR_TICKET", &self.server.ticket).env("HOME", self.home.path()).env_remove("LFN_PATH");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn copy(&self, args: &[&str]) -> Output {
        finish(self.command(args).spawn().unwrap())
    }

    #[track_caller]
    fn copies(&self, args: &[&str]) -> Value {
        report_of(args, &self.copy(&[args, &["--json"]].concat()))
    }

    /// Asserts that the copy fails with this exit code and a one-line error that contains `what`. At most a hint
    /// follows. The copy leaves no partial file, because no block was received.
    #[track_caller]
    fn refuses(&self, args: &[&str], code: i32, what: &str) -> String {
        let output = self.copy(args);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {errors}");
        assert!(errors.contains(what), "{args:?}: {errors}");
        assert!(errors.starts_with("lfn: ") && errors.lines().count() <= 2, "{args:?}: {errors}");
        assert!(output.stdout.is_empty());
        self.assert_no_partial_files();
        errors
    }

    /// The server deletes its partial file when it notices, which can be shortly after the client has ended.
    #[track_caller]
    fn assert_no_partial_files(&self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let names = ["near", "far"].map(|side| names(&self.home.path().join(side))).concat();
            if !names.iter().any(|name| name.contains("lfn-partial")) {
                return;
            }
            assert!(Instant::now() < deadline, "{names:?}");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Waits for a command that must end by itself.
#[track_caller]
fn finish(mut child: Child) -> Output {
    // A child waits when a pipe is full, so both are read while it runs.
    let stdout = child.stdout.take().map(read_in_background);
    let stderr = child.stderr.take().map(read_in_background);
    let deadline = Instant::now() + PATIENCE;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > deadline {
            let _ = child.kill();
            panic!("still running after {PATIENCE:?}");
        }
        thread::sleep(Duration::from_millis(5));
    };
    let text = |reader: Option<JoinHandle<Vec<u8>>>| reader.map_or_else(Vec::new, |reader| reader.join().unwrap());
    Output { status, stdout: text(stdout), stderr: text(stderr) }
}

fn read_in_background(mut pipe: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).unwrap();
        bytes
    })
}

/// Returns the JSON report of a successful copy, after a check with its schema.
#[track_caller]
fn report_of(args: &[&str], output: &Output) -> Value {
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    let report = serde_json::from_slice(&output.stdout).unwrap();
    check_document(&report).unwrap_or_else(|fault| panic!("{args:?}: {fault}"));
    report
}

/// Returns the lines of `--output ndjson`, after a check with their schema.
#[track_caller]
fn event_lines(schema: &str, output: &Output) -> Vec<Value> {
    let lines: Vec<Value> = text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    lines.iter().for_each(|line| assert_valid(schema, line));
    lines
}

fn names(directory: &Path) -> Vec<String> {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn content(length: usize) -> Vec<u8> {
    let mut content = vec![0; length];
    fill_random(length as u64, 0, &mut content);
    content
}

fn write(path: &Path, length: usize) -> Vec<u8> {
    let content = content(length);
    fs::write(path, &content).unwrap();
    content
}

pub fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited for {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn files_of_all_lengths_are_copied_both_ways() {
    let pair = Pair::new();
    let block = 65_536;
    for (number, length) in [0, 1, 1023, block - 1, block, block + 1, 5 * block, 7 * block + 4711].iter().enumerate() {
        let name = format!("file{number}");
        let content = write(&pair.near(&name), *length);
        let protection: &[&str] = if number % 2 == 0 { &[] } else { &["--clear-data"] };
        let up = pair.copies(&[&[&name, &format!("far:{name}"), "--block-size", "64KiB"], protection].concat());
        assert_eq!(fs::read(pair.far(&name)).unwrap(), content);
        let down =
            pair.copies(&[&[&format!("far:{name}"), "back", "--force", "--block-size", "64KiB"], protection].concat());
        assert_eq!(fs::read(pair.near("back")).unwrap(), content);
        for report in [up, down] {
            assert_eq!(report["schema"], "lfn.copy/3");
            assert_eq!(report["bytes"], *length as u64);
            assert_eq!(report["digest_blake3"], blake3::hash(&content).to_hex().as_str(), "{length}");
        }
    }
    pair.assert_no_partial_files();
}

#[test]
fn digest_equals_b3sum() {
    let pair = Pair::new();
    write(&pair.near("a"), 3_333_333);
    let report = pair.copies(&["a", "far:a"]);
    if let Some(missing) = missing_program(&["b3sum"]) {
        return skip("digest_equals_b3sum", &missing);
    }
    let output = Command::new("b3sum").arg("--no-names").arg(pair.far("a")).output().unwrap();
    assert_eq!(report["digest_blake3"], text(&output.stdout).trim());
}

#[test]
fn every_report_field_is_documented() {
    let pair = Pair::new();
    write(&pair.near("a"), 5);
    let report = pair.copies(&["a", "far:a", "--manifest", "m"]);
    let description = include_str!("../../../../../doc/reference/copy.md");
    let fields: Vec<_> = report.as_object().unwrap().keys().filter(|field| *field != "schema").collect();
    assert!(fields.len() > 25, "{fields:?}");
    for field in fields {
        assert!(description.contains(&format!("`{field}`")), "{field} is not in doc/reference/copy.md");
    }
    fs::create_dir_all(pair.far("tree/a")).unwrap();
    fs::create_dir(pair.near("tree")).unwrap();
    write(&pair.near("tree/a"), 5);
    write(&pair.far("tree/a/b"), 5);
    let report = pair.copy(&["tree", "far:", "--json"]).stdout;
    let report: Value = serde_json::from_slice(&report).unwrap();
    let failure = report["failures"][0].as_object().unwrap();
    assert!(failure.len() > 3, "{report}");
    let line = description.lines().find(|line| line.starts_with("| `failures`")).unwrap();
    for field in failure.keys() {
        assert!(line.contains(&format!("`{field}`")), "{field} is not in doc/reference/copy.md");
    }
}

#[test]
fn many_streams_and_small_blocks_copy_a_file() {
    let pair = Pair::new();
    let content = write(&pair.near("a"), 2_000_003);
    for (streams, protection) in [("1", &["--clear-data"][..]), ("32", &["--clear-data"]), ("32", &[])] {
        let args = ["a", "far:a", "--streams", streams, "--block-size", "1KiB", "--force"];
        let report = pair.copies(&[&args, protection].concat());
        assert_eq!(fs::read(pair.far("a")).unwrap(), content);
        assert_eq!(report["streams"].to_string(), streams);
    }
}

#[test]
fn memory_sources_and_destinations_work_at_both_ends() {
    let pair = Pair::new();
    let up = pair.copies(&["random:3000000", "far:null:"]);
    let down = pair.copies(&["far:random:3000000", "null:"]);
    assert_ne!(up["digest_blake3"], down["digest_blake3"]);
    let zeros = blake3::hash(&vec![0; 3_000_000]).to_hex();
    for (from, to) in [("zero:3000000", "far:null:"), ("far:zero:3000000", "null:"), ("zero:3000000", "far:z")] {
        assert_eq!(pair.copies(&[from, to])["digest_blake3"], zeros.as_str(), "{from} {to}");
    }
    assert_eq!(fs::read(pair.far("z")).unwrap(), vec![0; 3_000_000]);
    let random = pair.copies(&["far:random:100000", "r"]);
    let hash = blake3::hash(&fs::read(pair.near("r")).unwrap()).to_hex();
    assert_eq!(random["digest_blake3"], hash.as_str());
}

#[test]
fn file_copied_to_directory_keeps_its_name() {
    let pair = Pair::new();
    fs::create_dir(pair.far("in")).unwrap();
    let content = write(&pair.near("a"), 10_000);
    for (to, at) in [("far:", "a"), ("far:in", "in/a"), ("far:in/", "in/a"), ("far:in/b", "in/b")] {
        pair.copies(&["a", to, "--force"]);
        assert_eq!(fs::read(pair.far(at)).unwrap(), content, "{to}");
    }
    fs::remove_file(pair.near("a")).unwrap();
    pair.copies(&["far:in/b", "."]);
    assert_eq!(fs::read(pair.near("b")).unwrap(), content);
    let address = pair.server.ticket.replace('#', "/in/a#");
    pair.copies(&[&address, "./x:y"]);
    assert_eq!(fs::read(pair.near("x:y")).unwrap(), content);
    // A destination for `zero:` gets the name of its type.
    pair.copies(&["zero:1", "far:in"]);
    assert_eq!(fs::read(pair.far("in/zero")).unwrap(), [0]);
    pair.refuses(&["in/a", "far:none/a"], 1, "in/a: no such file");
    pair.refuses(&["b", "far:none/a"], 1, "none/a: no such file");
    // A trailing slash creates the directory, as with rsync, but not its parents.
    for (way, at) in [(["b", "far:new/"], pair.far("new/b")), (["far:in/b", "new/"], pair.near("new/b"))] {
        pair.copies(&way);
        assert_eq!(fs::read(at).unwrap(), content);
    }
    pair.refuses(&["b", "far:none/new/"], 1, "none/new/: no such file");
}

#[test]
fn summary_has_two_lines_and_a_prediction() {
    let pair = Pair::new();
    let output = pair.copy(&["zero:100000", "far:null:", "--rate", "1gbit"]);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    let lines = text(&output.stdout);
    assert_eq!(lines.lines().count(), 3, "{lines}");
    assert!(lines.lines().any(|line| line.starts_with("predicted: ")), "{lines}");
    let unknown_path = pair.copy(&["zero:100000", "far:null:"]).stdout;
    assert_eq!(text(&unknown_path).lines().count(), 2, "{}", text(&unknown_path));
    assert!(lines.contains("100 kB in ") && lines.contains("goodput"), "{lines}");
    assert!(lines.contains(blake3::hash(&[0; 100_000]).to_hex().as_str()), "{lines}");
    // A closed pipe is not a failure.
    let mut child = pair.command(&["zero:10", "far:null:"]).spawn().unwrap();
    drop(child.stdout.take());
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert_eq!(finish(child).status.code(), Some(0), "{errors}");
}

/// The two directions can have different capacities. A copy is compared with the capacity of its direction.
#[test]
fn each_direction_is_predicted_from_its_own_link() {
    let pair = Pair::new();
    let link = |mbit: u64| {
        let path = PathProfile::new(BitRate(mbit * 1_000_000), Duration::from_millis(10));
        serde_json::to_string(&path).unwrap()
    };
    for (args, capacity) in [(["zero:100000", "far:null:"], 100e6), (["far:zero:100000", "null:"], 10e6)] {
        let mut command = pair.command(&[&args[..], &["--json"]].concat());
        command.env("LFN_EMULATED", "1").env("LFN_PATH", link(100)).env("LFN_RETURN_PATH", link(10));
        let output = finish(command.spawn().unwrap());
        let report: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
        let goodput = report["predicted"]["goodput_bits_per_second"].as_f64().unwrap();
        assert!((0.9 * capacity..capacity).contains(&goodput), "{args:?}: {goodput}");
    }
}

/// A given rate and a measured RTT are treated like a known path.
#[test]
fn rate_option_determines_the_streams() {
    let pair = Pair::new();
    for (rate, reason) in [(&["--rate", "1gbit"][..], "more would not help"), (&[], "default")] {
        let report = pair.copies(&[&["zero:100000", "far:null:"], rate].concat());
        assert!(report["streams_reason"].as_str().unwrap().starts_with(reason), "{rate:?}: {report}");
    }
}

/// A given rate also limits the copy.
#[test]
fn copy_respects_the_rate_option() {
    let pair = Pair::new();
    write(&pair.near("a"), 3_000_000);
    for args in [["a", "far:a"], ["far:random:3MB", "b"], ["a", "c"]] {
        let report = pair.copies(&[&args[..], &["--rate", "20mbit", "--streams", "2"]].concat());
        assert_eq!(report["pacing_bits_per_second"], 10_000_000, "{report}");
        // 1.2 s, minus the data that leaves before the path is known.
        assert!(report["seconds"].as_f64() > Some(0.6), "{args:?}: {report}");
    }
    let errors = pair.refuses(&["a", "far:a", "--rate", "5bit"], 2, "--rate 5 b/s is too low; minimum 8 kb/s");
    assert!(errors.ends_with("hint: lfn copy a far:a --rate 10gbit\n"), "{errors}");
}

#[test]
fn unused_new_directory_is_removed() {
    let pair = Pair::new();
    for (args, made) in [
        (["far:*.nc", "new"], pair.near("new")),
        (["*.nc", "far:new"], pair.far("new")),
        (["x", "new/"], pair.near("new")),
    ] {
        let output = pair.copy(&args);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {}", text(&output.stderr));
        wait_for("the directory to go", || !made.exists());
    }
}
