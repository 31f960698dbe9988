//! Stock iperf3 clients with `lfn serve`.

use std::process::{Command, Output};

use serde_json::Value;

use super::keys::Keys;
use super::{Server, bytes, without_error};

pub fn stock_clients_agree_on_counts() {
    let server = Server::start(&[]);
    let least = 2_000_000;
    for flags in [
        "-n 2000000",
        "-k 20",
        "-n 2000000 -P 3",
        "-n 2000000 -R",
        "-n 2000000 -R -P 2",
        "-n 2000000 -R -Z",
        "-n 2000000 -Z -N -M 1000 -l 50K -w 200K -C reno -S 0x10",
        "-n 2000000 --repeating-payload",
    ] {
        let report = server.stock(flags);
        without_error(&report, flags);
        let (sent, received) = (bytes(&report, "sum_sent"), bytes(&report, "sum_received"));
        assert_eq!(sent, received, "{flags}");
        assert!(received >= least, "{flags}: {received}");
    }
}

pub fn stock_clients_agree_on_timed_tests() {
    let server = Server::start(&[]);
    for flags in ["-t 1", "-t 1 -P 3"] {
        let report = server.stock(flags);
        without_error(&report, flags);
        // Data in flight is counted.
        assert_eq!(bytes(&report, "sum_sent"), bytes(&report, "sum_received"), "{flags}");
    }
    let both = server.stock("-t 1 --bidir -P 2");
    without_error(&both, "--bidir");
    assert_eq!(bytes(&both, "sum_sent"), bytes(&both, "sum_received"));
    for report in [&both, &server.stock("-t 1 -R -b 8M")] {
        let suffix = if report["end"]["sum_sent_bidir_reverse"].is_object() { "_bidir_reverse" } else { "" };
        let (sent, received) = (format!("sum_sent{suffix}"), format!("sum_received{suffix}"));
        assert!(bytes(report, &received) > 0 && bytes(report, &sent) >= bytes(report, &received), "{suffix}");
    }
    let paced = server.stock("-t 1 -R -b 8M -l 10K");
    // A busy machine may have sent less, but not twice as much.
    assert!(bytes(&paced, "sum_sent") < 2_000_000, "{}", paced["end"]["sum_sent"]);
    let omitted = server.stock("-t 1 -O 1");
    without_error(&omitted, "-O");
    let seconds = omitted["end"]["sum_received"]["seconds"].as_f64().unwrap();
    assert!((0.5..1.9).contains(&seconds), "the warm-up is not counted: {seconds}");
}

pub fn stock_clients_send_and_receive_datagrams() {
    let server = Server::start(&[]);
    for flags in [
        "-u -n 200000 -b 4M -l 1000",
        "-u -k 200 -b 4M -l 1000 --udp-counters-64bit",
        "-u -t 1 -b 1M -l 1000 -R -P 2",
        "-u -t 1 -b 1M -l 1000 --bidir --udp-counters-64bit",
        "-u -t 1 -b 1M -l 1000 -R --repeating-payload",
    ] {
        let report = server.stock(flags);
        without_error(&report, flags);
        for suffix in ["", "_bidir_reverse"] {
            let sum = &report["end"][format!("sum_received{suffix}")];
            if sum.is_null() {
                continue;
            }
            let (sent, received) =
                (bytes(&report, &format!("sum_sent{suffix}")), bytes(&report, &format!("sum_received{suffix}")));
            assert!(received > 0 && received <= sent, "{flags}: {received} of {sent}");
            let reverse = flags.contains("-R") || !suffix.is_empty();
            // At the end of a reverse test some datagrams may be in flight. Otherwise all datagrams that are not lost
            // have arrived.
            if !reverse && report["end"]["sum"]["lost_packets"] == 0 {
                assert_eq!(received, sent, "{flags}");
            }
        }
    }
}

pub fn stock_clients_get_the_server_output() {
    let report = Server::start(&[]).stock("-t 1 -P 2 --get-server-output --title evening");
    let text = report["server_output_text"].as_str().unwrap();
    assert!(text.starts_with("Accepted connection from 127.0.0.1") && text.contains("receiver"), "{text}");
    assert_eq!(text.matches("connected to").count(), 2, "{text}");
    let report = Server::start(&["--iperf3-json"]).stock("-n 2000000 -R --get-server-output");
    let output = &report["server_output_json"];
    assert_eq!(output["end"]["streams"][0]["sender"]["bytes"], bytes(&report, "sum_sent"));
    assert!(output["intervals"].is_array() && output["start"]["cookie"].as_str().unwrap().len() == 36, "{output}");
}

pub fn stock_clients_authenticate() {
    let keys = Keys::new();
    let (users, key, public) = (keys.path("users"), keys.path("private"), keys.path("public"));
    // Debian's 3.12 has only the older padding.
    let server = Server::start(&["--iperf3-users", &users, "--iperf3-rsa-private-key", &key, "--iperf3-pkcs1"]);
    let flags = format!("-n 1000000 --username mario --rsa-public-key-path {public}");
    let report = |server: &Server, flags: &str, password: &str| -> Value {
        let output = stock(server.port, flags, &[("IPERF3_PASSWORD", password)]);
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let good = report(&server, &flags, "rossi");
    without_error(&good, &flags);
    assert_eq!(bytes(&good, "sum_sent"), bytes(&good, "sum_received"));
    let refused = |report: &Value| {
        let error = report["error"].as_str().unwrap_or_default();
        assert!(error.contains("authorization"), "{error}");
    };
    refused(&report(&server, &flags, "verdi"));
    refused(&report(&server, &flags.replace("mario", "luigi"), "rossi"));
    refused(&report(&server, "-n 1000000", ""));
    let strict = Server::start(&["--iperf3-users", &users, "--iperf3-rsa-private-key", &key]);
    refused(&report(&strict, &flags, "rossi"));
}

pub fn more_stock_clients_than_slots_are_handled() {
    let server = Server::start(&["--max-sessions", "4", "--client-sessions", "4"]);
    let reports: Vec<Value> = std::thread::scope(|scope| {
        let flags = |n: u32| ["-n 1M", "-n 1M -R", "-u -n 100K -b 10M -l 1000"][n as usize % 3];
        let server = &server;
        let clients: Vec<_> = (0..10).map(|n| scope.spawn(move || server.stock(flags(n)))).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    for report in reports {
        without_error(&report, "one of ten");
        assert!(bytes(&report, "sum_received") > 0);
    }
}

pub fn stock_clients_get_server_limit_errors() {
    let server = Server::start(&["--test-time", "5s", "--session-streams", "2", "--deny", "192.0.2.0/24"]);
    for (flags, says) in [("-t 20", "test duration too long"), ("-t 1 -P 3", "number of parallel streams too large")] {
        let report = server.stock(flags);
        assert!(report["error"].as_str().is_some_and(|error| error.contains(says)), "{flags}: {report}");
    }
    let denied = Server::start(&["--deny", "127.0.0.0/8"]);
    assert!(denied.stock("-n 1M")["error"].is_string());
    // The server still works.
    without_error(&server.stock("-n 1M"), "-n 1M");
}

pub fn stock(port: u16, flags: &str, environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new("timeout");
    command.args(["60", "iperf3", "-c", "127.0.0.1", "-J", "-p", &port.to_string()]);
    command.args(flags.split_whitespace()).envs(environment.iter().copied()).output().unwrap()
}
