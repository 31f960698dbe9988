//! Key of STAMP's authenticated mode: HMAC-SHA-256, truncated to 16 bytes (RFC 8762 §4.4).

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use ring::hmac;

/// A key that sender and reflector share.
#[derive(Clone)]
pub struct StampKey(hmac::Key);

/// Reason why a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StampKeyError {
    #[error("cannot read the key {path}: {source}")]
    Read { path: PathBuf, source: io::Error },
    /// Too short to be secure, or too long to be a key.
    #[error("the key {path} has {length} bytes; it needs {min_length} to {max_length} bytes", min_length = StampKey::MIN_LENGTH, max_length = StampKey::MAX_LENGTH)]
    Length { path: PathBuf, length: usize },
}

impl StampKey {
    pub const MIN_LENGTH: usize = 16;
    pub const MAX_LENGTH: usize = 1024;

    /// Reads a key from a file, without the line end at the end of the file.
    pub fn read(path: &Path) -> Result<StampKey, StampKeyError> {
        let failed = |source| StampKeyError::Read { path: path.to_owned(), source };
        let mut bytes = Vec::new();
        let max_length = StampKey::MAX_LENGTH as u64 + 3;
        File::open(path).and_then(|file| file.take(max_length).read_to_end(&mut bytes)).map_err(failed)?;
        while bytes.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
            bytes.pop();
        }
        match bytes.len() {
            StampKey::MIN_LENGTH..=StampKey::MAX_LENGTH => Ok(StampKey::new(&bytes)),
            length => Err(StampKeyError::Length { path: path.to_owned(), length }),
        }
    }

    /// Creates a key from bytes.
    pub fn new(bytes: &[u8]) -> StampKey {
        StampKey(hmac::Key::new(hmac::HMAC_SHA256, bytes))
    }

    /// Returns the first 16 bytes of the keyed hash.
    pub(super) fn hash(&self, bytes: &[u8]) -> [u8; 16] {
        let mut hash = [0; 16];
        hash.copy_from_slice(&hmac::sign(&self.0, bytes).as_ref()[..16]);
        hash
    }
}

impl fmt::Debug for StampKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_matches_rfc_4231() {
        // Test case 2 of the RFC.
        let hash = StampKey::new(b"Jefe").hash(b"what do ya want for nothing?");
        assert_eq!(hash[..4], [0x5b, 0xdc, 0xc1, 0x46]);
        assert_eq!(hash[12..], [0x08, 0x95, 0x75, 0xc7]);
    }

    #[test]
    fn key_is_read_without_line_end_and_checked() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        std::fs::write(&path, b"0123456789abcdef\n").unwrap();
        assert_eq!(StampKey::read(&path).unwrap().hash(b"x"), StampKey::new(b"0123456789abcdef").hash(b"x"));
        std::fs::write(&path, b"short\n").unwrap();
        let error = StampKey::read(&path).unwrap_err().to_string();
        assert!(error.contains("has 5 bytes; it needs 16 to 1024 bytes"), "{error}");
        assert!(
            StampKey::read(Path::new("/nonexistent")).unwrap_err().to_string().starts_with("cannot read the key /non")
        );
    }
}
