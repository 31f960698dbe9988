//! What a test leaves behind: the stored result `lfn.test/2`, the events of a running one, and what reads, tabulates and
//! compares them.
//!
//! A [`Document`] is the whole of one command: who, when and with which settings, and for each [`Run`] the request, what
//! was predicted, what both ends reported, interval by interval, and what was found. It is a thin frame around the types
//! that go over the wire and that the rules judge, so what those gain is stored with no more ado. It serializes and
//! deserializes alike: printing a stored result, comparing several and whatever is made of them later start from the
//! same figures as the command that measured them. `doc/schema` has the JSON Schemas, made from these types.

mod compare;
mod csv;
mod document;
mod event;
mod foreign;
mod iperf3;
#[cfg(test)]
mod laws;
mod read;
#[cfg(test)]
mod schema;
mod unlike;

pub use crate::figure::Figure;
pub use compare::{Comparison, ComparisonSchema, Difference, Source, Summary, compare};
pub use csv::csv;
pub use document::{
    Document, DocumentSchema, Ended, Failed, Finding, Hosts, Origin, PerEnd, Run, Side, Slice, Unfinished,
};
pub use event::{Event, EventSchema};
pub use foreign::Iperf3Output;
pub use iperf3::{Iperf3, Iperf3Stream};
pub use read::{LARGEST, ReadError, Stored, read};
