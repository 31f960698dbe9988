//! Conventions of the command line that hold for every command: output formats, reports, amount, colours and errors.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Output;

use serde_json::Value;

use crate::support::{lfn, stderr, stdout};

const PLAN: [&str; 5] = ["plan", "--rate", "100mbit", "--rtt", "70ms"];

fn run(words: &[&str]) -> Output {
    lfn().args(words).env("HOME", "/nonexistent").env_remove("XDG_CONFIG_HOME").output().unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {} {}", stdout(output), stderr(output)))
}

#[test]
fn json_flag_is_short_for_output_json() {
    let outputs = [&["--json"][..], &["-J"], &["--output", "json"], &["--output=json"]];
    let outputs = outputs.map(|flags| stdout(&run(&[&PLAN[..], flags].concat())));
    assert!(outputs.iter().all(|output| *output == outputs[0] && output.contains("lfn.plan/")), "{outputs:?}");
    assert!(serde_json::from_str::<Value>(&stdout(&run(&PLAN))).is_err());
}

#[test]
fn removed_output_flags_name_their_replacement() {
    for (command, flag, instead) in [
        ("test far", "--csv", "--output csv"),
        ("test far", "--ndjson", "--output ndjson"),
        ("test far", "--nettest", "--output nettest"),
        ("copy a b", "--ndjson", "--output ndjson"),
        ("show a.json", "--csv", "--output csv"),
        ("test far", "--save", "--report"),
    ] {
        let words: Vec<_> = command.split(' ').chain([flag]).collect();
        let output = run(&words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(stderr(&output).contains(&format!("hint: use {instead}")), "{}", stderr(&output));
    }
}

#[test]
fn unsupported_format_error_lists_the_supported_ones() {
    let output = run(&[&PLAN[..], &["--output", "csv"]].concat());
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("--output csv") && stderr(&output).contains("use one of text, json"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn report_has_the_document_of_json_output() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("plan.json");
    let text = run(&[&PLAN[..], &["--report", file.to_str().unwrap()]].concat());
    assert!(text.status.success(), "{}", stderr(&text));
    assert_eq!(stdout(&text), stdout(&run(&PLAN)));
    assert_eq!(fs::read_to_string(&file).unwrap(), stdout(&run(&[&PLAN[..], &["--json"]].concat())));
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1, "nothing else is left");
}

#[test]
fn page_of_a_report_has_the_text_and_the_document() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("plan.html");
    let report = ["--report", file.to_str().unwrap()];
    let text = stdout(&run(&PLAN));
    let json = stdout(&run(&[&PLAN[..], &["--json"]].concat()));
    for (flags, printed) in [(&[][..], &text), (&["--json"], &json)] {
        let output = run(&[&PLAN[..], &report, flags].concat());
        assert_eq!(&stdout(&output), printed, "{}", stderr(&output));
        let page = fs::read_to_string(&file).unwrap();
        assert!(page.contains("<h1>lfn plan</h1>") && page.contains("<details>"), "{page}");
        let first = text.lines().next().unwrap();
        assert!(page.contains(&format!("<pre>{first}")) && page.contains("&quot;lfn.plan/2&quot;"), "{page}");
    }
}

#[test]
fn report_extension_error_lists_the_supported_ones() {
    let home = tempfile::tempdir().unwrap();
    for (name, says) in [("a.pdf", ".pdf"), ("a", "no extension"), ("a.json.gz", ".gz")] {
        let file = home.path().join(name);
        let report = ["--report", file.to_str().unwrap()];
        let emulate = ["emulate", "--rtt", "1ms", "--rate", "1mbit"];
        for command in [&PLAN[..], &["copy", "a", "b"], &["test", "far"], &emulate] {
            let output = run(&[command, &report].concat());
            assert_eq!(output.status.code(), Some(2), "{command:?}");
            let error = stderr(&output);
            assert!(error.contains(says) && error.contains("supported: .json, .html"), "{error}");
        }
        assert!(!file.exists());
    }
}

#[test]
fn failures_under_json_output_print_a_document() {
    for (words, command, code) in [
        (&["plan", "--rate", "fast", "--rtt", "1ms", "--json"][..], "plan", 2),
        (&["plan", "--nosuch", "--output", "json"], "plan", 2),
        (&["hosts", "remove", "unsaved", "--json"], "hosts remove", 1),
        (&["show", "/nonexistent.json", "--output=json"], "show", 1),
        (&["verify", "/nonexistent", "--output", "ndjson"], "verify", 1),
        (&["nosuch", "--json"], "", 2),
    ] {
        let output = run(words);
        assert_eq!(output.status.code(), Some(code), "{words:?}");
        let document = json(&output);
        assert_eq!(document["schema"], "lfn.error/1", "{document}");
        assert_eq!((&document["command"], &document["exit_code"]), (&command.into(), &code.into()), "{document}");
        let error = document["error"].as_str().unwrap();
        assert!(stderr(&output).starts_with(&format!("lfn: {error}\n")), "{document} {}", stderr(&output));
    }
    assert_eq!(stdout(&run(&["plan", "--nosuch"])), "");
}

#[test]
fn every_command_with_a_result_has_json() {
    let home = tempfile::tempdir().unwrap();
    let lfn = |words: &str| {
        let mut command = lfn();
        let output = command.args(words.split(' ')).env("HOME", home.path()).env_remove("XDG_CONFIG_HOME").output();
        let output = output.unwrap();
        assert!(output.status.success(), "{words}: {}", stderr(&output));
        json(&output)
    };
    let ticket = lfn("token add field --json")["ticket"].as_str().unwrap().to_owned();
    assert_eq!(lfn(&format!("hosts add far1 {ticket} --json"))["replaced"], false);
    assert_eq!(lfn(&format!("hosts add far1 {ticket} --json"))["replaced"], true);
    assert!(lfn("hosts list --json")["hosts"]["far1"].is_string());
    assert_eq!(lfn("hosts remove far1 --json")["name"], "far1");
    assert_eq!(lfn("token list --json")["tokens"][0]["name"], "field");
    assert_eq!(lfn("token revoke field --json")["name"], "field");
    assert_eq!(lfn("emulate --list --json")["schema"], "lfn.emulate.list/1");
    assert_eq!(lfn("emulate --rtt 1ms --rate 1mbit --dry-run --size 1MB --json")["schema"], "lfn.dry-run/2");
}

#[test]
fn report_with_a_secret_is_private() {
    use std::os::unix::fs::PermissionsExt;
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("ticket.json");
    let words = ["token", "add", "field", "--report", file.to_str().unwrap()];
    assert!(lfn().args(words).env("HOME", home.path()).output().unwrap().status.success());
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn quiet_silences_hints_and_keeps_results() {
    let failed = run(&["-q", "hosts", "remove", "unsaved"]);
    assert_eq!(stderr(&failed), "lfn: no ticket is saved as 'unsaved'\n");
    assert!(stderr(&run(&["hosts", "remove", "unsaved"])).contains("hint:"));
    assert_eq!(stdout(&run(&[&PLAN[..], &["--quiet"]].concat())), stdout(&run(&PLAN)));
}

#[test]
fn report_is_no_other_file_of_the_command() {
    let home = tempfile::tempdir().unwrap();
    let file = |name: &str| home.path().join(name);
    fs::write(file("a.json"), "source").unwrap();
    symlink("a.json", file("link.json")).unwrap();
    fs::create_dir(file("d")).unwrap();
    let run = |line: &str| lfn().args(line.split(' ')).current_dir(home.path()).output().unwrap();
    for line in [
        "copy a.json d/b --report a.json",
        "copy a.json d/b --report=./link.json",
        "copy a.json d/b.json --report d/b.json",
        "copy a.json d/b --manifest m.json --report m.json",
        "show a.json --report a.json",
        "verify a.json --report a.json",
    ] {
        let output = run(line);
        assert_eq!(output.status.code(), Some(2), "{line}: {}", stderr(&output));
        assert!(stderr(&output).contains("another argument is the same file"), "{line}: {}", stderr(&output));
    }
    assert_eq!(fs::read_to_string(file("a.json")).unwrap(), "source");
    // A link is followed, also to a file that does not exist yet.
    symlink("d/new.json", file("new.json")).unwrap();
    assert!(run("version --report new.json").status.success());
    assert!(file("new.json").is_symlink() && file("d/new.json").exists());
    // On standard output, the report follows the text.
    let written = fs::File::create(file("out")).unwrap();
    let mut command = lfn();
    command.args(["version", "--report", "/dev/stdout"]).stdout(written).current_dir(home.path());
    assert!(command.status().unwrap().success());
    let text = fs::read_to_string(file("out")).unwrap();
    let (line, document) = text.split_once('\n').unwrap();
    assert!(line.starts_with("lfn 0"), "{text}");
    assert_eq!(serde_json::from_str::<Value>(document).unwrap()["schema"], "lfn.version/1");
}

#[test]
fn flag_of_the_user_replaces_a_conflicting_default() {
    for (name, value, words) in [
        ("LFN_TEST_TIME", "5s", ["test", "127.0.0.1:1", "--insecure", "--bytes", "1MB"]),
        ("LFN_TEST_COUNT", "5", ["test", "127.0.0.1:1", "--insecure", "--time", "5s"]),
    ] {
        let output = lfn().args(words).env(name, value).output().unwrap();
        assert!(!stderr(&output).contains("cannot be combined"), "{}", stderr(&output));
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    }
}

#[test]
fn damaged_defaults_are_errors_that_end() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("lfn/lfn.toml");
    fs::create_dir(home.path().join("lfn")).unwrap();
    let run = |words: &[&str]| lfn().args(words).env("XDG_CONFIG_HOME", home.path()).output().unwrap();
    symlink("/dev/zero", &file).unwrap();
    let output = run(&PLAN);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("is not a regular file") && stderr(&output).contains("--no-defaults"));
    fs::remove_file(&file).unwrap();
    fs::write(&file, "[plan]\nrat = \"5mbit\"\n").unwrap();
    let output = run(&PLAN);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("lfn defaults"), "{}", stderr(&output));
    // The command of the hint works.
    assert!(run(&["defaults"]).status.success());
}

#[test]
fn results_have_coloured_labels_on_request() {
    let plan = |color: &str| stdout(&run(&[&PLAN[..], &["--for-other-host", "--color", color]].concat()));
    let plain = plan("never");
    assert!(!plain.contains('\x1b') && plan("auto") == plain);
    let coloured = plan("always");
    assert!(coloured.contains("\x1b[1m"), "{coloured}");
    assert_eq!(coloured.replace("\x1b[1m", "").replace("\x1b[36m", "").replace("\x1b[0m", ""), plain);
}

#[test]
fn colours_need_a_terminal_or_a_request() {
    let error = |words: &[&str], variables: &[(&str, &str)]| {
        let mut command = lfn();
        command.args(["hosts", "remove", "unsaved"]).args(words).env("HOME", "/nonexistent").env_remove("NO_COLOR");
        stderr(&command.envs(variables.iter().copied()).output().unwrap())
    };
    assert!(!error(&[], &[]).contains('\x1b'));
    assert!(error(&["--color", "always"], &[]).contains("\x1b[1;31mlfn:\x1b[0m no ticket"));
    assert!(error(&[], &[("CLICOLOR_FORCE", "1")]).contains('\x1b'));
    assert!(!error(&[], &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]).contains('\x1b'));
    assert!(error(&["--color=always"], &[("NO_COLOR", "1")]).contains('\x1b'), "the flag wins");
    assert!(!error(&["--color", "never"], &[("CLICOLOR_FORCE", "1")]).contains('\x1b'));
}
