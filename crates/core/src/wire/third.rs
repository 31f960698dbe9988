//! Messages of a session that lends a token: the receiving half of a copy between two far ends.
//!
//! The client of both ends asks the receiver for a token that is good for one upload and nothing else, so that it need not
//! hand its own to the sender. The token lives as long as the session that lent it; its client says every
//! [`ALIVE_EVERY`](super::copy::ALIVE_EVERY) that it is there, and closes the connection when the copy is over.

use serde::{Deserialize, Serialize};

use super::copy::{CopyRequest, Job, To};
use crate::session::{Fingerprint, Token};
use crate::transfer::manner::Manner;

/// What the token is to be good for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LendRequest {
    /// Where the copy goes: no other place, and with no other leave to replace or remove.
    pub to: To,
    /// How it is checked, kept and told: a copy that only looks does not become one that writes.
    #[serde(default)]
    pub manner: Box<Manner>,
}

impl LendRequest {
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
    },
}

/// What the client says.
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
        let lend = LendRequest { to: To::Null, manner: Box::default() };
        let json = r#"{"verb":"lend","to":{"to":"null"}}"#;
        assert!(matches!(serde_json::from_str(json), Ok(Request::Lend(read)) if *read == lend));
        let lent =
            FromLender::Lent { token: Token::from_bytes([1; 16]), port: 4096, fingerprint: Fingerprint([2; 32]) };
        let text = serde_json::to_string(&lent).unwrap();
        assert!(text.starts_with(r#"{"lender":"lent","token":""#), "{text}");
        assert_eq!(serde_json::from_str::<FromLender>(&text).unwrap(), lent);
        assert_eq!(serde_json::to_string(&FromBorrower::Alive).unwrap(), r#"{"borrower":"alive"}"#);
    }
}
