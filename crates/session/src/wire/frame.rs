//! Frames of kind, length and JSON. The reader is fed received bytes and buffers at most one frame.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Maximum bytes of the first frame, before the client is authenticated.
pub const HELLO_LIMIT: usize = 64 * 1024;

/// Maximum bytes of a frame in an authenticated session.
pub const MESSAGE_LIMIT: usize = 4 * 1024 * 1024;

const HEADER: usize = 5;

/// Content of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameKind {
    /// A message of the session.
    Message,
    /// A [`super::Refusal`], which ends the session.
    Refusal,
    /// A [`super::queue::QueueMessage`] or [`super::queue::QueueReply`], before the session starts.
    Queue,
}

/// Reason why bytes are no valid frame.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The peer uses another or a newer protocol.
    #[error("frame of unknown kind {0:#04x}")]
    Kind(u8),
    #[error("frame of {length} bytes, at most {limit} allowed")]
    TooLong { length: usize, limit: usize },
    /// The JSON is not the expected message.
    #[error("cannot parse message: {0}")]
    Json(#[from] serde_json::Error),
}

/// Encodes a message as a frame.
pub fn encode<T: Serialize>(kind: FrameKind, message: &T) -> Result<Vec<u8>, FrameError> {
    let mut bytes = vec![kind_byte(kind), 0, 0, 0, 0];
    serde_json::to_writer(&mut bytes, message)?;
    let length = bytes.len() - HEADER;
    if length > MESSAGE_LIMIT {
        return Err(FrameError::TooLong { length, limit: MESSAGE_LIMIT });
    }
    bytes[1..HEADER].copy_from_slice(&(length as u32).to_be_bytes());
    Ok(bytes)
}

/// Collects bytes until a frame is complete.
#[derive(Debug)]
pub struct FrameReader {
    buffer: Vec<u8>,
    limit: usize,
}

impl FrameReader {
    /// Creates a reader for frames of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        FrameReader { buffer: Vec::new(), limit }
    }

    /// Changes the limit after the peer is authenticated.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Adds received bytes to the buffer.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns how many bytes may be read from the peer without buffering more than one frame; at least 1.
    pub fn max_read(&self) -> usize {
        let whole = self.announced_end().unwrap_or(HEADER).min(self.limit + HEADER);
        whole.saturating_sub(self.buffer.len()).clamp(1, 64 * 1024)
    }

    /// Returns the next complete frame, if there is one.
    pub fn take<T: DeserializeOwned, R: DeserializeOwned>(&mut self) -> Result<Option<Frame<T, R>>, FrameError> {
        let (Some(kind), Some(end)) = (self.kind()?, self.frame_end()?) else { return Ok(None) };
        let body = &self.buffer[HEADER..end];
        let frame = match kind {
            FrameKind::Message => Frame::Message(serde_json::from_slice(body)?),
            FrameKind::Refusal => Frame::Refusal(serde_json::from_slice(body)?),
            // The caller must check for queue frames before.
            FrameKind::Queue => return Err(FrameError::Kind(kind_byte(kind))),
        };
        self.buffer.drain(..end);
        Ok(Some(frame))
    }

    /// Returns the next complete frame of any kind as JSON, if there is one.
    pub fn take_any<T: DeserializeOwned>(&mut self) -> Result<Option<T>, FrameError> {
        let Some(end) = self.frame_end()? else { return Ok(None) };
        let message = serde_json::from_slice(&self.buffer[HEADER..end])?;
        self.buffer.drain(..end);
        Ok(Some(message))
    }

    /// Parses the next complete frame as `T` without removing the frame.
    pub fn peek<T: DeserializeOwned>(&self) -> Result<Option<T>, FrameError> {
        let Some(end) = self.frame_end()? else { return Ok(None) };
        Ok(Some(serde_json::from_slice(&self.buffer[HEADER..end])?))
    }

    /// Returns the kind of the next frame, as soon as its first byte is received.
    pub fn kind(&self) -> Result<Option<FrameKind>, FrameError> {
        match self.buffer.first() {
            None => Ok(None),
            Some(b'M') => Ok(Some(FrameKind::Message)),
            Some(b'R') => Ok(Some(FrameKind::Refusal)),
            Some(b'Q') => Ok(Some(FrameKind::Queue)),
            Some(&other) => Err(FrameError::Kind(other)),
        }
    }

    /// Returns the end of the next frame, if the frame is complete.
    fn frame_end(&self) -> Result<Option<usize>, FrameError> {
        self.kind()?;
        let Some(end) = self.announced_end() else { return Ok(None) };
        if end - HEADER > self.limit {
            return Err(FrameError::TooLong { length: end - HEADER, limit: self.limit });
        }
        Ok((self.buffer.len() >= end).then_some(end))
    }

    /// Returns the end of the next frame, if its header is complete.
    fn announced_end(&self) -> Option<usize> {
        let length = self.buffer.get(1..HEADER)?;
        Some(HEADER + u32::from_be_bytes([length[0], length[1], length[2], length[3]]) as usize)
    }
}

/// A decoded message or refusal.
#[derive(Debug)]
pub enum Frame<T, R> {
    Message(T),
    /// The peer ends the session.
    Refusal(R),
}

fn kind_byte(kind: FrameKind) -> u8 {
    match kind {
        FrameKind::Message => b'M',
        FrameKind::Refusal => b'R',
        FrameKind::Queue => b'Q',
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Credentials, Refusal};

    #[test]
    fn frames_can_arrive_in_any_pieces() {
        let mut bytes = encode(FrameKind::Message, &"one").unwrap();
        bytes.extend(encode(FrameKind::Message, &"two").unwrap());
        for cut in 1..bytes.len() {
            let mut reader = FrameReader::new(16);
            let mut read = Vec::new();
            for part in bytes.chunks(cut) {
                reader.push(part);
                while let Some(Frame::Message(text)) = reader.take::<String, Refusal>().unwrap() {
                    read.push(text);
                }
            }
            assert_eq!(read, ["one", "two"], "cut every {cut}");
        }
    }

    #[test]
    fn announced_length_is_limited() {
        let mut reader = FrameReader::new(16);
        reader.push(&[b'M', 0xff, 0xff, 0xff, 0xff]);
        assert!(reader.max_read() <= 64 * 1024);
        assert!(matches!(reader.take::<String, Refusal>(), Err(FrameError::TooLong { limit: 16, .. })));
    }

    /// Patterns in a copy request become automata, tens of times as large. An unauthenticated client must not cause
    /// this.
    #[test]
    fn credentials_are_read_before_the_request() {
        let token = crate::Token::from_bytes([7; 16]);
        let request = serde_json::json!({ "verb": "copy", "direction": "get", "selection": "nothing of the kind" });
        let hello = serde_json::json!({ "connection": "control", "protocol": 3, "token": token, "request": request });
        let bytes = encode(FrameKind::Message, &hello).unwrap();
        let mut reader = FrameReader::new(1024);
        for byte in &bytes[..bytes.len() - 1] {
            reader.push(&[*byte]);
            assert!(reader.peek::<Credentials>().unwrap().is_none());
        }
        reader.push(&bytes[bytes.len() - 1..]);
        let credentials = Credentials { protocol: 3, token: Some(token) };
        assert_eq!(reader.peek().unwrap(), Some(credentials));
        assert!(matches!(reader.take::<crate::wire::Hello, Refusal>(), Err(FrameError::Json(_))));
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..64)) {
            let mut reader = FrameReader::new(32);
            reader.push(&bytes);
            let _ = reader.peek::<Credentials>();
            let _ = reader.take::<crate::wire::Hello, Refusal>();
            proptest::prop_assert!(reader.max_read() >= 1);
        }
    }
}
