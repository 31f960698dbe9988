//! Names of flags: a flag has one name, and an earlier name of a renamed flag is a usage error.

use crate::support::{lfn, stderr};

#[test]
fn earlier_flag_names_are_usage_errors() {
    let cases = [
        ("copy a b", "--older 1d"),
        ("copy a b", "--block 1MiB"),
        ("serve", "--max-unknown 5"),
        ("serve", "--all-streams 5"),
        ("serve", "--log json"),
        ("serve", "--host far"),
        ("serve", "--ticket-life 1h"),
        ("serve --iperf3", "--iperf3-key key.pem"),
        ("serve --root .", "--drop-box"),
        ("token add field", "--host far"),
        ("token add field", "--port 7323"),
        ("emulate --rtt 1ms --rate 1mbit", "--far true"),
        ("emulate set", "--run 1"),
        ("emulate show", "--run 1"),
        ("test far", "--until 2%"),
        ("test far", "--record 1000"),
        ("test far", "--read 1000"),
        ("test far", "--check"),
        ("test far", "--blocks"),
        ("test far --ramp", "--ramp-step 1s"),
        ("plan --rate 1mbit --rtt 1ms", "--index 1.5"),
        ("verify manifest", "--extra"),
    ];
    for (command, flag) in cases {
        let words = command.split(' ').chain(flag.split(' '));
        let output = lfn().args(words).env("HOME", "/nonexistent").output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{command} {flag}: {}", stderr(&output));
        let name = flag.split(' ').next().unwrap();
        assert!(stderr(&output).starts_with("lfn: ") && stderr(&output).contains(name), "{}", stderr(&output));
    }
    let right = lfn().args(["token", "add", "field", "--rights", "drop"]).env("HOME", "/nonexistent").output().unwrap();
    assert_eq!(right.status.code(), Some(2), "{}", stderr(&right));
}
