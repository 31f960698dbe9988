//! `lfn test --lockstep`: the goodput is the block in each round trip, and the finding names the reason.

use serde_json::Value;

use crate::support;
use crate::support::harness::{Needs, Test, Weight, tests_of};
use crate::support::rate::TWO_OF_THREE;
use crate::support::server::{Server, assert_refused, finding_names, number, text};

/// Name of this module in the names of its tests.
const MODULE: &str = "lockstep";

/// RTT and capacity of the path: the OC-12 of SC2000.
const PATH: [&str; 4] = ["--rtt", "50ms", "--rate", "622mbit"];
const RTT_SECONDS: f64 = 0.05;
/// Payload of 622 Mb/s in packets of 1500 bytes.
const PAYLOAD_BITS_PER_SECOND: f64 = 594.9e6;

pub fn tests() -> Vec<Test> {
    tests_of(
        MODULE,
        Weight::Loaded,
        &[
            ("goodput_is_the_block_in_each_round_trip", Needs::Namespaces, goodput_is_the_block_in_each_round_trip),
            ("counted_loads_are_exact", Needs::Nothing, counted_loads_are_exact),
            ("other_kinds_of_tests_refuse_lockstep", Needs::Nothing, other_kinds_of_tests_refuse_lockstep),
        ],
    )
}

/// Runs a test in lock-step on the path, and returns its run.
fn emulated(flags: &[&str]) -> Value {
    let mut command = support::lfn();
    command.arg("emulate").args(PATH).arg("--").arg(support::lfn_path());
    command.args(["test", "far", "--lockstep", "--congestion", "cubic", "--json"]).args(flags);
    let output = command.output().unwrap();
    let document: Result<Value, _> = serde_json::from_slice(&output.stdout);
    document.unwrap_or_else(|_| panic!("{}", text(&output.stderr)))["runs"][0].take()
}

/// Returns the measured steady goodput as a share of `block / (RTT + block / rate)`.
fn share_of_formula(run: &Value, block: f64, streams: f64) -> f64 {
    let expected = streams * block * 8.0 / (RTT_SECONDS + block * 8.0 / PAYLOAD_BITS_PER_SECOND);
    run["steady_goodput_bits_per_second"].as_f64().unwrap() / expected
}

fn goodput_is_the_block_in_each_round_trip() {
    // A wake-up of both ends takes time in each round trip: 10 % on a busy machine. A socket of the server that began
    // with BBR, the default of this host, keeps its pacing with another congestion control: a block leaves over 12 ms.
    let cases: [(&[&str], f64, f64, f64); 4] = [
        (&["--time", "4s"], 65_536.0, 1.0, 0.9),
        (&["--time", "4s", "--length", "262144"], 262_144.0, 1.0, 0.9),
        (&["--time", "4s", "--streams", "4"], 65_536.0, 4.0, 0.9),
        (&["--time", "4s", "--reverse"], 65_536.0, 1.0, 0.75),
    ];
    for (flags, block, streams, min_share) in cases {
        let measure = || {
            let run = emulated(flags);
            let limit = run["predicted"]["limited_by"].as_str().map(str::to_owned);
            let findings: Vec<String> = finding_names(&run).into_iter().map(str::to_owned).collect();
            (share_of_formula(&run, block, streams), limit, findings)
        };
        // The steady part may begin in the middle of a block.
        let holds = |(share, limit, findings): &(f64, Option<String>, Vec<String>)| {
            (min_share..1.03).contains(share) && limit.as_deref() == Some("lock-step") && *findings == ["lock-step"]
        };
        TWO_OF_THREE.require_serial(&format!("lock-step {flags:?}"), measure, holds);
    }
}

fn counted_loads_are_exact() {
    let server = Server::start(&[]);
    // Whole blocks, a shorter last block, several streams, each mode, and a check of each byte.
    let cases: [(&[&str], u64); 6] = [
        (&["--count", "20"], 20 << 16),
        (&["--bytes", "1000001"], 1_000_001),
        (&["--bytes", "1000001", "--streams", "3", "--reverse", "--check-data"], 1_000_001),
        (&["--count", "7", "--length", "99999", "--read-length", "1000", "--block-timing"], 699_993),
        (&["--count", "9", "--no-copy"], 9 << 16),
        (&["--bytes", "1", "--reverse"], 1),
    ];
    for (flags, bytes) in cases {
        let run = server.json(&[&["--lockstep"], flags].concat());
        for end in ["near", "far"] {
            assert_eq!(number(&run[end]["bytes"]), bytes, "{flags:?}");
        }
        assert_eq!((&run["ended"], &run["request"]["lockstep"]), (&"completed".into(), &true.into()), "{flags:?}");
    }
    let page = text(&server.test(&["--lockstep", "--time", "300ms"]).stdout);
    assert!(page.contains("300 ms of records of 64 KiB in lock-step, 1 stream"), "{page}");
}

fn other_kinds_of_tests_refuse_lockstep() {
    let refused = |flags: &[&str], says: &str| {
        assert_refused(&support::server::test("lfn://nowhere", &[&["--lockstep"], flags].concat()), 2, says);
    };
    refused(&["--udp"], "--lockstep with --udp");
    refused(&["--ramp"], "--lockstep with --ramp");
    let run = |flags: &[&str]| support::lfn().arg("test").args(flags).output().unwrap();
    assert_refused(&run(&["--iperf3", "far.example", "--lockstep"]), 2, "does not support --lockstep");
    assert_eq!(run(&["--stamp", "far.example", "--lockstep"]).status.code(), Some(2));
}
