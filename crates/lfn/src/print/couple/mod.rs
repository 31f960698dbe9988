//! Printers of `lfn couple`.

pub mod plan;
#[allow(dead_code, reason = "`lfn couple run` prints it")]
pub mod run;
