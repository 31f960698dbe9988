//! Frames of the data streams.

/// Maximum payload of a chunk. Every chunk of a field except the last one has this size.
pub const CHUNK_BYTES: usize = 256 * 1024;

/// Size of a header.
pub const HEADER_BYTES: usize = 24;

/// Maximum payload of a text: the report at the end of a run, or the reason of a stop.
pub const MAX_TEXT: usize = 1024 * 1024;

/// Payload of a keep-alive between events. It keeps the congestion window of the stream large (see `channel::connection`).
pub const PADDING_BYTES: usize = 1024;

/// Header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    pub kind: FrameKind,
    /// Number of the variable in the coupling file, in the order of the names. 0 if the frame has no variable.
    pub variable: u16,
    /// Step of the field, or of the event.
    pub step: u64,
    /// Position of a chunk in the field; the window in [`FrameKind::Window`]; the time in [`FrameKind::Step`]; else 0.
    pub offset: u64,
    /// Bytes of the payload that follows.
    pub length: u32,
}

/// Kind of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameKind {
    /// A part of a field.
    Chunk,
    /// The model got the field of this step, and all earlier ones.
    Consumed,
    /// The component has begun this step, this many microseconds after the start of the models on the connection.
    Step,
    /// The component can resume from this step.
    Checkpoint,
    /// The sender may have this many bytes in flight and unread.
    Window,
    /// The connection is alive. The payload has no meaning.
    KeepAlive,
    /// The component has put its last fields, in the step before this one.
    Ended,
    /// The component has finished, and has all fields of its partner. The payload is its report as JSON.
    Finished,
    /// The component stops the run. The payload is the reason, UTF-8.
    Stop,
}

/// Reason why bytes are not a valid frame, or the frame does not fit the coupling.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    #[error("frame of unknown kind {0}")]
    Kind(u8),
    #[error("frame of {length} bytes; at most {max} are allowed")]
    Length { length: u32, max: usize },
    #[error("variable number {0} does not exist")]
    Variable(u16),
    #[error("step {step} is not expected")]
    Step { step: u64 },
    #[error("a chunk of {length} bytes at {offset} does not fit a field of {bytes} bytes")]
    Chunk { offset: u64, length: u32, bytes: u64 },
    #[error("a chunk arrived twice")]
    DuplicateChunk,
    #[error("more than {window} bytes are in flight")]
    Window { window: u64 },
    #[error("a text is not valid")]
    InvalidText,
}

const KINDS: [FrameKind; 9] = [
    FrameKind::Chunk,
    FrameKind::Consumed,
    FrameKind::Step,
    FrameKind::Checkpoint,
    FrameKind::Window,
    FrameKind::KeepAlive,
    FrameKind::Ended,
    FrameKind::Finished,
    FrameKind::Stop,
];

impl Frame {
    /// Returns a frame without payload.
    pub fn event(kind: FrameKind, variable: u16, step: u64) -> Self {
        Frame { kind, variable, step, offset: 0, length: 0 }
    }

    /// Returns the bytes of the header, big-endian.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = KINDS.iter().position(|kind| *kind == self.kind).unwrap_or_default() as u8;
        bytes[2..4].copy_from_slice(&self.variable.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.length.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.step.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        bytes
    }

    /// Decodes a header, and checks the length of the payload.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, WireError> {
        let [kind, _, v0, v1, l0, l1, l2, l3, step @ .., o0, o1, o2, o3, o4, o5, o6, o7] = *bytes;
        let kind = *KINDS.get(usize::from(kind)).ok_or(WireError::Kind(kind))?;
        let length = u32::from_be_bytes([l0, l1, l2, l3]);
        let max = match kind {
            FrameKind::Chunk => CHUNK_BYTES,
            FrameKind::KeepAlive => PADDING_BYTES,
            FrameKind::Finished | FrameKind::Stop => MAX_TEXT,
            _ => 0,
        };
        if length as usize > max {
            return Err(WireError::Length { length, max });
        }
        Ok(Frame {
            kind,
            variable: u16::from_be_bytes([v0, v1]),
            step: u64::from_be_bytes(step),
            offset: u64::from_be_bytes([o0, o1, o2, o3, o4, o5, o6, o7]),
            length,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_survives_encoding() {
        for kind in KINDS {
            let length = if kind == FrameKind::Chunk { 7 } else { 0 };
            let frame = Frame { kind, variable: 513, step: u64::MAX - 1, offset: 1 << 40, length };
            assert_eq!(Frame::decode(&frame.encode()), Ok(frame));
        }
    }

    #[test]
    fn length_is_limited_by_kind() {
        let frame = Frame { kind: FrameKind::Chunk, variable: 0, step: 0, offset: 0, length: u32::MAX };
        assert!(matches!(Frame::decode(&frame.encode()), Err(WireError::Length { max: CHUNK_BYTES, .. })));
        let event = Frame { kind: FrameKind::Step, length: 1, ..frame };
        assert!(matches!(Frame::decode(&event.encode()), Err(WireError::Length { max: 0, .. })));
    }

    proptest::proptest! {
        #[test]
        fn no_header_panics(bytes in proptest::array::uniform24(proptest::num::u8::ANY)) {
            if let Ok(frame) = Frame::decode(&bytes) {
                proptest::prop_assert_eq!(Frame::decode(&frame.encode()), Ok(frame));
            }
        }
    }
}
