//! Messages and block headers of a copy session.
//!
//! The request says who sends what to whom, and rides in the control connection's first flight. Then the sender says
//! [`FromSender`] and the receiver [`FromReceiver`] over the control connection, while blocks go over the data
//! streams, each behind a [`BlockHeader`]. Whoever dialled may be either. A later version adds files, resumed ranges
//! and blocks to send again as further messages and flags; the header has their place (`file`, `flags`), a message
//! of a name not known here is an error of the frame.

use serde::{Deserialize, Serialize};

use crate::transfer::digest::{BlockHash, Digest};
use crate::transfer::limit::{Shares, SocketEvidence};
use crate::units::Bytes;
use crate::wire::CongestionWish;

/// What a client asks of the far end of a copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyRequest {
    /// What is sent, and which way.
    #[serde(flatten)]
    pub job: Job,
    /// How many data streams the client is opening.
    pub streams: u16,
    /// Size of a block; a power of two.
    #[serde(rename = "block_bytes")]
    pub block: Bytes,
    /// Congestion control for the data streams of a server that sends; the kernel's own if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion: Option<CongestionWish>,
}

/// Which way the bytes go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "direction", rename_all = "snake_case")]
pub enum Job {
    /// The client sends.
    Put {
        /// What comes.
        offer: Offer,
        /// Where it goes.
        to: To,
    },
    /// The client receives.
    Get {
        /// What is wanted; the server answers with [`FromSender::Offer`].
        from: From,
    },
}

/// What a sender is about to send.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// The file's own name, for a destination that is a directory.
    pub name: String,
    /// Its length.
    pub bytes: Bytes,
}

/// A place at the far end that can be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "from", rename_all = "snake_case")]
pub enum From {
    /// A file, by its path under the served root.
    File {
        /// Relative to the root.
        path: String,
    },
    /// Bytes made there.
    Random {
        /// How many.
        bytes: Bytes,
    },
    /// Zeros made there.
    Zero {
        /// How many.
        bytes: Bytes,
    },
}

/// A place at the far end that can be written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "to", rename_all = "snake_case")]
pub enum To {
    /// A file or a directory, by its path under the served root.
    File {
        /// Relative to the root; empty for the root itself.
        path: String,
        /// Replace a file that is there.
        #[serde(default)]
        force: bool,
    },
    /// Checked and forgotten.
    Null,
}

/// What the sender says over the control connection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "sender", rename_all = "snake_case")]
pub enum FromSender {
    /// What will come; first, from a server that sends.
    Offer(Offer),
    /// Still there; every [`ALIVE_EVERY`].
    Alive(Progress),
    /// Every block has left; with the digest of what was read.
    Sent {
        /// Of the whole file.
        digest: Digest,
        /// How it went here.
        #[serde(default)]
        progress: Progress,
    },
}

/// What the receiver says over the control connection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "receiver", rename_all = "snake_case")]
pub enum FromReceiver {
    /// The destination is open and has room; blocks may have come already.
    Ready {
        /// Where the file will stand, as far as the sender may know.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path: Option<String>,
    },
    /// Still there; every [`ALIVE_EVERY`].
    Alive(Progress),
    /// The file is whole, on disk and under its name.
    Done {
        /// Of the whole file.
        digest: Digest,
        /// How it went here.
        #[serde(default)]
        progress: Progress,
    },
}

/// How often each side says that it is there, and how far it is.
pub const ALIVE_EVERY: std::time::Duration = std::time::Duration::from_secs(1);

/// How far one side is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Payload through the data streams so far.
    pub bytes: Bytes,
    /// Where this side's streams spent their time so far.
    #[serde(default)]
    pub shares: Shares,
    /// What the kernel says of the sender's sockets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sockets: Option<SocketEvidence>,
}

/// What stands before each block on a data stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockHeader {
    /// Which file of the session; only 0 so far.
    pub file: u32,
    /// Where the block starts, bytes from the start of the file.
    pub offset: u64,
    /// Bytes of payload that follow.
    pub length: u32,
    /// Hash of the payload.
    pub hash: BlockHash,
}

/// Why bytes are no block header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The stream is out of step, or something else than a block stands here.
    #[error("block header of unknown kind {0:#04x}")]
    Kind(u8),
    /// Of a newer version.
    #[error("block header with unknown flags {0:#04x}")]
    Flags(u8),
    /// Bytes kept for later are not zero.
    #[error("block header with reserved bytes in use")]
    Reserved,
}

impl BlockHeader {
    /// Bytes of a header: kind `B`, flags, two reserved; file, offset, length, hash; integers big-endian.
    pub const LENGTH: usize = 52;

    /// The bytes to send.
    pub fn encode(&self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        bytes[0] = b'B';
        bytes[4..8].copy_from_slice(&self.file.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.offset.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.length.to_be_bytes());
        bytes[20..].copy_from_slice(&self.hash.0);
        bytes
    }

    /// Reads a header; whether its range makes sense is for [`crate::transfer::intake::Intake`] to say.
    pub fn decode(bytes: &[u8; Self::LENGTH]) -> Result<Self, HeaderError> {
        let [kind, flags, reserved @ ..] = bytes;
        if *kind != b'B' {
            return Err(HeaderError::Kind(*kind));
        }
        if *flags != 0 {
            return Err(HeaderError::Flags(*flags));
        }
        if reserved[..2] != [0, 0] {
            return Err(HeaderError::Reserved);
        }
        Ok(BlockHeader {
            file: u32::from_be_bytes(field(bytes, 4)),
            offset: u64::from_be_bytes(field(bytes, 8)),
            length: u32::from_be_bytes(field(bytes, 16)),
            hash: BlockHash(field(bytes, 20)),
        })
    }
}

fn field<const N: usize>(bytes: &[u8; BlockHeader::LENGTH], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_bytes_make_a_header_panic(bytes in proptest::array::uniform::<_, { BlockHeader::LENGTH }>(any::<u8>())) {
            let mut bytes = bytes;
            let _ = BlockHeader::decode(&bytes);
            bytes[..4].copy_from_slice(b"B\0\0\0");
            prop_assert_eq!(BlockHeader::decode(&bytes).unwrap().encode(), bytes);
        }

        #[test]
        fn headers_survive(file: u32, offset: u64, length: u32, hash: [u8; 32]) {
            let header = BlockHeader { file, offset, length, hash: BlockHash(hash) };
            prop_assert_eq!(BlockHeader::decode(&header.encode()), Ok(header));
        }
    }

    #[test]
    fn what_is_kept_for_later_is_refused_now() {
        let good = BlockHeader { file: 0, offset: 0, length: 1, hash: BlockHash([0; 32]) }.encode();
        let with = |at: usize, value: u8| {
            let mut bytes = good;
            bytes[at] = value;
            BlockHeader::decode(&bytes)
        };
        assert_eq!(with(0, b'E'), Err(HeaderError::Kind(b'E')));
        assert_eq!(with(1, 1), Err(HeaderError::Flags(1)));
        assert_eq!(with(3, 1), Err(HeaderError::Reserved));
    }

    #[test]
    fn messages_survive_json() {
        let request = CopyRequest {
            job: Job::Put {
                offer: Offer { name: "a".into(), bytes: Bytes(1) },
                to: To::File { path: "b".into(), force: true },
            },
            streams: 4,
            block: Bytes(1024),
            congestion: None,
        };
        let text = serde_json::to_string(&crate::wire::Request::Copy(request.clone())).unwrap();
        let crate::wire::Request::Copy(read) = serde_json::from_str(&text).unwrap() else { panic!("{text}") };
        assert_eq!(read, request, "{text}");
        let message = FromSender::Sent { digest: Digest([1; 32]), progress: Progress::default() };
        let text = serde_json::to_string(&message).unwrap();
        assert_eq!(serde_json::from_str::<FromSender>(&text).unwrap(), message);
    }
}
