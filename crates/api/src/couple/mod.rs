//! `lfn couple`: two models at two sites, one simulation.
//!
//! [`plan()`] reads a coupling file and predicts the run. Nothing is sent.

mod error;
mod file;
mod plan;

pub use error::CoupleError;
pub use file::read_coupling;
pub use lfn_couple::document::PathOverrides;
pub use plan::{PlanOptions, plan};
