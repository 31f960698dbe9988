//! What is said before a session that must wait for its turn; frames of a kind of their own, so that they may come
//! before the first message of any verb.
//!
//! A server that lets a session in at once says none of this. Otherwise it drops the session's data streams and says
//! [`FromServer::Waiting`] again and again, in the end [`FromServer::Turn`] with a new session id. The client answers
//! [`FromClient::Here`] and dials its data streams anew under that id: nothing of what it had dialled or said before
//! can be taken for what comes after.

use serde::{Deserialize, Serialize};

use crate::admission::{FULL, FULL_FOR_CLIENT};
use crate::figure::Figure;
use crate::session::SessionId;

/// What the server says while a session waits.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "queue", rename_all = "snake_case")]
pub enum FromServer {
    /// It is not the session's turn yet.
    Waiting(Place),
    /// It is: the data streams are to be dialled under this id.
    Turn {
        /// Of the data streams.
        session: SessionId,
    },
}

/// A place in the queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Place {
    /// Sessions that go in before.
    pub ahead: u32,
    /// How long it may still take, if each of them takes as long as it may; absent where that cannot be said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_wait_seconds: Option<Figure>,
    /// It waits for what one client may have at once, not for what all may.
    #[serde(default)]
    pub own_limit: bool,
}

impl Place {
    /// Why one waits there.
    pub fn why(&self) -> &'static str {
        if self.own_limit { FULL_FOR_CLIENT } else { FULL }
    }
}

/// What the client says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "queue", rename_all = "snake_case")]
pub enum FromClient {
    /// Still there, and about to dial.
    Here,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Frame, FrameReader, Kind, Refusal, encode};

    #[test]
    fn a_frame_of_the_queue_is_told_from_a_message_by_its_kind() {
        let place = Place { ahead: 3, expected_wait_seconds: Figure::new(40.5), own_limit: true };
        let mut reader = FrameReader::new(1024);
        reader.push(&encode(Kind::Queue, &FromServer::Waiting(place)).unwrap());
        reader.push(&encode(Kind::Message, &"ready").unwrap());
        assert_eq!(reader.kind().unwrap(), Some(Kind::Queue));
        assert!(reader.take::<String, Refusal>().is_err());
        assert_eq!(reader.take_any().unwrap(), Some(FromServer::Waiting(place)));
        assert_eq!(reader.kind().unwrap(), Some(Kind::Message));
        assert!(matches!(reader.take::<String, Refusal>(), Ok(Some(Frame::Message(text))) if text == "ready"));
    }
}
