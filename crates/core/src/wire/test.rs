//! Messages of a test session.

use serde::{Deserialize, Serialize};

/// What a client asks of the far end of a test.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TestRequest {}
