//! Messages between two components.
//!
//! The control connection carries the [`Introduction`], the [`Position`] and [`Ready`] of each side, as JSON. The data streams carry
//! [`Frame`]s: a header of 24 bytes and a payload. A data stream has one direction.

mod frame;
mod introduction;

pub use frame::{CHUNK_BYTES, Frame, FrameKind, HEADER_BYTES, MAX_TEXT, PADDING_BYTES, WireError};
pub use introduction::{Introduction, Position, Ready, VariableState};
