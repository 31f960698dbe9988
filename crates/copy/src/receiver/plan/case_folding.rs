//! Names on file systems that treat several spellings as equal: FAT, NTFS and CIFS ignore case, and FAT drops dots and
//! spaces at the end of a name.
//!
//! On these file systems, a copy of `data` is listed as `Data` if `Data` existed before. Inode numbers do not help in
//! user space (FUSE), where each spelling may have its own. Two tests together detect the case: another spelling of the
//! name leads to a file too, and no other name in the directory has the same folded form.

use lfn_session::wire::copy::entry::Name;

use crate::receiver::fingerprint::{Fingerprint, fingerprint};
use crate::storage::{Existing, Storage};

/// Returns the common form of all spellings of a name.
pub(super) fn fold_name(name: &[u8]) -> Vec<u8> {
    let lower = String::from_utf8_lossy(name).to_lowercase();
    lower.trim_end_matches(['.', ' ']).as_bytes().to_vec()
}

/// Returns whether the storage accepts another spelling of a name in a directory.
pub(super) fn accepts_other_spelling(storage: &dyn Storage, directory: &Name, file_name: &[u8]) -> bool {
    let text = String::from_utf8_lossy(file_name);
    let others = [text.to_lowercase(), text.to_uppercase(), format!("{text}.")];
    others.into_iter().filter(|other| other.as_bytes() != file_name).any(|other| {
        let path = if directory.is_root() {
            other.into_bytes()
        } else {
            [directory.as_bytes(), b"/", other.as_bytes()].concat()
        };
        let existing = Name::new(path).map(|name| storage.stat(&name));
        matches!(existing, Ok(Ok(Existing::Object(_) | Existing::Hidden)))
    })
}

/// The folded names that several names of a directory share.
#[derive(Debug)]
pub(super) struct FoldCollisions(Vec<Fingerprint>);

impl FoldCollisions {
    /// Finds the collisions in this directory. A directory that cannot be read has none.
    pub(super) fn of_directory(storage: &dyn Storage, directory: &Name) -> Self {
        let names = storage.list(directory).into_iter().flatten().flatten();
        FoldCollisions::of(names.map(|file_name| fingerprint(&fold_name(&file_name))).collect())
    }

    fn of(mut all: Vec<Fingerprint>) -> Self {
        all.sort_unstable();
        let pairs = all.windows(2).filter(|pair| pair[0] == pair[1]);
        FoldCollisions(pairs.map(|pair| pair[0]).collect())
    }

    /// Returns whether several names in the directory have this folded form.
    pub(super) fn contains(&self, folded: Fingerprint) -> bool {
        self.0.binary_search(&folded).is_ok()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;
    use crate::base_dir::BaseDir;
    use crate::storage::local::{DestinationOptions, LocalStorage};

    #[test]
    fn spellings_share_one_folded_name() {
        for (one, other) in [("Data", "dATA"), ("Inc.", "inc"), ("a. .", "A"), ("Éa", "éA"), (".", "..")] {
            assert_eq!(fold_name(one.as_bytes()), fold_name(other.as_bytes()), "{one}");
        }
        assert_ne!(fold_name(b"a.b"), fold_name(b"ab"));
        assert_ne!(fold_name(b".a"), fold_name(b"a"));
    }

    #[test]
    fn collisions_need_existing_names() {
        let home = tempfile::tempdir().unwrap();
        let options = DestinationOptions::default();
        let storage = LocalStorage::open_destination(&BaseDir::Local, home.path(), options).unwrap();
        let top = Name::new(".").unwrap();
        std::fs::write(home.path().join("Data"), "").unwrap();
        assert!(!accepts_other_spelling(&storage, &top, b"Data"), "a file system that folds no case");
        let fold = fingerprint(&fold_name(b"Data"));
        assert!(!FoldCollisions::of_directory(&storage, &top).contains(fold));
        std::fs::write(home.path().join("data"), "").unwrap();
        assert!(
            accepts_other_spelling(&storage, &top, b"Data")
                && FoldCollisions::of_directory(&storage, &top).contains(fold)
        );
        // This is the situation on a file system that ignores case: one name exists, and each spelling leads to it.
        assert!(!FoldCollisions::of(vec![fold, fold + 1]).contains(fold));
    }
}
