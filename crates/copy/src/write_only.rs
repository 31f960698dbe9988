//! Write-only clients: they may write below a served root but not see it.
//!
//! A client of a write-only *root* learns only whether a name is in use, which it must know to store files. It learns
//! no size, time or digest, and of partial files only those of its own token. A client of a write-only *area* writes
//! into a directory that is created for its copy. All other contents of the area can therefore neither be replaced nor
//! detected. After a lost connection, the copy resumes in the same directory: its name is derived from the copy id,
//! which no other client knows.

use std::os::fd::OwnedFd;
use std::time::{Duration, SystemTime};

use lfn_base::date::rfc3339;
use lfn_session::TokenHash;
use lfn_session::wire::copy::CopyId;
use lfn_session::wire::copy::byte_string::ByteString;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, mkdirat, openat, statat, unlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::TransferError;
use super::base_dir::{BaseDir, file_error};

/// Reports whether the text is a source name of a partial file whose owner is a token.
pub(super) fn is_tag(source: &ByteString) -> bool {
    let hex = |part: &[u8], digits: usize| part.len() == digits && part.iter().all(u8::is_ascii_hexdigit);
    matches!(source.as_bytes().split_at_checked(16), Some((tag, [b'/', name @ ..])) if hex(tag, 16) && hex(name, 64))
}

/// The directory of one copy in a write-only area.
#[derive(Debug)]
pub(crate) struct WriteOnlyArea {
    root: OwnedFd,
    name: String,
}

impl WriteOnlyArea {
    /// Creates the directory, or reuses the directory of an earlier session with the same copy and token. The directory
    /// name contains the name of the token.
    pub(crate) fn create(
        root: OwnedFd,
        holder: Option<&str>,
        token: &TokenHash,
        copy: Option<&CopyId>,
    ) -> Result<Self, TransferError> {
        let failed = |error| file_error("create a directory in", "the write-only directory", error);
        let holder = holder.unwrap_or("ticket");
        if let Some(copy) = copy {
            // All sessions of a copy report the same client time.
            let began = Duration::from_secs(u64::try_from(copy.began.seconds()).unwrap_or_default());
            let name = format!("{}-{holder}-{}", timestamp(began), copy_tag(token, copy));
            return match mkdirat(&root, &name, Mode::from_raw_mode(0o777)) {
                Ok(()) => Ok(WriteOnlyArea { root, name }),
                // A symbolic link or another user's directory is not accepted.
                Err(Errno::EXIST) if is_own_directory(&root, &name) => Ok(WriteOnlyArea { root, name }),
                Err(error) => Err(failed(error)),
            };
        }
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        for _ in 0..16 {
            let random = getrandom::u64().map_err(|_| failed(Errno::IO))?;
            let name = format!("{}-{holder}-{random:016x}", timestamp(now));
            match mkdirat(&root, &name, Mode::from_raw_mode(0o777)) {
                Ok(()) => return Ok(WriteOnlyArea { root, name }),
                Err(Errno::EXIST) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Err(failed(Errno::EXIST))
    }

    /// Returns the name of the directory in the root.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the base directory of the session's paths.
    pub(crate) fn base_dir(&self) -> Result<BaseDir, TransferError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let inside = openat(&self.root, &self.name, flags, Mode::empty());
        inside.map(BaseDir::Root).map_err(|error| file_error("open", "the write-only directory", error))
    }
}

/// Formats a time such as `20261122T064203Z`.
fn timestamp(since: Duration) -> String {
    let digits: String = rfc3339(since).chars().filter(|c| !matches!(c, '-' | ':')).take(15).collect();
    digits + "Z"
}

/// Returns a text that only the holder of the token and the copy id can derive.
fn copy_tag(token: &TokenHash, copy: &CopyId) -> String {
    let ids = [token.0.as_slice(), &copy.id.0].concat();
    let hash = blake3::derive_key("lfn 2026-11-22 directory of a copy in a drop box v1", &ids);
    data_encoding::HEXLOWER.encode(&hash[..8])
}

fn is_own_directory(root: &OwnedFd, name: &str) -> bool {
    statat(root, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| {
        FileType::from_raw_mode(stat.st_mode) == FileType::Directory && stat.st_uid == geteuid().as_raw()
    })
}

impl Drop for WriteOnlyArea {
    /// Removes the directory if it is empty.
    fn drop(&mut self) {
        let _ = unlinkat(&self.root, &self.name, AtFlags::REMOVEDIR);
    }
}

#[cfg(test)]
mod tests {
    use lfn_session::wire::copy::entry::Modified;
    use lfn_session::{SessionId, Token};

    use super::*;

    #[test]
    fn copy_reuses_only_its_own_directory() {
        let home = tempfile::tempdir().unwrap();
        let root = || std::fs::File::open(home.path()).unwrap().into();
        let [one, other] = [1, 2].map(|n| Token::from_bytes([n; 16]).hash());
        let began = Modified::new(1_795_329_723, 0).unwrap();
        let copy = |n: u8| CopyId { id: SessionId([n; 16]), began, since: None };
        let make = |token: &TokenHash, copy: Option<&CopyId>| WriteOnlyArea::create(root(), Some("a"), token, copy);
        let first = make(&one, Some(&copy(1))).unwrap();
        assert!(first.name().starts_with("20261122T064203Z-a-"), "{}", first.name());
        assert_eq!(make(&one, Some(&copy(1))).unwrap().name(), first.name());
        for (token, copy) in [(&one, Some(copy(2))), (&other, Some(copy(1))), (&one, None)] {
            assert_ne!(make(token, copy.as_ref()).unwrap().name(), first.name());
        }
        // A symbolic link at its path is not accepted.
        let name = first.name().to_owned();
        drop(first);
        std::os::unix::fs::symlink("/tmp", home.path().join(&name)).unwrap();
        assert!(make(&one, Some(&copy(1))).is_err());
    }
}
