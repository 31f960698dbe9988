//! The owner of partial files, where copies of several owners share a directory.
//!
//! A copy must not resume or replace the partial file of another owner. The journal of a partial file names its owner
//! in place of the source.

use lfn_session::TokenHash;
use lfn_session::wire::copy::byte_string::ByteString;
use lfn_session::wire::copy::entry::Entry;

/// The holder of a token, as the owner of partial files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PartialOwner {
    tag: [u8; 8],
}

impl PartialOwner {
    /// Creates the owner for a token.
    pub(crate) fn for_token(token: &TokenHash) -> Self {
        let mut tag = [0; 8];
        tag.copy_from_slice(&blake3::derive_key("lfn 2026-11-22 partial files of a token v1", &token.0)[..8]);
        PartialOwner { tag }
    }

    /// Returns the source name for the owner's journals: the owner and the hash of the entry's name.
    pub(super) fn journal_source(&self, entry: &Entry) -> ByteString {
        let name = blake3::hash(entry.name.as_bytes()).to_hex();
        ByteString::from([self.prefix().as_slice(), name.as_bytes()].concat().as_slice())
    }

    /// Reports whether a journal with this source name belongs to the owner.
    pub(super) fn owns(&self, source: &ByteString) -> bool {
        source.as_bytes().starts_with(&self.prefix())
    }

    fn prefix(&self) -> Vec<u8> {
        format!("{}/", data_encoding::HEXLOWER.encode(&self.tag)).into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use lfn_base::units::Bytes;
    use lfn_session::Token;
    use lfn_session::wire::copy::entry::{EntryKind, Modified, Name};

    use super::*;

    #[test]
    fn journals_belong_to_one_owner() {
        let [one, other] = [1, 2].map(|n| PartialOwner::for_token(&Token::from_bytes([n; 16]).hash()));
        let kind = EntryKind::File { length: Bytes(1) };
        let entry = Entry::new(Name::new("a").unwrap(), kind, 0o644, Modified::default()).unwrap();
        let source = one.journal_source(&entry);
        assert!(one.owns(&source) && !other.owns(&source) && !one.owns(&"a".into()));
    }
}
