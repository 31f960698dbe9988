//! Entries of a pair and a day, gathered in both directions.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lfn_base::path::optional_seconds;
use lfn_base::tcp_model::GoodputLimit;
use lfn_base::units::{BitRate, Bytes, Ratio};
use serde::{Deserialize, Serialize};

use super::condition::Conditions;
use crate::entry::{Entry, EntryFinding, EntryKind, Marks, Outcome, timestamp};

/// Length of a day.
const DAY: Duration = Duration::from_secs(86_400);

/// Everything that the log has of a pair and a day.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct DayLog {
    /// First moment of the day in UTC.
    #[serde(with = "timestamp")]
    #[cfg_attr(any(test, feature = "schema"), schemars(with = "String"))]
    pub day: Duration,
    /// First host to second host.
    pub forward: DirectionLog,
    /// Second host to first host.
    pub reverse: DirectionLog,
}

/// Log of one direction.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct DirectionLog {
    /// Host that sends the data.
    pub from: String,
    /// Host that receives the data.
    pub to: String,
    /// Number of entries of the day.
    pub entries: usize,
    /// Number of measurements that failed.
    pub failed: usize,
    /// Loads in the order of their times.
    pub loads: Vec<LoadRecord>,
    /// Goodput of the loads that succeeded outside of maintenance windows.
    pub goodput: Option<GoodputRange>,
    /// Predicted goodput: the median of the loads, or the prediction of the model if the loads have none.
    #[serde(rename = "predicted_goodput_bits_per_second")]
    pub predicted: Option<BitRate>,
    /// Bottleneck of the model's prediction; null if the model has too few figures.
    pub predicted_limit: Option<GoodputLimit>,
    /// Capacity of the path as the sites file had it.
    #[serde(rename = "capacity_bits_per_second")]
    pub capacity: Option<BitRate>,
    /// RTT without a load of the mesh and without maintenance, or the RTT of the loads if nothing else measured the RTT.
    pub rtt: Option<RttRange>,
    /// Minimum one-way delay of the day.
    #[serde(rename = "one_way_delay_seconds", with = "optional_seconds")]
    pub one_way_delay: Option<Duration>,
    /// Packets of the latency measurements without a load of the mesh and without maintenance; of all if there is no other.
    pub packets: u64,
    /// Packets that did not arrive.
    pub lost_packets: u64,
    /// Capacity × minimum RTT.
    #[serde(rename = "bdp_bytes")]
    pub bdp: Option<Bytes>,
    /// Paths of the day. A path that repeats the one before is not listed.
    pub routes: Vec<Route>,
    /// Findings of the loads, each once.
    pub findings: Vec<EntryFinding>,
    /// Conditions that all loads of the day have in common.
    pub conditions: BTreeMap<String, String>,
    /// Conditions that changed within the day.
    pub changed_conditions: BTreeMap<String, Vec<ConditionPeriod>>,
}

/// One load of a day.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct LoadRecord {
    /// Start of the load.
    #[serde(with = "timestamp")]
    #[cfg_attr(any(test, feature = "schema"), schemars(with = "String"))]
    pub time: Duration,
    /// Goodput of the steady part.
    #[serde(rename = "goodput_bits_per_second")]
    pub goodput: Option<BitRate>,
    /// Goodput predicted before the load.
    #[serde(rename = "predicted_goodput_bits_per_second")]
    pub predicted: Option<BitRate>,
    /// Number of retransmitted segments.
    pub retransmits: Option<u64>,
    pub outcome: Outcome,
    /// Limit of the load in one phrase.
    pub verdict: String,
    /// Reason of a load that failed.
    pub error: Option<String>,
    pub marks: Marks,
}

/// Goodput of the loads of a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct GoodputRange {
    #[serde(rename = "min_bits_per_second")]
    pub min: BitRate,
    /// Median; the mean of the two in the middle for an even number.
    #[serde(rename = "median_bits_per_second")]
    pub median: BitRate,
    #[serde(rename = "max_bits_per_second")]
    pub max: BitRate,
}

/// RTT of a day.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct RttRange {
    /// Minimum RTT of the day.
    #[serde(rename = "min_seconds", with = "optional_seconds")]
    pub min: Option<Duration>,
    /// Median of the medians of the measurements.
    #[serde(rename = "median_seconds", with = "optional_seconds")]
    pub median: Option<Duration>,
    /// Maximum RTT of the day.
    #[serde(rename = "max_seconds", with = "optional_seconds")]
    pub max: Option<Duration>,
}

/// A path and the time of its first trace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct Route {
    /// Time of the first trace with these hops.
    #[serde(with = "timestamp")]
    #[cfg_attr(any(test, feature = "schema"), schemars(with = "String"))]
    pub since: Duration,
    /// Addresses of the hops from TTL 1; empty text for a hop without an answer.
    pub hops: Vec<String>,
}

/// A value of a condition from its first load on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ConditionPeriod {
    /// Time of the first load with this value.
    #[serde(with = "timestamp")]
    #[cfg_attr(any(test, feature = "schema"), schemars(with = "String"))]
    pub since: Duration,
    /// Null if the load did not record the condition.
    pub value: Option<String>,
}

impl DayLog {
    /// Gathers the entries of a pair on the day that contains `time`. Other entries are ignored.
    pub fn of(entries: &[Entry], from: &str, to: &str, time: Duration) -> Self {
        let day = Self::day_of(time);
        let of = |from: &str, to: &str| {
            let is_of_pair = |entry: &&Entry| entry.from == from && entry.to == to && Self::day_of(entry.time) == day;
            let mut selected: Vec<&Entry> = entries.iter().filter(is_of_pair).collect();
            selected.sort_by_key(|entry| entry.time);
            DirectionLog::of(&selected, from, to)
        };
        let (mut forward, mut reverse) = (of(from, to), of(to, from));
        // The RTT is that of both directions.
        forward.rtt = forward.rtt.or(reverse.rtt);
        reverse.rtt = reverse.rtt.or(forward.rtt);
        forward.add_derived();
        reverse.add_derived();
        DayLog { day, forward, reverse }
    }

    /// Returns the first moment of the day of a time since 1970.
    pub fn day_of(time: Duration) -> Duration {
        Duration::from_secs(time.as_secs() / DAY.as_secs() * DAY.as_secs())
    }

    /// Returns the number of entries of both directions.
    pub fn entries(&self) -> usize {
        self.forward.entries + self.reverse.entries
    }
}

impl DirectionLog {
    fn of(entries: &[&Entry], from: &str, to: &str) -> Self {
        let of_kind = |kind| entries.iter().copied().filter(move |entry| entry.kind == kind);
        let loads: Vec<&Entry> = of_kind(EntryKind::Load).collect();
        let latencies: Vec<&Entry> = of_kind(EntryKind::Latency).collect();
        let usual: Vec<&Entry> = loads.iter().copied().filter(|load| !load.marks.maintenance).collect();
        let goodputs = usual.iter().filter(|load| load.outcome != Outcome::Failed).filter_map(|load| load.goodput);
        let (constant, changed) = conditions(&usual);
        let is_quiet = |entry: &&Entry| !entry.marks.own_load && !entry.marks.maintenance;
        let quiet: Vec<&Entry> = latencies.iter().copied().filter(is_quiet).collect();
        let losses = if quiet.iter().any(|entry| entry.packets.is_some()) { &quiet } else { &latencies };
        DirectionLog {
            from: from.to_owned(),
            to: to.to_owned(),
            entries: entries.len(),
            failed: entries.iter().filter(|entry| entry.outcome == Outcome::Failed).count(),
            loads: loads.iter().map(|load| LoadRecord::of(load)).collect(),
            goodput: goodput_range(goodputs),
            predicted: median(usual.iter().filter_map(|load| Some(load.predicted?.0)).collect()).map(BitRate),
            capacity: entries.iter().rev().find_map(|entry| entry.capacity),
            rtt: rtt_range(&quiet).or_else(|| rtt_range(&latencies)).or_else(|| rtt_range(&loads)),
            one_way_delay: entries.iter().filter_map(|entry| entry.one_way_delay).min(),
            packets: losses.iter().filter_map(|entry| entry.packets).fold(0, u64::saturating_add),
            lost_packets: losses.iter().filter_map(|entry| entry.lost_packets).fold(0, u64::saturating_add),
            routes: routes(of_kind(EntryKind::Path)),
            findings: findings(&usual),
            conditions: constant,
            changed_conditions: changed,
            ..DirectionLog::default()
        }
    }

    /// Adds the BDP, and the prediction of the model.
    fn add_derived(&mut self) {
        let base_rtt = self.rtt.and_then(|rtt| rtt.min);
        self.bdp = self.capacity.zip(base_rtt).map(|(capacity, rtt)| capacity.times(rtt));
        if let Some(prediction) = self.model().predict().filter(|_| !self.loads.is_empty()) {
            self.predicted_limit = Some(prediction.limit);
            self.predicted.get_or_insert(prediction.goodput);
        }
    }

    /// Returns the loss of the latency measurements; `None` without packets.
    pub fn loss(&self) -> Option<Ratio> {
        (self.packets > 0).then(|| Ratio::new(self.lost_packets as f64 / self.packets as f64)).flatten()
    }

    /// Returns the figures for the model.
    pub fn model(&self) -> Conditions {
        Conditions {
            base_rtt: self.rtt.and_then(|rtt| rtt.min),
            loss: self.loss(),
            capacity: self.capacity,
            ..Conditions::of(&self.conditions)
        }
    }
}

impl LoadRecord {
    /// Reports whether the load counts for the goodput of its day.
    pub fn has_usual_goodput(&self) -> bool {
        self.goodput.is_some() && self.outcome != Outcome::Failed && !self.marks.maintenance
    }

    fn of(load: &Entry) -> Self {
        LoadRecord {
            time: load.time,
            goodput: load.goodput,
            predicted: load.predicted,
            retransmits: load.retransmits,
            outcome: load.outcome,
            verdict: load.verdict.clone(),
            error: load.error.clone(),
            marks: load.marks,
        }
    }
}

fn goodput_range(goodputs: impl Iterator<Item = BitRate>) -> Option<GoodputRange> {
    let goodputs: Vec<u64> = goodputs.map(|goodput| goodput.0).collect();
    let (min, max) = (*goodputs.iter().min()?, *goodputs.iter().max()?);
    Some(GoodputRange { min: BitRate(min), median: BitRate(median(goodputs)?), max: BitRate(max) })
}

fn rtt_range(entries: &[&Entry]) -> Option<RttRange> {
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let medians = entries.iter().filter_map(|entry| entry.rtt).map(nanos).collect();
    let range = RttRange {
        min: entries.iter().filter_map(|entry| entry.base_rtt).min(),
        median: median(medians).map(Duration::from_nanos),
        max: entries.iter().filter_map(|entry| entry.max_rtt).max(),
    };
    (range != RttRange::default()).then_some(range)
}

/// Returns the median; the mean of the two in the middle for an even number.
fn median(mut values: Vec<u64>) -> Option<u64> {
    values.sort_unstable();
    let upper = *values.get(values.len() / 2)?;
    let lower = values[(values.len() - 1) / 2];
    Some(lower + (upper - lower) / 2)
}

fn routes<'a>(traces: impl Iterator<Item = &'a Entry>) -> Vec<Route> {
    let mut routes: Vec<Route> = Vec::new();
    for trace in traces.filter(|trace| !trace.hops.is_empty()) {
        if routes.last().is_none_or(|last| !is_same_route(&last.hops, &trace.hops)) {
            routes.push(Route { since: trace.time, hops: trace.hops.clone() });
        }
    }
    routes
}

/// Reports whether two traces may show one path: a hop without an answer equals every hop.
pub(super) fn is_same_route(one: &[String], other: &[String]) -> bool {
    let is_same = |(one, other): (&String, &String)| one.is_empty() || other.is_empty() || one == other;
    one.len() == other.len() && one.iter().zip(other).all(is_same)
}

fn findings(loads: &[&Entry]) -> Vec<EntryFinding> {
    let mut known = BTreeSet::new();
    let all = loads.iter().flat_map(|load| &load.findings);
    all.filter(|finding| known.insert(finding.name.as_str())).cloned().collect()
}

/// Conditions of the loads of a day: those in common, and the values of the others.
type ConditionsOfDay = (BTreeMap<String, String>, BTreeMap<String, Vec<ConditionPeriod>>);

/// Separates the conditions that all loads have in common from the others. Loads without conditions are skipped.
fn conditions(loads: &[&Entry]) -> ConditionsOfDay {
    let known: Vec<&&Entry> = loads.iter().filter(|load| !load.conditions.is_empty()).collect();
    let names: BTreeSet<&String> = known.iter().flat_map(|load| load.conditions.keys()).collect();
    let (mut constant, mut changed) = ConditionsOfDay::default();
    for name in names {
        let mut periods: Vec<ConditionPeriod> = Vec::new();
        for load in &known {
            let value = load.conditions.get(name);
            if periods.last().is_none_or(|last| last.value.as_ref() != value) {
                periods.push(ConditionPeriod { since: load.time, value: value.cloned() });
            }
        }
        match periods.as_slice() {
            [ConditionPeriod { value: Some(value), .. }] => _ = constant.insert(name.clone(), value.clone()),
            _ => _ = changed.insert(name.clone(), periods),
        }
    }
    (constant, changed)
}
