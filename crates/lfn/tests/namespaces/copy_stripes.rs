//! Copies over several links between two namespaces: each link carries data, a slow one less, and a link that is cut
//! during the copy neither ends nor stalls the copy, and carries data again after its repair.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use lfn_base::random_data::fill_random;
use lfn_sys::namespace::NetNamespace;
use serde_json::Value;

use crate::support::harness::{Needs, Test, Weight, tests_of};
use crate::support::schema::check_document;
use crate::support::server::number;
use crate::support::{self, run_scenario, sandbox};

/// Name of this module in the names of its tests and roles.
const MODULE: &str = "copy_stripes";

/// Maximum time of an event of a copy: the silence of the control connection, a reconnect and the time-out of a dial.
const PATIENCE: Duration = Duration::from_secs(60);

/// Hardware address that no interface has.
const NOBODY: &str = "02:00:00:00:09:09";

/// Runs this program as a part of a test.
pub fn act(role: &str) {
    match role {
        "slow" => slow_stripe_carries_less(),
        "silent_upload" => cut_and_repair(false, Cut::Silent),
        "silent_download" => cut_and_repair(true, Cut::Silent),
        "down_upload" => cut_and_repair(false, Cut::LinkDown),
        "down_download" => cut_and_repair(true, Cut::LinkDown),
        other => panic!("no role '{other}'"),
    }
}

pub fn tests() -> Vec<Test> {
    const NEEDS: Needs = Needs::Programs(&["ip", "tc"]);
    tests_of(
        MODULE,
        Weight::Waiting,
        &[
            ("slow_stripe_carries_less", NEEDS, || run_scenario(MODULE, "slow")),
            ("upload_survives_a_silent_stripe", NEEDS, || run_scenario(MODULE, "silent_upload")),
            ("download_survives_a_silent_stripe", NEEDS, || run_scenario(MODULE, "silent_download")),
            ("upload_survives_a_link_that_is_down", NEEDS, || run_scenario(MODULE, "down_upload")),
            ("download_survives_a_link_that_is_down", NEEDS, || run_scenario(MODULE, "down_download")),
        ],
    )
}

/// Two namespaces with links, a server in the far one, and directories of both sides.
struct Links {
    far: NetNamespace,
    server: Child,
    ticket: String,
    home: tempfile::TempDir,
}

impl Links {
    /// Connects the namespaces with a link of each rate: addresses 10.0.N.1 and 10.0.N.2, interfaces nN and fN.
    fn new(rates: &[&str]) -> Links {
        sandbox::enter();
        sandbox::up("lo");
        let (near, far) = (NetNamespace::current().unwrap(), NetNamespace::new().unwrap());
        far.run(|| sandbox::up("lo")).unwrap();
        for (number, rate) in (1..).zip(rates) {
            let (here, there) = (format!("n{number}"), format!("f{number}"));
            sandbox::join(&here, &far, &there, number);
            sandbox::address(&near, &here, [10, 0, number, 1]);
            sandbox::address(&far, &there, [10, 0, number, 2]);
            limit(&here, rate);
            far.run(|| limit(&there, rate)).unwrap();
        }
        let home = tempfile::tempdir().unwrap();
        for side in ["near", "far"] {
            fs::create_dir(home.path().join(side)).unwrap();
        }
        let mut serve = support::lfn();
        serve.args(["serve", "--ephemeral", "--quiet", "--ticket-host", "10.0.1.2", "--root"]);
        serve.arg(home.path().join("far")).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut server = sandbox::spawn_in(&far, &mut serve);
        let mut ticket = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut ticket).unwrap();
        Links { far, server, ticket: ticket.trim().to_owned(), home }
    }

    fn near(&self) -> std::path::PathBuf {
        self.home.path().join("near")
    }

    /// Writes random bytes to a file of one side.
    fn write(&self, side: &str, name: &str, bytes: usize) -> Vec<u8> {
        let mut content = vec![0; bytes];
        fill_random(bytes as u64, 0, &mut content);
        fs::write(self.home.path().join(side).join(name), &content).unwrap();
        content
    }

    fn copy(&self, flags: &[&str]) -> Command {
        let mut command = support::lfn();
        command.arg("copy").args(flags).current_dir(self.near()).env("LFN_FAR_TICKET", &self.ticket);
        command.env("HOME", self.home.path()).env_remove("LFN_PATH").stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Returns the document of a copy that succeeds.
    fn document(&self, flags: &[&str]) -> Value {
        let output = self.copy(&[flags, &["--json"]].concat()).output().unwrap();
        assert!(output.status.success(), "{}", support::stderr(&output));
        let document = serde_json::from_slice(&output.stdout).unwrap();
        check_document(&document).unwrap();
        document
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn limit(interface: &str, rate: &str) {
    run("tc", &["qdisc", "add", "dev", interface, "root", "tbf", "rate", rate, "burst", "32kb", "latency", "50ms"]);
}

#[track_caller]
fn run(program: &str, words: &[&str]) {
    assert!(Command::new(program).args(words).status().unwrap().success(), "{program} {words:?}");
}

/// Returns the bytes of each stripe.
fn bytes_of(document: &Value) -> Vec<u64> {
    document["stripes"].as_array().unwrap().iter().map(|stripe| number(&stripe["bytes"])).collect()
}

fn slow_stripe_carries_less() {
    let links = Links::new(&["100mbit", "100mbit", "10mbit"]);
    let content = links.write("near", "a", 40_000_000);
    let stripes = "10.0.1.1=10.0.1.2,10.0.2.1=10.0.2.2,n3=10.0.3.2";
    for (flags, copy) in [
        (["a", "far:a", "--stripe", stripes], "far/a"),
        (["far:a", "b", "--stripe", stripes], "near/b"),
        (["a", "far:c", "--stripe", "auto"], "far/c"),
    ] {
        let document = links.document(&flags);
        assert!(fs::read(links.home.path().join(copy)).unwrap() == content, "{copy} differs");
        let bytes = bytes_of(&document);
        let [first, second, slow] = bytes[..] else { panic!("{document}") };
        assert!(slow > 0 && 2 * slow < first && 2 * slow < second, "{bytes:?}");
        assert_eq!(document["stripes"][2]["outages"], 0, "{document}");
    }
}

/// Way in which a link is cut.
#[derive(Clone, Copy, PartialEq)]
enum Cut {
    /// Both hosts send to a hardware address that no interface has.
    Silent,
    LinkDown,
}

impl Cut {
    fn cut(self, far: &NetNamespace) {
        let nobody = |to: &str, interface: &str| {
            run("ip", &["neigh", "replace", to, "lladdr", NOBODY, "dev", interface, "nud", "permanent"])
        };
        match self {
            Cut::Silent => {
                nobody("10.0.2.2", "n2");
                far.run(|| nobody("10.0.2.1", "f2")).unwrap();
            }
            Cut::LinkDown => run("ip", &["link", "set", "n2", "down"]),
        }
    }

    fn repair(self, far: &NetNamespace) {
        let forget = |to: &str, interface: &str| run("ip", &["neigh", "del", to, "dev", interface]);
        match self {
            Cut::Silent => {
                forget("10.0.2.2", "n2");
                far.run(|| forget("10.0.2.1", "f2")).unwrap();
            }
            Cut::LinkDown => run("ip", &["link", "set", "n2", "up"]),
        }
    }
}

/// Lines of a running copy.
struct Events {
    lines: std::io::Lines<BufReader<ChildStdout>>,
    /// Bytes of the second stripe in the last line with stripes.
    carried: u64,
}

impl Events {
    /// Returns the next line that fits.
    fn wait_for(&mut self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENCE;
        for line in self.lines.by_ref() {
            let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
            if let Some(stripe) = line["stripes"].get(1) {
                self.carried = number(&stripe["bytes"]);
            }
            if fits(&line) {
                return line;
            }
            assert!(Instant::now() < deadline, "{what} takes too long: {line}");
        }
        panic!("the copy ended before: {what}")
    }
}

/// Cuts the second of three links during a copy, and repairs the link when the copy has noticed.
fn cut_and_repair(download: bool, cut: Cut) {
    let links = Links::new(&["20mbit", "20mbit", "20mbit"]);
    let (source, from, to, copy) = match download {
        true => ("far", "far:a", "b", "near/b"),
        false => ("near", "a", "far:a", "far/a"),
    };
    let content = links.write(source, "a", 200_000_000);
    let stripes = "10.0.1.1=10.0.1.2,10.0.2.1=10.0.2.2,10.0.3.1=10.0.3.2";
    let mut child =
        links.copy(&[from, to, "--stripe", stripes, "--output", "ndjson"]).stderr(Stdio::inherit()).spawn().unwrap();
    let mut events = Events { lines: BufReader::new(child.stdout.take().unwrap()).lines(), carried: 0 };
    events.wait_for("data on the stripe", |line| line["stripes"].get(1).is_some_and(|it| number(&it["bytes"]) > 0));
    cut.cut(&links.far);
    let is_cut = |line: &Value| line["event"] == "stripe_down" && line["stripe"] == "10.0.2.1=10.0.2.2";
    events.wait_for("the outage", is_cut);
    cut.repair(&links.far);
    let carried = events.carried;
    events.wait_for("the repair", |line| line["event"] == "stripe_up" && line["stripe"] == "10.0.2.1=10.0.2.2");
    let document = events.wait_for("the result", |line| line["schema"].is_string());
    assert!(child.wait().unwrap().success());
    assert!(fs::read(links.home.path().join(copy)).unwrap() == content, "{copy} differs");
    let stripe = &document["stripes"][1];
    assert!(stripe["state"] == "up" && number(&stripe["outages"]) > 0, "{document}");
    assert!(number(&stripe["bytes"]) > carried + 1_000_000, "{carried} before the repair: {document}");
    // The other stripes carried their share meanwhile.
    let bytes = bytes_of(&document);
    assert!(bytes[0] > bytes[1] && bytes[2] > bytes[1], "{bytes:?}");
    assert_no_partial_file(&links.home.path().join(if download { "near" } else { "far" }));
}

fn assert_no_partial_file(directory: &Path) {
    let names: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!names.iter().any(|name| name.to_string_lossy().contains("lfn-partial")), "{names:?}");
}
