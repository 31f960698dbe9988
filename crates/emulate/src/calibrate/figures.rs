//! Figures of the calibration.

use lfn_base::units::BitRate;
use serde::{Deserialize, Serialize};

/// Result of the calibration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Calibration {
    /// Latency from interface to interface beyond the delay, on an idle path. Subtracted in each direction.
    #[serde(rename = "idle_latency_seconds")]
    pub idle_latency: f64,
    /// Not measured for rates that every machine can carry.
    pub costs: Option<ForwardingCosts>,
}

/// Processor time of forwarding.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ForwardingCosts {
    /// Cost of a single packet of 1,514 bytes.
    pub packet: CpuCost,
    /// Cost of a gigabyte in super-packets.
    pub gigabyte: CpuCost,
    /// Number of available processors.
    pub processors: u32,
}

impl ForwardingCosts {
    /// Returns the maximum number of single packets per second of one direction.
    pub fn packets_per_second(&self) -> f64 {
        1.0 / self.bottleneck_time(self.packet)
    }

    /// Returns the maximum rate of one direction with super-packets.
    pub fn bulk(&self) -> BitRate {
        BitRate((8e9 / self.bottleneck_time(self.gigabyte)) as u64)
    }

    /// Returns the seconds per unit: the time of the direction's thread, or the time of all threads on all processors,
    /// the larger one.
    fn bottleneck_time(&self, cost: CpuCost) -> f64 {
        cost.thread.max(cost.all / self.processor_count())
    }

    pub(super) fn processor_count(&self) -> f64 {
        f64::from(self.processors.max(1))
    }
}

/// Processor time, by thread.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CpuCost {
    /// Time of the thread of one direction, at most one second per second.
    #[serde(rename = "thread_seconds")]
    pub thread: f64,
    /// Time of all threads that this traffic needs, including sender, receiver and the return direction. They share the
    /// processors.
    #[serde(rename = "all_seconds")]
    pub all: f64,
}
