//! Results of tests: the stored result `lfn.test/3`, the events of a running test, and the code that reads, tabulates
//! and compares them.
//!
//! A [`TestDocument`] is the result of one command. It has the user's command, the time and the settings. For each
//! [`Run`] it has the request, the prediction, the reports of both ends with their intervals, and the findings. The
//! document is a thin frame around the types of the wire protocol and of the diagnosis, so a new figure of these types
//! is stored without further code. A stored result has the same figures as the command that measured it. `doc/schema`
//! has the JSON Schemas, which `lfn-api` generates from these types.

mod comparability;
mod compare;
mod csv;
mod document;
mod error_document;
mod event;
mod iperf3;
mod iperf3_json;
#[cfg(test)]
mod laws;
mod read;
#[cfg(any(test, feature = "schema"))]
mod schema;
mod tuning;

pub use crate::figure::Figure;
pub use compare::{Comparison, ComparisonSchema, GoodputDifference, ResultSource, RunSummary, compare};
pub use csv::interval_csv;
pub use document::{
    CommandError, EndReason, GoodputInterval, HostNames, Origin, PerEnd, Run, Side, StoredFinding, TestDocument,
    TestSchema, UnfinishedTest,
};
pub use error_document::{ErrorDocument, ErrorSchema};
pub use event::{EventSchema, TestEvent};
pub use iperf3::{Iperf3Report, Iperf3Stream};
pub use iperf3_json::Iperf3Output;
pub use read::{MAX_RESULT_BYTES, ReadError, StoredResult, read_result};
pub use tuning::{KernelSetting, SettingChange, TunedSetting, TuningComparison, TuningDocument, TuningSchema};
