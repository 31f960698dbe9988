//! The manner of a copy: how its blocks are checked, what is on disk when, and whether anything is done at all.
//!
//! Both ends agree on it before the first entry, since neither can do without the other: what the sender does not hash the
//! receiver cannot check. What may happen to what is at the destination is another matter ([`super::verdict`]).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_128;

use super::blocks::{Block, Layout};
use super::digest::{BlockHash, hash_block};
use super::filter::Rules;

/// How a copy is done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Manner {
    /// What its blocks are checked by.
    pub verify: Verify,
    /// What is on disk when.
    pub fsync: Sync,
    /// Nothing is written: what would be done is told.
    pub dry_run: bool,
    /// Nothing is sent before the receiver has said whether it wants to be asked.
    pub wait: bool,
    /// The source's directories are all that stays in the destination's: the sender names what it leaves out.
    pub delete: bool,
    /// What these exclude is not deleted, whether the source has it or not.
    pub protect: Box<Rules>,
    /// The receiver tells what it deletes; in a dry run, what it would do with each entry.
    pub tell: bool,
    /// The receiver tells the digest of every file that is whole there.
    pub digests: bool,
    /// Both ends are on one host: the receiver says which directory it writes below, and the sender waits for that before it
    /// lists, lest a directory be copied into itself.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub here: bool,
    /// There may be more than one source, and then two of them that bring the same name.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub several: bool,
}

/// What a block is checked by at the other end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verify {
    /// BLAKE3: against errors and against whoever changes bytes on purpose; joined, what `b3sum` prints.
    #[default]
    Blake3,
    /// XXH3 of 128 bits: against errors only, at a fraction of the time; there is no digest to print.
    Xxh3,
    /// Nothing but TLS and TCP.
    Off,
}

/// What is on disk when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sync {
    /// Every file, before it gets its name.
    #[default]
    File,
    /// Everything, before the copy is said to have ended well.
    End,
    /// Whenever the kernel likes.
    None,
}

/// A word that none of the choices is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{word}' is none of {choices}")]
pub struct ChoiceError {
    word: String,
    choices: &'static str,
}

impl Verify {
    /// Hashes one block of a file. What is joined of such hashes is the same at both ends, but only that of BLAKE3 is a
    /// digest that others know.
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

    /// Whether two files with the same joined hashes are the same.
    pub fn tells_apart(self) -> bool {
        self != Verify::Off
    }

    /// Whether the joined hashes are a digest to be shown.
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

impl fmt::Display for Sync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Sync::File => "file",
            Sync::End => "end",
            Sync::None => "none",
        })
    }
}

impl FromStr for Sync {
    type Err = ChoiceError;

    fn from_str(word: &str) -> Result<Self, ChoiceError> {
        let found = [Sync::File, Sync::End, Sync::None].into_iter().find(|choice| choice.to_string() == word);
        found.ok_or_else(|| ChoiceError { word: word.into(), choices: "file, end, none" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Bytes;

    #[test]
    fn hashes_are_those_of_their_names() {
        let layout = Layout::new(Bytes(3000), Bytes(1024)).unwrap();
        let block = layout.block(1).unwrap();
        let bytes = vec![7; 1024];
        assert_eq!(Verify::Blake3.hash(&layout, block, &bytes), hash_block(&layout, block, &bytes));
        assert_eq!(Verify::Off.hash(&layout, block, &bytes), BlockHash([0; 32]));
        let hash = Verify::Xxh3.hash(&layout, block, &bytes).0;
        assert_eq!(hash[16..], [0; 16]);
        // XXH3_128bits of nothing with seed 0, from xxHash's sanity tests: high and low half.
        let empty = Verify::Xxh3.hash(&layout, block, &[]).0;
        assert_eq!(empty[..16], 0x99aa_06d3_0147_98d8_6001_c324_468d_497f_u128.to_be_bytes());
        let mut other = bytes.clone();
        other[1000] ^= 1;
        assert_ne!(Verify::Xxh3.hash(&layout, block, &other).0, hash);
    }

    #[test]
    fn words_survive_and_others_are_named() {
        for verify in [Verify::Blake3, Verify::Xxh3, Verify::Off] {
            assert_eq!(verify.to_string().parse(), Ok(verify));
            assert_eq!(serde_json::to_string(&verify).unwrap(), format!("\"{verify}\""));
        }
        for sync in [Sync::File, Sync::End, Sync::None] {
            assert_eq!(sync.to_string().parse(), Ok(sync));
        }
        let wrong = "md5".parse::<Verify>().unwrap_err();
        assert_eq!(wrong.to_string(), "'md5' is none of blake3, xxh3, off");
    }
}
