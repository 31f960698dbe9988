//! The file of `--save`: made before the test begins, so that what cannot be written is known before it costs anything,
//! and put in the place of its name when the result is whole. Until then the name holds what it held. What this command
//! was started with, as /dev/stdout, is open already, and gets the result behind what else is written to it.
//!
//! The file has no name at all while the test runs (`O_TMPFILE`, open(2)), so that nothing is left of a command that is
//! killed. Where the file system knows no such files it is a hidden one beside the name.

use std::fmt::Display;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use lfn_core::report::Document;
use lfn_net::planted;
use rustix::fs::{AtFlags, CWD, OFlags, linkat};

use super::json;
use crate::exit::Failure;
use crate::print::plain::Plain;

/// Where a result goes besides.
#[derive(Debug)]
pub enum SaveFile {
    /// Into a file of this name.
    Named(NamedFile),
    /// To what is open already.
    Open(PathBuf, File),
}

/// A file to be.
#[derive(Debug)]
pub struct NamedFile {
    /// Where it shall be.
    path: PathBuf,
    /// Where it is for a moment before that; nothing of it is left if it never gets there.
    part: PathBuf,
    file: File,
    /// It has no name yet.
    nameless: bool,
}

impl SaveFile {
    /// Makes the file beside the name it shall have.
    pub fn create(typed: &Path) -> Result<Self, Failure> {
        if typed.as_os_str() == "-" {
            return Err(Failure::usage("--save -: a file is needed").hint("--json prints the result on stdout"));
        }
        if is_open_already(typed) {
            let file = OpenOptions::new().append(true).open(typed).map_err(|error| unwritable(typed, error))?;
            return Ok(SaveFile::Open(typed.to_owned(), file));
        }
        planted::refuse(typed).map_err(|error| unwritable(typed, error))?;
        let path = meant(typed).map_err(|error| unwritable(typed, error))?;
        let part = beside(&path).ok_or_else(|| unwritable(typed, "names no file"))?;
        let (file, nameless) = match nameless(&path) {
            Ok(file) => (file, true),
            Err(_) => (named(&part).map_err(|error| unwritable(typed, error))?, false),
        };
        Ok(SaveFile::Named(NamedFile { file, path, part, nameless }))
    }

    /// Writes the result.
    pub fn write(self, document: &Document) -> Result<(), Failure> {
        match self {
            SaveFile::Named(file) => file.write(document),
            SaveFile::Open(path, file) => {
                let mut out = Plain::json(BufWriter::new(file));
                let written = json::write(&mut out, document).and_then(|()| out.flush());
                written.map_err(|error| unwritable(&path, error))
            }
        }
    }
}

impl NamedFile {
    /// Writes the result and gives the file its name.
    fn write(self, document: &Document) -> Result<(), Failure> {
        let written = || -> io::Result<()> {
            let mut out = BufWriter::new(&self.file);
            json::write(&mut out, document)?;
            out.flush()?;
            self.file.sync_all()?;
            if self.nameless {
                let file = format!("/proc/self/fd/{}", self.file.as_raw_fd());
                linkat(CWD, file, CWD, &self.part, AtFlags::SYMLINK_FOLLOW)?;
            }
            fs::rename(&self.part, &self.path)
        };
        written().map_err(|error| unwritable(&self.path, error))
    }
}

impl Drop for NamedFile {
    fn drop(&mut self) {
        // There is none any more once it has its name.
        let _ = fs::remove_file(&self.part);
    }
}

/// Whether a name stands for a descriptor of this process: /dev/stdout, /dev/fd/3, /proc/self/fd/3.
fn is_open_already(typed: &Path) -> bool {
    let link = fs::read_link(typed).unwrap_or_default();
    [typed, &link].iter().any(|path| path.starts_with("/proc/self/fd") || path.starts_with("/dev/fd"))
}

fn named(part: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(part)
}

/// A file in the directory of this name. `/proc` is what it will get its own by.
fn nameless(path: &Path) -> io::Result<File> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let flags = OFlags::TMPFILE.bits().cast_signed();
    let file = OpenOptions::new().write(true).mode(0o666).custom_flags(flags).open(directory)?;
    fs::metadata(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    Ok(file)
}

/// The file a name stands for: that at the end of a symbolic link. What is no plain file is not replaced by one.
fn meant(typed: &Path) -> io::Result<PathBuf> {
    match fs::canonicalize(typed) {
        Ok(path) if path.is_dir() => Err(io::Error::other("is a directory")),
        Ok(path) if path.is_file() => Ok(path),
        Ok(_) => Err(io::Error::other("is not a regular file")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(typed.to_owned()),
        Err(error) => Err(error),
    }
}

/// A hidden name in the same directory, of this process alone.
fn beside(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_string_lossy().into_owned();
    Some(path.with_file_name(format!(".{name}.{}.part", std::process::id())))
}

fn unwritable(path: &Path, error: impl Display) -> Failure {
    Failure::msg(format!("--save {}: {error}", path.display())).hint("--save result.json, where you may write")
}
