//! Designed sets of tests.
//!
//! A [`design::Design`] lists the points of a sweep: one value for each factor. A [`schedule::Schedule`] decides which
//! point runs next, and when a point and the sweep have enough runs. A [`document::SweepDocument`] summarizes the runs of
//! each point next to its prediction, and names the optimum. [`state`] has the lines of the file that a sweep resumes from.
//!
//! This crate is pure: it opens no socket and no file, reads no clock, and starts no thread.

#![forbid(unsafe_code)]

pub mod comparison;
pub mod design;
pub mod document;
pub mod factor;
pub mod interval;
pub mod optimum;
pub mod published;
pub mod run;
pub mod schedule;
pub mod settings_file;
pub mod state;
pub mod stored;
pub mod summary;
pub mod values;
