//! Messages of usage errors: one line with the value, and a hint that fits.

use std::process::Output;

use crate::support;
use crate::support::server::text;

/// Runs `lfn` with an empty home directory.
fn run(args: &[&str]) -> Output {
    let home = tempfile::tempdir().expect("create a home");
    let mut command = support::lfn();
    for name in ["XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "LFN_EMULATED", "LFN_FAR", "LFN_FAR_TICKET"] {
        command.env_remove(name);
    }
    command.args(args).env("HOME", home.path()).current_dir(home.path()).output().expect("run lfn")
}

#[track_caller]
fn refuses(command: &str, code: i32, line: &str, hint: &str) {
    let output = run(&command.split(' ').collect::<Vec<_>>());
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{command}: {stderr}");
    let lines: Vec<_> = stderr.lines().collect();
    let [error, hinted] = lines.as_slice() else { panic!("{command}: {stderr}") };
    assert!(error.starts_with("lfn: ") && error.contains(line), "{command}: {stderr}");
    assert!(hinted.starts_with("hint: ") && hinted.contains(hint), "{command}: {stderr}");
    assert!(!stderr.contains("os error"), "{command}: {stderr}");
}

#[test]
fn words_of_other_programs_get_the_name_in_lfn() {
    for (command, hint) in [
        ("emulate --up 3mbit", "lfn emulate --forward-rate 3mbit"),
        ("emulate --bandwidth 3mbit", "lfn emulate --rate 3mbit"),
        ("plan --latency 70ms", "use --rtt"),
        ("serve --listen 127.0.0.1", "use --bind"),
        ("serve --directory /srv", "use --root"),
        ("token add me --ttl 12h", "use --expires"),
        ("server", "use lfn serve"),
        ("rsync a b", "use lfn copy"),
        ("token rm me", "use lfn token revoke"),
        ("hosts delete me", "use lfn hosts remove"),
    ] {
        refuses(command, 2, "", hint);
    }
}

#[test]
fn only_similar_words_are_suggested() {
    refuses("serve --foo", 2, "--foo", "see `lfn serve --help`");
    refuses("serve --rooot /srv", 2, "--rooot", "did you mean --root?");
    refuses("cpoy a b", 2, "cpoy", "did you mean lfn copy?");
    refuses("token revok a", 2, "revok", "did you mean lfn token revoke?");
    refuses("qqq", 2, "qqq", "see `lfn --help`");
}

#[test]
fn bad_value_is_named_with_a_valid_one() {
    for (command, line, hint) in [
        ("serve --max-rate 10MB", "--max-rate: '10MB': unknown unit 'MB'", "--max-rate 80mbit"),
        ("copy --rate 10MB a b", "--rate: '10MB': unknown unit 'MB'", "--rate 80mbit"),
        ("serve --drain 12", "--drain: '12' has no unit: write 12ms or 12s", "--drain 12s"),
        ("serve --max-time 60", "--max-time: '60' has no unit", "--max-time 60s"),
        ("serve --port x", "--port x: not an integer", "--port 7323"),
        ("serve --bind x", "--bind x: not an IP address", "--bind 127.0.0.1"),
        ("serve --metrics x", "--metrics x: not an address with a port", "127.0.0.1:9733"),
        ("serve --log-format jsn", "--log-format jsn", "did you mean --log-format json?"),
        ("token add me --expires 12", "--expires: '12' has no unit: write 12min or 12h", "--expires 12h"),
        ("token add me --rights foo", "unknown right 'foo'", "--rights read,write,test"),
        ("token add", "<NAME>", "usage: lfn token add"),
        ("hosts add me", "<TICKET>", "usage: lfn hosts add [OPTIONS] <NAME> <TICKET>"),
    ] {
        refuses(command, 2, line, hint);
    }
}

#[test]
fn missing_file_of_a_flag_is_a_usage_error() {
    refuses("serve --ephemeral --root nosuch", 2, "--root nosuch: No such file or directory", "mkdir -p nosuch");
    refuses("token add me --root /nosuch", 2, "--root /nosuch: No such file", "mkdir -p /nosuch");
    refuses("serve --ephemeral --audit /nosuch/log", 2, "--audit /nosuch/log", "mkdir -p /nosuch");
    refuses("serve --config nosuch.toml", 2, "--config nosuch.toml", "check the path");
    refuses("test --report /nosuch/x.json --insecure 127.0.0.1", 2, "/nosuch/x.json", "");
    refuses("show nosuch.json", 1, "nosuch.json: No such file", "creates a result");
}

#[test]
fn hint_keeps_the_flags_of_the_user() {
    refuses(
        "serve --ephemeral --insecure --port 0",
        2,
        "other hosts can reach",
        "lfn serve --ephemeral --insecure --port 0 --bind 127.0.0.1",
    );
    refuses("serve --ephemeral --write-only", 2, "--write-only needs", "lfn serve --ephemeral --write-only --root .");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let next = format!("--port {}", port.checked_add(1).unwrap_or(7323));
    refuses(&format!("serve --ephemeral --bind 127.0.0.1 --port {port}"), 1, "in use", &next);
    let typed = "serve --ephemeral --bind 203.0.113.77 --port 0";
    refuses(typed, 1, "cannot listen on 203.0.113.77", "lfn serve --ephemeral --bind ");
}

#[test]
fn loopback_without_a_ticket_names_insecure() {
    for host in ["localhost", "127.0.0.1", "::1"] {
        refuses(&format!("test {host}"), 1, host, &format!("lfn test --insecure {host}"));
    }
}
