//! Frames: kind, length, JSON. The reader is fed bytes as they come and never holds more than one frame's limit.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Longest first frame a server reads from somebody it does not know yet.
pub const HELLO_LIMIT: usize = 64 * 1024;

/// Longest frame of an authenticated session.
pub const MESSAGE_LIMIT: usize = 4 * 1024 * 1024;

const HEADER: usize = 5;

/// What a frame holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A message of the conversation.
    Message,
    /// A [`super::Refusal`]: the conversation is over.
    Refusal,
    /// A [`super::queue::FromServer`] or [`super::queue::FromClient`]: before the conversation.
    Queue,
}

/// Why bytes could not be read as a frame.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The peer speaks something else, or a newer protocol.
    #[error("frame of unknown kind {0:#04x}")]
    Kind(u8),
    /// The peer announced more than is allowed here.
    #[error("frame of {length} bytes, at most {limit} allowed")]
    TooLong {
        /// What was announced.
        length: usize,
        /// What is allowed.
        limit: usize,
    },
    /// The JSON is not the message expected here.
    #[error("message not understood: {0}")]
    Json(#[from] serde_json::Error),
}

/// One message as the bytes of a frame.
pub fn encode<T: Serialize>(kind: Kind, message: &T) -> Result<Vec<u8>, FrameError> {
    let mut bytes = vec![kind_byte(kind), 0, 0, 0, 0];
    serde_json::to_writer(&mut bytes, message)?;
    let length = bytes.len() - HEADER;
    if length > MESSAGE_LIMIT {
        return Err(FrameError::TooLong { length, limit: MESSAGE_LIMIT });
    }
    bytes[1..HEADER].copy_from_slice(&(length as u32).to_be_bytes());
    Ok(bytes)
}

/// Collects bytes until a frame is whole.
#[derive(Debug)]
pub struct FrameReader {
    buffer: Vec<u8>,
    limit: usize,
}

impl FrameReader {
    /// A reader that takes frames of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        FrameReader { buffer: Vec::new(), limit }
    }

    /// Changes the limit, once the peer is known.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Takes bytes as they came.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// How many bytes may be read from the peer now without holding more than one frame; at least 1.
    pub fn wants(&self) -> usize {
        let whole = self.announced().unwrap_or(HEADER).min(self.limit + HEADER);
        whole.saturating_sub(self.buffer.len()).clamp(1, 64 * 1024)
    }

    /// The next whole frame, if there is one.
    pub fn take<T: DeserializeOwned, R: DeserializeOwned>(&mut self) -> Result<Option<Frame<T, R>>, FrameError> {
        let (Some(kind), Some(end)) = (self.kind()?, self.whole()?) else { return Ok(None) };
        let body = &self.buffer[HEADER..end];
        let frame = match kind {
            Kind::Message => Frame::Message(serde_json::from_slice(body)?),
            Kind::Refusal => Frame::Refusal(serde_json::from_slice(body)?),
            // Whoever waits for a turn looks at the kind first.
            Kind::Queue => return Err(FrameError::Kind(kind_byte(kind))),
        };
        self.buffer.drain(..end);
        Ok(Some(frame))
    }

    /// The next whole frame, if there is one, as JSON of whatever kind it is; what it means is for the caller.
    pub fn take_any<T: DeserializeOwned>(&mut self) -> Result<Option<T>, FrameError> {
        let Some(end) = self.whole()? else { return Ok(None) };
        let message = serde_json::from_slice(&self.buffer[HEADER..end])?;
        self.buffer.drain(..end);
        Ok(Some(message))
    }

    /// What the next whole frame says, as far as `T` asks for it; the frame stays to be taken.
    pub fn look<T: DeserializeOwned>(&self) -> Result<Option<T>, FrameError> {
        let Some(end) = self.whole()? else { return Ok(None) };
        Ok(Some(serde_json::from_slice(&self.buffer[HEADER..end])?))
    }

    /// What the frame at the front holds, as soon as its first byte is here.
    pub fn kind(&self) -> Result<Option<Kind>, FrameError> {
        match self.buffer.first() {
            None => Ok(None),
            Some(b'M') => Ok(Some(Kind::Message)),
            Some(b'R') => Ok(Some(Kind::Refusal)),
            Some(b'Q') => Ok(Some(Kind::Queue)),
            Some(&other) => Err(FrameError::Kind(other)),
        }
    }

    /// Where the frame at the front ends, once all of it is here.
    fn whole(&self) -> Result<Option<usize>, FrameError> {
        self.kind()?;
        let Some(end) = self.announced() else { return Ok(None) };
        if end - HEADER > self.limit {
            return Err(FrameError::TooLong { length: end - HEADER, limit: self.limit });
        }
        Ok((self.buffer.len() >= end).then_some(end))
    }

    /// Where the frame at the front ends, once its header is here.
    fn announced(&self) -> Option<usize> {
        let length = self.buffer.get(1..HEADER)?;
        Some(HEADER + u32::from_be_bytes([length[0], length[1], length[2], length[3]]) as usize)
    }
}

/// A frame as read.
#[derive(Debug)]
pub enum Frame<T, R> {
    /// A message.
    Message(T),
    /// The peer ends the conversation.
    Refusal(R),
}

fn kind_byte(kind: Kind) -> u8 {
    match kind {
        Kind::Message => b'M',
        Kind::Refusal => b'R',
        Kind::Queue => b'Q',
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Introduction, Refusal};

    #[test]
    fn frames_survive_any_cutting() {
        let mut bytes = encode(Kind::Message, &"one").unwrap();
        bytes.extend(encode(Kind::Message, &"two").unwrap());
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
    fn a_length_is_checked_before_it_is_believed() {
        let mut reader = FrameReader::new(16);
        reader.push(&[b'M', 0xff, 0xff, 0xff, 0xff]);
        assert!(reader.wants() <= 64 * 1024);
        assert!(matches!(reader.take::<String, Refusal>(), Err(FrameError::TooLong { limit: 16, .. })));
    }

    /// Patterns of a copy's request become automata, tens of times as large: a stranger has none of that made.
    #[test]
    fn who_says_it_is_known_before_the_rest_is_read() {
        let token = crate::session::Token::from_bytes([7; 16]);
        let request = serde_json::json!({ "verb": "copy", "direction": "get", "pick": "nothing of the kind" });
        let hello = serde_json::json!({ "connection": "control", "protocol": 3, "token": token, "request": request });
        let bytes = encode(Kind::Message, &hello).unwrap();
        let mut reader = FrameReader::new(1024);
        for byte in &bytes[..bytes.len() - 1] {
            reader.push(&[*byte]);
            assert!(reader.look::<Introduction>().unwrap().is_none());
        }
        reader.push(&bytes[bytes.len() - 1..]);
        let said = Introduction { protocol: 3, token: Some(token) };
        assert_eq!(reader.look().unwrap(), Some(said));
        assert!(matches!(reader.take::<crate::wire::Hello, Refusal>(), Err(FrameError::Json(_))));
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..64)) {
            let mut reader = FrameReader::new(32);
            reader.push(&bytes);
            let _ = reader.look::<Introduction>();
            let _ = reader.take::<crate::wire::Hello, Refusal>();
            proptest::prop_assert!(reader.wants() >= 1);
        }
    }
}
