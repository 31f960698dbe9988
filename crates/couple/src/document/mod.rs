//! Result documents of a plan and of a run.
//!
//! The command `lfn couple` and the Python package print and store the same documents. Each document is a function of the
//! coupling file and of the measured figures: nothing here reads a clock, a file or a socket.

mod evidence;
mod mean;
mod plan;
mod run;
#[cfg(test)]
mod tests;
mod text;

pub use plan::{
    CouplePlanDocument, CouplePlanSchema, LagPoint, PathOverrides, PlanRequestError, PlannedComponent, plan_document,
};
pub use run::{CoupleRunDocument, CoupleRunSchema, StepFigure, run_document};
pub use text::lag_advice;
