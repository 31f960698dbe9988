//! Reader of captures and decoder of frames, with files and frames that the tests build.

mod damaged_files;
mod decoder;
mod decoder_tcp;
mod decoder_tunnels;
mod files;
mod packets;
mod properties;
mod reader;
