//! The library of lfn. Each command is a function with typed options. It returns a result document and reports progress
//! to a callback.
//!
//! No function prints, exits the process or handles signals. A program with threads can call all functions. Errors are
//! enums. Each error has a kind, and most errors have a hint: one action that fixes the cause.
#![forbid(unsafe_code)]

pub mod command_line;
pub mod copy;
pub mod couple;
pub mod doctor;
pub mod documents;
pub mod dry_run;
pub mod emulate;
pub mod emulator_env;
mod error_kind;
pub mod error_text;
pub mod hosts;
pub mod launcher;
pub mod mesh;
pub mod open_file_limit;
pub mod pictures;
pub mod plan;
pub mod prediction;
pub mod resolve;
pub mod resolve_event;
pub mod serve;
pub mod service;
pub mod show;
pub mod ssh;
pub mod stamp;
pub mod sweep;
pub mod test;
pub mod trace;

pub use copy::copy;
pub use doctor::doctor;
pub use dry_run::dry_run;
pub use emulate::emulate;
pub use error_kind::ErrorKind;
pub use plan::plan;
pub use serve::serve;
pub use show::show;
pub use stamp::stamp;
pub use sweep::sweep;
pub use test::test;
pub use trace::trace;
