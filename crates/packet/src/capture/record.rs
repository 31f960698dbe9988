//! Packet in the buffer of the reader.

use crate::LinkLayer;

/// Packet of the buffer: a record or a block, with the position of the frame in it.
pub(super) struct Record {
    /// Bytes of the record or block.
    pub(super) length: usize,
    /// Position of the frame in the record.
    pub(super) frame_at: usize,
    pub(super) captured: usize,
    pub(super) original_length: u32,
    pub(super) at: u64,
    pub(super) interface: u32,
    pub(super) link: LinkLayer,
}
