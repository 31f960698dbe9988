//! Tag of a running kernel, by which the two ends of a copy find out that they share one.
//!
//! Device and inode numbers identify a directory only within one kernel. The tag is a salted hash of the kernel's boot
//! id, so a peer on another host learns nothing from the tag.

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};

/// Bytes of the salt, and of the hash.
const SALT_BYTES: usize = 16;
const HASH_BYTES: usize = 16;

/// Salted hash of a kernel's boot id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct HostTag {
    salt: [u8; SALT_BYTES],
    hash: [u8; HASH_BYTES],
}

/// A tag that is not 64 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid host tag")]
pub struct HostTagError;

impl HostTag {
    /// Creates the tag of the kernel with this boot id. `salt` is random.
    pub fn new(boot_id: &str, salt: [u8; SALT_BYTES]) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("lfn 2026-11-26 host tag of a copy");
        hasher.update(&salt);
        hasher.update(boot_id.as_bytes());
        let mut hash = [0; HASH_BYTES];
        hasher.finalize_xof().fill(&mut hash);
        HostTag { salt, hash }
    }

    /// Reports whether the tag belongs to the kernel with this boot id.
    pub fn matches(&self, boot_id: &str) -> bool {
        *self == HostTag::new(boot_id, self.salt)
    }
}

impl From<HostTag> for String {
    fn from(tag: HostTag) -> String {
        HEXLOWER.encode(&[tag.salt, tag.hash].concat())
    }
}

impl TryFrom<String> for HostTag {
    type Error = HostTagError;

    fn try_from(text: String) -> Result<Self, HostTagError> {
        let bytes = HEXLOWER.decode(text.as_bytes()).map_err(|_| HostTagError)?;
        let (salt, hash) = bytes.split_at_checked(SALT_BYTES).ok_or(HostTagError)?;
        let salt = salt.try_into().map_err(|_| HostTagError)?;
        Ok(HostTag { salt, hash: hash.try_into().map_err(|_| HostTagError)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tag_matches_only_its_own_kernel() {
        let tag = HostTag::new("a", [7; SALT_BYTES]);
        assert!(tag.matches("a") && !tag.matches("b"));
        let text = serde_json::to_string(&tag).unwrap();
        assert_eq!(serde_json::from_str::<HostTag>(&text).unwrap(), tag);
        assert_ne!(HostTag::new("a", [8; SALT_BYTES]), tag);
        for bad in ["\"\"", "\"00\"", "\"zz\"", &text.replace("\"", "\"00").replace("00\"", "\"")] {
            assert!(bad == text || serde_json::from_str::<HostTag>(bad).is_err(), "{bad}");
        }
    }
}
