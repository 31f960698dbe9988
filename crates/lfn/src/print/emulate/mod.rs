//! Output of an emulation: before the run (profiles, dry run), during the run (live line, status) and after the run
//! (accuracy report).

pub mod accuracy;
pub mod dry_run;
pub mod live;
pub mod profiles;
pub mod status;
