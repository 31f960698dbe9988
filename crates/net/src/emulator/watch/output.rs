//! A file that a run writes: opened before it, because one that cannot be written is better known then, and emptied when
//! there is something to write. A run that never began leaves no file behind, and one that was there as it was.
//!
//! Symbolic links are followed, so that `/dev/stdout` works, but not those of another user in a directory for everybody
//! (`crate::planted`).

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::planted;

/// A file to write to, open.
#[derive(Clone, Debug)]
pub struct OutputFile {
    path: PathBuf,
    file: Arc<File>,
    /// Made by us, and so ours to remove.
    is_new: bool,
}

impl OutputFile {
    /// Opens the file, or makes it. What it holds stays there until it is emptied.
    pub fn open(path: &Path) -> io::Result<Self> {
        let (file, is_new) = match OpenOptions::new().write(true).create_new(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => (open_existing(path)?, false),
            made => (made?, true),
        };
        Ok(OutputFile { path: path.to_owned(), file: Arc::new(file), is_new })
    }

    /// As it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// To write to.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// True if what is written to one overwrites or mingles with the other. A device keeps nothing that could be.
    pub fn is_same_as(&self, other: &OutputFile) -> io::Result<bool> {
        let (one, other) = (self.file.metadata()?, other.file.metadata()?);
        Ok((one.dev(), one.ino()) == (other.dev(), other.ino()) && !one.file_type().is_char_device())
    }

    /// Takes away what it held.
    pub fn empty(&self) -> io::Result<()> {
        // A pipe or a terminal has no length to set.
        if self.file.metadata()?.is_file() { self.file.set_len(0) } else { Ok(()) }
    }

    /// There is nothing to write: no file is left that was not there before.
    pub fn discard(&self) {
        if self.is_new {
            // Of two failures the run's is the one to tell.
            let _ = fs::remove_file(&self.path);
        }
    }

    #[cfg(test)]
    pub(super) fn of(file: File) -> Self {
        OutputFile { path: PathBuf::new(), file: Arc::new(file), is_new: false }
    }
}

fn open_existing(path: &Path) -> io::Result<File> {
    planted::refuse(path)?;
    OpenOptions::new().write(true).open(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_what_was_made_is_removed_and_nothing_is_emptied_early() {
        let home = tempfile::tempdir().unwrap();
        let (new, old) = (home.path().join("new"), home.path().join("old"));
        fs::write(&old, "before").unwrap();
        [&new, &old].into_iter().for_each(|path| OutputFile::open(path).unwrap().discard());
        assert!(!new.exists() && fs::read_to_string(&old).unwrap() == "before");
        OutputFile::open(&old).unwrap().empty().unwrap();
        assert_eq!(fs::read_to_string(&old).unwrap(), "");
    }

    #[test]
    fn one_file_by_two_names_is_the_same() {
        let home = tempfile::tempdir().unwrap();
        let [name, link, other] = ["name", "link", "other"].map(|name| home.path().join(name));
        let open = |path: &Path| OutputFile::open(path).unwrap();
        let file = open(&name);
        symlink(&name, &link).unwrap();
        assert!(file.is_same_as(&open(&link)).unwrap() && !file.is_same_as(&open(&other)).unwrap());
        let null = Path::new("/dev/null");
        assert!(!open(null).is_same_as(&open(null)).unwrap());
    }
}
