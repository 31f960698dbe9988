//! What a running test tells, one line each: `lfn test --ndjson`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::document::{Document, Finding, Origin, Side};
use crate::path::{PathProfile, seconds};
use crate::udp::ramp::RampReport;
use crate::units::BitRate;
use crate::wire::test::{Interval, Kernel, TestRequest};

/// One line while a test runs, schema `lfn.test.event/2`. The first is `start`, the last `end`; `run` counts the tests of
/// one command from 0. A reader ignores events it does not know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The command begins.
    Start {
        /// What these lines are.
        schema: EventSchema,
        /// Who measures, when, and as what it was typed.
        origin: Origin,
    },
    /// One test of it begins.
    Run {
        /// Its number, from 0.
        run: u16,
        /// What the server is asked.
        request: TestRequest,
        /// The path, if its capacity is known.
        path: Option<PathProfile>,
    },
    /// The server answered.
    Connected {
        /// The test.
        run: u16,
        /// The RTT of the control connection's handshake.
        #[serde(rename = "handshake_rtt_seconds", with = "seconds")]
        handshake_rtt: Duration,
        /// What the server's kernel allows.
        far_kernel: Kernel,
    },
    /// An interval of one end is over.
    Interval {
        /// The test.
        run: u16,
        /// Whose it is.
        end: Side,
        /// Whether that end sends.
        sends: bool,
        /// Bytes over time: goodput where the end receives; what was handed to the kernel where it sends.
        #[serde(rename = "rate_bits_per_second")]
        rate: BitRate,
        /// Its figures.
        interval: Interval,
    },
    /// A step of a ramp begins.
    Step {
        /// The test.
        run: u16,
        /// What is known so far, and the rate of that step.
        ramp: RampReport,
    },
    /// The test is over; this holds it back.
    Finding {
        /// The test.
        run: u16,
        /// The cause, its evidence and its cure.
        finding: Finding,
    },
    /// The command is over.
    End {
        /// The whole result, as `--json` prints it; why the command failed, if it did, is in there.
        result: Box<Document>,
    },
}

/// The name and version of the schema of the events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum EventSchema {
    /// This one.
    #[default]
    #[serde(rename = "lfn.test.event/2")]
    Two,
}
