#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;
use std::time::Duration;

use lfn_base::path::PathProfile;
use lfn_base::units::{BitRate, Bytes};
use lfn_results::diagnose::VerdictLimit;

use super::*;
use crate::coupling::Coupling;
use crate::plan::{PlannedRun, predict};
use crate::report::{ComponentReport, ReceivedVariable, RunReport, SentVariable};

const LAG: &str = include_str!("../../tests/lag.toml");

/// The coupling of the lag table, changed.
fn coupling(changes: &[(&str, &str)]) -> Coupling {
    let text = changes.iter().fold(LAG.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    });
    Coupling::parse(&text).unwrap()
}

fn path(mbit: u64, rtt_ms: u64) -> PathProfile {
    PathProfile::new(BitRate(mbit * 1_000_000), Duration::from_millis(rtt_ms))
}

/// The report of a run that is as predicted for this coupling over this path.
fn run_of(real: &Coupling, path: &PathProfile) -> RunReport {
    let plan = predict(real, path).unwrap();
    let component = |name: &str| component(real, &plan, name);
    RunReport { own: component("lake"), partner: component("atmosphere"), rtt: path.base_rtt, streams: 1 }
}

fn component(real: &Coupling, plan: &PlannedRun, name: &str) -> ComponentReport {
    let steps = u32::try_from(real.steps).unwrap();
    let own = real.components[name].compute.unwrap();
    let mut report = ComponentReport {
        component: name.to_owned(),
        steps: real.steps,
        run: plan.run,
        compute: own * steps,
        received: BTreeMap::new(),
        sent: BTreeMap::new(),
        ..ComponentReport::default()
    };
    for variable in &plan.variables {
        let fields = real.steps;
        let lag = u32::try_from(variable.lag).unwrap();
        let (sent, wait) = (Bytes(variable.bytes.0 * fields), variable.wait * (steps - lag));
        if variable.to == name {
            // The rest of the time of a slower partner is a wait for it.
            let partner_wait = (plan.compute - own) * steps;
            let got = ReceivedVariable {
                fields: fields - variable.lag,
                bytes: sent,
                wait: wait.max(partner_wait),
                // The steps after the first `lag` ones.
                steady_wait: wait.max((plan.compute - own) * (steps - lag)),
                partner_wait,
                ..ReceivedVariable::default()
            };
            report.received.insert(variable.name.clone(), got);
        } else {
            let put = SentVariable { fields, bytes: sent, ..SentVariable::default() };
            report.sent.insert(variable.name.clone(), put);
        }
    }
    report
}

/// The names of the findings, and their sentences.
fn findings(coupling: &Coupling, report: &RunReport) -> (Vec<String>, Vec<String>) {
    let found = run_document(coupling, report).findings;
    (found.iter().map(|found| found.name.clone()).collect(), found.into_iter().map(|found| found.summary).collect())
}

#[test]
fn run_that_matches_its_plan_has_no_finding() {
    for lag in ["0", "1", "2", "3", "4", "8"] {
        let coupling = coupling(&[("lag = 4", &format!("lag = {lag}"))]);
        let mut report = run_of(&coupling, &path(155, 539));
        for component in [&mut report.own, &mut report.partner] {
            component.run = component.run.mul_f64(1.04);
        }
        let document = run_document(&coupling, &report);
        assert_eq!(document.findings, [], "lag {lag}");
        assert_eq!(document.verdict.limit, VerdictLimit::Predicted);
        assert!(document.verdict.summary.contains("as predicted"), "{:?}", document.verdict);
    }
}

#[test]
fn run_without_declared_figures_has_no_finding() {
    let real = coupling(&[("lag = 4", "lag = 3")]);
    let report = run_of(&real, &path(10_000, 539));
    let start = LAG.find("[path]").unwrap();
    let end = LAG.find("[component.atmosphere]").unwrap();
    let text =
        format!("{}{}", &LAG[..start], &LAG[end..]).replace("compute = \"100ms\"", "").replace("lag = 4", "lag = 3");
    let bare = Coupling::parse(&text).unwrap();
    let document = run_document(&bare, &report);
    assert_eq!((document.findings.len(), document.path), (0, None), "{document:?}");
    assert_eq!(document.predicted.unwrap().one_way_delay, Duration::from_micros(269_500));
}

#[test]
fn longer_path_needs_larger_lags() {
    let file = coupling(&[("lag = 4", "lag = 1"), ("539ms", "100ms")]);
    assert!(predict(&file, &path(155, 100)).unwrap().variables.iter().all(|variable| variable.wait.is_zero()));
    let report = run_of(&file, &path(155, 539));
    let document = run_document(&file, &report);
    let (names, texts) = findings(&file, &report);
    assert!(names.contains(&"short lag".to_owned()) && names.contains(&"path delay".to_owned()), "{names:?}");
    assert_eq!(names.len(), 2);
    let lag = texts.iter().find(|text| text.contains("lag 1 of `wind` waits")).unwrap();
    assert!(lag.contains("lag 3 would not"), "{lag}");
    assert!(texts.contains(&"the RTT of the path is 539 ms; the coupling file has 100 ms".to_owned()), "{texts:?}");
    // The remedies work: with their figures the run matches its plan.
    let remedies: Vec<String> = document.findings.iter().map(|found| found.remedy.command.clone()).collect();
    assert!(remedies.iter().any(|remedy| remedy.starts_with("set rtt = \"539ms\" in [path]")), "{remedies:?}");
    assert!(remedies.iter().any(|remedy| remedy.contains("lag = 3 in [variable.wind]")), "{remedies:?}");
    let better = coupling(&[("lag = 4", "lag = 3")]);
    assert_eq!(findings(&better, &run_of(&better, &path(155, 539))).0, [] as [&str; 0]);
}

#[test]
fn slower_model_is_named_with_its_compute_time() {
    let file = coupling(&[]);
    let real = coupling(&[("[component.lake]\ncompute = \"100ms\"", "[component.lake]\ncompute = \"500ms\"")]);
    let report = run_of(&real, &path(155, 539));
    let (names, texts) = findings(&file, &report);
    assert!(names.contains(&"compute time".to_owned()), "{names:?}");
    assert!(texts.contains(&"lake computes 500 ms a step; the coupling file has 100 ms".to_owned()), "{texts:?}");
    // At the other end, the wait for the slower partner is named, too.
    let swapped = RunReport { own: report.partner.clone(), partner: report.own, ..report };
    let (names, texts) = findings(&file, &swapped);
    assert_eq!(names, ["load imbalance", "compute time"]);
    assert!(texts[0].starts_with("atmosphere waits 400 ms a step until lake begins its step"), "{texts:?}");
    assert!(texts[0].ends_with("no lag changes this"), "{texts:?}");
}

#[test]
fn shorter_compute_time_makes_a_lag_too_small() {
    let file = coupling(&[("lag = 4", "lag = 1"), ("\"100ms\"", "\"500ms\"")]);
    let real = coupling(&[("lag = 4", "lag = 1")]);
    let report = run_of(&real, &path(155, 539));
    let document = run_document(&file, &report);
    let (names, _) = findings(&file, &report);
    assert!(names.contains(&"compute time".to_owned()) && names.contains(&"short lag".to_owned()), "{names:?}");
    assert_eq!(document.verdict.limit, VerdictLimit::AbovePrediction);
    assert!(document.verdict.summary.contains("less than predicted"), "{:?}", document.verdict);
}

#[test]
fn path_with_less_rate_delivers_fields_late() {
    let file = coupling(&[]);
    let report = run_of(&file, &path(2, 539));
    let (names, texts) = findings(&file, &report);
    assert_eq!(names, ["late fields"]);
    assert!(texts[0].starts_with("fields of atmosphere (64 KiB a step) arrive"), "{texts:?}");
    // Puts that wait have the same cause.
    let mut report = run_of(&file, &path(155, 539));
    for component in [&mut report.own, &mut report.partner] {
        component.run += Duration::from_secs(8);
        component.put_wait = Duration::from_secs(8);
    }
    let (names, texts) = findings(&file, &report);
    assert_eq!(names, ["late fields"]);
    assert!(texts[0].starts_with("puts of lake (64 KiB a step) wait 200 ms a step"), "{texts:?}");
}

#[test]
fn slow_start_of_large_fields_is_named() {
    let file = coupling(&[("[64, 128]", "[256, 128]"), ("lag = 4", "lag = 8")]);
    let mut report = run_of(&file, &path(155, 539));
    let late = Duration::from_secs(2);
    for component in [&mut report.own, &mut report.partner] {
        component.run += late;
        component.received.values_mut().for_each(|received| received.steady_wait += late);
    }
    let (names, texts) = findings(&file, &report);
    assert_eq!(names, ["slow start"]);
    assert!(texts[0].ends_with("has reached their rate: 2 s in the whole run"), "{texts:?}");
}

#[test]
fn partner_with_uneven_steps_is_named() {
    let file = coupling(&[]);
    let mut report = run_of(&file, &path(155, 539));
    let late = Duration::from_secs(8);
    for component in [&mut report.own, &mut report.partner] {
        component.run += late;
        for received in component.received.values_mut() {
            (received.steady_wait, received.partner_wait) = (late, late);
        }
    }
    let (names, texts) = findings(&file, &report);
    assert_eq!(names, ["load imbalance"]);
    assert!(texts[0].contains("single steps of atmosphere take longer"), "{texts:?}");
}

#[test]
fn outage_is_named_with_its_length() {
    let file = coupling(&[]);
    let mut report = run_of(&file, &path(155, 539));
    let outage = Duration::from_secs(30);
    for component in [&mut report.own, &mut report.partner] {
        (component.run, component.disconnected, component.reconnects) = (component.run + outage, outage, 1);
        for received in component.received.values_mut() {
            (received.wait, received.steady_wait) = (received.wait + outage, received.steady_wait + outage);
        }
    }
    let (names, texts) = findings(&file, &report);
    assert_eq!(names, ["lost connection"]);
    assert_eq!(texts[0], "lake was without a connection to atmosphere for 30 s, and reconnected once");
}

#[test]
fn many_dropped_fields_are_a_finding_without_cost() {
    let file = coupling(&[]);
    let dropped = |count: u64| {
        let mut report = run_of(&file, &path(155, 539));
        report.own.received.get_mut("wind").unwrap().dropped = count;
        run_document(&file, &report)
    };
    assert_eq!(dropped(1).findings, []);
    let document = dropped(12);
    assert_eq!(document.findings[0].name, "dropped fields");
    assert!(document.findings[0].summary.starts_with("12 of 40 fields of `wind`"), "{document:?}");
    assert!(!document.findings[0].is_limit());
    assert_eq!(document.verdict.limit, VerdictLimit::Predicted);
}

#[test]
fn elements_that_are_not_a_number_are_reported() {
    let file = coupling(&[]);
    let mut report = run_of(&file, &path(155, 539));
    report.own.sent.get_mut("level").unwrap().nan = 7;
    let document = run_document(&file, &report);
    assert_eq!(document.findings[0].summary, "7 elements of `level` from lake are not a number");
    assert!(!document.findings[0].is_limit());
    assert_eq!(document.verdict.limit, VerdictLimit::Predicted);
}

#[test]
fn remarks_name_outages_drops_and_elements() {
    let file = coupling(&[]);
    let mut report = run_of(&file, &path(155, 539));
    (report.own.disconnected, report.own.reconnects) = (Duration::from_secs(30), 2);
    report.own.received.get_mut("wind").unwrap().dropped = 3;
    report.partner.sent.get_mut("wind").unwrap().dropped = 2;
    report.own.sent.get_mut("level").unwrap().nan = 7;
    let remarks = run_document(&file, &report).remarks();
    let texts: Vec<String> = remarks.iter().map(|(label, text)| format!("{label}: {text}")).collect();
    let expected = [
        "connection: 30 s without a connection, 2 reconnects",
        "not a number: 7 elements of level",
        "dropped: 5 of 40 fields of wind",
    ];
    assert_eq!(texts[..3], expected);
    assert!(texts.len() == 4 && texts[3].starts_with("result: "), "{texts:?}");
}

#[test]
fn figures_begin_with_the_time_of_the_run() {
    let file = coupling(&[]);
    let mut report = run_of(&file, &path(155, 539));
    let document = run_document(&file, &report);
    assert_eq!(document.heading(), "lag: lake with atmosphere, 40 steps, RTT 539 ms");
    let [name, predicted, measured] = document.figures().swap_remove(0).texts();
    assert_eq!((name.as_str(), &predicted), ("run", &measured));
    (report.own.first_step, report.own.steps) = (20, 20);
    let document = run_document(&file, &report);
    assert_eq!(document.heading(), "lag: lake with atmosphere, 20 steps, resumed at step 20, RTT 539 ms");
    assert_eq!(document.figures().swap_remove(0).texts()[1], "unknown");
}

#[test]
fn difference_without_a_cause_is_unexplained_and_last() {
    let file = coupling(&[]);
    let mut report = run_of(&file, &path(155, 539));
    report.own.run *= 2;
    report.partner.run *= 2;
    report.own.sent.get_mut("level").unwrap().nan = 7;
    let (names, texts) = findings(&file, &report);
    assert_eq!(names, ["not a number", "unexplained"]);
    assert!(texts[1].contains("no rule explains"), "{texts:?}");
}

#[test]
fn resumed_process_is_compared_by_its_own_steps() {
    let file = coupling(&[("lag = 4", "lag = 1")]);
    let mut report = run_of(&file, &path(155, 539));
    let own = &mut report.own;
    (own.first_step, own.steps, own.run, own.compute) = (20, 20, own.run / 2, own.compute / 2);
    own.received.values_mut().for_each(|received| received.steady_wait /= 2);
    assert_eq!(findings(&file, &report).0, [] as [&str; 0]);
}

#[test]
fn report_without_steps_is_no_fault() {
    let file = coupling(&[]);
    let empty = |name: &str| ComponentReport { component: name.to_owned(), ..ComponentReport::default() };
    let report = RunReport { own: empty("lake"), partner: empty("atmosphere"), rtt: Duration::ZERO, streams: 1 };
    let document = run_document(&file, &report);
    assert_eq!(document.findings, []);
    let text = serde_json::to_string(&document).unwrap();
    assert_eq!(serde_json::from_str::<CoupleRunDocument>(&text).unwrap(), document);
}

#[test]
fn plan_lists_lags_up_to_two_beyond_the_needed_one() {
    let document = plan_document(&coupling(&[]), PathOverrides::default()).unwrap();
    let lags: Vec<u64> = document.lags.iter().map(|at| at.lag).collect();
    assert_eq!(lags, [0, 1, 2, 3, 4, 5]);
    let at = |lag: usize| document.lags[lag].run;
    assert!(at(0) > at(2) && at(2) > at(3) && at(3) == at(5), "{document:?}");
    let short = coupling(&[("steps = 40", "steps = 2"), ("lag = 4", "lag = 1")]);
    let lags = plan_document(&short, PathOverrides::default()).unwrap().lags;
    assert_eq!(lags.iter().map(|at| at.lag).collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn many_lags_are_listed_in_part() {
    let fast = coupling(&[("\"100ms\"", "\"10us\""), ("steps = 40", "steps = 1000000"), ("155Mb/s", "900Gb/s")]);
    let document = plan_document(&fast, PathOverrides::default()).unwrap();
    let needed = document.predicted.variables[0].needed_lag.unwrap();
    let lags: Vec<u64> = document.lags.iter().map(|at| at.lag).collect();
    // The needed lag and the lag of the file may be between the listed ones.
    assert!(lags.len() <= 24 + 2 && lags.contains(&0) && lags.contains(&needed), "{lags:?}");
}

#[test]
fn overrides_replace_the_path_of_the_file() {
    let rtt = PathOverrides { rtt: Some(Duration::from_millis(20)), ..PathOverrides::default() };
    let document = plan_document(&coupling(&[]), rtt).unwrap();
    assert_eq!((document.path.rtt, document.path.rate), (Duration::from_millis(20), BitRate(155_000_000)));
    assert_eq!(document.predicted.variables[0].needed_lag, Some(1));
    let without = Coupling { path: None, ..coupling(&[]) };
    assert_eq!(plan_document(&without, rtt), Err(PlanRequestError::NoPath));
    let both = PathOverrides { rate: Some(BitRate(1_000_000_000)), ..rtt };
    assert!(plan_document(&without, both).is_ok());
}
