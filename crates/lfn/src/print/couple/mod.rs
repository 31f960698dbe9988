//! Printers of `lfn couple`.

pub mod plan;
pub mod run;
