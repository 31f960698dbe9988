//! Result and progress of `lfn doctor`.

mod progress;
mod text;

pub use progress::DoctorProgress;
pub use text::page;
