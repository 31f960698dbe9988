//! The channel between two coupled models over a long path.
//!
//! Two components of one simulation run at two sites. In each step a component puts its fields into the channel and gets the
//! fields of its partner. A variable with a lag of L uses the partner's field of step n − L in step n, so that a path with a
//! long delay does not stop the models.
//!
//! - [`coupling`] has the coupling file, and the differences between the files of two sites. It is pure.
//! - [`netcdf`] has the files with the fields of models that read and write files. It is pure.
//! - [`plan`] computes the lag that each variable needs, and the time of a run. It is pure.
//! - [`document`] has the result documents of a plan and of a run, with the findings. It is pure.
//! - [`wire`] has the messages. It is pure.
//! - [`fields`] has the fields to send and the fields that arrived. It is pure.
//! - [`channel`] exchanges fields with the partner, on threads with blocking sockets.

#![forbid(unsafe_code)]

pub mod channel;
pub mod coupling;
pub mod document;
pub mod fields;
pub mod netcdf;
pub mod plan;
pub mod report;
pub mod wire;

pub use channel::{Channel, ChannelError, ChannelEvent, ChannelOptions, Field, Rendezvous};
pub use coupling::Coupling;
pub use report::RunReport;
