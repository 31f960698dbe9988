//! The token file, next to the server's key. Only `lfn token` writes it and only `lfn serve` reads it.
//!
//! The file holds hashes of the tokens, not the tokens. It is changed under a lock and replaced as a whole, so that a
//! server always reads a consistent state.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use lfn_base::units::BitRate;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::atomic_file::set_owner_of_directory;
use crate::identity::{self, IdentityError};
use crate::{Rights, TokenHash};

/// Name of the file in the server's directory.
pub const FILE_NAME: &str = "tokens.toml";

/// Maximum tokens of one server: one for each host of the largest mesh. A clear hello carries no name, so the server tries each
/// token.
pub const MAX_TOKENS: usize = 10_000;

/// All tokens of a server, by name.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TokenFile {
    pub tokens: BTreeMap<String, TokenRecord>,
}

/// Record of one token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenRecord {
    pub hash: TokenHash,
    /// Rights of the token; the server's own rights limit them.
    pub rights: Rights,
    /// Replaces the server's root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<PathBuf>,
    /// Rate limit of all sessions of the token together.
    #[serde(default, rename = "rate_bits_per_second", skip_serializing_if = "Option::is_none")]
    pub rate: Option<BitRate>,
    /// Seconds since 1970-01-01 UTC.
    pub created: u64,
    /// Seconds since 1970-01-01 UTC; the token never expires if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<u64>,
}

impl TokenRecord {
    /// Returns the time at which the token expires.
    pub fn expires(&self) -> Option<SystemTime> {
        self.expires.map(|seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
    }
}

impl TokenFile {
    /// Reads the file. A missing file has no tokens.
    pub fn read(path: &Path) -> Result<Self, IdentityError> {
        let Some(text) = identity::read_secret(path)? else { return Ok(TokenFile::default()) };
        let damaged = || IdentityError::Damaged { path: path.to_owned(), kind: "token file" };
        let file: TokenFile = toml::from_str(&text).map_err(|_| damaged())?;
        if file.tokens.len() > MAX_TOKENS { Err(damaged()) } else { Ok(file) }
    }

    /// Changes the file under a lock; other writers wait. A file with more than [`MAX_TOKENS`] tokens is not written.
    pub fn update<T>(path: &Path, change: impl FnOnce(&mut TokenFile) -> T) -> Result<T, IdentityError> {
        let _lock = lock_file(path).map_err(|source| IdentityError::Io { path: path.to_owned(), source })?;
        let mut file = TokenFile::read(path)?;
        let before = file.clone();
        let result = change(&mut file);
        if file != before {
            let count = file.tokens.len();
            if count > MAX_TOKENS {
                return Err(IdentityError::TooManyTokens { path: path.to_owned(), count, max: MAX_TOKENS });
            }
            let text = toml::to_string(&file);
            let text = text.map_err(|_| IdentityError::Damaged { path: path.to_owned(), kind: "token file" })?;
            identity::write_secret(path, &format!("{HEAD}{text}"))?;
        }
        Ok(result)
    }
}

const HEAD: &str = "# Tokens of `lfn serve`; `lfn token` writes this file.\n";

fn lock_file(path: &Path) -> io::Result<File> {
    if let Some(directory) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    let lock = path.with_extension("lock");
    let file = match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&lock) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => OpenOptions::new().write(true).open(lock)?,
        created => {
            let file = created?;
            set_owner_of_directory(&file, &lock)?;
            file
        }
    };
    flock(&file, FlockOperation::LockExclusive)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn record(byte: u8) -> TokenRecord {
        TokenRecord {
            hash: TokenHash([byte; 32]),
            rights: "read,test".parse().unwrap(),
            root: Some("/srv/data".into()),
            rate: Some(BitRate(1_000_000)),
            created: 1_790_000_000,
            expires: None,
        }
    }

    #[test]
    fn update_is_read_back_and_private() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state/tokens.toml");
        assert_eq!(TokenFile::read(&path).unwrap(), TokenFile::default());
        TokenFile::update(&path, |file| file.tokens.insert("a".into(), record(1))).unwrap();
        TokenFile::update(&path, |file| file.tokens.insert("b".into(), record(2))).unwrap();
        let read = TokenFile::read(&path).unwrap();
        assert_eq!(read.tokens, BTreeMap::from([("a".into(), record(1)), ("b".into(), record(2))]));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let error = TokenFile::read(&path).unwrap_err();
        assert!(matches!(error, IdentityError::Exposed { mode: 0o640, .. }), "{error}");
        assert!(error.hint().unwrap().starts_with("chmod 600 "), "{error}");
    }

    #[test]
    fn concurrent_updates_lose_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens.toml");
        std::thread::scope(|scope| {
            for number in 0..8_u8 {
                let path = &path;
                scope.spawn(move || {
                    TokenFile::update(path, |file| file.tokens.insert(format!("t{number}"), record(number))).unwrap()
                });
            }
        });
        assert_eq!(TokenFile::read(&path).unwrap().tokens.len(), 8);
    }

    #[test]
    fn a_file_that_would_be_refused_is_not_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens.toml");
        let fill = |count: usize| {
            let tokens = (0..count).map(|number| (format!("agent:host{number}"), record(1))).collect();
            TokenFile::update(&path, |file| file.tokens = tokens)
        };
        fill(MAX_TOKENS).unwrap();
        let error = fill(MAX_TOKENS + 1).unwrap_err();
        assert!(matches!(error, IdentityError::TooManyTokens { count: 10_001, max: 10_000, .. }), "{error}");
        assert_eq!(TokenFile::read(&path).unwrap().tokens.len(), MAX_TOKENS);
    }

    #[test]
    fn malformed_file_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens.toml");
        for text in ["nonsense", "[a]\nrights = \"read\"\n", "[a]\nhash = \"00\"\nrights = \"all\"\ncreated = 1\n"] {
            identity::write_secret(&path, text).unwrap();
            assert!(matches!(TokenFile::read(&path), Err(IdentityError::Damaged { .. })), "{text}");
        }
    }
}
