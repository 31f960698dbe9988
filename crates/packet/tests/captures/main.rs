//! Reader of captures and decoder of frames, with files and frames that the tests build.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod damaged_files;
mod files;
mod reader;
