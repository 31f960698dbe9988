//! `lfn doctor` where parts cannot be seen: the result has each missing part with its reason and its consequence, the exit code
//! is the documented one, and no part waits past its time.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::support;
use crate::support::harness::{Needs, Test, Weight, tests_of};
use crate::support::schema::assert_valid;
use crate::support::server::text;

/// Name of this module in the names of its tests.
const MODULE: &str = "doctor_unseen";

pub fn tests() -> Vec<Test> {
    tests_of(
        MODULE,
        Weight::Waiting,
        &[
            ("dropped_datagrams_leave_the_tcp_loads", Needs::Programs(&["ip"]), dropped_datagrams_leave_the_tcp_loads),
            ("silent_server_ends_in_time", Needs::Namespaces, silent_server_ends_in_time),
            ("far_host_without_privileges_is_examined", Needs::Root, far_host_without_privileges_is_examined),
            ("denied_netlink_is_reported", Needs::Programs(&["python3"]), denied_netlink_is_reported),
            ("missing_proc_and_sys_are_reported", Needs::Root, missing_proc_and_sys_are_reported),
            ("black_hole_for_every_answer_ends_in_time", Needs::Namespaces, black_hole_for_every_answer_ends_in_time),
        ],
    )
}

/// Maximum time of a quick examination if the server stops answering: its planned time, the time-outs of a load and of a
/// connection, and the start of the emulation on a busy machine.
const MAX_QUICK_TIME: Duration = Duration::from_secs(60);
/// Parts of an examination.
const PARTS: [&str; 4] =
    ["TCP from near to far", "TCP from far to near", "datagrams from near to far", "datagrams from far to near"];
/// Drops received UDP like a firewall without an answer: the route of the packets is a black hole.
const DROP_UDP: &str =
    "ip rule add pref 100 lookup local; ip rule add pref 50 iif lfn0 ipproto udp blackhole; ip rule del pref 0";

/// Result of an examination with the time that it took.
struct Examined {
    output: Output,
    time: Duration,
}

/// Examines a path to a server that `far` starts with `$SERVE`.
fn examine(path: &[&str], far: &str, flags: &str) -> Examined {
    let serve = "serve --insecure --quiet --bind \"$LFN_FAR\"";
    let mut command: Command = support::lfn();
    command.args(["emulate", "--rate", "20mbit", "--rtt", "20ms", "--large-buffers"]).args(path);
    command
        .env("LFN", support::lfn_path())
        .args(["--far-command", &far.replace("$SERVE", &format!("\"$LFN\" {serve}"))]);
    command.args([
        "--",
        "sh",
        "-c",
        &format!("sleep 0.5; exec \"$LFN\" doctor --insecure \"$LFN_FAR\" --json {flags}"),
    ]);
    let started = Instant::now();
    let output = command.stdin(Stdio::null()).output().unwrap();
    Examined { output, time: started.elapsed() }
}

impl Examined {
    /// Returns the validated document. Each part has a result, or an entry with a reason and a consequence.
    fn document(&self) -> Value {
        let document: Result<Value, _> = serde_json::from_slice(&self.output.stdout);
        let document = document.unwrap_or_else(|_| panic!("{}", text(&self.output.stderr)));
        assert_valid("lfn.doctor.1", &document);
        let unseen = document["unseen"].as_array().unwrap();
        for entry in unseen {
            let says = |key: &str| entry[key].as_str().is_some_and(|text| !text.is_empty());
            assert!(says("part") && says("reason") && says("consequence"), "{entry}");
        }
        let runs = document["runs"].as_array().unwrap();
        let run_of = |direction: &str| runs.iter().find(|run| run["direction"] == direction);
        for (number, part) in PARTS.iter().enumerate() {
            let run = run_of(["forward", "reverse"][number % 2]);
            // Without a load, its entry stands for the trains too.
            let is_seen = run.is_some_and(|run| number < 2 || !run["trains"].is_null());
            let is_listed = |part: &str| unseen.iter().any(|entry| entry["part"] == part);
            assert!(is_seen || is_listed(part) || is_listed(PARTS[number % 2]), "{part}: {unseen:?}");
        }
        let code = if runs.is_empty() { 1 } else { 0 };
        // On a busy machine, the emulation may be less accurate than its limit, and ends with exit code 4.
        let ended = self.output.status.code();
        assert!(ended == Some(code) || ended == Some(4), "{ended:?}: {}", text(&self.output.stderr));
        assert_eq!(document["error"].is_null(), !runs.is_empty(), "{document}");
        document
    }
}

/// Returns the reason of an entry whose part begins with a text, and whose reason contains a text.
fn has_unseen(document: &Value, part: &str, reason: &str) -> bool {
    let is_wanted = |entry: &Value| {
        entry["part"].as_str().unwrap().starts_with(part) && entry["reason"].as_str().unwrap().contains(reason)
    };
    document["unseen"].as_array().unwrap().iter().any(is_wanted)
}

fn dropped_datagrams_leave_the_tcp_loads() {
    let far = format!("{DROP_UDP}; echo 4096 16384 32768 > /proc/sys/net/ipv4/tcp_rmem; exec $SERVE");
    let document = examine(&[], &far, "--time 4s").document();
    assert_eq!(document["runs"].as_array().unwrap().len(), 2, "{}", document["unseen"]);
    assert!(has_unseen(&document, "path MTU", "UDP"), "{}", document["unseen"]);
    for part in &PARTS[2..] {
        assert!(
            has_unseen(&document, part, "UDP") || has_unseen(&document, part, "no time left"),
            "{}",
            document["unseen"]
        );
    }
    let first = &document["findings"][0];
    assert!(["receive window", "kernel buffer limit"].contains(&first["name"].as_str().unwrap()), "{first}");
}

/// The server stops at different moments, without closing its connections.
fn silent_server_ends_in_time() {
    thread::scope(|scope| {
        for seconds in ["0.7", "2", "6", "11"] {
            scope.spawn(move || {
                let far = format!("(sleep {seconds}; kill -STOP $$) & exec $SERVE");
                let examined = examine(&[], &far, "--quick");
                examined.document();
                assert!(examined.time < MAX_QUICK_TIME, "{seconds}: {:?}", examined.time);
            });
        }
    });
}

fn far_host_without_privileges_is_examined() {
    // This user may not read the directories of root.
    let home = TempDir::new().unwrap();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o777)).unwrap();
    support::copy_program(&support::lfn_path(), &home.path().join("lfn"));
    let directory = home.path().display();
    let far = format!(
        "export HOME='{directory}' LFN='{directory}/lfn'; unset XDG_CONFIG_HOME XDG_STATE_HOME; \
         exec setpriv --reuid=65534 --regid=65534 --clear-groups $SERVE"
    );
    let document = examine(&[], &far, "--quick").document();
    assert_eq!(document["runs"].as_array().unwrap().len(), 2, "{}", document["unseen"]);
    let facts = &document["runs"][0]["facts"]["far"];
    assert_eq!(facts["is_root"], false, "{facts}");
    assert!(facts["interface"].is_object() && facts["route"].is_object(), "{facts}");
}

/// A seccomp filter denies netlink sockets to the server, as some containers do.
fn denied_netlink_is_reported() {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/namespaces/deny_netlink.py");
    let document = examine(&[], &format!("exec python3 '{program}' $SERVE"), "--quick").document();
    assert_eq!(document["runs"].as_array().unwrap().len(), 2, "{}", document["unseen"]);
    assert!(has_unseen(&document, "facts of far", "operation not permitted"), "{}", document["unseen"]);
    assert!(has_unseen(&document, "facts of far", "route to"), "{}", document["unseen"]);
    let missing = |run: &Value| run["missing"].to_string().contains("interface counters");
    assert!(document["runs"].as_array().unwrap().iter().all(missing), "{}", document["runs"][0]["missing"]);
}

fn missing_proc_and_sys_are_reported() {
    let far = "mount -t tmpfs none /sys; mount -t tmpfs none /proc; exec $SERVE";
    let document = examine(&[], far, "--quick").document();
    assert_eq!(document["runs"].as_array().unwrap().len(), 2, "{}", document["unseen"]);
    for reason in ["/proc/sys is missing", "memory: ", "limits of the control group: "] {
        assert!(has_unseen(&document, "facts of far", reason), "{reason}: {}", document["unseen"]);
    }
    let notes = document["runs"][0]["far"]["notes"].to_string();
    assert!(notes.contains("/proc/stat") && notes.contains("/proc/net/snmp"), "{notes}");
}

/// No answer of the server is small enough for the path.
fn black_hole_for_every_answer_ends_in_time() {
    let examined = examine(&["--return-path-mtu", "600:black-hole"], "exec $SERVE", "--quick");
    let document = examined.document();
    assert!(examined.time < MAX_QUICK_TIME, "{:?}", examined.time);
    assert!(has_unseen(&document, "TCP from near to far", "no answer from the server"), "{}", document["unseen"]);
}
