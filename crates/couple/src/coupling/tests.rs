#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use super::*;

const LAG: &str = include_str!("../../tests/lag.toml");

#[test]
fn file_is_read() {
    let coupling = Coupling::parse(LAG).unwrap();
    assert_eq!(coupling.field_bytes(&coupling.variables["wind"]).0, 65_536);
    assert_eq!(coupling.partner_of("lake").unwrap().0, "atmosphere");
    assert_eq!(differences(&coupling, &coupling), []);
}

#[test]
fn every_problem_is_named() {
    let cases = [
        ("from = \"lake\"", "from = \"lago\"", "[variable.level] from = \"lago\": there is no such component"),
        (
            "from = \"lake\"",
            "from = \"atmosphere\"",
            "[variable.level]: from and to are the same component, atmosphere",
        ),
        ("initial = 0.0", "", "[variable.level]: lag 4 needs `initial`"),
        ("steps = 40", "steps = 0", "[coupling] steps = 0: expected 1 to 1,000,000,000"),
        ("rtt = \"539ms\"", "rtt = \"539ms\"\nmtu = 60", "[path] mtu = 60: expected 576 to 65,535 bytes"),
        ("rate = \"155Mb/s\"", "rate = \"0Mb/s\"", "[path] rate ="),
        (
            "compute = \"100ms\"",
            "compute = \"0ms\"",
            "[component.atmosphere] compute = \"0s\": expected a time above 0",
        ),
        ("initial = 0.0", "initial = nan", "[variable.level] initial = NaN: expected a finite number"),
        ("shape = [64, 128]", "shape = [64, 0]", "expected 1 to 8 lengths above 0"),
        ("lag = 4", "lag = 40", "expected less than the number of steps"),
        ("lag = 4", "leg = 4", "unknown field `leg`"),
        ("rtt = \"539ms\"", "rtt = \"539\"", "539"),
        ("[component.lake]", "[component.\"the lake\"]", "the name has characters other than"),
        ("shape = [64, 128]", "shape = [900000, 900000]", "a field has 6480000000000 bytes"),
        ("units = \"m\"", "units = \"m\\u0007\"", "at most 64 bytes without control characters"),
    ];
    for (from, to, expected) in cases {
        assert!(LAG.contains(from), "{from}");
        let error = Coupling::parse(&LAG.replace(from, to)).unwrap_err().to_string();
        assert!(error.contains(expected), "{to}: {error}");
    }
}

#[test]
fn differences_name_key_and_both_values() {
    let here = Coupling::parse(LAG).unwrap();
    let changed =
        LAG.replace("lag = 4", "lag = 2").replace("units = \"m\"", "units = \"cm\"").replace("64, 128", "32, 128");
    let there = Coupling::parse(&changed).unwrap();
    let found: Vec<String> = differences(&here, &there).iter().map(ToString::to_string).collect();
    let expected = [
        "grid.surface.shape: [64,128] here, [32,128] at the partner",
        "variable.level.lag: 4 here, 2 at the partner",
        "variable.level.units: \"m\" here, \"cm\" at the partner",
        "variable.wind.lag: 4 here, 2 at the partner",
    ];
    assert_eq!(found, expected);
    let mut hostile = here.clone();
    hostile.name = "x".repeat(1000);
    hostile.variables.insert("\u{1b}[2J".into(), here.variables["wind"].clone());
    let found = differences(&here, &hostile);
    assert!(
        found.iter().all(|found| !found.to_string().contains('\u{1b}') && found.to_string().len() < 500),
        "{found:?}"
    );
    let other_plan = Coupling::parse(&LAG.replace("100ms", "2s").replace("155Mb/s", "10Mb/s")).unwrap();
    assert_eq!(differences(&here, &other_plan), []);
}
