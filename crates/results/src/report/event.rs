//! Events of a running test, one line each: `lfn test --output ndjson`.

use std::time::Duration;

use lfn_base::path::{PathProfile, seconds};
use lfn_base::units::BitRate;
use serde::{Deserialize, Serialize};

use super::document::{Origin, TestDocument};
use crate::diagnose::Finding;
use crate::evidence::Side;
use crate::measure::{Interval, Kernel, TestRequest};
use crate::udp::ramp::RampReport;

/// One line while a test runs, schema `lfn.test.event/3`. The first line is `start`, the last is `end`. `run` is the
/// number of the test in the command, from 0. A reader ignores unknown events.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum TestEvent {
    /// The command starts with this event.
    Start {
        /// Name and version of the schema.
        schema: EventSchema,
        /// Origin of the result: the version, the time and the command.
        origin: Origin,
    },
    /// One test of the command starts.
    Run {
        /// Number of the test, from 0.
        run: u16,
        /// Request to the server.
        request: TestRequest,
        /// Figures of the path; null if the capacity is unknown.
        path: Option<PathProfile>,
    },
    /// The server answered the request.
    Connected {
        /// Number of the test.
        run: u16,
        /// RTT of the control connection's handshake.
        #[serde(rename = "handshake_rtt_seconds", with = "seconds")]
        handshake_rtt: Duration,
        /// Limits of the server's kernel.
        far_kernel: Kernel,
    },
    /// An interval of one end finished.
    Interval {
        /// Number of the test.
        run: u16,
        /// End that measured the interval.
        end: Side,
        /// True if this end sends.
        sends: bool,
        /// Bytes divided by time: the goodput at the receiver, or the bytes given to the kernel at the sender.
        #[serde(rename = "rate_bits_per_second")]
        rate: BitRate,
        /// Figures of the interval.
        interval: Interval,
    },
    /// A step of a ramp starts.
    Step {
        /// Number of the test.
        run: u16,
        /// Results of the ramp so far, and the rate of the new step.
        ramp: RampReport,
    },
    /// The test finished; this cause limits it.
    Finding {
        /// Number of the test.
        run: u16,
        /// The cause with its evidence and its remedy.
        finding: Finding,
    },
    /// The command finished with this result.
    End {
        /// The whole result as `--json` prints it, with the error if the command failed.
        result: Box<TestDocument>,
    },
}

/// Name and version of the schema of the events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub enum EventSchema {
    #[default]
    #[serde(rename = "lfn.test.event/3")]
    V3,
}
