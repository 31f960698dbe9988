//! The channel between two coupled models over a long path.
//!
//! Two components of one simulation run at two sites. In each step a component puts its fields into the channel and gets the
//! fields of its partner. A variable with a lag of L uses the partner's field of step n − L in step n, so that a path with a
//! long delay does not stop the models.
//!
//! - [`coupling`] has the coupling file, and the differences between the files of two sites. It is pure.
//! - [`plan`] computes the lag that each variable needs, and the time of a run. It is pure.
//! - [`document`] has the result documents of a plan and of a run, with the findings. It is pure.
//! - [`wire`] has the messages. It is pure.
//! - [`channel`] exchanges fields with the partner, on threads with blocking sockets.

#![forbid(unsafe_code)]

pub mod channel;
pub mod coupling;
pub mod document;
pub mod plan;
pub mod wire;

pub use channel::{Channel, ChannelError, ChannelEvent, ChannelOptions, Field, Rendezvous, RunReport};
pub use coupling::Coupling;
