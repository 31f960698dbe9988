//! `lfn couple`: two models at two sites, one simulation.
//!
//! [`plan()`] reads a coupling file and predicts the run. Nothing is sent. [`run::run()`] couples a model that reads and
//! writes files.

mod error;
mod file;
mod plan;
pub mod run;

pub use error::CoupleError;
pub use file::read_coupling;
pub use lfn_couple::document::PathOverrides;
pub use plan::{CouplePlanOptions, plan};
