//! Diagnosis of a finished test: rules turn the [`Evidence`] of both ends into [`Finding`]s.
//!
//! Each rule is one function of the evidence. A rule names a cause only if the figures show it. The finding has these
//! figures, the remedy as a command with its host, and the predicted goodput. A full path, or evidence without a clear
//! sign, gives no finding. Findings are sorted by gain. The consequences of another finding are not listed
//! ([`Cause::consequences`]). The rules examine the steady part of a test, or the whole test if it is too short to have
//! one, so that start-up is not taken for a limit. Tests of datagrams have their own rules ([`diagnose_datagrams`]).

mod buffers;
mod datagrams;
mod drops;
mod evidence;
mod host;
mod limit;
mod path;
mod processor;
mod startup;
mod unexplained;
mod verdict;
mod window;

#[cfg(test)]
pub(crate) use window::tests::half_bdp_window;

pub use datagrams::diagnose_datagrams;
pub use evidence::{
    Evidence, HostEvidence, NamedReport, SendTotals, Spread, SteadyPart, StreamEvidence, TypedArgument, WorkerTime,
};
pub(crate) use evidence::{full_intervals, steady_part};

pub use verdict::{Verdict, VerdictLimit, datagram_verdict, tcp_verdict};

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, Serializer};

use crate::units::BitRate;

/// One cause that limits a test, with its evidence and its remedy.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// Cause that limits the test.
    #[serde(rename = "name", serialize_with = "name")]
    pub cause: Cause,
    /// Explanation in one or two sentences with the figures.
    pub summary: String,
    /// Figures that show the cause; each key ends with its unit.
    pub evidence: BTreeMap<&'static str, serde_json::Value>,
    /// Command that removes the cause.
    pub remedy: Remedy,
    /// Goodput predicted after the remedy, if it is known.
    #[serde(rename = "predicted_goodput_bits_per_second")]
    pub predicted: Option<BitRate>,
    /// Predicted goodput minus the current goodput.
    #[serde(rename = "gain_bits_per_second")]
    pub gain: Option<BitRate>,
}

impl Finding {
    /// Returns true unless the goodput would be the same without this cause.
    pub fn is_limit(&self) -> bool {
        self.gain != Some(BitRate(0))
    }
}

/// Causes that can limit a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The sender uses up the advertised receive window before acknowledgements return.
    ReceiveWindow,
    /// The send buffer is smaller than the bytes in flight that the path needs.
    SendBuffer,
    /// The kernel granted a smaller buffer than requested, or its autotuning ends below the need of the path.
    KernelCap,
    /// Window scaling is off, so no window is larger than 65,535 bytes.
    WindowScaleAbsent,
    /// One end has no CPU time left.
    Processor,
    /// The sending application has no data to send.
    SlowWriter,
    /// The receiving application does not read.
    SlowReader,
    /// The server limits the rate of the test.
    ServerLimit,
    /// A host dropped packets itself, before it sent them or after it received them.
    LocalDrops,
    /// The path loses more packets than the goodput tolerates.
    Loss,
    /// Packets wait in a queue on the path.
    Queueing,
    /// Much of the sent data was sent more than once.
    Retransmissions,
    /// The path MTU is smaller than the MTU of both interfaces.
    SmallMtu,
    /// The congestion control in use is not the requested one.
    CongestionControl,
    /// Other traffic uses the interface of an end.
    Competing,
    /// Slow start took a large part of the test.
    StartUp,
    /// Datagrams arrived while the receiver's socket buffer was full.
    ReceiverOverflow,
    /// A sender of datagrams was late, or did not reach the requested rate.
    SlowSender,
    /// The goodput is below the prediction, and no rule explains this.
    Unexplained,
}

impl Cause {
    /// Returns the name that is printed and stored.
    pub fn name(self) -> &'static str {
        match self {
            Cause::ReceiveWindow => "receive window",
            Cause::SendBuffer => "send buffer",
            Cause::KernelCap => "kernel buffer limit",
            Cause::WindowScaleAbsent => "no window scaling",
            Cause::Processor => "CPU-bound",
            Cause::SlowWriter => "slow sending application",
            Cause::SlowReader => "slow receiving application",
            Cause::ServerLimit => "limited by the server",
            Cause::LocalDrops => "local drops",
            Cause::Loss => "loss",
            Cause::Queueing => "queueing",
            Cause::Retransmissions => "retransmissions",
            Cause::SmallMtu => "small MTU",
            Cause::CongestionControl => "congestion control",
            Cause::Competing => "competing traffic",
            Cause::StartUp => "slow start",
            Cause::ReceiverOverflow => "receiver overflow",
            Cause::SlowSender => "slow sender",
            Cause::Unexplained => "unexplained",
        }
    }

    /// Returns the causes that follow from this one: they are not listed.
    fn consequences(self) -> &'static [Cause] {
        match self {
            // A thread without CPU time does not write or read, and its socket shows the symptoms.
            Cause::Processor => {
                &[Cause::SlowWriter, Cause::SlowReader, Cause::ReceiveWindow, Cause::Competing, Cause::StartUp]
            }
            // A receiver that pauses hides the end of slow start.
            Cause::SlowReader => &[Cause::ReceiveWindow, Cause::KernelCap, Cause::StartUp],
            // A sender without data needs no window: its bytes in flight are not evidence.
            Cause::SlowWriter => &[Cause::SendBuffer, Cause::ReceiveWindow, Cause::StartUp],
            // Both ends keep the rate: the sender waits, and the receiver reads no faster.
            Cause::ServerLimit => &[Cause::SlowWriter, Cause::SlowReader, Cause::ReceiveWindow, Cause::SendBuffer],
            Cause::LocalDrops => &[Cause::Loss, Cause::Queueing, Cause::Retransmissions],
            Cause::Competing => &[Cause::Loss, Cause::Queueing, Cause::Retransmissions],
            Cause::Loss => &[Cause::Retransmissions],
            _ => &[],
        }
    }

    /// Returns true unless this cause follows from another root cause in `found`. A cause never follows from itself,
    /// not even through other causes.
    fn is_root_cause(self, found: &[Cause]) -> bool {
        !found.iter().any(|cause| cause.consequences().contains(&self) && cause.is_root_cause(found))
    }
}

/// Command that removes a cause, and the host to run it on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct Remedy {
    /// Command line, ready to paste.
    pub command: String,
    /// Host of the command; none is the host of the test.
    pub host: Option<String>,
}

impl std::fmt::Display for Remedy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.host {
            // A comment, so that the line works when pasted.
            Some(host) => write!(f, "{}   # on {host}", self.command),
            None => f.write_str(&self.command),
        }
    }
}

/// Returns all findings. A test with another congestion control than requested comes first, then the largest gain.
///
/// A goodput below the prediction that no finding explains is the finding [`Cause::Unexplained`].
pub fn diagnose(evidence: &Evidence) -> Vec<Finding> {
    let mut findings = rule_findings(evidence);
    if !findings.iter().any(Finding::is_limit) {
        let unexplained = unexplained::unexplained(evidence);
        findings.splice(0..0, unexplained);
    }
    findings
}

/// Returns the findings of the rules, without [`Cause::Unexplained`].
fn rule_findings(evidence: &Evidence) -> Vec<Finding> {
    // If gains are equal, the earlier rule is the cause and the later one is a consequence.
    let rules = [
        path::congestion_control,
        limit::server_limit,
        window::scale_absent,
        processor::processor,
        drops::local_drops,
        host::slow_writer,
        host::slow_reader,
        buffers::kernel_cap_on_request,
        window::receive_window,
        buffers::send_buffer,
        buffers::kernel_cap_on_autotuning,
        path::loss,
        path::retransmissions,
        host::competing_traffic,
        path::small_mtu,
        startup::start_up,
        path::queueing,
    ];
    let mut findings: Vec<Finding> = rules.iter().filter_map(|rule| rule(evidence)).collect();
    let found: Vec<Cause> = findings.iter().map(|finding| finding.cause).collect();
    findings.retain(|finding| finding.cause.is_root_cause(&found));
    // An unknown gain, because the capacity is unknown, counts as a doubling of the goodput.
    let unknown = evidence.steady_goodput();
    // A test that does not match the request comes before its other findings.
    let valid = |finding: &Finding| finding.cause != Cause::CongestionControl;
    findings.sort_by_key(|finding| (valid(finding), std::cmp::Reverse(finding.gain.unwrap_or(unknown))));
    findings
}

fn name<S: Serializer>(cause: &Cause, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(cause.name())
}

/// Creates a finding; its gain is `predicted` minus the goodput in `evidence`.
fn finding(evidence: &Evidence, cause: Cause, summary: String, remedy: Remedy, predicted: Option<BitRate>) -> Finding {
    let gain = predicted.map(|predicted| BitRate(predicted.0.saturating_sub(evidence.steady_goodput().0)));
    Finding { cause, summary, evidence: BTreeMap::new(), remedy, predicted, gain }
}

#[cfg(test)]
mod tests {
    use super::Cause;

    #[test]
    fn a_consequence_does_not_hide_other_causes() {
        let of = |found: &[Cause]| found.iter().copied().filter(|cause| cause.is_root_cause(found)).collect::<Vec<_>>();
        assert_eq!(of(&[Cause::SlowReader, Cause::KernelCap]), [Cause::SlowReader]);
        // The reader is slow because it has no CPU time. This does not explain a small buffer.
        let all = [Cause::Processor, Cause::SlowReader, Cause::KernelCap];
        assert_eq!(of(&all), [Cause::Processor, Cause::KernelCap]);
        assert_eq!(of(&[Cause::Processor, Cause::Competing, Cause::Loss]), [Cause::Processor, Cause::Loss]);
    }
}
