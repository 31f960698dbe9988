//! The only writer of files that are replaced as a whole: reports, pictures, manifests, keys, tokens and saved hosts.
//!
//! A file gets its name when its content is complete and flushed to disk. Until then an existing file is unchanged, and
//! the new file has no name (`O_TMPFILE`, open(2)), so a killed process leaves nothing. On a file system without nameless
//! files, the new file has a hidden name in the same directory.
//!
//! Files that readers follow while they grow (`emulate --log`, the audit log) are written in place. A copy names its files
//! relative to open directories, in `copy::storage`.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, BufWriter, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, OFlags, linkat};
use tempfile::{Builder, TempPath};

use crate::symlink_guard;

/// Maximum bytes of the final name in a hidden name, so that the hidden name is at most 255 bytes long.
const MAX_NAME: usize = 200;

/// A file that gets its name at [`AtomicFile::commit`]. Without the commit it is deleted.
#[derive(Debug)]
pub struct AtomicFile {
    path: PathBuf,
    out: BufWriter<File>,
    /// Hidden name; `None` for a file without a name.
    hidden: Option<TempPath>,
}

impl AtomicFile {
    /// Creates a file with this mode, less the umask. Follows symbolic links, except links that [`symlink_guard`]
    /// refuses. Only a regular file is replaced. The new file gets the permissions of the replaced one, and its owner if
    /// this user may set it.
    pub fn create(path: &Path, mode: u32) -> io::Result<Self> {
        symlink_guard::check(path)?;
        let path = resolve(path)?;
        let Ok(replaced) = fs::metadata(&path) else { return Self::create_in_directory(path, mode) };
        let permissions = replaced.mode() & 0o777;
        let new = Self::create_in_directory(path, permissions & 0o700)?;
        let file = new.out.get_ref();
        // A different owner is no error, because the directory permits the replacement.
        let _ = fchown(file, Some(replaced.uid()), Some(replaced.gid()));
        file.set_permissions(Permissions::from_mode(permissions))?;
        Ok(new)
    }

    /// Creates a file with mode 0600, and its directory with mode 0700 if necessary. A symbolic link is replaced. If
    /// root creates the file in the directory of another account, such as that of a service, the file belongs to this
    /// account.
    pub fn create_private(path: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(directory(path))?;
        let file = Self::create_in_directory(path.to_owned(), 0o600)?;
        set_owner_of_directory(file.out.get_ref(), path)?;
        Ok(file)
    }

    fn create_in_directory(path: PathBuf, mode: u32) -> io::Result<Self> {
        if path.file_name().is_none() {
            return Err(io::Error::other("is not a file name"));
        }
        if let Ok(file) = create_nameless(&path, mode) {
            return Ok(AtomicFile { path, out: BufWriter::new(file), hidden: None });
        }
        Self::create_hidden(path, mode)
    }

    fn create_hidden(path: PathBuf, mode: u32) -> io::Result<Self> {
        let create = |hidden: &Path| OpenOptions::new().write(true).create_new(true).mode(mode).open(hidden);
        let (file, hidden) = with_hidden_name(&path, create)?;
        Ok(AtomicFile { path, out: BufWriter::new(file), hidden: Some(hidden) })
    }

    /// Returns the path that the file gets, without links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the present path of the file, if it has a name before the commit.
    pub fn hidden_path(&self) -> Option<&Path> {
        self.hidden.as_deref()
    }

    /// Deletes the content that is written so far.
    pub fn clear(&mut self) -> io::Result<()> {
        self.out.rewind()?;
        self.out.get_ref().set_len(0)
    }

    /// Flushes the content to disk, then gives the file its name. On an error the file is deleted.
    pub fn commit(mut self) -> io::Result<()> {
        self.out.flush()?;
        let file = self.out.get_ref();
        file.sync_all()?;
        let open = open_path(file);
        let hidden = match self.hidden.take() {
            Some(hidden) => hidden,
            None => {
                let link = |hidden: &Path| linkat(CWD, &open, CWD, hidden, AtFlags::SYMLINK_FOLLOW);
                with_hidden_name(&self.path, |hidden| Ok(link(hidden)?))?.1
            }
        };
        Ok(hidden.persist(&self.path)?)
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Resolves a symbolic link to the file, which may not exist yet. Fails if the path exists and is no regular file.
pub fn resolve(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..symlink_guard::MAX_LINKS {
        match fs::canonicalize(&path) {
            Ok(path) if path.is_dir() => return Err(io::Error::other("is a directory")),
            Ok(path) if path.is_file() => return Ok(path),
            Ok(_) => return Err(io::Error::other("is not a regular file")),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Err(_) => {}
        }
        let Ok(target) = fs::read_link(&path) else { return Ok(path) };
        path = path.parent().unwrap_or(Path::new("")).join(target);
    }
    Err(io::Error::other("too many symbolic links"))
}

/// If root created the file, and its directory belongs to another account, gives the file to this account.
pub(crate) fn set_owner_of_directory(file: &File, path: &Path) -> io::Result<()> {
    let (owner, created) = (fs::metadata(directory(path))?, file.metadata()?);
    if created.uid() == 0 && owner.uid() != 0 {
        fchown(file, Some(owner.uid()), Some(owner.gid()))?;
    }
    Ok(())
}

/// Creates a file without a name in the directory of `path`. The file gets its name through `/proc` later.
fn create_nameless(path: &Path, mode: u32) -> io::Result<File> {
    let flags = OFlags::TMPFILE.bits().cast_signed();
    let file = OpenOptions::new().write(true).mode(mode).custom_flags(flags).open(directory(path))?;
    fs::metadata(open_path(&file))?;
    Ok(file)
}

/// Calls `create` with a new hidden name in the directory of `path`.
fn with_hidden_name<T>(path: &Path, create: impl FnMut(&Path) -> io::Result<T>) -> io::Result<(T, TempPath)> {
    let name = path.file_name().unwrap_or_default().as_bytes();
    let prefix = [b".", &name[..name.len().min(MAX_NAME)], b"."].concat();
    let created = Builder::new().prefix(OsStr::from_bytes(&prefix)).suffix(".part").make_in(directory(path), create)?;
    Ok(created.into_parts())
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn open_path(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    type Create = fn(&Path) -> io::Result<AtomicFile>;

    /// The ways to create a file, and the modes of their files with the umask 022.
    const WAYS: [(&str, Create, u32); 3] = [
        ("create", |path| AtomicFile::create(path, 0o666), 0o644),
        ("create_private", AtomicFile::create_private, 0o600),
        ("create_hidden", |path| AtomicFile::create_hidden(path.to_owned(), 0o640), 0o640),
    ];

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_file_is_complete_or_unchanged() {
        for (way, create, mode) in WAYS {
            let home = tempfile::tempdir().unwrap();
            let path = home.path().join("r".repeat(255));
            for (before, text) in [(None, "one"), (Some("one"), "two")] {
                let mut file = create(&path).unwrap();
                file.write_all(b"abandoned").unwrap();
                file.flush().unwrap();
                drop(file);
                let mut file = create(&path).unwrap();
                file.write_all(b"longer than the text").unwrap();
                file.clear().unwrap();
                file.write_all(text.as_bytes()).unwrap();
                assert_eq!(fs::read_to_string(&path).ok().as_deref(), before, "{way}");
                assert_eq!(file.hidden_path().map_or(0, |_| 1) + before.map_or(0, |_| 1), names(home.path()).len());
                file.commit().unwrap();
                assert_eq!(fs::read_to_string(&path).unwrap(), text, "{way}");
                assert_eq!(names(home.path()), ["r".repeat(255)], "{way}");
            }
            let found = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
            // Another umask may remove more bits.
            assert_eq!(found & mode, found, "{way}: {found:o}");
        }
    }

    #[test]
    fn a_failed_commit_leaves_nothing() {
        for (way, create, _) in WAYS {
            let home = tempfile::tempdir().unwrap();
            let path = home.path().join("report");
            let file = create(&path).unwrap();
            fs::create_dir(&path).unwrap();
            assert!(file.commit().is_err(), "{way}");
            assert_eq!(names(home.path()), ["report"], "{way}");
        }
    }

    #[test]
    fn create_follows_links_to_regular_files_only() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        symlink("target", at("link")).unwrap();
        // A link without a target, then with one.
        for text in ["one", "two"] {
            let mut file = AtomicFile::create(&at("link"), 0o666).unwrap();
            assert_eq!(file.path().file_name(), Some(OsStr::new("target")));
            file.write_all(text.as_bytes()).unwrap();
            file.commit().unwrap();
            assert_eq!(fs::read_to_string(at("target")).unwrap(), text);
            assert!(at("link").is_symlink());
        }
        symlink("loop", at("loop")).unwrap();
        for (path, cause) in [("", "is a directory"), ("loop", "symbolic link")] {
            let error = AtomicFile::create(&at(path), 0o666).unwrap_err().to_string();
            assert!(error.contains(cause), "{error}");
        }
        for path in ["/dev/null", "/no/such/directory/report"] {
            assert!(AtomicFile::create(Path::new(path), 0o666).is_err());
        }
    }

    #[test]
    fn replaced_file_keeps_its_permissions() {
        let home = tempfile::tempdir().unwrap();
        let report = home.path().join("report");
        for mode in [0o600, 0o664] {
            fs::write(&report, "old").unwrap();
            fs::set_permissions(&report, fs::Permissions::from_mode(mode)).unwrap();
            AtomicFile::create(&report, 0o666).unwrap().commit().unwrap();
            let found = fs::metadata(&report).unwrap();
            assert_eq!((found.len(), found.permissions().mode() & 0o777), (0, mode));
        }
    }

    #[test]
    fn create_private_replaces_a_link() {
        let home = tempfile::tempdir().unwrap();
        let (secret, other) = (home.path().join("state/secret"), home.path().join("other"));
        AtomicFile::create_private(&secret).unwrap();
        assert_eq!(fs::metadata(home.path().join("state")).unwrap().permissions().mode() & 0o777, 0o700);
        symlink(&other, &secret).unwrap();
        AtomicFile::create_private(&secret).unwrap().commit().unwrap();
        assert!(!secret.is_symlink() && !other.exists());
    }
}
