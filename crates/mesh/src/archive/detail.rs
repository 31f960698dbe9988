//! The long part of an entry: compressed JSON.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::entry::{Entry, EntryFinding};

/// Maximum length of a decompressed detail, bytes.
const MAX_DETAIL_BYTES: u64 = 16 << 20;

/// Texts with figures and complete documents. They do not repeat, so they are not in the dictionary.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Detail {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub verdict: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<EntryFinding>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub document: Option<Value>,
}

impl Detail {
    /// Returns the detail of an entry, if the entry has one.
    pub(super) fn of(entry: &Entry) -> Option<Self> {
        let detail = Detail {
            verdict: entry.verdict.clone(),
            findings: entry.findings.clone(),
            error: entry.error.clone(),
            document: entry.detail.clone(),
        };
        (detail != Detail::default()).then_some(detail)
    }

    /// Compresses the detail for the archive.
    pub(super) fn encode(&self) -> Vec<u8> {
        let json = serde_json::to_vec(self).unwrap_or_default();
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
        // Writing to memory does not fail.
        let _ = encoder.write_all(&json);
        encoder.finish().unwrap_or_default()
    }

    /// Decompresses a detail; `None` if the bytes are damaged or too long.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut json = Vec::new();
        DeflateDecoder::new(bytes).take(MAX_DETAIL_BYTES).read_to_end(&mut json).ok()?;
        serde_json::from_slice(&json).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_detail_is_read_back_and_damage_is_found() {
        let detail = Detail { verdict: "limited by the path".repeat(40), ..Detail::default() };
        let bytes = detail.encode();
        assert!(bytes.len() < 100, "{}", bytes.len());
        assert_eq!(Detail::decode(&bytes), Some(detail));
        assert_eq!(Detail::decode(&bytes[..bytes.len() / 2]), None);
        assert_eq!(Detail::decode(b"nonsense"), None);
    }
}
