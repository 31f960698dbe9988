//! Messages of a copy between two far ends: of the session that lends a token, and of the one that sends by it.
//!
//! The client of both ends asks the receiver for a token that is good for one upload and nothing else, so that it need not
//! hand its own to the sender. The token lives as long as the session that lent it; its client says every
//! [`ALIVE_EVERY`](super::copy::ALIVE_EVERY) that it is there, and closes the connection when the copy is over. What it then asks of the sender is an upload to that receiver; the sender
//! tells it of the copy what it would see of one of its own.

use core::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::CongestionWish;
use super::copy::{CopyId, CopyRequest, Failure, From, Job, Pick, Tally, To, Told};
use crate::session::{Fingerprint, Token};
use crate::transfer::asked::Asked;
use crate::transfer::digest::Digest;
use crate::transfer::entry::Modified;
use crate::transfer::keep::LeftOut;
use crate::transfer::limit::{Extent, Look};
use crate::transfer::manner::Manner;
use crate::transfer::streams::Change;
use crate::units::{BitRate, Bytes};

/// What the token is to be good for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LendRequest {
    /// Where the copy goes: no other place, and with no other leave to replace or remove.
    pub to: To,
    /// How it is checked, kept and told: a copy that only looks does not become one that writes.
    #[serde(default)]
    pub manner: Box<Manner>,
    /// What the sender will be asked for, as in [`SendRequest`]: nothing else may be listed. Whatever comes, if it is empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub from: Vec<From>,
    /// What of it.
    #[serde(default)]
    pub pick: Pick,
    /// When an earlier token was lent for the same copy, as [`FromLender::Lent`] said it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Modified>,
}

impl LendRequest {
    /// What the copy may bring, if that was said.
    pub fn asked(&self) -> Option<Asked> {
        (!self.from.is_empty()).then(|| Asked::of(&self.from, &self.pick))
    }

    /// Whether a copy is the one it was asked for.
    pub fn is_for(&self, copy: &CopyRequest) -> bool {
        matches!(&copy.job, Job::Put { to } if *to == self.to) && copy.manner == self.manner
    }
}

/// What the server says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "lender", rename_all = "snake_case")]
pub enum FromLender {
    /// The first and only word.
    Lent {
        /// What the sender shows.
        token: Token,
        /// Where the server listens, by its own reckoning.
        port: u16,
        /// By which the sender knows the server.
        fingerprint: Fingerprint,
        /// When it was lent, by the server's clock, or as the request has it: what is newer there was written by this copy.
        since: Modified,
    },
}

/// What is to be sent, where to, and how; as [`CopyRequest`] where it says the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SendRequest {
    /// What is sent.
    pub from: Vec<From>,
    /// What of it is listed, and as what.
    #[serde(default)]
    pub pick: Pick,
    /// Who receives it.
    pub receiver: Receiver,
    /// Where it goes there.
    pub to: To,
    /// Data streams at first.
    pub streams: u16,
    /// Most of them at once.
    pub most_streams: u16,
    /// Size of a block; a power of two.
    #[serde(rename = "block_bytes")]
    pub block: Bytes,
    /// Data streams without encryption, authenticated still.
    #[serde(default)]
    pub clear: bool,
    /// Congestion control of the data streams; the kernel's own if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion: Option<CongestionWish>,
    /// What each data stream is paced to; nothing if absent.
    #[serde(default, rename = "pace_bits_per_second", skip_serializing_if = "Option::is_none")]
    pub pace: Option<BitRate>,
    /// What the path is expected to carry.
    #[serde(default, rename = "predicted_bits_per_second", skip_serializing_if = "Option::is_none")]
    pub predicted: Option<BitRate>,
    /// Which copy it is, after a session of it that was lost as before.
    pub copy: CopyId,
    /// How long the sender tries to get a connection to the receiver again.
    #[serde(rename = "patience_seconds", with = "crate::units::seconds")]
    pub patience: Duration,
    /// How it is checked, kept and told.
    #[serde(default)]
    pub manner: Box<Manner>,
}

/// The receiver, as its client knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receiver {
    /// What it is called, for messages.
    pub host: String,
    /// Where its client reached it: the sender may have no way to look up names.
    pub addresses: Vec<SocketAddr>,
    /// The token that was lent.
    pub token: Token,
    /// By which it is known.
    pub fingerprint: Fingerprint,
}

/// Most addresses of a receiver that are dialled.
pub const MOST_ADDRESSES: usize = 16;

/// Most failures, and most entries told, in one message.
pub const TOLD_AT_ONCE: usize = 64;

/// What the sender says of the copy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "carrier", rename_all = "snake_case")]
pub enum FromCarrier {
    /// Still there; where nothing else was said for [`ALIVE_EVERY`](super::copy::ALIVE_EVERY).
    Alive,
    /// How far it is; several times a second.
    Seen {
        /// How much there is, as far as it is listed.
        extent: Extent,
        /// How far it is.
        look: Look,
    },
    /// The streams are changed.
    Changed(Change),
    /// The receiver was lost.
    Lost {
        /// By what.
        why: String,
    },
    /// There is no connection to it.
    Trying {
        /// For how long.
        #[serde(with = "crate::units::seconds")]
        seconds: Duration,
    },
    /// There is one again.
    Back {
        /// After how long.
        #[serde(with = "crate::units::seconds")]
        seconds: Duration,
    },
    /// What became of entries, where that is wanted.
    Told {
        /// No more than [`TOLD_AT_ONCE`].
        entries: Vec<Told>,
    },
    /// All that was told comes again.
    Void,
    /// What failed; before the last word.
    Failures {
        /// No more than [`TOLD_AT_ONCE`].
        failures: Vec<Failure>,
    },
    /// The last word: everything that did not fail is whole there.
    Done(Box<Carried>),
    /// The last word: the copy failed.
    Failed {
        /// Whose words they are.
        #[serde(default)]
        end: CarriedEnd,
        /// Why.
        what: String,
        /// What may be done about it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hint: Option<String>,
        /// The same command goes on where it stopped.
        resumable: bool,
        /// The receiver knows the token no longer: another that it lends may be good.
        #[serde(default)]
        forgotten: bool,
    },
}

/// One of the two ends between which data are carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CarriedEnd {
    /// That reads.
    #[default]
    Sender,
    /// That writes.
    Receiver,
}

impl std::fmt::Display for CarriedEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            CarriedEnd::Sender => "the source",
            CarriedEnd::Receiver => "the destination",
        })
    }
}

/// How a copy ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Carried {
    /// Length of all files.
    pub bytes: Bytes,
    /// Of the file, if it was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// Where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// What became of the entries.
    pub tally: Tally,
    /// What of the sources was not listed.
    pub left_out: LeftOut,
    /// Both sides at the end.
    pub look: Look,
    /// Data streams that were replaced.
    pub replaced: u32,
}

/// What the client says, to either.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "borrower", rename_all = "snake_case")]
pub enum FromBorrower {
    /// Still there.
    Alive,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Request;

    #[test]
    fn messages_read_as_the_protocol_says() {
        let lend =
            LendRequest { to: To::Null, manner: Box::default(), from: Vec::new(), pick: Pick::default(), since: None };
        let json = r#"{"verb":"lend","to":{"to":"null"}}"#;
        assert!(matches!(serde_json::from_str(json), Ok(Request::Lend(read)) if *read == lend));
        let json = r#"{"verb":"lend","to":{"to":"null"},"from":[{"from":"zero","bytes":1}],"since":[5,0]}"#;
        let (from, since) = (vec![From::Zero { bytes: Bytes(1) }], Modified::new(5, 0).ok());
        let bound = LendRequest { from, since, ..lend.clone() };
        assert!(matches!(serde_json::from_str(json), Ok(Request::Lend(read)) if *read == bound));
        assert!(lend.asked().is_none() && bound.asked().is_some());
        let (token, fingerprint) = (Token::from_bytes([1; 16]), Fingerprint([2; 32]));
        let since = Modified::new(1_790_000_000, 0).unwrap();
        let lent = FromLender::Lent { token, port: 4096, fingerprint, since };
        let text = serde_json::to_string(&lent).unwrap();
        assert!(text.starts_with(r#"{"lender":"lent","token":""#), "{text}");
        assert_eq!(serde_json::from_str::<FromLender>(&text).unwrap(), lent);
        assert_eq!(serde_json::to_string(&FromBorrower::Alive).unwrap(), r#"{"borrower":"alive"}"#);
    }
}
