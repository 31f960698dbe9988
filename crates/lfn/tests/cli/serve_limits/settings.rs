//! The configuration file of flags.

use std::process::Output;

use super::served::Served;
use crate::support;
use crate::support::server::{assert_refused, text};

#[test]
fn config_file_sets_any_flag_and_flags_override_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("serve.toml");
    let write = |text: &str| {
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let file =
        write("# limits\nsession-streams = 2\ntest-time = \"5s\"\nallow = [\"127.0.0.1\", \"::1\"]\nquiet = true\n");
    let server = Served::start(&["--config", &file, "--test-time", "1s"]);
    assert_refused(&server.test(&["--streams", "3"]), 1, "the server allows 2");
    assert_refused(&server.test(&["--time", "2s"]), 1, "the server allows 1 s");
    assert!(server.test(&["--count", "1"]).status.success());
    for (text, line, says) in [
        ("port = 0\nmax-session = 3\n", 2, "unknown key 'max-session'"),
        ("\n\nmax-rate = \"fast\"\n", 3, "max-rate: invalid value 'fast'"),
        ("session-streams = 0\n", 1, "session-streams: invalid value '0'"),
        ("quiet = 1\n", 1, "quiet: 1 is not true or false"),
        ("port = 0\nsession-streams = [1, 2]\n", 2, "session-streams: [1, 2] is a list"),
        ("max-rate = true\n", 1, "max-rate: true is of type boolean"),
        ("[serve]\nport = 0\n", 1, "unknown key 'serve'"),
        ("allow = [1.5]\n", 1, "allow: invalid value '1.5'"),
        ("session-streams = 1979-05-27\n", 1, "session-streams: 1979-05-27 is of type datetime"),
        ("port = 0\nport = 1\n", 2, "duplicate key"),
        ("port = \n", 1, "line 1"),
        ("config = \"other.toml\"\n", 1, "unknown key 'config'"),
    ] {
        let output = support::lfn().args(["serve", "--ephemeral", "--config", &write(text)]).output().unwrap();
        assert_refused(&output, 2, says);
        assert!(text_of(&output).contains(&format!("serve.toml, line {line}: ")), "{}", text_of(&output));
    }
    let both = Served::start(&["--config", &write("iperf3 = true\nquiet = false\n"), "--iperf3=0", "--stamp=0"]);
    assert!(both.iperf3.is_some(), "a flag that may stand alone is true, and what is typed wins");
    let missing = support::lfn().args(["serve", "--config", "/nonexistent.toml"]).output().unwrap();
    assert_refused(&missing, 2, "--config /nonexistent.toml");
}

fn text_of(output: &Output) -> String {
    text(&output.stderr)
}
