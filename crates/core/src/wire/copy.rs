//! Messages and block headers of a copy session.

use serde::{Deserialize, Serialize};

/// What a client asks of the far end of a copy.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CopyRequest {}

/// What stands before each block on a data stream.
#[derive(Debug, Clone, Copy)]
pub struct BlockHeader {}
