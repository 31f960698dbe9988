//! Options of a copy: verification, syncing to disk, and dry run.
//!
//! Both ends agree on the options before the first entry, because each depends on the other: the receiver can only
//! verify hashes that the sender computes. The handling of existing files is separate ([`super::overwrite`]).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_128;

use super::digest::{BlockHash, hash_block};
use super::filter::FilterRules;
use crate::wire::copy::blocks::{Block, Layout};

/// Options of a copy that both ends know.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TransferOptions {
    pub verify: Verify,
    pub fsync: FsyncPolicy,
    /// Report the changes instead of writing.
    pub dry_run: bool,
    /// The sender waits for the receiver's `ready` before it sends data.
    pub wait_for_ready: bool,
    /// Delete destination entries that the source does not have. The sender also lists the names that it excludes.
    pub delete: bool,
    /// Entries that these rules exclude are never deleted.
    pub protect: Box<FilterRules>,
    /// The receiver reports each entry that it copies and each deletion. In a dry run, it reports the action for each
    /// entry.
    pub report_entries: bool,
    /// The receiver also reports each entry that is up to date.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub report_unchanged: bool,
    /// The receiver reports the digest of every complete file.
    pub report_digests: bool,
    /// Both ends may be on one host. The receiver reports its destination directory, and the sender waits for the
    /// report before it lists, so that a directory is not copied into itself. The sender ignores the report of another
    /// host.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub same_host: bool,
    /// There may be several sources, and two of them may contain the same name.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub multiple_sources: bool,
}

/// Method that verifies blocks at the other end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Verify {
    /// BLAKE3: detects errors and intentional changes. The joined digest is that of `b3sum`.
    #[default]
    Blake3,
    /// XXH3 with 128 bits: detects errors only, in a fraction of the time. There is no digest to print.
    Xxh3,
    /// Relies on TLS and TCP only.
    Off,
}

/// When data is synced to disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FsyncPolicy {
    /// Each file, before it gets its final name.
    #[default]
    File,
    /// All data, before the copy succeeds.
    End,
    /// Left to the kernel.
    None,
}

/// A word that is not one of the choices.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{word}' is not one of {choices}")]
pub struct ChoiceError {
    word: String,
    choices: &'static str,
}

impl Verify {
    /// Hashes one block of a file. The joined hash is equal at both ends. Only the joined hash of BLAKE3 is a standard
    /// digest.
    pub fn hash(self, layout: &Layout, block: Block, bytes: &[u8]) -> BlockHash {
        match self {
            Verify::Blake3 => hash_block(layout, block, bytes),
            Verify::Xxh3 => {
                let mut hash = [0; 32];
                hash[..16].copy_from_slice(&XxHash3_128::oneshot(bytes).to_be_bytes());
                BlockHash(hash)
            }
            Verify::Off => BlockHash([0; 32]),
        }
    }

    /// Reports whether the joined hash detects a changed file.
    pub fn detects_changes(self) -> bool {
        self != Verify::Off
    }

    /// Reports whether the joined hash is a digest that can be shown.
    pub fn has_digest(&self) -> bool {
        *self == Verify::Blake3
    }
}

impl fmt::Display for Verify {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verify::Blake3 => "blake3",
            Verify::Xxh3 => "xxh3",
            Verify::Off => "off",
        })
    }
}

impl FromStr for Verify {
    type Err = ChoiceError;

    fn from_str(word: &str) -> Result<Self, ChoiceError> {
        let choices = [Verify::Blake3, Verify::Xxh3, Verify::Off];
        let found = choices.into_iter().find(|choice| choice.to_string() == word);
        found.ok_or_else(|| ChoiceError { word: word.into(), choices: "blake3, xxh3, off" })
    }
}

impl fmt::Display for FsyncPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FsyncPolicy::File => "file",
            FsyncPolicy::End => "end",
            FsyncPolicy::None => "none",
        })
    }
}

impl FromStr for FsyncPolicy {
    type Err = ChoiceError;

    fn from_str(word: &str) -> Result<Self, ChoiceError> {
        let found = [FsyncPolicy::File, FsyncPolicy::End, FsyncPolicy::None]
            .into_iter()
            .find(|choice| choice.to_string() == word);
        found.ok_or_else(|| ChoiceError { word: word.into(), choices: "file, end, none" })
    }
}

#[cfg(test)]
mod tests {
    use lfn_base::units::Bytes;

    use super::*;

    #[test]
    fn hashes_match_their_methods() {
        let layout = Layout::new(Bytes(3000), Bytes(1024)).unwrap();
        let block = layout.block(1).unwrap();
        let bytes = vec![7; 1024];
        assert_eq!(Verify::Blake3.hash(&layout, block, &bytes), hash_block(&layout, block, &bytes));
        assert_eq!(Verify::Off.hash(&layout, block, &bytes), BlockHash([0; 32]));
        let hash = Verify::Xxh3.hash(&layout, block, &bytes).0;
        assert_eq!(hash[16..], [0; 16]);
        // XXH3_128bits of empty input with seed 0, from xxHash's sanity tests: high and low half.
        let empty = Verify::Xxh3.hash(&layout, block, &[]).0;
        assert_eq!(empty[..16], 0x99aa_06d3_0147_98d8_6001_c324_468d_497f_u128.to_be_bytes());
        let mut other = bytes.clone();
        other[1000] ^= 1;
        assert_ne!(Verify::Xxh3.hash(&layout, block, &other).0, hash);
    }

    #[test]
    fn choices_round_trip_and_errors_list_them() {
        for verify in [Verify::Blake3, Verify::Xxh3, Verify::Off] {
            assert_eq!(verify.to_string().parse(), Ok(verify));
            assert_eq!(serde_json::to_string(&verify).unwrap(), format!("\"{verify}\""));
        }
        for sync in [FsyncPolicy::File, FsyncPolicy::End, FsyncPolicy::None] {
            assert_eq!(sync.to_string().parse(), Ok(sync));
        }
        let wrong = "md5".parse::<Verify>().unwrap_err();
        assert_eq!(wrong.to_string(), "'md5' is not one of blake3, xxh3, off");
    }
}
