//! Trains of datagrams: paced at given rates, one after the other, in one direction, without other load.
//!
//! Loss that grows with the rate while the delay stays shows a policer, loss at every rate shows random loss, and a delay
//! that grows with the rate shows a queue.

use serde::{Deserialize, Serialize};

use super::Evidence;
use crate::udp::figures::{UdpReceived, UdpSent};
use crate::udp::ramp::StepReport;

/// Results of the trains of one direction.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct TrainEvidence {
    /// The trains in the order of sending.
    pub trains: Vec<StepReport>,
    /// Figures of the sender over all trains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<UdpSent>,
    /// Figures of the receiver over all trains: jitter, reordering, bursts of losses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received: Option<UdpReceived>,
}

impl TrainEvidence {
    /// Takes the trains of a test of datagrams with a ramp of given rates.
    pub fn of_test(evidence: &Evidence) -> TrainEvidence {
        let figures = |end: &'_ crate::measure::EndReport| end.streams.iter().find_map(|stream| stream.udp.clone());
        let (sender, receiver) = (figures(evidence.sender()), figures(evidence.receiver()));
        TrainEvidence {
            trains: sender.as_ref().and_then(|udp| udp.ramp.clone()).map(|ramp| ramp.steps).unwrap_or_default(),
            sent: sender.and_then(|udp| udp.sent),
            received: receiver.and_then(|udp| udp.received),
        }
    }
}
