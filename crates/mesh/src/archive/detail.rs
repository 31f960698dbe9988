//! The long parts of an entry, compressed: its texts, which stay, and its complete document, which expires.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use serde::{Deserialize, Serialize};

use crate::entry::{Entry, EntryFinding, RawJson};

/// Maximum length of a decompressed text, bytes.
const MAX_BYTES: u64 = 16 << 20;

/// Texts with figures. They do not repeat, so they are not in the dictionary.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct EntryTexts {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub verdict: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<EntryFinding>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl EntryTexts {
    /// Returns the texts of an entry, if the entry has one.
    pub(super) fn of(entry: &Entry) -> Option<Self> {
        let explanation =
            EntryTexts { verdict: entry.verdict.clone(), findings: entry.findings.clone(), error: entry.error.clone() };
        (explanation != EntryTexts::default()).then_some(explanation)
    }

    /// Compresses the texts for the archive.
    pub(super) fn encode(&self) -> Vec<u8> {
        compress(&serde_json::to_vec(self).unwrap_or_default())
    }

    /// Decompresses texts; `None` if the bytes are damaged or too long.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        serde_json::from_str(&decompress(bytes)?).ok()
    }
}

/// Compresses a complete document for the archive.
pub(super) fn encode_document(document: &RawJson) -> Vec<u8> {
    compress(document.text().as_bytes())
}

/// Decompresses a complete document; `None` if the bytes are damaged or too long.
pub(super) fn decode_document(bytes: &[u8]) -> Option<RawJson> {
    RawJson::parse(decompress(bytes)?)
}

/// Texts and document in one, as archives of version 1 have them.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct OldDetail {
    verdict: String,
    findings: Vec<EntryFinding>,
    error: Option<String>,
    document: Option<RawJson>,
}

/// Returns the texts and the document of a detail of an archive of version 1, compressed.
pub(super) fn divide(bytes: &[u8]) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
    let old: OldDetail = decompress(bytes).and_then(|json| serde_json::from_str(&json).ok()).unwrap_or_default();
    let OldDetail { verdict, findings, error, document } = old;
    let explanation = EntryTexts { verdict, findings, error };
    let texts = (explanation != EntryTexts::default()).then(|| explanation.encode());
    (texts, document.as_ref().map(encode_document))
}

pub(super) fn compress(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
    // Writing to memory does not fail.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}

fn decompress(bytes: &[u8]) -> Option<String> {
    let mut text = String::new();
    DeflateDecoder::new(bytes).take(MAX_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_back_and_damage_is_found() {
        let texts = EntryTexts { verdict: "limited by the path".repeat(40), ..EntryTexts::default() };
        let bytes = texts.encode();
        assert!(bytes.len() < 100, "{}", bytes.len());
        assert_eq!(EntryTexts::decode(&bytes), Some(texts));
        assert_eq!(EntryTexts::decode(&bytes[..bytes.len() / 2]), None);
        assert_eq!(decode_document(b"nonsense"), None);
    }
}
