//! The key of STAMP's authenticated mode: HMAC-SHA-256, of which packets carry the first half (RFC 8762 §4.4).

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use ring::hmac;

/// A shared key.
#[derive(Clone)]
pub struct Key(hmac::Key);

/// A key that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file cannot be read.
    #[error("cannot read the key {path}: {source}")]
    Read {
        /// Which.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// Too short to keep anybody out, or too long to be a key.
    #[error("the key {path} has {length} bytes: {least} to {most} are needed", least = Key::LEAST, most = Key::MOST)]
    Length {
        /// Which.
        path: PathBuf,
        /// How long it is.
        length: usize,
    },
}

impl Key {
    /// Fewest bytes.
    pub const LEAST: usize = 16;
    /// Most bytes.
    pub const MOST: usize = 1024;

    /// The bytes of a file, without a line end at its end.
    pub fn read(path: &Path) -> Result<Key, KeyError> {
        let failed = |source| KeyError::Read { path: path.to_owned(), source };
        let mut bytes = Vec::new();
        let most = Key::MOST as u64 + 3;
        File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes)).map_err(failed)?;
        while bytes.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
            bytes.pop();
        }
        match bytes.len() {
            Key::LEAST..=Key::MOST => Ok(Key::new(&bytes)),
            length => Err(KeyError::Length { path: path.to_owned(), length }),
        }
    }

    /// Of these bytes.
    pub fn new(bytes: &[u8]) -> Key {
        Key(hmac::Key::new(hmac::HMAC_SHA256, bytes))
    }

    /// The first 16 bytes of the keyed hash.
    pub(super) fn hash(&self, bytes: &[u8]) -> [u8; 16] {
        let mut hash = [0; 16];
        hash.copy_from_slice(&hmac::sign(&self.0, bytes).as_ref()[..16]);
        hash
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_that_of_rfc_4231() {
        // Test case 2: key "Jefe", "what do ya want for nothing?".
        let hash = Key::new(b"Jefe").hash(b"what do ya want for nothing?");
        assert_eq!(hash[..4], [0x5b, 0xdc, 0xc1, 0x46]);
        assert_eq!(hash[12..], [0x08, 0x95, 0x75, 0xc7]);
    }

    #[test]
    fn a_key_is_read_without_its_line_end_and_a_bad_one_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        std::fs::write(&path, b"0123456789abcdef\n").unwrap();
        assert_eq!(Key::read(&path).unwrap().hash(b"x"), Key::new(b"0123456789abcdef").hash(b"x"));
        std::fs::write(&path, b"short\n").unwrap();
        let error = Key::read(&path).unwrap_err().to_string();
        assert!(error.contains("has 5 bytes: 16 to 1024"), "{error}");
        assert!(Key::read(Path::new("/nonexistent")).unwrap_err().to_string().starts_with("cannot read the key /non"));
    }
}
