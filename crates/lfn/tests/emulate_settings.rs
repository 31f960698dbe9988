//! Link settings: flags, profiles, traces and specifications, and errors before anything is created.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking, its helpers too")]

mod support;

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{ExitCode, Output};
use std::time::{Duration, Instant};

use lfn_base::framing::Layer;
use lfn_base::path::PathProfile;
use lfn_base::units::{BitRate, Bytes, Ratio};
use lfn_emulate::RunOutcome;

use support::{Needs, ROLE, lfn, stderr, stdout};

const PORT: u16 = 9000;

fn main() -> ExitCode {
    if let Ok(role) = std::env::var(ROLE) {
        act(&role);
        return ExitCode::SUCCESS;
    }
    support::run(&[
        ("flags_override_a_profile", Needs::Namespaces, flags_override_a_profile),
        ("own_profile_uses_its_trace", Needs::Namespaces, own_profile_uses_its_trace),
        ("changing_delay_is_measurable", Needs::Namespaces, changing_delay_is_measurable),
        ("links_in_series_are_one_path", Needs::Namespaces, links_in_series_are_one_path),
        ("parallel_path_can_have_links_in_series", Needs::Namespaces, parallel_path_can_have_links_in_series),
        ("failed_start_reports_the_error", Needs::Namespaces, failed_start_reports_the_error),
        ("list_has_every_profile_with_its_source", Needs::Nothing, list_has_every_profile_with_its_source),
        ("json_list_can_be_used_by_programs", Needs::Nothing, json_list_can_be_used_by_programs),
        ("listed_profile_can_be_changed_and_used", Needs::Nothing, listed_profile_can_be_changed_and_used),
        ("documentation_has_every_profile_and_trace", Needs::Nothing, documentation_has_every_profile_and_trace),
        ("help_fits_and_explains_the_directions", Needs::Nothing, help_fits_and_explains_the_directions),
        ("contradictory_settings_are_refused", Needs::Nothing, contradictory_settings_are_refused),
        ("invalid_files_are_refused_with_the_line", Needs::Nothing, invalid_files_are_refused_with_the_line),
        ("changes_are_parsed_before_they_are_sent", Needs::Nothing, changes_are_parsed_before_they_are_sent),
    ])
}

fn emulate(arguments: &[&str]) -> Output {
    lfn().arg("emulate").args(arguments).output().unwrap()
}

/// Returns the path figures that CMD gets.
fn path_of(flags: &[&str]) -> PathProfile {
    let output = emulate(&[flags, &["--far-command", "none", "--", "sh", "-c", "echo $LFN_PATH"]].concat());
    serde_json::from_str(&stdout(&output)).unwrap_or_else(|error| panic!("{error}: {}", stderr(&output)))
}

fn flags_override_a_profile() {
    let report = tempfile::Builder::new().suffix(".json").tempfile().unwrap();
    let path = path_of(&["--profile", "acts", "--loss", "1e-5", "--report", report.path().to_str().unwrap()]);
    assert_eq!((path.base_rtt, path.loss), (Duration::from_millis(539), Ratio::new(1e-5).unwrap()));
    assert_eq!((path.capacity, path.mtu, path.framing.layer), (BitRate(135_631_698), 9180, Layer::AtmAal5));
    let outcome: RunOutcome = serde_json::from_str(&fs::read_to_string(report.path()).unwrap()).unwrap();
    assert_eq!(outcome.accuracy_report.paths[0].path, path);
    let path = path_of(&["--profile", "dsl", "--rate", "50mbit", "--mtu", "1400", "--queue", "100p"]);
    assert_eq!((path.capacity, path.mtu, path.queue), (BitRate(50_000_000), 1400, Some(Bytes(141_400))));
}

fn own_profile_uses_its_trace() {
    let home = tempfile::tempdir().unwrap();
    let profile = home.path().join("ours.toml");
    fs::write(&profile, "title = 'Ours'\nrtt = '10ms'\ntrace = 'ours.trace'\nmtu = 1400\n").unwrap();
    fs::write(home.path().join("ours.trace"), "1\n2\n2\n5\n").unwrap();
    let path = path_of(&["--profile", profile.to_str().unwrap()]);
    // Four packets of 1,500 bytes in 5 ms.
    assert_eq!((path.capacity, path.mtu, path.framing.layer), (BitRate(9_600_000), 1400, Layer::Ip));
}

/// The delay of a trace is measurable. One profile stands for all.
fn changing_delay_is_measurable() {
    let path = path_of(&["--profile", "starlink"]);
    assert!((20..21).contains(&path.base_rtt.as_millis()), "{:?}", path.base_rtt);
    let trace = tempfile::NamedTempFile::new().unwrap();
    fs::write(trace.path(), "time,delay\n0s,10ms\n1s,150ms\n").unwrap();
    let program = std::env::current_exe().unwrap();
    let role = |role: &str| format!("{ROLE}={role} '{}'", program.display());
    let script = format!("{0}; sleep 2; {0}", role("connect"));
    let trace = trace.path().to_str().unwrap();
    let flags = ["--rate", "50mbit", "--trace", trace, "--far-command", &role("listen"), "--", "sh", "-c", &script];
    let output = emulate(&flags);
    let said = stdout(&output);
    let rtts: Vec<u128> = said.lines().filter_map(|line| line.strip_prefix("RTT ")?.parse().ok()).collect();
    let [before, after] = rtts[..] else { panic!("{said} {}", stderr(&output)) };
    // Never shorter than set. How much longer depends on the machine.
    assert!(before >= 20_000_000 && (300_000_000..5_000_000_000).contains(&after), "{rtts:?}");
}

/// Roles of this program as a command on one side of a path.
fn act(role: &str) {
    if role == "listen" {
        TcpListener::bind(("0.0.0.0", PORT)).unwrap().incoming().for_each(drop);
        return;
    }
    let before = Instant::now();
    drop(TcpStream::connect(("far", PORT)).unwrap());
    println!("RTT {}", before.elapsed().as_nanos());
}

fn links_in_series_are_one_path() {
    let path = path_of(&["--link", "rate=2gbit,rtt=10ms", "--link", "dsl,rate=1gbit,loss=0.01,return-loss=0"]);
    assert_eq!((path.base_rtt, path.capacity), (Duration::from_millis(47), BitRate(1_000_000_000)));
    assert_eq!((path.loss, path.mtu), (Ratio::new(0.01).unwrap(), 1492));
    // A link without an MTU has the default MTU.
    assert_eq!(path_of(&["--link", "acts", "--link", "geo"]).mtu, 1500);
    assert_eq!(path_of(&["--link", "acts", "--link", "vbns"]).mtu, 9180);
}

fn parallel_path_can_have_links_in_series() {
    let report = tempfile::Builder::new().suffix(".json").tempfile().unwrap();
    let paths = ["--link", "rate=1gbit,rtt=10ms", "--parallel", "rate=2gbit,rtt=5ms; dsl,rate=1gbit"];
    let flags = ["--far-command", "none", "--report", report.path().to_str().unwrap(), "--", "true"];
    let output = emulate(&[&paths[..], &flags].concat());
    let outcome = serde_json::from_str::<RunOutcome>(&fs::read_to_string(report.path()).unwrap());
    let paths = outcome.unwrap_or_else(|error| panic!("{error}: {}", stderr(&output))).accuracy_report.paths;
    assert_eq!(paths.iter().map(|path| path.links.len()).collect::<Vec<_>>(), [1, 2], "{paths:?}");
    assert_eq!(paths[1].path.base_rtt, Duration::from_millis(42));
    assert_refused(
        &["--profile", "geo", "--parallel", "rate=2mbit;rate=1mbit"],
        &["--parallel rate=2mbit; rate=1mbit: rtt is missing"],
    );
}

fn failed_start_reports_the_error() {
    let home = tempfile::tempdir().unwrap();
    let run = |report: &Path| {
        let report = report.to_str().unwrap();
        emulate(&["--rtt", "20ms", "--rate", "5mbit", "--report", report, "--", "no-such-command"])
    };
    let (new, old) = (home.path().join("new.json"), home.path().join("old.json"));
    fs::write(&old, "what was there").unwrap();
    assert_eq!(run(&new).status.code(), Some(127));
    assert_eq!(run(&old).status.code(), Some(127));
    for report in [&new, &old] {
        let error: serde_json::Value = serde_json::from_str(&fs::read_to_string(report).unwrap()).unwrap();
        assert_eq!((&error["schema"], &error["exit_code"]), (&"lfn.error/1".into(), &127.into()), "{error}");
    }
    let done = emulate(&["--rtt", "20ms", "--rate", "5mbit", "--report", old.to_str().unwrap(), "--", "true"]);
    assert!(done.status.success() || done.status.code() == Some(4), "{}", stderr(&done));
    serde_json::from_str::<RunOutcome>(&fs::read_to_string(&old).unwrap()).unwrap();
}

fn list_has_every_profile_with_its_source() {
    let output = emulate(&["--list"]);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", stderr(&output));
    let list = stdout(&output);
    for name in [
        "acts",
        "vbns",
        "sc2000",
        "geo",
        "starlink",
        "leo-ka",
        "transatlantic",
        "transpacific",
        "dsl",
        "lte",
        "lossy-wifi",
        "lte-drive",
    ] {
        assert!(list.lines().any(|line| line.split(' ').next() == Some(name)), "{name} is not in {list}");
    }
    assert!(list.contains("539 ms, 135.6 Mb/s"), "{list}");
    assert_eq!(list.matches("Source: ").count(), 13);
    let widest = list.lines().map(|line| line.chars().count()).max().unwrap();
    assert!(widest < 80, "{widest}: {list}");
}

fn json_list_can_be_used_by_programs() {
    let list = |arguments: &[&str]| -> serde_json::Value {
        let output = emulate(&[&["--list"], arguments, &["--json"]].concat());
        serde_json::from_str(&stdout(&output)).unwrap_or_else(|error| panic!("{error}: {}", stderr(&output)))
    };
    let all = list(&[]);
    assert_eq!(all["schema"], "lfn.emulate.list/1");
    let profiles = all["profiles"].as_array().unwrap();
    assert_eq!((profiles.len(), all["traces"].as_array().unwrap().len()), (11, 2));
    for profile in profiles {
        let text = |key: &str| profile[key].as_str().unwrap_or_else(|| panic!("no {key} in {profile}")).to_owned();
        assert!(["title", "source", "notes"].iter().all(|key| !text(key).is_empty()), "{profile}");
        // The listed settings are a link specification and give the path of the list.
        let mtu = profile["path"]["mtu_bytes"].to_string();
        let flags = ["--link", &text("settings"), "--mtu", &mtu, "--dry-run", "--size", "1MB", "--json"];
        let run: serde_json::Value = serde_json::from_str(&stdout(&emulate(&flags))).unwrap();
        assert_eq!(run["path"]["rtt_seconds"], profile["path"]["rtt_seconds"], "{profile}");
        assert_eq!(run["path"]["mtu_bytes"], profile["path"]["mtu_bytes"], "{profile}");
    }
    let dsl = list(&["dsl"]);
    assert_eq!((dsl["profiles"].as_array().unwrap().len(), dsl["traces"].as_array().unwrap().len()), (1, 0));
    let dsl = &dsl["profiles"][0];
    let capacity = |way: &str| dsl[way]["capacity_bits_per_second"].as_u64().unwrap();
    assert!(capacity("near_to_far") < capacity("far_to_near"), "forward is upload: {dsl}");
    let handovers = list(&["starlink-handovers"]);
    assert_eq!(
        (handovers["profiles"].as_array().unwrap().len(), handovers["traces"].as_array().unwrap().len()),
        (0, 1)
    );
    // In either order.
    assert_eq!(stdout(&emulate(&["--list", "--json", "dsl"])), stdout(&emulate(&["--list", "dsl", "--json"])));
    assert_refused(&["--list", "--json", "dsl", "acts"], &["unexpected argument 'acts'"]);
    assert_eq!(emulate(&["--list", "atcs", "--json"]).status.code(), Some(2));
    assert_refused(&["--profile", "acts", "--json"], &["--output json"]);
}

fn listed_profile_can_be_changed_and_used() {
    let toml = stdout(&emulate(&["--list", "acts"]));
    lfn_link::profile::Profile::parse("acts", &toml).unwrap();
    for name in lfn_link::trace::BUILT_IN.iter().map(|trace| trace.name) {
        let trace = lfn_link::trace::LinkTrace::parse(name, &stdout(&emulate(&["--list", name]))).unwrap();
        assert!(trace.rate.is_some() || trace.delay.is_some(), "{name}");
    }
    let output = emulate(&["--list", "atcs"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("'atcs'") && stderr(&output).contains("\nhint: "), "{}", stderr(&output));
}

fn documentation_has_every_profile_and_trace() {
    use lfn_link::{profile, trace};
    let reference = include_str!("../../../doc/reference/emulate.md");
    let names = profile::BUILT_IN.iter().map(|(name, _)| *name);
    for name in names.chain(trace::BUILT_IN.iter().map(|trace| trace.name)) {
        assert!(reference.lines().any(|line| line.starts_with(&format!("| `{name}` |"))), "{name}");
    }
}

fn help_fits_and_explains_the_directions() {
    for flag in ["-h", "--help"] {
        let output = lfn().args(["emulate", flag]).env("COLUMNS", "80").output().unwrap();
        let help = stdout(&output);
        let widest = help.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= 80, "{widest}: {help}");
        for key in lfn_link::settings::KEYS.iter() {
            assert!(help.contains(&format!("--{} <", key.name)), "{}: {help}", key.name);
            assert!(!help.contains(&format!("--forward-{} <", key.name)), "{}: {help}", key.name);
        }
    }
    let help = stdout(&emulate(&["--help"]));
    assert!(help.contains("--forward-KEY applies"), "{help}");
}

/// Asserts a refusal with exit code 2, one line that names the value, and a hint.
fn assert_refused(arguments: &[&str], named: &[&str]) {
    let output = emulate(&[arguments, &["--", "true"]].concat());
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
    assert!(
        said.starts_with("lfn: ") && said.contains("\nhint: ") && said.lines().count() == 2,
        "{arguments:?}: {said}"
    );
    for named in named {
        assert!(said.contains(named), "{arguments:?}: '{named}' is not in {said}");
    }
}

fn contradictory_settings_are_refused() {
    let cases: &[(&[&str], &[&str])] = &[
        (&[], &["--rtt is missing", "--profile acts"]),
        (&["--rtt", "20ms"], &["--rate is missing"]),
        (
            &["--rtt", "539", "--rate", "1mbit"],
            &["--rtt: '539' has no unit", "hint: lfn emulate --rtt 539ms --rate 1mbit"],
        ),
        (&["--rtt", "20ms", "--delay", "5ms", "--rate", "1mbit"], &["rtt and delay"]),
        (
            &["--rtt", "20ms", "--forward-rate", "1mbit"],
            &["--rate is missing for the direction from far to near", "--return-rate"],
        ),
        (&["--rtt", "20ms", "--rate", "1mbit", "--ecn", "on"], &["ecn has no effect without an aqm", "--aqm"]),
        (&["--rtt", "20ms", "--rate", "1mbit", "--ecn", "maybe"], &["--ecn: 'maybe'"]),
        (&["--rtt", "20ms", "--rate", "1mbit", "--aqm", "pie"], &["--aqm", "pie"]),
        (&["--rtt", "20ms", "--rate", "1mbit", "--overhead", "carrier-pigeon"], &["carrier-pigeon"]),
        (&["--rtt", "20ms", "--rate", "1mbit", "--return-loss", "2"], &["--return-loss", "'2'"]),
        (&["--rtt", "20ms", "--rate", "1mbit", "--jitter", "soon"], &["--jitter", "soon"]),
        (&["--rtt", "20ms", "--rate", "1mbit", "--path-mtu", "20"], &["--path-mtu", "20"]),
        (&["--rtt", "20ms", "--rate", "1mbit", "--trace", "lte-drive"], &["rate and trace"]),
        (&["--rtt", "20ms", "--trace", "/no/such/file"], &["--trace /no/such/file"]),
        (&["--forward-rtt", "20ms"], &["--forward-rtt"]),
        (&["--profile", "atcs"], &["unknown profile 'atcs'", "did you mean acts?"]),
        (&["--profile", "/no/such/file.toml"], &["/no/such/file.toml"]),
        (&["--profile", "acts", "--link", "rtt=5ms"], &["--link"]),
        (&["--loss", "1e-3", "--link", "rate=1mbit,rtt=5ms"], &["--loss cannot be combined with --link"]),
        (&["--link", "rate=1mbit"], &["--link rate=1mbit: rtt is missing"]),
        (&["--link", "rate=1mbit,rtt=5ms,los=1"], &["'los'", "did you mean loss?"]),
        (&["--link", "rate=1mbit,rtt=5ms,nothing"], &["'nothing' is not KEY=VALUE"]),
        (&["--link", "atcs,rate=1mbit"], &["unknown profile 'atcs'"]),
        (&["--link", "rate=1mbit,rtt=5"], &["'5' has no unit"]),
        (&["--profile", "geo", "--parallel", "rate=1mbit"], &["--parallel rate=1mbit: rtt is missing"]),
        (&["--profile", "geo", "--size", "1GB"], &["--dry-run"]),
        (&["--rate", "1mbit", "--rate", "2mbit"], &["--rate"]),
        (&["--link", "rate=1mbit,rtt=10ms,rate=2mbit"], &["rate is given twice: 1mbit and 2mbit"]),
        (&["--profile", "ACTS"], &["did you mean acts?"]),
        (&["--rtt", "20ms", "--rate", "1mbit", "--path-mtu", "1400:blackhole"], &["did you mean 1400:black-hole?"]),
        (&["ping", "far"], &["the command 'ping' needs -- before it", "-- ping"]),
        (&["sett", "rate=1mbit"], &["the command 'sett' needs -- before it"]),
    ];
    for (arguments, named) in cases {
        assert_refused(arguments, named);
    }
}

fn invalid_files_are_refused_with_the_line() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("file.toml");
    let name = path.to_str().unwrap();
    let profiles = [
        ("title = 'x'\nspeed = '1mbit'", "unknown setting 'speed'"),
        ("title = 'x'\nrate = ", "line 2: "),
        ("title = 'x'\nrtt = 539", "'539' has no unit"),
        ("title = 'x'\nrtt = '20ms'\ntrace = 'not-there.csv'", "not-there.csv"),
        ("\u{0}\u{1}", "line 1: "),
        ("", "title is missing"),
    ];
    for (text, named) in profiles {
        fs::write(&path, text).unwrap();
        assert_refused(&["--profile", name], &[named]);
    }
    let traces = [
        ("", "the trace is empty"),
        ("1\n0\n", "line 2: the time is not later"),
        ("-5\n", "line 1: '-5'"),
        ("time[s],rate\n0,-1mbit\n", "line 2: rate: '-1mbit'"),
    ];
    for (text, named) in traces {
        fs::write(&path, text).unwrap();
        assert_refused(&["--rtt", "20ms", "--trace", name], &[named]);
    }
    // The file is neither text nor finite.
    assert_refused(&["--rtt", "20ms", "--trace", "/dev/zero"], &["/dev/zero: more than 256 MiB"]);
    assert_refused(&["--rtt", "20ms", "--trace", "/"], &["--trace /: "]);
}

fn changes_are_parsed_before_they_are_sent() {
    let cases: &[(&[&str], &str)] = &[
        (&["set"], "KEY=VALUE"),
        (&["set", "rat=5mbit"], "did you mean rate?"),
        (&["set", "rate"], "'rate' is not KEY=VALUE"),
        (&["set", "rate=fast"], "rate: 'fast'"),
        (&["set", "rate=1mbit", "rate=2mbit"], "rate is given twice"),
        (&["set", "rate=5mbit", "return-loss=2"], "return-loss: "),
        (&["set", "--link", "0", "rate=5mbit"], "--link"),
        (&["set", "trace=/no/such/file"], "/no/such/file"),
        (&["show", "everything"], "everything"),
    ];
    for (arguments, named) in cases {
        let output = emulate(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(named), "{arguments:?}: {}", stderr(&output));
    }
}
