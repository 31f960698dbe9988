//! Bounds of the rules of coupled runs. The causes have their tests at the documents of runs, where plans are computed.

use std::time::Duration;

use crate::diagnose::{Cause, Diagnosis, Finding, diagnose};
use crate::evidence::couple::{CoupleComponent, CoupleEvidence};
use crate::evidence::{Evidence, LoadKind};

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// A run whose steps were predicted with the first time, and took the second one.
fn run(predicted: u64, measured: u64) -> CoupleEvidence {
    let component = |name: &str| CoupleComponent {
        name: name.to_owned(),
        steps: 40,
        declared_compute: Some(millis(predicted)),
        predicted: millis(predicted),
        predicted_with_compute: millis(predicted),
        predicted_as_measured: millis(predicted),
        measured: millis(measured),
        compute: millis(predicted),
        ..CoupleComponent::default()
    };
    CoupleEvidence { components: [component("lake"), component("atmosphere")], ..CoupleEvidence::default() }
}

fn causes(couple: CoupleEvidence) -> Vec<Cause> {
    let evidence = Evidence::of_couple(couple);
    assert_eq!(evidence.kind(), LoadKind::Couple);
    let Diagnosis { findings, missing, hidden, .. } = diagnose(&evidence);
    assert!(missing.is_empty() && hidden.is_empty(), "{missing:?} {hidden:?}");
    findings.iter().filter_map(Finding::cause).collect()
}

#[test]
fn match_is_five_percent_or_ten_milliseconds() {
    for (predicted, measured) in [(100, 109), (100, 91), (1000, 1049), (1000, 951), (1, 10)] {
        assert_eq!(causes(run(predicted, measured)), [], "{predicted} {measured}");
    }
    for (predicted, measured) in [(100, 111), (100, 89), (1000, 1051), (1000, 949), (1, 12)] {
        assert_eq!(causes(run(predicted, measured)), [Cause::Unexplained], "{predicted} {measured}");
    }
}

#[test]
fn difference_of_the_partner_counts_too() {
    let mut couple = run(100, 100);
    couple.components[1].measured = millis(200);
    assert_eq!(causes(couple), [Cause::Unexplained]);
}

#[test]
fn cause_explains_a_quarter_and_all_causes_half() {
    let slower = |compute: u64| {
        let mut couple = run(100, 200);
        for component in &mut couple.components {
            component.compute = millis(compute);
            (component.predicted_with_compute, component.predicted_as_measured) = (millis(compute), millis(compute));
        }
        causes(couple)
    };
    assert_eq!(slower(124), [Cause::Unexplained]);
    assert_eq!(slower(130), [Cause::ComputeTime, Cause::Unexplained]);
    assert_eq!(slower(151), [Cause::ComputeTime]);
}

#[test]
fn faster_model_does_not_explain_a_slower_run() {
    let mut couple = run(100, 200);
    for component in &mut couple.components {
        component.compute = millis(50);
        (component.predicted_with_compute, component.predicted_as_measured) = (millis(50), millis(50));
    }
    assert_eq!(causes(couple), [Cause::Unexplained]);
}
