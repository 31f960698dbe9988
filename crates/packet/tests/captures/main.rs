//! Reader of captures and decoder of frames, with files and frames that the tests build.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod damaged_files;
mod decoder;
mod decoder_tcp;
mod decoder_tunnels;
mod files;
mod packets;
mod properties;
mod reader;
