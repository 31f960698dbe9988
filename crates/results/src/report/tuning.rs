//! Result of `lfn test --compare`: each direction with the host's own settings and with those of the plan, and the
//! settings that make the difference.

use lfn_base::figure::Figure;
use lfn_base::plan::kernel_limit;
use lfn_base::units::Bytes;
use serde::{Deserialize, Serialize};

use super::document::{CommandError, Origin, TestDocument, TestSchema, UnfinishedTest};
use super::run::Run;
use crate::evidence::{HostNames, Side};
use crate::measure::{EndReport, SocketReport, TestDirection};

/// Minimum factor between both goodputs for a difference; less is the scatter of single tests.
const MIN_FACTOR: f64 = 1.05;

/// Result of one `lfn test --compare`.
///
/// A reader ignores unknown keys: later versions of `lfn.test.compare/1` only add keys.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct TuningDocument {
    /// Name and version of the schema.
    pub schema: TuningSchema,
    /// Origin of the result: the version, the time and the command.
    pub origin: Origin,
    /// Comparison of each direction, in the order of the tests.
    pub comparisons: Vec<TuningComparison>,
    /// Figures of the test that failed, up to the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfinished: Option<UnfinishedTest>,
    /// Error of the command, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<CommandError>,
}

/// Name and version of the schema of a stored comparison.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub enum TuningSchema {
    #[default]
    #[serde(rename = "lfn.test.compare/1")]
    V1,
}

/// One direction with the host's own settings and with those of the plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct TuningComparison {
    /// Direction of the data: forward is client to server.
    pub direction: TestDirection,
    /// Test with the host's own settings.
    pub now: Box<Run>,
    /// Test with the settings of the plan; null if the command ended before.
    pub tuned: Option<Box<Run>>,
    /// Steady goodput of the tuned test over that of the other test; null if one of them is unknown or zero.
    pub goodput_factor: Option<Figure>,
    /// Settings that differ between both tests.
    pub changes: Vec<SettingChange>,
    /// Kernel settings that make the difference permanent; empty if the tuned test is not faster.
    pub configuration: Vec<KernelSetting>,
}

/// A setting that differs between both tests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct SettingChange {
    /// Kind of the setting.
    pub setting: TunedSetting,
    /// End of the setting.
    pub end: Side,
    /// Value of the host's own settings.
    pub now: String,
    /// Value of the plan.
    pub tuned: String,
}

/// Kinds of settings that a plan changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TunedSetting {
    /// Congestion control of the sender.
    CongestionControl,
    /// Send buffer of the sender.
    SendBuffer,
    /// Receive buffer of the receiver.
    ReceiveBuffer,
    /// Maximum receive window of the receiver.
    ReceiveWindow,
}

/// A kernel setting of one host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct KernelSetting {
    /// End of the setting.
    pub end: Side,
    /// Name of the host as the user typed it.
    pub host: String,
    /// Name with dots, for example `net.ipv4.tcp_congestion_control`.
    pub key: String,
    /// Value that makes the difference permanent.
    pub value: String,
    /// Value before, which undoes the change.
    pub current: String,
}

impl TuningComparison {
    /// Compares two tests of one direction.
    pub fn new(now: Run, tuned: Option<Run>, hosts: &HostNames) -> Self {
        let mut comparison = TuningComparison {
            direction: now.direction,
            goodput_factor: tuned.as_ref().and_then(|tuned| factor(&now, tuned)),
            changes: Vec::new(),
            configuration: Vec::new(),
            now: Box::new(now),
            tuned: tuned.map(Box::new),
        };
        let Some(tuned) = &comparison.tuned else { return comparison };
        let (changes, configuration) = compare_settings(&comparison.now, tuned, hosts);
        comparison.changes = changes;
        if comparison.is_faster() {
            comparison.configuration = configuration;
        }
        comparison
    }

    /// Returns true if the tuned test is faster by more than the scatter of single tests.
    pub fn is_faster(&self) -> bool {
        self.goodput_factor.is_some_and(|factor| factor.get() >= MIN_FACTOR)
    }

    /// Returns true if the tuned test is slower by more than the scatter of single tests.
    pub fn is_slower(&self) -> bool {
        self.goodput_factor.is_some_and(|factor| factor.get() <= 1.0 / MIN_FACTOR)
    }
}

impl TuningDocument {
    /// Pairs the tests in the order of their start: for each direction the host's own settings, then the plan's.
    pub fn new(
        origin: Origin,
        runs: Vec<Run>,
        unfinished: Option<UnfinishedTest>,
        error: Option<CommandError>,
    ) -> Self {
        let mut runs = runs.into_iter();
        let mut comparisons = Vec::new();
        while let Some(now) = runs.next() {
            comparisons.push(TuningComparison::new(now, runs.next(), &origin.hosts));
        }
        TuningDocument { schema: TuningSchema::V1, origin, comparisons, unfinished, error }
    }

    /// Returns all tests as one result, to compare them with other results.
    pub fn into_test_document(self) -> TestDocument {
        let runs = self.comparisons.into_iter().flat_map(|pair| [Some(pair.now), pair.tuned]).flatten();
        TestDocument {
            schema: TestSchema::V3,
            origin: self.origin,
            runs: runs.map(|run| *run).collect(),
            unfinished: self.unfinished,
            error: self.error,
        }
    }
}

fn factor(now: &Run, tuned: &Run) -> Option<Figure> {
    let own = now.steady_goodput.as_f64();
    (own > 0.0).then(|| Figure::new(tuned.steady_goodput.as_f64() / own)).flatten()
}

/// Returns the changed settings, and the kernel settings with the same effect.
fn compare_settings(now: &Run, tuned: &Run, hosts: &HostNames) -> (Vec<SettingChange>, Vec<KernelSetting>) {
    let (sender, receiver) = (now.sender, now.receiver);
    let (mut changes, mut configuration) = (Vec::new(), Vec::new());
    let mut add = |setting, end: Side, [own, planned]: [String; 2], kernel: Option<(&str, String, String)>| {
        changes.push(SettingChange { setting, end, now: own, tuned: planned });
        configuration.extend(kernel.map(|(key, value, current)| KernelSetting {
            end,
            host: hosts.name(end).to_owned(),
            key: key.to_owned(),
            value,
            current,
        }));
    };
    if let (Some(own), Some(planned)) = (socket(now.evidence.end(sender)), socket(tuned.evidence.end(sender))) {
        if own.congestion != planned.congestion && !planned.congestion.is_empty() {
            let names = [own.congestion.clone(), planned.congestion.clone()];
            let current = kernel_congestion(tuned.evidence.end(sender)).unwrap_or(&own.congestion).to_owned();
            let key = "net.ipv4.tcp_congestion_control";
            add(TunedSetting::CongestionControl, sender, names, Some((key, planned.congestion.clone(), current)));
        }
        let buffer = planned.sndbuf_requested_bytes.or(planned.autotuning_max_bytes);
        if let (None, Some(buffer)) = (own.sndbuf_requested_bytes, buffer) {
            let texts = [autotuned(own.sndbuf_granted_bytes), buffer.decimal()];
            let limits = tuned.evidence.end(sender).kernel.as_ref().map(|kernel| kernel.tcp_wmem_bytes);
            add(
                TunedSetting::SendBuffer,
                sender,
                texts,
                limits.map(|limits| memory("net.ipv4.tcp_wmem", limits, buffer)),
            );
        }
    }
    if let (Some(own), Some(planned)) = (socket(now.evidence.end(receiver)), socket(tuned.evidence.end(receiver))) {
        let buffer = planned.rcvbuf_requested_bytes.or(planned.autotuning_max_bytes);
        if let (None, Some(buffer)) = (own.rcvbuf_requested_bytes, buffer) {
            let texts = [autotuned(own.rcvbuf_granted_bytes), buffer.decimal()];
            let limits = tuned.evidence.end(receiver).kernel.as_ref().map(|kernel| kernel.tcp_rmem_bytes);
            add(
                TunedSetting::ReceiveBuffer,
                receiver,
                texts,
                limits.map(|limits| memory("net.ipv4.tcp_rmem", limits, buffer)),
            );
        }
        if let (None, Some(limit)) = (own.window_limit_bytes, planned.window_limit_bytes) {
            let texts = ["autotuned".to_owned(), format!("at most {}", limit.decimal())];
            add(TunedSetting::ReceiveWindow, receiver, texts, None);
        }
    }
    (changes, configuration)
}

fn socket(end: &EndReport) -> Option<&SocketReport> {
    end.streams.first()?.socket.as_ref()
}

fn kernel_congestion(end: &EndReport) -> Option<&str> {
    end.kernel.as_ref().map(|kernel| kernel.congestion.as_str()).filter(|name| !name.is_empty())
}

fn autotuned(granted: Bytes) -> String {
    format!("{} autotuned", granted.decimal())
}

/// Returns a setting that lets autotuning reach `buffer`, and never lowers the maximum.
fn memory(key: &'static str, [least, first, most]: [u64; 3], buffer: Bytes) -> (&'static str, String, String) {
    let value = format!("{least} {first} {}", kernel_limit(buffer).0.max(most));
    (key, value, format!("{least} {first} {most}"))
}

#[cfg(test)]
mod tests {
    use lfn_base::units::BitRate;

    use super::*;
    use crate::evidence::Evidence;
    use crate::measure::{Kernel, StreamReport};
    use crate::report::laws::arbitrary_run;

    fn hosts() -> HostNames {
        HostNames { near: "near1".into(), far: "far1".into() }
    }

    /// A run forward with this goodput in Mb/s, congestion control and send buffer.
    fn forward(goodput: u64, congestion: &str, sndbuf: Option<u64>) -> Run {
        let kernel = Kernel {
            congestion: "cubic".into(),
            tcp_wmem_bytes: [4096, 16_384, 4 << 20],
            tcp_rmem_bytes: [4096, 131_072, 32 << 20],
            ..Kernel::default()
        };
        let socket = SocketReport {
            congestion: congestion.into(),
            sndbuf_requested_bytes: sndbuf.map(Bytes),
            sndbuf_granted_bytes: Bytes(2 << 20),
            ..SocketReport::default()
        };
        let end = EndReport {
            kernel: Some(kernel),
            streams: vec![StreamReport { socket: Some(socket), ..StreamReport::default() }],
            ..EndReport::default()
        };
        Run {
            direction: TestDirection::Forward,
            sender: Side::Near,
            receiver: Side::Far,
            steady_goodput: BitRate(goodput * 1_000_000),
            evidence: Evidence {
                near: end.clone(),
                far: EndReport { streams: Vec::new(), ..end },
                ..arbitrary_run().evidence
            },
            ..arbitrary_run()
        }
    }

    #[test]
    fn configuration_has_the_changed_settings_and_the_undo() {
        let pair = TuningComparison::new(forward(9, "cubic", None), Some(forward(160, "bbr", Some(9 << 20))), &hosts());
        let lines: Vec<[&str; 4]> =
            pair.configuration.iter().map(|line| [line.host.as_str(), &line.key, &line.value, &line.current]).collect();
        assert_eq!(
            lines,
            [
                ["near1", "net.ipv4.tcp_congestion_control", "bbr", "cubic"],
                ["near1", "net.ipv4.tcp_wmem", "4096 16384 18874368", "4096 16384 4194304"],
            ]
        );
        assert_eq!(pair.changes.len(), 2);
        assert!(pair.is_faster() && !pair.is_slower());
    }

    #[test]
    fn no_configuration_without_a_gain() {
        for (now, tuned, slower) in [(100, 103, false), (100, 60, true)] {
            let pair = TuningComparison::new(forward(now, "cubic", None), Some(forward(tuned, "bbr", None)), &hosts());
            assert_eq!((pair.configuration.len(), pair.changes.len()), (0, 1));
            assert_eq!((pair.is_faster(), pair.is_slower()), (false, slower));
        }
    }

    #[test]
    fn an_interrupted_comparison_has_one_run() {
        let document = TuningDocument::new(Origin::default(), vec![forward(9, "cubic", None)], None, None);
        assert_eq!(document.comparisons[0].tuned, None);
        assert_eq!(document.into_test_document().runs.len(), 1);
    }

    #[test]
    fn no_maximum_is_lowered() {
        let (_, value, _) = memory("net.ipv4.tcp_rmem", [4096, 131_072, 32 << 20], Bytes(1 << 20));
        assert_eq!(value, "4096 131072 33554432");
    }
}
