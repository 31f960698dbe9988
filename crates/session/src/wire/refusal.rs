//! Refusal of a request by the server.

use lfn_results::measure::RequestError;
use serde::{Deserialize, Serialize};

/// Refusal of a request. A refusal has its own frame kind and may replace any message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    pub code: RefusalCode,
    /// For people; contains the object and the value.
    pub message: String,
    /// Action for the user, if one exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// Reason for a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RefusalCode {
    /// The server does not know the token.
    WrongToken,
    ExpiredToken,
    /// The server has its maximum of sessions.
    Full,
    /// The client's protocol version is not supported.
    Protocol,
    /// The request exceeds a fixed limit of the server.
    Limit,
    /// The request exceeds the rest of a quota; later more is available.
    Quota,
    /// The path is outside the served root, is not a regular file, or no root is served.
    Forbidden,
    NotFound,
    /// The destination exists and may not be replaced.
    Exists,
    /// The destination's file system is full.
    NoSpace,
    /// Any other error of the file system.
    Io,
    /// Received data differs from the sent data.
    Corrupt,
    /// The message is invalid at this point.
    BadMessage,
    /// A message did not arrive in time.
    Timeout,
    Stopped,
    /// A rank of the copy stayed away, and no other rank has its data. The same copy resumes.
    MissingRank,
    /// The lead of several ranks is lost. The other ranks connect again.
    LostLead,
    /// An error code of a newer version.
    #[serde(other)]
    Other,
}

impl Refusal {
    /// Creates a refusal without a hint.
    pub fn new(code: RefusalCode, message: impl Into<String>) -> Self {
        Refusal { code, message: message.into(), hint: None }
    }

    /// Adds a hint: the action for the user.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// Converts an invalid request to the refusal that the client receives.
impl From<&RequestError> for Refusal {
    fn from(error: &RequestError) -> Refusal {
        Refusal::new(RefusalCode::BadMessage, error.to_string())
            .hint(error.hint().unwrap_or_else(|| "see lfn test --help".into()))
    }
}
