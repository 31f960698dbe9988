//! Who may write below a served root and not look at it: what they are told, and where a drop box puts what they leave.
//!
//! A guest of a *write-only* root learns of a name that it is taken, as whoever stores files under names must, and nothing
//! else of what stands there: no length, no time, no digest, and nothing of partial files but of those that the same token
//! left. What a guest leaves in a *drop box* goes into a directory that is made for the session: whatever else is in the box
//! can neither be replaced nor met with, by construction and not by comparing. A copy that lost its connection goes on in
//! the directory that it had: its name follows from the copy's id, which nobody else knows.

use std::os::fd::OwnedFd;
use std::time::{Duration, SystemTime};

use lfn_core::date::rfc3339;
use lfn_core::session::TokenHash;
use lfn_core::transfer::entry::Entry;
use lfn_core::transfer::raw::Raw;
use lfn_core::wire::copy::CopyId;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, mkdirat, openat, statat, unlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::TransferError;
use super::place::{Base, file_error};

/// How its partial files are known, and whether they stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Guest {
    tag: [u8; 8],
    /// What is incomplete at the end of the session stays, to be gone on with.
    pub(crate) resumes: bool,
}

impl Guest {
    /// One of a write-only root.
    pub(crate) fn of(token: &TokenHash) -> Self {
        let mut tag = [0; 8];
        tag.copy_from_slice(&blake3::derive_key("lfn 2026-11-22 partial files of a token v1", &token.0)[..8]);
        Guest { tag, resumes: true }
    }

    /// What a journal of theirs says of its source: whose it is, and which name it had.
    pub(super) fn source(&self, entry: &Entry) -> Raw {
        let name = blake3::hash(entry.name.as_bytes()).to_hex();
        Raw::from([self.prefix().as_slice(), name.as_bytes()].concat().as_slice())
    }

    /// Whether a journal that says this is one of theirs.
    pub(super) fn owns(&self, source: &Raw) -> bool {
        source.as_bytes().starts_with(&self.prefix())
    }

    fn prefix(&self) -> Vec<u8> {
        format!("{}/", data_encoding::HEXLOWER.encode(&self.tag)).into_bytes()
    }
}

/// Whether a journal's source is what [`Guest::source`] makes of it, of whichever guest.
pub(super) fn is_tag(source: &Raw) -> bool {
    let hex = |part: &[u8], digits: usize| part.len() == digits && part.iter().all(u8::is_ascii_hexdigit);
    matches!(source.as_bytes().split_at_checked(16), Some((tag, [b'/', name @ ..])) if hex(tag, 16) && hex(name, 64))
}

/// The directory of one copy in a drop box.
#[derive(Debug)]
pub(crate) struct DropBox {
    root: OwnedFd,
    name: String,
}

impl DropBox {
    /// Makes it, or takes the one that an earlier session of the same copy and token made; the name of the token stands in
    /// its name.
    pub(crate) fn make(
        root: OwnedFd,
        (who, token): (Option<&str>, &TokenHash),
        copy: Option<&CopyId>,
    ) -> Result<Self, TransferError> {
        let failed = |error| file_error("make a directory in", "the drop box", error);
        let who = who.unwrap_or("ticket");
        if let Some(copy) = copy {
            // The client's clock, and nobody's but the client's to be wrong: every session says the same.
            let began = Duration::from_secs(u64::try_from(copy.began.seconds()).unwrap_or_default());
            let name = format!("{}-{who}-{}", moment(began), mark(token, copy));
            return match mkdirat(&root, &name, Mode::from_raw_mode(0o777)) {
                Ok(()) => Ok(DropBox { root, name }),
                // A link, or another user's, is none of ours.
                Err(Errno::EXIST) if is_own_directory(&root, &name) => Ok(DropBox { root, name }),
                Err(error) => Err(failed(error)),
            };
        }
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        for _ in 0..16 {
            let random = getrandom::u64().map_err(|_| failed(Errno::IO))?;
            let name = format!("{}-{who}-{random:016x}", moment(now));
            match mkdirat(&root, &name, Mode::from_raw_mode(0o777)) {
                Ok(()) => return Ok(DropBox { root, name }),
                Err(Errno::EXIST) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Err(failed(Errno::EXIST))
    }

    /// Its name in the root.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Where the session's paths start.
    pub(crate) fn base(&self, token: &TokenHash) -> Result<Base, TransferError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let inside = openat(&self.root, &self.name, flags, Mode::empty());
        let inside = inside.map_err(|error| file_error("open", "the drop box", error))?;
        Ok(Base::Guest(inside, Guest { resumes: false, ..Guest::of(token) }, None))
    }
}

/// `20261122T064203Z`.
fn moment(since: Duration) -> String {
    let digits: String = rfc3339(since).chars().filter(|c| !matches!(c, '-' | ':')).take(15).collect();
    digits + "Z"
}

/// What only the bearer of the token and the client of the copy can tell of both.
fn mark(token: &TokenHash, copy: &CopyId) -> String {
    let ids = [token.0.as_slice(), &copy.id.0].concat();
    let hash = blake3::derive_key("lfn 2026-11-22 directory of a copy in a drop box v1", &ids);
    data_encoding::HEXLOWER.encode(&hash[..8])
}

fn is_own_directory(root: &OwnedFd, name: &str) -> bool {
    statat(root, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| {
        FileType::from_raw_mode(stat.st_mode) == FileType::Directory && stat.st_uid == geteuid().as_raw()
    })
}

impl Drop for DropBox {
    /// Nothing was left: nothing is to be seen.
    fn drop(&mut self) {
        let _ = unlinkat(&self.root, &self.name, AtFlags::REMOVEDIR);
    }
}

#[cfg(test)]
mod tests {
    use lfn_core::session::{SessionId, Token};
    use lfn_core::transfer::entry::Modified;

    use super::*;

    #[test]
    fn a_copy_finds_its_own_directory_again_and_no_other() {
        let home = tempfile::tempdir().unwrap();
        let root = || std::fs::File::open(home.path()).unwrap().into();
        let [one, other] = [1, 2].map(|n| Token::from_bytes([n; 16]).hash());
        let began = Modified::new(1_795_329_723, 0).unwrap();
        let copy = |n: u8| CopyId { id: SessionId([n; 16]), began, since: None };
        let make = |token: &TokenHash, copy: Option<&CopyId>| DropBox::make(root(), (Some("a"), token), copy);
        let first = make(&one, Some(&copy(1))).unwrap();
        assert!(first.name().starts_with("20261122T064203Z-a-"), "{}", first.name());
        assert_eq!(make(&one, Some(&copy(1))).unwrap().name(), first.name());
        for (token, copy) in [(&one, Some(copy(2))), (&other, Some(copy(1))), (&one, None)] {
            assert_ne!(make(token, copy.as_ref()).unwrap().name(), first.name());
        }
        // What was put into its place leads nowhere.
        let name = first.name().to_owned();
        drop(first);
        std::os::unix::fs::symlink("/tmp", home.path().join(&name)).unwrap();
        assert!(make(&one, Some(&copy(1))).is_err());
    }
}
