//! Trains of datagrams: paced at given rates, one after the other, in one direction, without other load.
//!
//! Loss that grows with the rate while the delay stays shows a policer, loss at every rate shows random loss, and a delay
//! that grows with the rate shows a queue.

use serde::{Deserialize, Serialize};

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
