//! Names on file systems that take several spellings for one: FAT, NTFS and CIFS fold upper and lower case, and FAT drops
//! dots and spaces at the end.
//!
//! What is copied there as `data` stands as `Data` if that was there before, and is listed as that. Inodes do not tell in
//! user space (FUSE), where each spelling may have one. What tells is that another spelling leads somewhere too, and that no two
//! names in the directory are alike.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, statat};

use super::extra::{Fingerprint, fingerprint, readable};

/// What all spellings of a name have in common.
pub(super) fn folded(name: &[u8]) -> Vec<u8> {
    let lower = String::from_utf8_lossy(name).to_lowercase();
    lower.trim_end_matches(['.', ' ']).as_bytes().to_vec()
}

/// Whether the file system takes another spelling of a name for the same.
pub(super) fn has_another_spelling(directory: impl AsFd, name: &[u8]) -> bool {
    let text = String::from_utf8_lossy(name);
    let others = [text.to_lowercase(), text.to_uppercase(), format!("{text}.")];
    others.into_iter().filter(|other| other.as_bytes() != name).any(|other| {
        CString::new(other).is_ok_and(|other| statat(&directory, &other, AtFlags::SYMLINK_NOFOLLOW).is_ok())
    })
}

/// The names of a directory that are alike.
#[derive(Debug)]
pub(super) struct Alike(Vec<Fingerprint>);

impl Alike {
    /// Those of this directory; of one that cannot be read none are.
    pub(super) fn within(directory: &OwnedFd) -> Self {
        let entries = readable(directory).and_then(Dir::read_from).ok();
        let names = entries.into_iter().flatten().flatten();
        Alike::of(names.map(|entry| fingerprint(&folded(entry.file_name().to_bytes()))).collect())
    }

    fn of(mut all: Vec<Fingerprint>) -> Self {
        all.sort_unstable();
        let pairs = all.windows(2).filter(|pair| pair[0] == pair[1]);
        Alike(pairs.map(|pair| pair[0]).collect())
    }

    /// Whether another name there is like this one.
    pub(super) fn has(&self, folded: Fingerprint) -> bool {
        self.0.binary_search(&folded).is_ok()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;
    use rustix::fs::{CWD, Mode, OFlags, openat};

    #[test]
    fn spellings_have_one_fold() {
        for (one, other) in [("Data", "dATA"), ("Inc.", "inc"), ("a. .", "A"), ("Éa", "éA"), (".", "..")] {
            assert_eq!(folded(one.as_bytes()), folded(other.as_bytes()), "{one}");
        }
        assert_ne!(folded(b"a.b"), folded(b"ab"));
        assert_ne!(folded(b".a"), folded(b"a"));
    }

    #[test]
    fn only_names_that_are_there_are_alike() {
        let home = tempfile::tempdir().unwrap();
        let directory = openat(CWD, home.path(), OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        std::fs::write(home.path().join("Data"), "").unwrap();
        assert!(!has_another_spelling(&directory, b"Data"), "a file system that folds no case");
        let fold = fingerprint(&folded(b"Data"));
        assert!(!Alike::within(&directory).has(fold));
        std::fs::write(home.path().join("data"), "").unwrap();
        assert!(has_another_spelling(&directory, b"Data") && Alike::within(&directory).has(fold));
        // As where only one of them is there, and each spelling leads to it.
        assert!(!Alike::of(vec![fold, fold + 1]).has(fold));
    }
}
