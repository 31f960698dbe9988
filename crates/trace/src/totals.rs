//! Sums over connections: all of a capture, or the subflows of one MPTCP connection.

use std::collections::BTreeMap;
use std::time::Duration;

use lfn_base::units::Bytes;
use lfn_results::evidence::capture::{CaptureEvidence, PeriodLimit};

/// Sums over connections. Payload, packets with payload and losses are those of the direction with more payload.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConnectionTotals {
    pub connections: u64,
    /// Payload, each byte of a connection counted once.
    pub payload: Bytes,
    /// Packets of both directions.
    pub packets: u64,
    /// TCP segments with payload.
    pub data_packets: u64,
    /// Packets that were sent again.
    pub retransmissions: u64,
    /// Packets that were lost.
    pub lost: u64,
    /// Sum of the durations.
    pub duration: Duration,
    /// Time and payload of the periods with each limit.
    pub limits: BTreeMap<PeriodLimit, LimitTime>,
    /// Connections by the name of their first finding.
    pub findings: BTreeMap<String, FindingTotal>,
}

/// Sum of the periods with one limit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LimitTime {
    pub time: Duration,
    pub payload: Bytes,
}

/// Sum of the connections with the same first finding.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FindingTotal {
    pub connections: u64,
    pub time: Duration,
    pub payload: Bytes,
}

impl ConnectionTotals {
    /// Adds a connection with the name of its first finding.
    pub fn add(&mut self, evidence: &CaptureEvidence, first_finding: Option<&str>) {
        self.connections += 1;
        self.payload = sum(self.payload, evidence.payload);
        self.packets += evidence.packets;
        self.data_packets += evidence.data_packets;
        self.retransmissions += evidence.loss.retransmissions;
        self.lost += evidence.loss.before_capture + evidence.loss.after_capture;
        self.duration = self.duration.saturating_add(evidence.duration);
        for period in &evidence.periods {
            let total = self.limits.entry(period.limit).or_default();
            total.time = total.time.saturating_add(period.end.saturating_sub(period.start));
            total.payload = sum(total.payload, period.payload);
        }
        let Some(name) = first_finding else { return };
        if !self.findings.contains_key(name) {
            self.findings.insert(name.to_owned(), FindingTotal::default());
        }
        if let Some(total) = self.findings.get_mut(name) {
            total.connections += 1;
            total.time = total.time.saturating_add(evidence.duration);
            total.payload = sum(total.payload, evidence.payload);
        }
    }

    /// Returns the limit that took the most time.
    pub fn main_limit(&self) -> Option<PeriodLimit> {
        let longest = self.limits.iter().max_by_key(|(_, total)| total.time);
        longest.filter(|(_, total)| !total.time.is_zero()).map(|(limit, _)| *limit)
    }
}

fn sum(a: Bytes, b: Bytes) -> Bytes {
    Bytes(a.0.saturating_add(b.0))
}
