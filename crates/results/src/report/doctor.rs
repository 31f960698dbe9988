//! Result of `lfn doctor`: the loads of both directions with their evidence, and the findings of both together.

use std::cmp::Reverse;
use std::time::Duration;

use lfn_base::path::seconds;
use lfn_base::units::{BitRate, Bytes};
use serde::{Deserialize, Serialize};

use super::document::{CommandError, Origin};
use super::run::Run;
use crate::diagnose::{Cause, Confidence, Finding, HiddenCause};
use crate::evidence::Evidence;
use crate::measure::TestDirection;

/// Result of `lfn doctor`, schema `lfn.doctor/1`: the evidence and the findings.
///
/// The findings follow from the evidence, so the same version finds them again in a stored file. A reader ignores unknown
/// keys: later versions of `lfn.doctor/1` only add keys.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct DoctorDocument {
    /// Name and version of the schema.
    pub schema: DoctorSchema,
    /// Origin of the result: the version, the time and the command.
    pub origin: Origin,
    /// Load that the command announced at its start.
    pub planned_load: PlannedLoad,
    /// TCP load of each direction with its evidence: the samples of both ends, the facts of both hosts, the path and the
    /// trains of datagrams.
    pub runs: Vec<Run>,
    /// Causes that limit the path or its hosts, the largest gain first.
    pub findings: Vec<DirectedFinding>,
    /// Causes that cannot be seen, because a cause of the findings hides their signs.
    #[serde(default)]
    pub hidden: Vec<HiddenCause>,
    /// Parts of the examination without a result.
    #[serde(default)]
    pub unseen: Vec<Unseen>,
    /// Error that ended the command early.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<CommandError>,
}

/// Name and version of the schema of a doctor's result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub enum DoctorSchema {
    #[default]
    #[serde(rename = "lfn.doctor/1")]
    V1,
}

/// Load that a doctor plans to put on the path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct PlannedLoad {
    /// Maximum rate of the load (`--max-load`); null without a bound.
    #[serde(rename = "max_rate_bits_per_second")]
    pub max_rate: Option<BitRate>,
    /// Time of the TCP load in each direction.
    #[serde(rename = "tcp_seconds", with = "seconds")]
    pub tcp: Duration,
    /// Approximate time of the trains of datagrams in each direction.
    #[serde(rename = "train_seconds", with = "seconds")]
    pub trains: Duration,
    /// Approximate time of the whole examination.
    #[serde(rename = "total_seconds", with = "seconds")]
    pub total: Duration,
    /// Time of reads and writes of the disks, in addition to the whole examination; zero without `--disk`.
    #[serde(rename = "disk_seconds", with = "seconds", default)]
    pub disks: Duration,
}

impl PlannedLoad {
    /// Returns the maximum amount of data in both directions together, if the rate is bounded.
    pub fn max_bytes(&self) -> Option<Bytes> {
        let time = 2.0 * (self.tcp + self.trains).as_secs_f64();
        self.max_rate.map(|rate| Bytes((rate.as_f64() * time / 8.0) as u64))
    }
}

/// A finding with the directions in which it was made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct DirectedFinding {
    /// Directions of the data with this finding. The figures are those of the first one.
    pub directions: Vec<TestDirection>,
    #[serde(flatten)]
    pub finding: Finding,
}

/// A part of the examination without a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct Unseen {
    /// Name of the part: `path MTU`, `datagrams from near to far`.
    pub part: String,
    /// Reason in one sentence.
    pub reason: String,
    /// Consequence for the result, in one sentence.
    pub consequence: String,
}

impl DoctorDocument {
    /// Diagnoses the evidence of each direction, and ranks the findings of all.
    pub fn new(origin: Origin, planned_load: PlannedLoad, evidence: Vec<Evidence>, unseen: Vec<Unseen>) -> Self {
        let runs: Vec<Run> = evidence.into_iter().map(Run::new).collect();
        let findings = rank(&runs);
        let hidden = hidden(&runs, &findings);
        DoctorDocument { schema: DoctorSchema::V1, origin, planned_load, runs, findings, hidden, unseen, error: None }
    }

    /// Diagnoses the stored evidence again with the rules of this version.
    #[must_use]
    pub fn diagnosed_again(self) -> Self {
        let evidence = self.runs.into_iter().map(|run| run.evidence).collect();
        let error = self.error;
        DoctorDocument { error, ..DoctorDocument::new(self.origin, self.planned_load, evidence, self.unseen) }
    }
}

/// Returns the findings of all directions, the largest gain first. A cause with the same remedy in both directions is one
/// finding. Findings without a known gain keep their order among the findings of their direction.
fn rank(runs: &[Run]) -> Vec<DirectedFinding> {
    let mut ranked: Vec<DirectedFinding> = Vec::new();
    for run in runs {
        for finding in &run.diagnosis.findings {
            let same = |known: &&mut DirectedFinding| {
                known.finding.name == finding.name && known.finding.remedy == finding.remedy
            };
            match ranked.iter_mut().find(same) {
                Some(known) => {
                    known.directions.push(run.direction);
                    if finding.gain > known.finding.gain {
                        known.finding = finding.clone();
                    }
                }
                None => ranked.push(DirectedFinding { directions: vec![run.direction], finding: finding.clone() }),
            }
        }
    }
    // A proxy splits the connections of both directions.
    if ranked.iter().any(|directed| directed.finding.cause() == Some(Cause::Proxy)) {
        ranked.retain(|directed| directed.finding.cause().is_none_or(|cause| cause.is_root_cause(&[Cause::Proxy])));
    }
    // The RTT without load has the queues of both directions, which other traffic fills.
    if ranked.iter().any(|directed| matches!(directed.finding.cause(), Some(Cause::SharedPath | Cause::Competing))) {
        ranked.retain(|directed| {
            let finding = &directed.finding;
            finding.cause() != Some(Cause::Jitter) || finding.confidence == Some(Confidence::High)
        });
    }
    // An unknown gain, because the capacity is unknown, counts as a doubling of the goodput.
    let unknown = runs.iter().map(|run| run.steady_goodput).max().unwrap_or_default();
    // Retransmissions are a sign of another cause, which may be in the other direction.
    let is_sign = |directed: &DirectedFinding| directed.finding.cause() == Some(Cause::Retransmissions);
    ranked.sort_by_key(|directed| (Reverse(directed.finding.gain.unwrap_or(unknown)), is_sign(directed)));
    ranked
}

/// Returns the hidden causes of all directions, each once, without those that another direction names.
fn hidden(runs: &[Run], findings: &[DirectedFinding]) -> Vec<HiddenCause> {
    let mut hidden: Vec<HiddenCause> = Vec::new();
    for cause in runs.iter().flat_map(|run| &run.diagnosis.hidden) {
        let is_named = findings.iter().any(|directed| directed.finding.name == cause.cause);
        if !is_named && !hidden.contains(cause) {
            hidden.push(cause.clone());
        }
    }
    hidden
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{EndReport, TestRequest};

    /// Evidence of a direction in which the server limits the rate.
    fn limited(direction: TestDirection, goodput: u64, limit: u64) -> Evidence {
        let report = |limit: Option<u64>| EndReport {
            bytes: goodput / 8,
            elapsed: Duration::from_secs(1),
            rate_limit: limit.map(BitRate),
            ..EndReport::default()
        };
        let request = TestRequest { direction, ..TestRequest::default() };
        Evidence::of_test(request, Duration::from_millis(10), report(None), report(Some(limit)))
    }

    fn document(evidence: Vec<Evidence>) -> DoctorDocument {
        DoctorDocument::new(Origin::default(), PlannedLoad::default(), evidence, Vec::new())
    }

    #[test]
    fn same_remedy_in_both_directions_is_one_finding() {
        let both = [TestDirection::Forward, TestDirection::Reverse];
        let same = document(both.map(|direction| limited(direction, 80_000_000, 80_000_000)).to_vec());
        assert_eq!(same.findings.iter().map(|found| found.directions.clone()).collect::<Vec<_>>(), [both.to_vec()]);
        let other = document(vec![limited(both[0], 80_000_000, 80_000_000), limited(both[1], 40_000_000, 40_000_000)]);
        assert_eq!(other.findings.len(), 2, "the limits differ");
    }

    #[test]
    fn stored_evidence_has_the_same_findings() {
        let found = document(vec![limited(TestDirection::Forward, 80_000_000, 80_000_000)]);
        let text = serde_json::to_string(&found).unwrap();
        let mut read: DoctorDocument = serde_json::from_str(&text).unwrap();
        assert_eq!(read, found);
        read.findings.clear();
        read.runs[0].diagnosis.findings.clear();
        assert_eq!(read.diagnosed_again(), found);
    }

    #[test]
    fn bound_of_the_load_counts_both_directions() {
        let (tcp, trains) = (Duration::from_secs(10), Duration::from_secs(2));
        let load = PlannedLoad {
            max_rate: Some(BitRate(8_000_000)),
            tcp,
            trains,
            total: Duration::from_secs(30),
            disks: Duration::ZERO,
        };
        assert_eq!(load.max_bytes(), Some(Bytes(24_000_000)));
        assert_eq!(PlannedLoad { max_rate: None, ..load }.max_bytes(), None);
    }
}
