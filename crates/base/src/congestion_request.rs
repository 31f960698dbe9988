//! Request of a congestion control.

use serde::{Deserialize, Serialize};

/// Congestion control requested for a sender's sockets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CongestionRequest {
    /// Requested by the user: if the kernel does not have it, the test fails.
    Requested(String),
    /// Preferred by the plan: if the kernel does not have it, or the user may not use it, the kernel's default is used.
    Planned(String),
}

impl CongestionRequest {
    /// Returns the name for `TCP_CONGESTION`.
    pub fn name(&self) -> &str {
        let (CongestionRequest::Requested(name) | CongestionRequest::Planned(name)) = self;
        name
    }

    /// Returns the name if the user requested it.
    pub fn requested(&self) -> Option<&str> {
        match self {
            CongestionRequest::Requested(name) => Some(name),
            CongestionRequest::Planned(_) => None,
        }
    }
}
