//! `lfn plan` run as a user runs it: known answers from the command line, and all kinds of bad input.

use std::process::{Command, Output};

use serde_json::Value;

use crate::support;
use crate::support::lfn_path;

/// Runs `lfn plan`. Without a host in the arguments the settings are those for another host, so that no test depends on
/// this machine.
fn lfn(arguments: &str) -> Output {
    let mut command = support::lfn();
    command.arg("plan").args(arguments.split_whitespace());
    if !["--sysctl", "--this-host", "--for-other-host"].iter().any(|flag| arguments.contains(flag)) {
        command.arg("--for-other-host");
    }
    command.output().expect("lfn runs")
}

fn page(arguments: &str) -> String {
    let output = lfn(arguments);
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("output is UTF-8")
}

/// Removes line breaks and the spaces of columns.
fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Writes a file as `sysctl -a` prints it, with the defaults of Linux 6.18 and this congestion control.
fn sysctl_file(directory: &tempfile::TempDir, congestion: &str) -> String {
    let file = directory.path().join("host.txt");
    let text = format!(
        "net.core.rmem_max = 4194304\nnet.core.wmem_max = 4194304\nnet.ipv4.tcp_rmem = 4096\t131072\t33554432\n\
net.ipv4.tcp_wmem = 4096\t16384\t4194304\nnet.ipv4.tcp_congestion_control = {congestion}\n\
net.ipv4.tcp_available_congestion_control = reno cubic\nnet.ipv4.tcp_sack = 1\nnet.ipv4.tcp_mtu_probing = 0\n"
    );
    std::fs::write(&file, text).expect("write the settings");
    file.display().to_string()
}

fn json(arguments: &str) -> Value {
    let output = lfn(&format!("{arguments} --json"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments}: {stderr}");
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

/// Returns the number at `key`, with a `predicted.` prefix for the inner object.
fn figure(plan: &Value, key: &str) -> f64 {
    let value = key.split('.').fold(plan, |value, part| &value[part]);
    value.as_f64().unwrap_or_else(|| panic!("{key} is {value}"))
}

#[test]
fn known_answers_from_the_command_line() {
    // Arguments, key, answer, relative tolerance. `known_answers` of `lfn-base` has the sources.
    let sphere = "--earth-radius 3960mi --geo-altitude 22300mi --light-speed 186400mi/s";
    let over = format!("--rate 135mbit --from 40,-105 --to 40,-105 --via geo:-105 {sphere}");
    let rows = [
        (over.as_str(), "rtt_seconds", 0.5014, 1e-4),
        ("--link oc3c-atm --rtt 539ms", "capacity_bits_per_second", 135.63e6, 1e-4),
        ("--rate 135mbit --rtt 539ms", "bdp_bytes", 9_095_625.0, 0.0),
        ("--rate 135mbit --rtt 539ms", "buffer_bytes", 9_095_625.0, 0.0),
        ("--rate 135mbit --rtt 539ms", "window_scale", 8.0, 0.0),
        ("--rate 135mbit --rtt 539ms", "predicted.goodput_bits_per_second", 129.1e6, 1e-3),
        ("--rate 135mbit --rtt 539ms --window 4547813", "predicted.goodput_bits_per_second", 67.5e6, 1e-6),
        ("--rate 135mbit --rtt 539ms --window 4547813", "window_scale", 7.0, 0.0),
        ("--rate 135mbit --rtt 541ms", "bdp_bytes", 9_129_375.0, 0.0),
        ("--rate 135mbit --rtt 550ms", "bdp_bytes", 9_281_250.0, 0.0),
        ("--rate 135mbit --rtt 539ms --window 10000000", "buffer_rounded_bytes", 10_027_008.0, 0.0),
        ("--rate 135mbit --rtt 40ms", "bdp_bytes", 675_000.0, 0.0),
        ("--rate 135mbit --rtt 36ms", "bdp_bytes", 607_500.0, 0.0),
        ("--rate 135mbit --rtt 37ms", "bdp_bytes", 624_375.0, 0.0),
        ("--rate 135mbit --rtt 62ms", "bdp_bytes", 1_046_250.0, 0.0),
        ("--rate 622mbit --rtt 50ms", "bdp_bytes", 3_887_500.0, 0.0),
        ("--rate 622mbit --rtt 50ms --window 2MB", "predicted.idle_share", 0.4855, 1e-3),
        ("--rate 155mbit --rtt 550ms --window 64KiB", "predicted.goodput_bits_per_second", 953_251.0, 1e-5),
        ("--rate 1gbit --rtt 100ms --window 65535", "window_scale", 0.0, 0.0),
        ("--rate 1gbit --rtt 100ms --window 65536", "window_scale", 1.0, 0.0),
        ("--rate 1gbit --rtt 100ms --window 131070", "window_scale", 1.0, 0.0),
        ("--rate 1gbit --rtt 100ms --window 131071", "window_scale", 2.0, 0.0),
        ("--rate 1gbit --rtt 100ms --window 1048576", "window_scale", 5.0, 0.0),
        ("--rate 1gbit --rtt 100ms --window 1073725440", "window_scale", 14.0, 0.0),
        ("--rate 1gbit --rtt 100ms --window 64K", "linux_window_scale", 1.0, 0.0),
        ("--rate 1gbit --rtt 100ms --window 4M", "linux_window_scale", 7.0, 0.0),
        ("--rate 44.21mbit --rtt 25ms", "bdp_bytes", 138_156.0, 0.0),
        ("--link t3 --rtt 25ms", "rfc6349_max_tcp_bits_per_second", 42_795_520.0, 0.0),
        ("--link ethernet-100m --rtt 1ms", "rfc6349_max_tcp_bits_per_second", 94_923_360.0, 0.0),
        ("--link ethernet-1g --rtt 1ms", "rfc6349_max_tcp_bits_per_second", 949_280_320.0, 0.0),
        ("--link ethernet-10g --rtt 1ms", "rfc6349_max_tcp_bits_per_second", 9_492_838_240.0, 0.0),
        ("--link ethernet-1g --rtt 1ms --no-timestamps", "predicted.goodput_bits_per_second", 949.28e6, 1e-5),
        ("--rate 4mbit --rtt 200ms --congestion reno", "loss_budget", 0.000_102_74, 1e-4),
        ("--rate 10gbit --rtt 150ms", "loss_budget", 2.6e-8, 0.02),
        ("--rate 10gbit --rtt 150ms --congestion bbr", "loss_budget", 0.05, 0.0),
        ("--rate 135mbit --rtt 40ms --window-scale none", "predicted.goodput_bits_per_second", 13.1e6, 1e-3),
        ("--rate 135mbit --rtt 40ms --window 65535", "predicted.goodput_bits_per_second", 13.1e6, 1e-3),
        ("--rate 8590mbit --rtt 1s", "streams", 2.0, 0.0),
        // Half of 64 MiB holds payload.
        ("--link ethernet-10g --rtt 100ms --max-buffer 64MiB", "streams", 4.0, 0.0),
    ];
    for (arguments, key, answer, tolerance) in rows {
        let got = figure(&json(arguments), key);
        assert!((got - answer).abs() <= answer * tolerance, "lfn plan {arguments}: {key} is {got}, not {answer}");
    }
}

/// Cold case 1: about 25, 71 and 203 s, where 28.9, 72.0 and 197–205 s were published (reports 000, 002).
#[test]
fn cold_case_1_from_the_command_line() {
    let acts = "--rate 122.269mbit --rtt 539ms --mtu 65280 --window 10000000 --initial-window 1 --delayed-ack";
    for (size, seconds) in [("300MB", 25.0), ("1GB", 71.0), ("3GB", 203.0)] {
        let plan = json(&format!("{acts} --size {size}"));
        let got = figure(&plan, "predicted.seconds");
        assert!((got - seconds).abs() <= 1.0, "{size}: {got} s");
        assert!(figure(&plan, "predicted.slow_start_seconds") > 6.0);
    }
}

#[test]
fn coordinates_give_rtts() {
    let between = "--rate 1gbit --from 40,-105 --to 40,-83 --via";
    // Over 100° W: slant ranges of about 37,600 km by spherical trigonometry.
    let geo = figure(&json(&format!("{between} geo:-100")), "rtt_seconds");
    assert!((0.500..0.504).contains(&geo), "{geo}");
    // A geodesic of 1,870 km close to the parallel, with index 1.468.
    let fibre = figure(&json(&format!("{between} fibre")), "rtt_seconds");
    assert!((0.0180..0.0186).contains(&fibre), "{fibre}");
    let twice = figure(&json(&format!("{between} fibre --detour 2 --refractive-index 1.468")), "rtt_seconds");
    assert!((twice / fibre - 2.0).abs() < 1e-6);
    let leo = json(&format!("{between} leo:550km"));
    assert!((0.014..0.016).contains(&figure(&leo, "rtt_seconds")));
    assert_eq!(leo["via"], "leo:550km");
    let high = figure(&json("--rate 1gbit --from 40,-105,1863m --to 40,-105 --via geo:-105"), "rtt_seconds");
    let low = figure(&json("--rate 1gbit --from 40,-105 --to 40,-105 --via geo:-105"), "rtt_seconds");
    assert!(high < low);
    // South and east coordinates with their signs.
    let south = json("--rate 1gbit --from -33.9,151.2 --to -36.8,174.8 --via fibre");
    assert!((0.020..0.022).contains(&figure(&south, "rtt_seconds")));
}

#[test]
fn framing_reduces_the_capacity() {
    let goodput = |arguments: &str| {
        figure(&json(&format!("--link ethernet-10g --rtt 10ms {arguments}")), "predicted.goodput_bits_per_second")
    };
    let of_ten = |payload: f64, wire: f64| 10e9 * payload / wire;
    let rows = [
        ("", of_ten(1448.0, 1538.0)),
        ("--mtu 9000", of_ten(8948.0, 9038.0)),
        ("--ipv6", of_ten(1428.0, 1538.0)),
        ("--vlan", of_ten(1448.0, 1542.0)),
        ("--qinq", of_ten(1448.0, 1546.0)),
        ("--wireguard", of_ten(1388.0, 1538.0)),
        ("--ipsec", of_ten(1394.0, 1538.0)),
        ("--mtu 9000 --ipv6 --vlan --wireguard", of_ten(8848.0, 9042.0)),
    ];
    for (arguments, expected) in rows {
        assert!(
            (goodput(arguments) / expected - 1.0).abs() < 1e-6,
            "{arguments}: {} not {expected}",
            goodput(arguments)
        );
    }
}

#[test]
fn plan_uses_loss_streams_and_size() {
    let plan = json("--rate 1gbit --rtt 90ms --loss 1e-4 --streams 4 --size 100GB --congestion cubic");
    // RFC 9438: 1.054 × (0.09 / 1e-4)^0.75 = 173 segments of 1,448 bytes per 90 ms, four times.
    let want = 4.0 * 1.0538 * 900_f64.powf(0.75) * 1448.0 * 8.0 / 0.09;
    assert!((figure(&plan, "predicted.goodput_bits_per_second") / want - 1.0).abs() < 2e-3);
    assert_eq!(plan["predicted"]["limited_by"], "loss");
    let seconds = figure(&plan, "predicted.seconds");
    assert!((seconds / (100e9 * 8.0 / want) - 1.0).abs() < 0.01, "{seconds}");
    let bbr = json("--rate 1gbit --rtt 90ms --loss 1e-4 --congestion bbr");
    assert_eq!(bbr["predicted"]["limited_by"], "capacity");
    let reno = json("--rate 1gbit --rtt 90ms --loss 1e-4 --congestion reno");
    let mathis = (1.5 / 1e-4_f64).sqrt() * 1448.0 * 8.0 / 0.09;
    assert!((figure(&reno, "predicted.goodput_bits_per_second") / mathis - 1.0).abs() < 1e-3);
}

/// Returns the settings as lines of `sysctl.conf`.
fn settings(plan: &Value) -> Vec<String> {
    let settings = plan["settings"].as_array().expect("settings are a list");
    let text = |value: &Value| value.as_str().expect("a value is text").to_owned();
    settings.iter().map(|one| format!("{} = {}", text(&one["key"]), text(&one["value"]))).collect()
}

#[test]
fn settings_for_another_host_are_complete() {
    let lines = settings(&json("--rate 1gbit --rtt 539ms --for-other-host"));
    // BDP 67,375,000 B.
    let expected = [
        "net.core.rmem_max = 68157440",
        "net.core.wmem_max = 68157440",
        "net.ipv4.tcp_rmem = 4096 131072 135266304",
        "net.ipv4.tcp_wmem = 4096 16384 135266304",
        "net.ipv4.tcp_window_scaling = 1",
        "net.ipv4.tcp_sack = 1",
        "net.ipv4.tcp_moderate_rcvbuf = 1",
        "net.ipv4.tcp_timestamps = 1",
        "net.ipv4.tcp_congestion_control = cubic",
    ];
    assert_eq!(lines, expected);
    // 2 GiB is one more than a sysctl can hold.
    assert!(settings(&json("--rate 100gbit --rtt 1s --streams 1"))[3].ends_with("2147483647"));
    // A short path needs less than the kernel's defaults, which stay.
    let lines = settings(&json("--rate 10mbit --rtt 20ms"));
    assert_eq!(lines[0], "net.core.rmem_max = 4194304");
    assert_eq!(lines[2], "net.ipv4.tcp_rmem = 4096 131072 33554432");
}

#[test]
fn known_host_gets_only_small_settings() {
    let directory = tempfile::tempdir().unwrap();
    let host = sysctl_file(&directory, "bbr");
    let short = json(&format!("--rate 100mbit --rtt 70ms --sysctl {host}"));
    assert_eq!(settings(&short), [] as [&str; 0]);
    assert_eq!(short["predicted"]["congestion"], "bbr", "a sufficient congestion control stays");
    assert!(flat(&page(&format!("--rate 100mbit --rtt 70ms --sysctl {host}"))).contains("are large enough"));
    let long = json(&format!("--rate 135mbit --rtt 539ms --sysctl {host}"));
    let expected =
        ["net.core.rmem_max = 9437184", "net.core.wmem_max = 9437184", "net.ipv4.tcp_wmem = 4096 16384 18874368"];
    assert_eq!(settings(&long), expected);
    assert_eq!(long["undo"][3], "sysctl -w net.ipv4.tcp_wmem='4096 16384 4194304'");
    let text = page(&format!("--rate 135mbit --rtt 539ms --sysctl {host}"));
    for line in [
        "cat > /etc/sysctl.d/90-lfn.conf <<'END'",
        "net.ipv4.tcp_wmem = 4096 16384 18874368",
        "END",
        "sysctl -p /etc/sysctl.d/90-lfn.conf",
        "rm /etc/sysctl.d/90-lfn.conf",
        "sysctl -w net.core.rmem_max=4194304",
    ] {
        assert!(text.lines().any(|one| one == line), "{line}\n{text}");
    }
}

#[test]
fn this_host_is_the_default_and_lowers_nothing() {
    let mut command = support::lfn();
    let output = command.args("plan --rate 100mbit --rtt 70ms --json".split(' ')).output().unwrap();
    let plan: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(plan["schema"], "lfn.plan/2");
    for setting in plan["settings"].as_array().unwrap() {
        let numbers = |value: &Value| -> Vec<u64> {
            let words = value.as_str().unwrap().split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            words.iter().filter_map(|word| word.parse().ok()).collect()
        };
        let (value, now) = (numbers(&setting["value"]), numbers(&setting["now"]));
        assert!(value.iter().zip(&now).all(|(value, now)| value >= now), "{setting}");
    }
}

#[test]
fn no_setting_exceeds_the_maximum_buffer() {
    let plan = json("--rate 10gbit --rtt 150ms --max-buffer 64MB");
    assert_eq!(plan["memory_per_socket_bytes"], 62_914_560);
    for line in settings(&plan) {
        let most = line.rsplit(' ').next().unwrap().parse().unwrap_or(0_u64);
        assert!(most <= 64_000_000, "{line}");
    }
}

#[test]
fn loss_budget_agrees_with_the_prediction() {
    let long = "--rate 10gbit --rtt 150ms --size 2TB";
    let plan = json(&format!("{long} --loss 2.5e-8"));
    assert!(figure(&plan, "loss_budget") > 2.5e-8);
    assert_eq!(plan["predicted"]["limited_by"], "capacity");
    let text = flat(&page(&format!("{long} --loss 2.5e-8")));
    assert!(text.contains("the loss of 2.5e-8 is within the budget of cubic"), "{text}");
    let text = flat(&page(&format!("{long} --loss 1e-6 --congestion cubic")));
    assert!(text.contains("bbr: 9.564 Gb/s; cubic: 620.3 Mb/s"), "{text}");
    assert!(text.contains("the loss of 1.0e-6 is 38 times the budget of cubic"), "{text}");
    // The recommended congestion control is planned.
    let plan = json(&format!("{long} --loss 1e-6"));
    assert_eq!(plan["predicted"]["congestion"], "bbr");
    assert!(settings(&plan).contains(&"net.ipv4.tcp_congestion_control = bbr".to_owned()));
}

#[test]
fn page_has_disk_memory_jumbo_frames_and_next_commands() {
    let text = page("--rate 10gbit --rtt 150ms --size 2TB --loss 2.5e-8");
    let text = flat(&text);
    for part in [
        "2 TB in 27 min 55 s",
        "up to 358 MiB for each socket",
        "read and write 1.194 GB/s",
        "with MTU 9000: 9.927 Gb/s",
        "net.ipv4.tcp_mtu_probing = 1",
        "4 to 8: 1 could fill the path",
        "ethtool -G IFACE",
        "tc qdisc replace dev IFACE root fq",
        "lfn emulate --dry-run --rate 10gbit --rtt 150ms --loss 2.5e-8 --size 2TB --streams 4",
        "lfn test FAR --rate 10gbit --streams 4",
        "twice 187,500,000 B",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(page("--rate 10mbit --rtt 1ms").contains("reached at once"));
    assert!(!page("--rate 1bit --rtt 1us").contains("BDP           0 B"));
}

#[test]
fn queue_and_detour_are_visible() {
    let queue = |size: &str| flat(&page(&format!("--rate 135mbit --rtt 539ms --queue {size}")));
    assert!(queue("1bdp").contains("1.00 BDP, 539 ms at the capacity cubic keeps the path full after a loss"));
    assert!(queue("100kB").contains("cubic leaves 29 % of the path empty at first"), "{}", queue("100kB"));
    let place = "--link ethernet-100g --from GVA --to Chicago --via fibre";
    let text = flat(&page(place));
    for part in ["(minimum possible)", "Geneva (GVA, CH) to Chicago (ORD, US)", "use --detour 1.5"] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let text = flat(&page(&format!("{place} --detour 1.5")));
    assert!(text.contains("1.5 times the great circle") && !text.contains("minimum possible"), "{text}");
    assert_eq!(json(place)["from"], "Geneva (GVA, CH)");
}

#[test]
fn high_loss_without_per_cent_is_warned_about() {
    let stderr = |loss: &str| String::from_utf8(lfn(&format!("--rate 1gbit --rtt 10ms --loss {loss}")).stderr).unwrap();
    let warning = stderr("0.1");
    assert!(warning.contains("--loss 0.1 means 10 %; tc reads 0.1 as 0.1 %"), "{warning}");
    assert!(warning.contains("hint: lfn plan --rate 1gbit --rtt 10ms --loss 0.1%"), "{warning}");
    assert_eq!((stderr("10%"), stderr("0.01")), (String::new(), String::new()));
}

/// Each hint is the typed command with the value corrected, and works.
#[test]
fn hints_repeat_the_typed_command() {
    let rows = [
        ("--rate 10000 --rtt 70ms", "--rate 10gbit --rtt 70ms"),
        ("--rate 1gbit --rtt 70", "--rate 1gbit --rtt 70ms"),
        ("--rate 1gbit --rtt 70ms --size 100", "--rate 1gbit --rtt 70ms --size 100GB"),
        ("--rate 1gbit --from Genva --to ORD --via fibre", "--rate 1gbit --from Geneva --to ORD --via fibre"),
        ("--rate 1gbit --from GVA --to ORX --via fibre", "--rate 1gbit --from GVA --to ORD --via fibre"),
        ("--rate 1gbit", "--rate 1gbit --rtt 70ms"),
        ("--rate 1gbit --rtt 70ms --window 10MB --max-buffer 1MB", "--window 10MB --max-buffer 20000000B"),
    ];
    for (arguments, hint) in rows {
        let output = lfn(&format!("--for-other-host {arguments}"));
        let stderr = String::from_utf8(output.stderr).unwrap();
        let line = stderr.lines().nth(1).unwrap_or_default().strip_prefix("hint: ").unwrap_or_default().to_owned();
        assert_eq!(output.status.code(), Some(2));
        assert!(line.contains(hint), "{arguments}: {stderr}");
        let words = line.strip_prefix("lfn plan ").unwrap().to_owned();
        assert!(lfn(&words).status.success(), "{line}");
    }
}

#[test]
fn text_fits_the_terminal_and_has_reasons() {
    let places = "--link oc12c-pos --from 40,-105,1863m --to 40,-83 --via geo:-100 --loss 1e-6 --size 3TB";
    for arguments in ["--rate 135mbit --rtt 539ms --size 10GB", places, "--rate 622mbit --rtt 50ms --window 2MB"] {
        let output = lfn(arguments);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && output.stderr.is_empty());
        for line in text.lines() {
            let is_command = line.starts_with("  lfn ") || line.starts_with("tc ");
            assert!((line.chars().count() <= 80 || is_command) && line.trim_end() == line, "'{line}'");
        }
        assert!(text.contains("why") && text.contains("net.ipv4.tcp_rmem = 4096"), "{text}");
    }
    let held = String::from_utf8(lfn("--rate 622mbit --rtt 50ms --window 2MB").stdout).unwrap();
    assert!(held.contains("is idle 48.6 % of the time"), "{held}");
}

/// Cold case 3 by arithmetic: 1.5 times the optimum is more than path and queue hold.
#[test]
fn window_above_queue_is_reported() {
    let reasons = |queue: &str| {
        let path = "--rate 135mbit --rtt 539ms --window 13643438";
        json(&format!("{path} --queue {queue}"))["reasons"].to_string()
    };
    // 13,643,438 minus 9,095,625 of the path and 4,000,000 of the queue.
    assert!(reasons("4MB").contains("by 547,813 B"), "{}", reasons("4MB"));
    // In 240 ms the line sends 4,050,000 bytes.
    assert!(reasons("240ms").contains("by 497,813 B"), "{}", reasons("240ms"));
    assert!(!reasons("1bdp").contains("queue"), "{}", reasons("1bdp"));
}

#[test]
fn closed_pipe_is_success() {
    for format in ["", " --json"] {
        let script =
            format!("{} plan --rate 1gbit --rtt 90ms{format} | true; exit ${{PIPESTATUS[0]}}", lfn_path().display());
        let output = Command::new("bash").args(["-c", &script]).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    }
}

/// Each case has the arguments and a text of the one-line error.
#[test]
fn bad_input_prints_one_line_and_a_hint() {
    let path = "--rate 135mbit --rtt 539ms";
    let places = "--rate 135mbit --from 40,-105 --to 40,-83";
    let rows = [
        ("", "capacity"),
        ("--rate 135mbit", "round-trip time"),
        ("--rtt 539ms", "capacity"),
        ("--rate fast --rtt 539ms", "'fast'"),
        ("--rate 135MB/s --rtt 539ms", "MB/s"),
        ("--rate -5mbit --rtt 539ms", "negative"),
        ("--rate 0 --rtt 539ms", "0 b/s"),
        ("--rate 1e40 --rtt 539ms", "too large"),
        ("--rate nan --rtt 539ms", "'nan'"),
        ("--rate 135mbit --rtt 0", "the RTT is zero"),
        ("--rate 135mbit --rtt 539", "'539' has no unit: write 539ms or 539s"),
        ("--rate 10000 --rtt 539ms", "'10000' has no unit: write 10gbit or 10000bit"),
        (&format!("{path} --size 100"), "'100' has no unit: write 100GB or 100B"),
        ("--rate 1gbit --from Xyzzyx --to GVA --via fibre", "unknown city or airport 'Xyzzyx'"),
        (&format!("{path} --sysctl /nosuch"), "cannot read '/nosuch': no such file"),
        ("--rate 135mbit --rtt -1s", "negative"),
        ("--rate 135mbit --rtt 1e30s", "too large"),
        ("--rate 135mbit --rtt soon", "'soon'"),
        ("--rate 100000gbit --rtt 365d", "streams"),
        (&format!("{path} --from 40,-105"), "cannot be combined"),
        (&format!("{path} --detour 2"), "--detour"),
        (places, "--via"),
        ("--rate 135mbit --from 40,-105 --via fibre", "--to"),
        (&format!("{places} --via pigeon"), "'pigeon'"),
        (&format!("{places} --via geo:100"), "elevation"),
        (&format!("{places} --via geo:-100 --refractive-index 1.5"), "--refractive-index"),
        (&format!("{places} --via fibre --refractive-index 0.5"), "outside"),
        (&format!("{places} --via leo:5km"), "altitude"),
        ("--rate 1gbit --from 91,0 --to 0,0 --via fibre", "latitude"),
        ("--rate 1gbit --from 0,-181 --to 0,0 --via fibre", "longitude"),
        ("--rate 1gbit --from 1,1 --to 1,1 --via fibre", "both ends"),
        ("--rtt 1ms --link oc4c", "'oc4c'"),
        ("--rtt 1ms --link ethernet", "no fixed rate"),
        ("--rtt 1ms --link oc3c-pos --rate 1gbit", "exceeds"),
        ("--rtt 1ms --link oc3c-pos --vlan", "VLAN"),
        (&format!("{path} --vlan --qinq"), "--qinq"),
        (&format!("{path} --wireguard --ipsec"), "--ipsec"),
        (&format!("{path} --mtu 40"), "MTU"),
        (&format!("{path} --mtu 70000"), "65,535"),
        (&format!("{path} --size 0"), "zero"),
        (&format!("{path} --streams 0"), "zero"),
        (&format!("{path} --streams -1"), "'-1'"),
        (&format!("{path} --streams 99999999999"), "'99999999999'"),
        (&format!("{path} --max-buffer 0"), "zero"),
        (&format!("{path} --window 0"), "zero"),
        (&format!("{path} --window 1073725441"), "65,535 << 14"),
        (&format!("{path} --window 10MB --max-buffer 1MB"), "maximum buffer"),
        (&format!("{path} --window-scale 15"), "'15'"),
        (&format!("{path} --loss 1"), "100 %"),
        (&format!("{path} --loss 2"), "too large"),
        (&format!("{path} --congestion vegas"), "'vegas'"),
        (&format!("{path} --initial-window 0"), "zero"),
        (&format!("{path} --queue xbdp"), "'xbdp'"),
        ("--rate 1bit --rtt 1s --size 16000000TB", "584 years"),
    ];
    for (arguments, names) in rows {
        for json in ["", " --json"] {
            let output = lfn(&format!("{arguments}{json}"));
            let stderr = String::from_utf8(output.stderr).unwrap();
            let lines: Vec<&str> = stderr.lines().collect();
            assert_eq!(output.status.code(), Some(2), "{arguments}: {stderr}");
            assert_eq!(output.stdout.is_empty(), json.is_empty(), "{arguments}");
            assert!(
                matches!(lines[..], [error, hint] if error.starts_with("lfn: ") && hint.starts_with("hint: ")),
                "{stderr}"
            );
            assert!(lines[0].contains(names), "{arguments}: '{}' does not name {names}", lines[0]);
        }
    }
}
