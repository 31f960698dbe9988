//! The iperf3 protocol with Debian's iperf3, in both roles and all modes. Counts must agree to the byte if the protocol
//! allows it, and no test depends on the speed of the machine. This file tests `lfn` with itself. The modules test
//! stock clients and stock servers. The directory also has recorded results for other tests.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking, its helpers too")]

mod clients;
mod keys;
mod servers;
#[path = "../support/mod.rs"]
mod support;

use std::io::{BufRead, BufReader};
use std::process::{Child, ExitCode, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use lfn_base::units::{BitRate, Bytes};
use lfn_measure::iperf3::client::{self, IperfTest};
use lfn_measure::proto::iperf3::{LoadDirection, Parameters, ServerOutput, TestEnd};
use lfn_results::iperf3_report::LoadProtocol;
use serde_json::Value;

use clients::*;
use servers::*;
use support::server::assert_refused;
use support::{Needs, stderr, stdout};

fn main() -> ExitCode {
    let iperf3 = Needs::Programs(&["iperf3", "timeout"]);
    support::run(&[
        ("stock_clients_agree_on_counts", iperf3, stock_clients_agree_on_counts),
        ("stock_clients_agree_on_timed_tests", iperf3, stock_clients_agree_on_timed_tests),
        ("stock_clients_send_and_receive_datagrams", iperf3, stock_clients_send_and_receive_datagrams),
        ("stock_clients_get_the_server_output", iperf3, stock_clients_get_the_server_output),
        ("stock_clients_authenticate", iperf3, stock_clients_authenticate),
        ("more_stock_clients_than_slots_are_handled", iperf3, more_stock_clients_than_slots_are_handled),
        ("stock_clients_get_server_limit_errors", iperf3, stock_clients_get_server_limit_errors),
        ("stock_servers_agree_on_counts", iperf3, stock_servers_agree_on_counts),
        ("stock_servers_agree_in_every_other_mode", iperf3, stock_servers_agree_in_every_other_mode),
        ("stock_server_tests_show_intervals", iperf3, stock_server_tests_show_intervals),
        ("stock_servers_accept_the_load_flags", iperf3, stock_servers_accept_the_load_flags),
        ("interrupt_ends_a_test_with_a_stock_server", iperf3, interrupt_ends_a_test_with_a_stock_server),
        ("stock_servers_authenticate_the_client", iperf3, stock_servers_authenticate_the_client),
        ("busy_stock_server_is_named", iperf3, busy_stock_server_is_named),
        ("lfn_client_and_server_work_over_iperf3", Needs::Nothing, lfn_client_and_server_work_over_iperf3),
        ("flags_without_iperf3_equivalent_are_refused", Needs::Nothing, flags_without_iperf3_equivalent_are_refused),
    ])
}

/// `lfn serve --iperf3` on free ports, stopped on drop.
struct Server {
    child: Child,
    port: u16,
}

impl Server {
    fn start(flags: &[&str]) -> Server {
        let mut command = support::lfn();
        command.args(["serve", "--ephemeral", "--quiet", "--port", "0", "--bind", "127.0.0.1", "--iperf3=0", "--json"]);
        let mut child = command.args(flags).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let object: Value = serde_json::from_str(&line).unwrap();
        let address = object["iperf3"].as_str().unwrap();
        Server { child, port: address.rsplit_once(':').unwrap().1.parse().unwrap() }
    }

    /// Returns the JSON report of a stock client.
    fn stock(&self, flags: &str) -> Value {
        let output = stock(self.port, flags, &[]);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{flags}: {error}: {}", stdout(&output)))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs `lfn test --iperf3` without the user's environment.
fn lfn_test(port: u16, flags: &[&str]) -> Output {
    let mut command = support::lfn();
    command.env("HOME", "/nonexistent").env_remove("XDG_CONFIG_HOME").env_remove("LFN_PATH").env_remove("LFN_EMULATED");
    command.args(["test", "--iperf3", &format!("127.0.0.1:{port}")]).args(flags).output().unwrap()
}

fn lfn_json(port: u16, flags: &[&str]) -> Value {
    let output = lfn_test(port, &[flags, &["--json"]].concat());
    assert!(output.status.success(), "{flags:?}: {}", stderr(&output));
    let mut document: Value = serde_json::from_slice(&output.stdout).unwrap();
    document["runs"][0].take()
}

fn bytes(report: &Value, sum: &str) -> u64 {
    report["end"][sum]["bytes"].as_u64().unwrap_or_else(|| panic!("no bytes in {sum}: {}", report["end"]))
}

fn without_error(report: &Value, flags: &str) {
    assert_eq!(report["error"], Value::Null, "{flags}");
}

fn test(parameters: Parameters) -> IperfTest {
    let within = Duration::from_secs(30);
    let interval = Duration::from_millis(200);
    IperfTest {
        parameters,
        login: None,
        interval,
        step_timeout: within,
        queue_timeout: within,
        bind_addresses: Vec::new(),
        stop: Arc::default(),
    }
}

fn lfn_client_and_server_work_over_iperf3() {
    let server = Server::start(&[]);
    for way in [LoadDirection::Forward, LoadDirection::Reverse, LoadDirection::Both] {
        for protocol in [LoadProtocol::Tcp, LoadProtocol::Udp] {
            let parameters = Parameters {
                direction: way,
                protocol,
                end: TestEnd::Blocks(50),
                length: Bytes(1000),
                streams: 2,
                rate: (protocol == LoadProtocol::Udp).then_some(BitRate(4_000_000)),
                server_output: true,
                ..Parameters::default()
            };
            let outcome = client::run("127.0.0.1", server.port, &test(parameters), &mut |_| {}).unwrap();
            assert!(matches!(outcome.output, Some(ServerOutput::Text(_))));
            for run in outcome.runs {
                assert!(run.receiver().bytes <= run.sender().bytes, "{way:?} {protocol:?}");
                if way == LoadDirection::Forward && protocol == LoadProtocol::Tcp {
                    assert_eq!((run.near.bytes, run.far.bytes), (50_000, 50_000));
                }
            }
        }
    }
    let run = lfn_json(server.port, &["-k", "20", "-l", "100000", "-R"]);
    assert_eq!((&run["near"]["bytes"], &run["far"]["bytes"]), (&2_000_000.into(), &2_000_000.into()));
    for flags in [&["--udp", "--pacing", "2mbit", "-t", "1s"][..], &["--udp", "--pacing", "2mbit", "-t", "1s", "-R"]] {
        let run = lfn_json(server.port, flags);
        let stream = &run["iperf3"]["streams"][0];
        assert!(stream["datagrams"].as_u64().unwrap() > 0 && stream["lost_datagrams"].is_u64(), "{stream}");
        assert_eq!(run["iperf3"]["protocol"], "udp");
        // Without a known rate there is no prediction. On a busy host there may be findings.
        assert_eq!(run["predicted"], Value::Null);
        let page = lfn_test(server.port, flags);
        assert!(stdout(&page).contains("datagrams lost"), "{}", stdout(&page));
    }
    let run = lfn_json(server.port, &["--udp", "--pacing", "2mbit", "-t", "1s", "--rate", "1gbit"]);
    assert_eq!(
        (&run["predicted"]["limited_by"], &run["predicted"]["goodput_bits_per_second"]),
        (&"requested rate".into(), &2_000_000.into())
    );
    // The time of datagrams is the time of sending, without the protocol exchange after it.
    assert_eq!(run["far"]["elapsed_seconds"], run["near"]["elapsed_seconds"]);
    // Far more than any machine sends.
    let run = lfn_json(server.port, &["--udp", "--pacing", "100gbit", "-P", "4", "-t", "1s"]);
    let causes: Vec<_> =
        run["findings"].as_array().unwrap().iter().map(|found| found["name"].as_str().unwrap()).collect();
    assert!(causes.contains(&"slow sender"), "{causes:?}");
    let output = lfn_test(server.port, &["-t", "1s", "--interval", "200ms", "--iperf3-server-output"]);
    let page = stdout(&output);
    assert!(output.status.success(), "{}", stderr(&output));
    for words in ["goodput", "buffers unknown", "iperf3 does not report", "server output:", "Accepted connection"] {
        assert!(page.contains(words), "{words}: {page}");
    }
}

fn flags_without_iperf3_equivalent_are_refused() {
    let cases: [(&[&str], &str); 7] = [
        (&["--streams", "200"], "200 streams"),
        (&["--near-sndbuf", "50000"], "buffer sizes for one end only"),
        (&["--sndbuf", "50000", "--rcvbuf", "60000"], "different buffer sizes"),
        (&["--time", "1500ms"], "not in whole seconds"),
        (&["--iperf3-user", "mario"], "--iperf3-rsa-public-key"),
        (&["--iperf3-user", "mario", "--iperf3-rsa-public-key", "/nonexistent"], "/nonexistent"),
        (&["far"], "cannot be used with"),
    ];
    for (flags, says) in cases {
        let output = lfn_test(1, flags);
        let text = stderr(&output);
        assert!(!output.status.success() && text.contains(says) && text.contains("hint: "), "{flags:?}: {text}");
    }
    let cannot = [
        (&["--near-no-copy"][..], "its protocol does not support no-copy at one end only"),
        (&["--precision", "2%"], "its protocol does not support --precision"),
        (&["--check-data"], "its protocol does not support --check-data"),
        (&["--block-timing"], "its protocol does not support --check-data, --block-timing"),
        (&["--latency"], "its protocol does not support --latency"),
        (&["--pacing", "1mbit,2mbit"], "its protocol does not support different options for each stream"),
    ];
    for (flags, says) in cannot {
        assert_refused(&lfn_test(1, flags), 2, &format!("--iperf3: {says}"));
    }
    assert_refused(&lfn_test(1, &["--bind", "192.0.2.7"]), 1, "192.0.2.7");
    let mut command = support::lfn();
    let output = command.args(["serve", "--ephemeral", "--iperf3", "--iperf3-users", "/nonexistent"]).output().unwrap();
    assert!(!output.status.success() && stderr(&output).contains("iperf3-rsa-private-key"), "{}", stderr(&output));
}
