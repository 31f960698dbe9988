//! Printers of `lfn mesh`.

pub mod check;
pub mod plan;
mod table;
