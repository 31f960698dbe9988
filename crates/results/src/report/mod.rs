//! Results of tests: the stored result `lfn.test/3`, the events of a running test, and the code that reads, tabulates
//! and compares them.
//!
//! A [`TestDocument`] is the result of one command. It has the user's command, the time and the settings. Each [`Run`]
//! has its [`Evidence`](crate::evidence::Evidence), the figures that follow from it, and the
//! [`Diagnosis`](crate::diagnose::Diagnosis). The document is a thin frame around these types, so a new figure of the
//! wire protocol is stored without further code. A stored result has the same figures as the command that measured it. `doc/schema`
//! has the JSON Schemas, which `lfn-api` generates from these types.

mod checked_values;
mod comparability;
mod compare;
mod csv;
mod doctor;
mod document;
mod error_document;
mod event;
mod iperf3_json;
#[cfg(test)]
mod laws;
mod mask;
mod read;
mod read_error;
mod run;
mod run_summary;
mod tuning;

pub use compare::{Comparison, ComparisonSchema, GoodputDifference, compare};
pub use csv::interval_csv;
pub use doctor::{DirectedFinding, DoctorDocument, DoctorSchema, PlannedLoad, Unseen};
pub use document::{CommandError, Origin, TestDocument, TestSchema, UnfinishedTest};
pub use error_document::{ErrorDocument, ErrorSchema};
pub use event::{EventSchema, TestEvent};
pub use iperf3_json::{Iperf3Course, Iperf3Interval, Iperf3Output};
pub use read::{
    MAX_DOCTOR_BYTES, MAX_RESULT_BYTES, StoredResult, read_doctor, read_plausible, read_result, read_schema,
};
pub use read_error::ReadError;
pub use run::{GoodputInterval, Run};
pub use run_summary::{ResultSource, RunSummary};
pub use tuning::{KernelSetting, SettingChange, TunedSetting, TuningComparison, TuningDocument, TuningSchema};
