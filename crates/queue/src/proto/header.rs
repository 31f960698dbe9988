//! The head of the manifest: the copy that it belongs to, its totals, and the number of its parts.

use std::collections::BTreeMap;

use lfn_base::units::Bytes;
use lfn_session::wire::copy::EntryFailure;
use serde::{Deserialize, Serialize};

/// Maximum parts of a manifest: one million files of more than 64 MB, or at most a thousand million small files
/// with short names.
pub const MAX_PARTS: u32 = 1_000_000;

/// Version of the manifest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ManifestSchema {
    #[default]
    #[serde(rename = "lfn.queue.manifest/1")]
    Current,
}

/// The head of a manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    pub schema: ManifestSchema,
    /// Random, in hexadecimal digits: the parts and records of another manifest do not count.
    pub id: String,
    /// The sources, the destination and the options that change the result, as names with values.
    pub copy: BTreeMap<String, String>,
    /// Parts with all entries.
    pub entry_parts: u32,
    /// Parts that list the directories once more. Their attributes are set last.
    pub directory_parts: u32,
    pub entries: u64,
    /// Total length of the files.
    pub bytes: Bytes,
    /// Duration of a lease in milliseconds.
    pub lease_milliseconds: u64,
    /// Symbolic links that were not listed.
    #[serde(default)]
    pub skipped_links: u64,
    /// Devices, FIFOs and sockets, which are never listed.
    #[serde(default)]
    pub skipped_special: u64,
    /// Entries that could not be listed.
    #[serde(default)]
    pub unlisted: u64,
    /// The first of these entries, with their reasons.
    #[serde(default)]
    pub failures: Vec<EntryFailure>,
}

impl Header {
    /// Returns the number of all parts.
    pub fn parts(&self) -> u32 {
        self.entry_parts.saturating_add(self.directory_parts)
    }

    /// Encodes the head for the key-value bucket.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Decodes a head and checks its numbers.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        let header: Header = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if header.parts() > MAX_PARTS {
            return Err(format!("{} parts; maximum {MAX_PARTS}", header.parts()));
        }
        if header.id.len() != 32 || !header.id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(format!("'{}' is no id of a manifest", header.id.chars().take(64).collect::<String>()));
        }
        Ok(header)
    }

    /// Returns the first setting in which another copy differs from this one.
    pub fn difference(&self, other: &BTreeMap<String, String>) -> Option<Difference> {
        let names = self.copy.keys().chain(other.keys());
        names.into_iter().find(|name| self.copy.get(*name) != other.get(*name)).map(|name| {
            let value = |settings: &BTreeMap<String, String>| settings.get(name).cloned().unwrap_or_default();
            Difference { setting: name.clone(), queue: value(&self.copy), command: value(other) }
        })
    }
}

/// A setting in which a command differs from the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub setting: String,
    /// The value of the queue.
    pub queue: String,
    /// The value of the command.
    pub command: String,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;
    use proptest::prelude::*;

    fn header() -> Header {
        let copy = [("source", "runs"), ("verify", "blake3")].map(|(name, value)| (name.into(), value.into()));
        Header { id: "0".repeat(32), copy: copy.into(), entry_parts: 2, ..Header::default() }
    }

    #[test]
    fn first_difference_is_named() {
        let mut other = header().copy;
        assert_eq!(header().difference(&other), None);
        other.insert("verify".into(), "xxh3".into());
        let found = header().difference(&other).unwrap();
        assert_eq!(
            (found.setting.as_str(), found.queue.as_str(), found.command.as_str()),
            ("verify", "blake3", "xxh3")
        );
        other.remove("verify");
        assert_eq!(header().difference(&other).unwrap().command, "");
    }

    #[test]
    fn invalid_heads_name_the_value() {
        assert_eq!(Header::decode(&header().encode()), Ok(header()));
        let large = Header { entry_parts: u32::MAX, directory_parts: 5, ..header() };
        assert_eq!(Header::decode(&large.encode()).unwrap_err(), "4294967295 parts; maximum 1000000");
        let unnamed = Header { id: "x.y".into(), ..header() };
        assert_eq!(Header::decode(&unnamed.encode()).unwrap_err(), "'x.y' is no id of a manifest");
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = Header::decode(&bytes);
        }
    }
}
