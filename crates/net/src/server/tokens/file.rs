//! The file of tokens beside the server's key: written by `lfn token`, read by `lfn serve`, and by nobody else.
//!
//! A token itself is not in it, only its hash. It is changed under a lock and replaced whole, so that a server that reads it
//! at any moment reads one state or the other.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use lfn_core::session::{Rights, TokenHash};
use lfn_core::units::BitRate;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::session::identity::{self, IdentityError};

/// Its name in the server's directory.
pub const NAME: &str = "tokens.toml";

/// Most tokens of one server: a clear stream says no name, and each is tried.
pub const MOST: usize = 1000;

/// The tokens under their names.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TokenFile {
    /// Under the names that logs have.
    pub tokens: BTreeMap<String, Kept>,
}

/// What is kept of a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kept {
    /// By which it is known.
    pub hash: TokenHash,
    /// What its bearer may do, as far as the server lets anybody.
    pub rights: Rights,
    /// Instead of the server's own root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<PathBuf>,
    /// Of all its sessions together.
    #[serde(default, rename = "rate_bits_per_second", skip_serializing_if = "Option::is_none")]
    pub rate: Option<BitRate>,
    /// Seconds since 1970.
    pub created: u64,
    /// Seconds since 1970; never, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<u64>,
}

impl Kept {
    /// When it ceases to be good.
    pub fn expires(&self) -> Option<SystemTime> {
        self.expires.map(|seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
    }
}

impl TokenFile {
    /// Reads the file; no tokens if there is none.
    pub fn read(path: &Path) -> Result<Self, IdentityError> {
        let Some(text) = identity::read_secret(path)? else { return Ok(TokenFile::default()) };
        let damaged = || IdentityError::Damaged { path: path.to_owned(), what: "file of tokens" };
        let file: TokenFile = toml::from_str(&text).map_err(|_| damaged())?;
        if file.tokens.len() > MOST { Err(damaged()) } else { Ok(file) }
    }

    /// Changes the file: whatever else does so meanwhile waits.
    pub fn change<T>(path: &Path, change: impl FnOnce(&mut TokenFile) -> T) -> Result<T, IdentityError> {
        let _held = hold(path).map_err(|source| IdentityError::Io { path: path.to_owned(), source })?;
        let mut file = TokenFile::read(path)?;
        let before = file.clone();
        let result = change(&mut file);
        if file != before {
            let text = toml::to_string(&file);
            let text = text.map_err(|_| IdentityError::Damaged { path: path.to_owned(), what: "file of tokens" })?;
            identity::write_secret(path, &format!("{HEAD}{text}"))?;
        }
        Ok(result)
    }
}

const HEAD: &str = "# Tokens of `lfn serve`; `lfn token` writes this file.\n";

fn hold(path: &Path) -> io::Result<std::fs::File> {
    if let Some(directory) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    let lock = path.with_extension("lock");
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(lock)?;
    flock(&file, FlockOperation::LockExclusive)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn kept(byte: u8) -> Kept {
        Kept {
            hash: TokenHash([byte; 32]),
            rights: "read,test".parse().unwrap(),
            root: Some("/srv/data".into()),
            rate: Some(BitRate(1_000_000)),
            created: 1_790_000_000,
            expires: None,
        }
    }

    #[test]
    fn what_is_changed_is_read_back_and_others_cannot_read_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state/tokens.toml");
        assert_eq!(TokenFile::read(&path).unwrap(), TokenFile::default());
        TokenFile::change(&path, |file| file.tokens.insert("a".into(), kept(1))).unwrap();
        TokenFile::change(&path, |file| file.tokens.insert("b".into(), kept(2))).unwrap();
        let read = TokenFile::read(&path).unwrap();
        assert_eq!(read.tokens, BTreeMap::from([("a".into(), kept(1)), ("b".into(), kept(2))]));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let error = TokenFile::read(&path).unwrap_err();
        assert!(matches!(error, IdentityError::Exposed { mode: 0o640, .. }), "{error}");
        assert!(error.hint().unwrap().starts_with("chmod 600 "), "{error}");
    }

    #[test]
    fn two_that_change_it_at_once_lose_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens.toml");
        std::thread::scope(|scope| {
            for number in 0..8_u8 {
                let path = &path;
                scope.spawn(move || {
                    TokenFile::change(path, |file| file.tokens.insert(format!("t{number}"), kept(number))).unwrap()
                });
            }
        });
        assert_eq!(TokenFile::read(&path).unwrap().tokens.len(), 8);
    }

    #[test]
    fn a_file_that_makes_no_sense_is_no_file_of_tokens() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens.toml");
        for text in ["nonsense", "[a]\nrights = \"read\"\n", "[a]\nhash = \"00\"\nrights = \"all\"\ncreated = 1\n"] {
            identity::write_secret(&path, text).unwrap();
            assert!(matches!(TokenFile::read(&path), Err(IdentityError::Damaged { .. })), "{text}");
        }
    }
}
