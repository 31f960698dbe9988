//! An output file of a run, written in place so that readers can follow it. The file is opened before the run, so that
//! an error is reported early. It is truncated when there is data to write. A run that fails to start leaves no new
//! file behind and keeps an existing file unchanged.
//!
//! Symbolic links are followed, so that `/dev/stdout` works. Links of another user in a directory where all users may
//! write are refused ([`symlink_guard`]).

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lfn_session::symlink_guard;

/// An open file to write to.
#[derive(Clone, Debug)]
pub struct OutputFile {
    path: PathBuf,
    file: Arc<File>,
    /// Created by this process, which therefore may delete it.
    is_created: bool,
}

impl OutputFile {
    /// Opens or creates the file. An existing file keeps its content until `truncate`.
    pub fn open(path: &Path) -> io::Result<Self> {
        let (file, is_created) = match OpenOptions::new().write(true).create_new(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => (open_existing(path)?, false),
            result => (result?, true),
        };
        Ok(OutputFile { path: path.to_owned(), file: Arc::new(file), is_created })
    }

    /// Returns the path as given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Deletes the previous content.
    pub fn truncate(&self) -> io::Result<()> {
        // A pipe or a terminal has no length to set.
        if self.file.metadata()?.is_file() { self.file.set_len(0) } else { Ok(()) }
    }

    /// Deletes the file if this process created it, because there is nothing to write.
    pub fn discard(&self) {
        if self.is_created {
            // The failure of the run is reported, not a failure of this clean-up.
            let _ = fs::remove_file(&self.path);
        }
    }

    #[cfg(test)]
    pub(super) fn from_file(file: File) -> Self {
        OutputFile { path: PathBuf::new(), file: Arc::new(file), is_created: false }
    }
}

fn open_existing(path: &Path) -> io::Result<File> {
    symlink_guard::check(path)?;
    OpenOptions::new().write(true).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discard_deletes_only_files_that_open_created() {
        let home = tempfile::tempdir().unwrap();
        let (new, old) = (home.path().join("new"), home.path().join("old"));
        fs::write(&old, "before").unwrap();
        [&new, &old].into_iter().for_each(|path| OutputFile::open(path).unwrap().discard());
        assert!(!new.exists() && fs::read_to_string(&old).unwrap() == "before");
        OutputFile::open(&old).unwrap().truncate().unwrap();
        assert_eq!(fs::read_to_string(&old).unwrap(), "");
    }
}
