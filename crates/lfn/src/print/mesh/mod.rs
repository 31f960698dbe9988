//! Printers of `lfn mesh`.

pub mod check;
pub mod log;
pub mod plan;
mod unplanned;
