//! Messages to a session that waits for admission. They have their own frame kind, so that they may precede the first
//! message of any request.
//!
//! A server that admits a session at once sends none of these. Otherwise the server closes the session's data streams,
//! sends [`QueueMessage::Waiting`] repeatedly, and finally [`QueueMessage::Turn`] with a new session id. The client
//! answers [`QueueReply::Ready`] and opens its data streams again with the new id. Earlier connections and messages
//! therefore cannot be mistaken for later ones.

use serde::{Deserialize, Serialize};

use crate::SessionId;
use crate::limits::QueuePosition;

/// Messages of the server while a session waits.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "queue", rename_all = "snake_case")]
pub enum QueueMessage {
    /// The session still waits.
    Waiting(QueuePosition),
    /// The session is admitted: the client must open its data streams with this id.
    Turn { session: SessionId },
}

/// Messages of a waiting client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "queue", rename_all = "snake_case")]
pub enum QueueReply {
    /// Still connected; the data streams follow.
    Ready,
}

#[cfg(test)]
mod tests {
    use lfn_base::figure::Figure;

    use super::*;
    use crate::wire::{Frame, FrameKind, FrameReader, Refusal, encode};

    #[test]
    fn queue_frames_have_their_own_kind() {
        let place = QueuePosition { ahead: 3, expected_wait_seconds: Figure::new(40.5), own_limit: true };
        let mut reader = FrameReader::new(1024);
        reader.push(&encode(FrameKind::Queue, &QueueMessage::Waiting(place)).unwrap());
        reader.push(&encode(FrameKind::Message, &"ready").unwrap());
        assert_eq!(reader.kind().unwrap(), Some(FrameKind::Queue));
        assert!(reader.take::<String, Refusal>().is_err());
        assert_eq!(reader.take_any().unwrap(), Some(QueueMessage::Waiting(place)));
        assert_eq!(reader.kind().unwrap(), Some(FrameKind::Message));
        assert!(matches!(reader.take::<String, Refusal>(), Ok(Some(Frame::Message(text))) if text == "ready"));
    }
}
