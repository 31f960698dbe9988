//! A mesh of measurements between sites: who measures when, what is kept, and how two days compare.
//!
//! The hub owns the archive. Agents measure by the schedule, which each of them computes from the sites file and the time, and
//! keep their entries in a spool until the hub has stored them.
//!
//! - [`sites`] has the sites file, and [`schedule`] the tests of a day. Both are pure.
//! - [`entry`] has the log entry: one measurement in one direction with its conditions. [`compare`] compares two days. Both are pure.
//! - [`archive`] stores entries in one SQLite file.
//! - [`spool`] keeps the entries of an agent on disk until the hub acknowledges them.
//! - [`sync`] has the messages between agent and hub, and [`hub`] the end of the hub.

#![forbid(unsafe_code)]

pub mod archive;
pub mod compare;
pub mod csv;
pub mod entry;
pub mod from_result;
pub mod hub;
pub mod import_file;
pub mod schedule;
pub mod sites;
pub mod spool;
pub mod sync;
