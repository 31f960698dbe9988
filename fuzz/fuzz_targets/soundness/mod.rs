//! Checks of a finished analysis: bounded shares, ordered periods, and a diagnosis that can be stored and read again.

use std::time::Duration;

use lfn_results::diagnose::{Cause, Diagnosis, diagnose};
use lfn_results::evidence::Evidence;
use lfn_results::evidence::capture::CaptureEvidence;
use lfn_trace::{Connection, Finished};

/// Maximum points of the pictures of one connection.
pub const MAX_POINTS: usize = 40;

/// Checks all connections of a finished analysis of this number of segments.
pub fn assert_sound(finished: &Finished, segments: u64) {
    let totals = &finished.totals;
    assert_eq!(totals.segments, segments);
    assert_eq!(totals.connections, totals.unlisted + finished.connections.len() as u64);
    assert!(totals.first <= totals.last);
    for connection in &finished.connections {
        assert_sound_evidence(&connection.evidence);
        assert_bounded_points(connection);
        assert_sound_diagnosis(&connection.evidence);
    }
}

fn assert_sound_evidence(evidence: &CaptureEvidence) {
    let mut end = Duration::ZERO;
    for period in &evidence.periods {
        assert_eq!(period.start, end, "{:?}", evidence.periods);
        assert!(period.start <= period.end, "{:?}", evidence.periods);
        end = period.end;
    }
    assert!(end <= evidence.duration, "{end:?} of {:?}", evidence.duration);
    assert!(evidence.active <= evidence.duration, "{evidence:?}");
    let shares = [
        evidence.loss.share,
        evidence.loss.at_flat_rtt_share,
        evidence.window.full_share,
        evidence.window.binding_share,
        evidence.window.shrunk_share,
        evidence.queue.standing_share,
        evidence.queue.plateau_share,
        evidence.queue.unused_share,
        evidence.application.short_packet_share,
        evidence.application.pushed_share,
        evidence.window.unread_share,
        evidence.policer.map_or(0.0, |fit| fit.explained_share),
        evidence.delivery.acknowledgement_delay_share.map_or(0.0, |share| share.get()),
    ];
    assert!(shares.iter().all(|share| (0.0..=1.0).contains(share)), "{shares:?}");
    assert!(evidence.window.unread_share >= 0.0 && evidence.window.unread_share.is_finite());
    let rtt = &evidence.rtt;
    assert!(rtt.base <= rtt.median && rtt.median <= rtt.p80 && rtt.p80 <= rtt.p95 && rtt.p95 <= rtt.max, "{rtt:?}");
}

fn assert_bounded_points(connection: &Connection) {
    let Some(series) = &connection.series else { return };
    assert!(series.capacity() <= MAX_POINTS);
    assert!(series.rtts().len() <= series.capacity() && series.acknowledgements().len() <= series.capacity());
    assert!(series.rtts().is_sorted_by_key(|point| point.start));
    assert!(series.acknowledgements().is_sorted_by_key(|point| point.start));
}

fn assert_sound_diagnosis(evidence: &CaptureEvidence) {
    let with_evidence = Evidence::of_capture(evidence.clone());
    let diagnosis = diagnose(&with_evidence);
    assert!(!diagnosis.verdict.summary.is_empty());
    let mut found: Vec<Cause> = diagnosis.findings.iter().filter_map(|finding| finding.cause()).collect();
    assert_eq!(found.len(), diagnosis.findings.len());
    for finding in &diagnosis.findings {
        let text = format!("{} {}", finding.summary, finding.remedy);
        assert!(!text.contains("NaN") && !text.contains("inf "), "{text}");
    }
    found.sort_unstable();
    found.dedup();
    assert_eq!(found.len(), diagnosis.findings.len(), "{:?}", diagnosis.findings);
    let text = serde_json::to_string(&diagnosis).unwrap();
    assert_eq!(serde_json::from_str::<Diagnosis>(&text).unwrap().findings.len(), found.len());
    // Stored evidence gives the same findings.
    let text = serde_json::to_string(evidence).unwrap();
    let again = serde_json::from_str::<CaptureEvidence>(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let names = |diagnosis: &Diagnosis| diagnosis.findings.iter().map(|it| it.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&diagnose(&Evidence::of_capture(again))), names(&diagnosis));
}
