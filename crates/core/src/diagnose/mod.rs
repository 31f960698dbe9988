//! From the figures of both ends of a test to what held it back: [`Evidence`] in, [`Finding`]s out.
//!
//! One rule is one function of the evidence; it names a cause only where the figures show it and prints the figures it
//! used, the cure as a command with the host it belongs on, and the goodput it predicts. On a path that is full, or
//! where nothing speaks clearly, there is no finding. The order is that of gain; what only follows from another cause that
//! was found is not named ([`Cause::brings`]). Rules judge the steady part of a test (the whole of one too short to have
//! any), so that start-up does not pass for a limit. Tests of datagrams have rules of their own ([`diagnose_datagrams`]).

mod buffers;
mod datagrams;
mod drops;
mod evidence;
mod host;
mod limit;
mod path;
mod processor;
mod startup;
mod window;

#[cfg(test)]
pub(crate) use window::tests::half_window;

pub use datagrams::diagnose_datagrams;
pub use evidence::{Evidence, Flow, Host, Moved, Spread, Steady, Worker};
pub(crate) use evidence::{steady, whole_intervals};

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, Serializer};

use crate::units::BitRate;

/// One cause, diagnosed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// What holds the test back.
    #[serde(rename = "name", serialize_with = "name")]
    pub cause: Cause,
    /// How that shows, in one or two sentences with the figures.
    pub summary: String,
    /// The figures, names with units.
    pub evidence: BTreeMap<&'static str, serde_json::Value>,
    /// What to do about it.
    pub cure: Remedy,
    /// Goodput to expect after the cure, where it can be told.
    #[serde(rename = "predicted_goodput_bits_per_second")]
    pub predicted: Option<BitRate>,
    /// What that is more than now.
    #[serde(rename = "gain_bits_per_second")]
    pub gain: Option<BitRate>,
}

/// What can hold a test back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The window the receiver offers is spent before acknowledgements return.
    ReceiveWindow,
    /// The sender's buffer holds less than the path in flight.
    SendBuffer,
    /// The kernel granted less than was asked, or its autotuning ends below what the path needs.
    KernelCap,
    /// No window above 65,535 bytes could be offered.
    WindowScaleAbsent,
    /// No processor time was left at one end.
    Processor,
    /// The sending application had nothing to send.
    SlowWriter,
    /// The receiving application did not read.
    SlowReader,
    /// The server holds the test to a rate.
    ServerLimit,
    /// A host dropped packets itself, before they left or after they had come.
    LocalDrops,
    /// The path loses more than the rate can bear.
    Loss,
    /// Packets wait in a queue on the path.
    Queueing,
    /// The path takes smaller packets than either interface.
    SmallMtu,
    /// Another congestion control than was asked for.
    CongestionControl,
    /// Others use the interface of an end.
    Competing,
    /// Much of the test was growth, not the goodput the path carries.
    StartUp,
    /// Datagrams came and found the receiver's socket buffer full.
    ReceiverOverflow,
    /// A sender of datagrams did not keep the rate asked for.
    SlowSender,
}

impl Cause {
    /// As it is printed.
    pub fn name(self) -> &'static str {
        match self {
            Cause::ReceiveWindow => "receive window",
            Cause::SendBuffer => "send buffer",
            Cause::KernelCap => "kernel cap",
            Cause::WindowScaleAbsent => "window scale absent",
            Cause::Processor => "CPU-bound",
            Cause::SlowWriter => "slow sending application",
            Cause::SlowReader => "slow receiving application",
            Cause::ServerLimit => "limited by the server",
            Cause::LocalDrops => "local drops",
            Cause::Loss => "loss",
            Cause::Queueing => "queueing",
            Cause::SmallMtu => "small MTU",
            Cause::CongestionControl => "congestion control",
            Cause::Competing => "competing traffic",
            Cause::StartUp => "start-up share",
            Cause::ReceiverOverflow => "receiver overflow",
            Cause::SlowSender => "slow sender",
        }
    }

    /// What only follows from this: where the cause was found, these are not named.
    fn brings(self) -> &'static [Cause] {
        match self {
            // A thread without a processor neither writes nor reads, and its socket shows it.
            Cause::Processor => {
                &[Cause::SlowWriter, Cause::SlowReader, Cause::ReceiveWindow, Cause::Competing, Cause::StartUp]
            }
            // Nor does an end that stops now and then show where growth ended.
            Cause::SlowReader => &[Cause::ReceiveWindow, Cause::KernelCap, Cause::StartUp],
            // A sender that is stopped needs no window: what it had in flight says nothing.
            Cause::SlowWriter => &[Cause::SendBuffer, Cause::ReceiveWindow, Cause::StartUp],
            // Both ends hold the rate: the sender by waiting, the receiver by reading no faster.
            Cause::ServerLimit => &[Cause::SlowWriter, Cause::SlowReader, Cause::ReceiveWindow, Cause::SendBuffer],
            Cause::LocalDrops => &[Cause::Loss, Cause::Queueing],
            Cause::Competing => &[Cause::Loss, Cause::Queueing],
            _ => &[],
        }
    }

    /// Whether this is named where all those were found: unless it follows from one that is. No cause follows from
    /// itself, however far around.
    fn stays(self, found: &[Cause]) -> bool {
        !found.iter().any(|cause| cause.brings().contains(&self) && cause.stays(found))
    }
}

/// A command, and whose shell it belongs in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Remedy {
    /// To be run as it stands.
    pub command: String,
    /// Where, if that is not where the test was typed.
    pub host: Option<String>,
}

impl std::fmt::Display for Remedy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.host {
            Some(host) => write!(f, "{}   (on {host})", self.command),
            None => f.write_str(&self.command),
        }
    }
}

/// All findings: that the test was another one than asked for, then the one with the most to gain.
pub fn diagnose(evidence: &Evidence) -> Vec<Finding> {
    // Where gains are equal the earlier rule is the cause and the later one a consequence.
    let rules = [
        path::congestion,
        limit::server,
        window::scale_absent,
        processor::processor,
        drops::local_drops,
        host::slow_writer,
        host::slow_reader,
        buffers::kernel_cap_asked,
        window::receive_window,
        buffers::send_buffer,
        buffers::kernel_cap_autotuned,
        path::loss,
        host::competing,
        path::small_mtu,
        startup::start_up,
        path::queueing,
    ];
    let mut findings: Vec<Finding> = rules.iter().filter_map(|rule| rule(evidence)).collect();
    let found: Vec<Cause> = findings.iter().map(|finding| finding.cause).collect();
    findings.retain(|finding| finding.cause.stays(&found));
    // A limit whose gain nobody can tell, because the capacity is not known, at least doubles what it limits.
    let unknown = evidence.judged_goodput();
    // A test that is not the one that was asked for comes before all that it found.
    let valid = |finding: &Finding| finding.cause != Cause::CongestionControl;
    findings.sort_by_key(|finding| (valid(finding), std::cmp::Reverse(finding.gain.unwrap_or(unknown))));
    findings
}

fn name<S: Serializer>(cause: &Cause, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(cause.name())
}

/// A finding with its gain over what `evidence` shows, if `predicted` is known.
fn finding(evidence: &Evidence, cause: Cause, summary: String, cure: Remedy, predicted: Option<BitRate>) -> Finding {
    let gain = predicted.map(|predicted| BitRate(predicted.0.saturating_sub(evidence.judged_goodput().0)));
    Finding { cause, summary, evidence: BTreeMap::new(), cure, predicted, gain }
}

#[cfg(test)]
mod tests {
    use super::Cause;

    #[test]
    fn what_is_not_named_itself_hides_nothing() {
        let of = |found: &[Cause]| found.iter().copied().filter(|cause| cause.stays(found)).collect::<Vec<_>>();
        assert_eq!(of(&[Cause::SlowReader, Cause::KernelCap]), [Cause::SlowReader]);
        // The reader is slow for want of a processor, which makes no buffer small.
        let all = [Cause::Processor, Cause::SlowReader, Cause::KernelCap];
        assert_eq!(of(&all), [Cause::Processor, Cause::KernelCap]);
        assert_eq!(of(&[Cause::Processor, Cause::Competing, Cause::Loss]), [Cause::Processor, Cause::Loss]);
    }
}
