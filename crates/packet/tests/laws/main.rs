//! Laws of frames: cutting, joining, marking and corrupting.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod alter_laws;
mod frames;
mod segment_laws;
