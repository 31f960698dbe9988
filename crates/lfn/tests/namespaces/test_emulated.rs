//! `lfn test` inside `lfn emulate`: each fault of a window or buffer causes its finding.

use std::fs;
use std::process::Output;

use serde_json::Value;

use crate::support;
use crate::support::harness::{Needs, Test, Weight, tests_of};
use crate::support::rate::TWO_OF_THREE;
use crate::support::server::{finding_names, is_first_finding};
use crate::support::skip::{Missing, skip};

/// Name of this module in the names of its tests and roles.
const MODULE: &str = "test_emulated";

pub fn tests() -> Vec<Test> {
    tests_of(
        MODULE,
        Weight::Loaded,
        &[
            ("fixed_window_is_found", Needs::Namespaces, fixed_window_is_found),
            ("window_above_the_kernel_limit_is_fixed", Needs::Namespaces, window_above_the_kernel_limit_is_fixed),
            ("small_send_buffer_is_found", Needs::Namespaces, small_send_buffer_is_found),
            ("missing_window_scaling_is_found", Needs::Namespaces, missing_window_scaling_is_found),
            ("reverse_direction_has_its_own_prediction", Needs::Namespaces, reverse_direction_has_its_own_prediction),
            (
                "default_test_keeps_the_settings_of_the_host",
                Needs::Namespaces,
                default_test_keeps_the_settings_of_the_host,
            ),
            ("tuned_test_uses_the_plan", Needs::Namespaces, tuned_test_uses_the_plan),
            ("comparison_shows_the_changed_settings", Needs::Namespaces, comparison_shows_the_changed_settings),
            ("interrupted_comparison_has_a_result", Needs::Namespaces, interrupted_comparison_has_a_result),
        ],
    )
}

/// Half a BDP: a scale of 2, and half the goodput.
fn fixed_window_is_found() {
    for flags in [&["--window", "150000"][..], &["--window", "150000", "--reverse"]] {
        require(flags, |run| is_first_finding(run, "receive window") && run["window_scale"] == 2);
    }
}

/// Above net.core.rmem_max the server changes sysctls of its own namespace, although it is sandboxed. The receiver
/// grants the window and advertises no larger one, and the scale is the smallest that fits.
fn window_above_the_kernel_limit_is_fixed() {
    let limit: u64 = fs::read_to_string("/proc/sys/net/core/rmem_max").unwrap().trim().parse().unwrap();
    let window = limit + limit / 8;
    let scale = (0..15_u32).find(|scale| window >> scale <= 65_535).unwrap();
    for (flags, receiver, sender) in [(&[][..], "far", "near"), (&["--reverse"], "near", "far")] {
        let run = emulated(&[&["--window", &window.to_string()], flags].concat());
        let socket = &run[receiver]["streams"][0]["socket"];
        assert_eq!(
            (&socket["window_limit_bytes"], &run["window_scale"]),
            (&window.into(), &scale.into()),
            "{flags:?}: {socket}"
        );
        // Twice the window, because the kernel counts its own memory too.
        assert!(socket["rcvbuf_granted_bytes"].as_u64() > Some(window), "{flags:?}: {socket}");
        let offered = run[sender]["streams"][0]["tcp_info"]["snd_wnd_bytes"].as_u64().unwrap();
        assert!(offered > 65_535 && offered <= window + (1 << scale), "{flags:?}: {offered} of {window}");
    }
}

fn small_send_buffer_is_found() {
    require(&["--sndbuf", "60000"], |run| is_first_finding(run, "send buffer"));
}

fn missing_window_scaling_is_found() {
    // The command is a shell of the emulated root, so the sysctl affects only this path.
    require(&["NO_SCALE"], |run| {
        let cure = &run["findings"][0]["remedy"];
        is_first_finding(run, "no window scaling")
            && *cure == serde_json::json!({ "command": "sysctl -w net.ipv4.tcp_window_scaling=1", "host": "near" })
    });
}

fn reverse_direction_has_its_own_prediction() {
    let mut command = support::lfn();
    command
        .args(["emulate", "--rtt", "20ms", "--rate", "30mbit", "--return-rate", "6mbit", "--"])
        .arg(support::lfn_path());
    let output = command.args(["test", "far", "--json", "--time", "1s", "--both"]).output().unwrap();
    let document: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", support::stderr(&output)));
    let capacity = |run: usize| document["runs"][run]["path"]["capacity_bits_per_second"].clone();
    assert_eq!([capacity(0), capacity(1)], [30_000_000, 6_000_000]);
}

/// Reno, which every kernel permits, is the default of the emulated near host. The loss needs BBR.
const LOSSY: &str = "echo reno > /proc/sys/net/ipv4/tcp_congestion_control || exit 77; ";

/// Returns the output of `lfn test far` with these flags over a path of 20 ms and 40 Mb/s with a loss of 1 %, from a
/// host whose default is Reno. None if this default cannot be set.
fn lossy(test: &str, flags: &str) -> Option<Output> {
    let mut command = support::lfn();
    command.args(["emulate", "--rtt", "20ms", "--rate", "40mbit", "--loss", "1%", "--", "sh", "-c"]);
    let output = command.arg(format!("{LOSSY}\"$0\" test far {flags}")).arg(support::lfn_path()).output().unwrap();
    if output.status.code() == Some(77) {
        skip(test, &Missing::Feature("congestion control of a network namespace"));
        return None;
    }
    Some(output)
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", support::stderr(output)))
}

fn default_test_keeps_the_settings_of_the_host() {
    let Some(output) = lossy("default_test_keeps_the_settings_of_the_host", "--time 1s --rate 40mbit --json") else {
        return;
    };
    let run = json(&output)["runs"][0].take();
    let sender = &run["near"]["streams"][0]["socket"];
    assert_eq!((&sender["congestion"], &sender["congestion_planned"]), (&"reno".into(), &Value::Null));
    let receiver = &run["far"]["streams"][0]["socket"];
    for requested in [&sender["sndbuf_requested_bytes"], &receiver["rcvbuf_requested_bytes"]] {
        assert_eq!(*requested, Value::Null);
    }
    assert_eq!(receiver["window_limit_bytes"], Value::Null);
    assert!(run["predicted"]["goodput_bits_per_second"].is_u64(), "{run}");
    assert!(run["verdict"]["summary"].as_str().is_some_and(|verdict| !verdict.is_empty()), "{run}");
}

fn tuned_test_uses_the_plan() {
    let Some(output) = lossy("tuned_test_uses_the_plan", "--time 1s --tuned --json") else { return };
    let run = json(&output)["runs"][0].take();
    let sender = &run["near"]["streams"][0]["socket"];
    assert_eq!(sender["congestion_planned"], "bbr");
    if sender["congestion"] == "bbr" {
        let page = support::unwrapped(&lossy("tuned_test_uses_the_plan", "--time 1s --tuned").unwrap());
        assert!(page.contains("congestion control changed from reno to bbr"), "{page}");
    } else {
        skip("tuned_test_uses_the_plan", &Missing::Feature("BBR"));
    }
    // BBR limits its own data in flight. A sender based on loss gets a limited window.
    let limit = |run: &Value| run["far"]["streams"][0]["socket"]["window_limit_bytes"].clone();
    assert_eq!(limit(&run), Value::Null);
    let cubic =
        json(&lossy("tuned_test_uses_the_plan", "--time 1s --tuned --congestion cubic --json").unwrap())["runs"][0]
            .take();
    assert!(limit(&cubic).is_u64(), "{cubic}");
}

fn comparison_shows_the_changed_settings() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("both.json");
    let Some(output) = lossy(
        "comparison_shows_the_changed_settings",
        &format!("--time 2s --compare --reverse --json --report {}", file.display()),
    ) else {
        return;
    };
    let document = json(&output);
    assert_eq!(document["schema"], "lfn.test.compare/1");
    let pair = &document["comparisons"][0];
    assert_eq!((&pair["direction"], document["comparisons"].as_array().unwrap().len()), (&"reverse".into(), 1));
    for run in ["now", "tuned"] {
        assert!(pair[run]["steady_goodput_bits_per_second"].is_u64(), "{document}");
    }
    assert_eq!(pair["now"]["far"]["streams"][0]["socket"]["congestion_planned"], Value::Null);
    assert!(pair["goodput_factor"].is_number() && pair["changes"].is_array(), "{pair}");
    let stored: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(stored, document);
    // `lfn show` prints a stored comparison as its command does.
    let shown = support::lfn().arg("show").arg(&file).output().unwrap();
    assert!(shown.status.success(), "{}", support::stderr(&shown));
    let page = support::stdout(&shown);
    let headline = page.lines().find(|line| line.starts_with("now ")).unwrap_or_else(|| panic!("{page}"));
    assert!(headline.contains(", tuned ") && headline.contains("b/s"), "{page}");
    let table = support::lfn().args(["show", "--json"]).args([&file, &file]).output().unwrap();
    assert_eq!(json(&table)["results"].as_array().unwrap().len(), 4);
}

/// Ctrl-C during the first test ends the command with the result of this test.
fn interrupted_comparison_has_a_result() {
    let mut command = support::lfn();
    command.args(["emulate", "--rtt", "20ms", "--rate", "40mbit", "--", "sh", "-c"]);
    let script = "\"$0\" test far --time 60s --compare --json & p=$!; sleep 3; kill -INT $p; wait $p; exit $?";
    let output = command.arg(script).arg(support::lfn_path()).output().unwrap();
    let document = json(&output);
    let pair = &document["comparisons"][0];
    assert_eq!((&pair["now"]["ended"], &pair["tuned"]), (&"interrupted".into(), &Value::Null), "{document}");
    assert!([Some(130), Some(4)].contains(&output.status.code()), "{output:?}");
}

/// Returns the first run of `lfn test far` over a path of 60 ms and 40 Mb/s, whose BDP is 300 kB.
fn emulated(flags: &[&str]) -> Value {
    let mut command = support::lfn();
    command.args(["emulate", "--rtt", "60ms", "--rate", "40mbit", "--"]);
    let (flags, prelude) = match flags {
        ["NO_SCALE"] => (&[][..], "echo 0 > /proc/sys/net/ipv4/tcp_window_scaling; "),
        flags => (flags, ""),
    };
    command.args(["sh", "-c", &format!("{prelude}exec \"$0\" \"$@\"")]).arg(support::lfn_path());
    let output = command.args(["test", "far", "--json", "--time", "3s"]).args(flags).output().unwrap();
    // On a busy machine the emulation is not accurate, but the report exists.
    let mut document: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", support::stderr(&output)));
    document["runs"][0].take()
}

/// Requires a result of two of three runs: other load on the machine can hide a fault.
fn require(flags: &[&str], holds: impl Fn(&Value) -> bool + Sync) {
    let figures = |run: &Value| format!("{:?}, {}", finding_names(run), run["steady_goodput_bits_per_second"]);
    let measure = || {
        let run = emulated(flags);
        (holds(&run), figures(&run))
    };
    TWO_OF_THREE.require(&flags.join(" "), measure, |(holds, _)| *holds);
}
