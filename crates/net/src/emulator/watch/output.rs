//! A file that a run writes: opened before it, because one that cannot be written is better known then, and emptied when
//! there is something to write. A run that never began leaves no file behind, and one that was there as it was.
//!
//! Symbolic links are followed, so that `/dev/stdout` works. But in a directory where everybody may put something (`/tmp`)
//! what another user put there is refused, link or file: `fs.protected_symlinks` and its like forbid the same, where they
//! are on.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Sticky, and writable by everybody.
const FOR_EVERYBODY: u32 = 0o1002;

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

/// Between the look and the opening nobody can replace what is ours: the directory is sticky.
fn open_existing(path: &Path) -> io::Result<File> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (entry, directory) = (fs::symlink_metadata(path)?, fs::metadata(parent)?);
    let is_for_everybody = directory.mode() & FOR_EVERYBODY == FOR_EVERYBODY;
    if is_for_everybody && ![rustix::process::geteuid().as_raw(), directory.uid()].contains(&entry.uid()) {
        let what = "another user put it into a directory where everybody may write";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    }
    OpenOptions::new().write(true).open(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

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

    #[test]
    fn what_another_user_put_into_a_directory_for_everybody_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let [target, link] = ["target", "link"].map(|name| home.path().join(name));
        fs::write(&target, "before").unwrap();
        symlink(&target, &link).unwrap();
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        OutputFile::open(&link).unwrap();
        // Only the super-user can give things to somebody else.
        let somebody = Some(12_345);
        if std::os::unix::fs::lchown(&link, somebody, None).is_ok() {
            assert_eq!(OutputFile::open(&link).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
            chown(&target, somebody, None).unwrap();
            assert_eq!(OutputFile::open(&target).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
            fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
            OutputFile::open(&link).unwrap();
        }
    }
}
