//! Who may write below a served root and not look at it: what they are told, and where a drop box puts what they leave.
//!
//! A guest of a *write-only* root learns of a name that it is taken, as whoever stores files under names must, and nothing
//! else of what stands there: no length, no time, no digest, and nothing of partial files but of those that the same token
//! left. What a guest leaves in a *drop box* goes into a directory that is made for the session: whatever else is in the box
//! can neither be replaced nor met with, by construction and not by comparing.

use std::os::fd::OwnedFd;
use std::time::{Duration, SystemTime};

use lfn_core::date::rfc3339;
use lfn_core::session::TokenHash;
use lfn_core::transfer::entry::Entry;
use lfn_core::transfer::raw::Raw;
use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, openat, unlinkat};
use rustix::io::Errno;

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

/// The directory of one session in a drop box.
#[derive(Debug)]
pub(crate) struct DropBox {
    root: OwnedFd,
    name: String,
}

impl DropBox {
    /// Makes it; `who` stands in its name.
    pub(crate) fn make(root: OwnedFd, who: Option<&str>) -> Result<Self, TransferError> {
        let failed = |error| file_error("make a directory in", "the drop box", error);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        // 20261122T064203Z
        let moment: String = rfc3339(now).chars().filter(|c| !matches!(c, '-' | ':')).take(15).collect();
        for _ in 0..16 {
            let random = getrandom::u32().map_err(|_| failed(Errno::IO))?;
            let name = format!("{moment}Z-{}-{random:08x}", who.unwrap_or("ticket"));
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
        Ok(Base::Guest(inside, Guest { resumes: false, ..Guest::of(token) }))
    }
}

impl Drop for DropBox {
    /// Nothing was left: nothing is to be seen.
    fn drop(&mut self) {
        let _ = unlinkat(&self.root, &self.name, AtFlags::REMOVEDIR);
    }
}
