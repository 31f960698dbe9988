//! The file of `--save`: made before the test begins, so that what cannot be written is known before it costs anything,
//! and put in the place of its name when the result is whole. Until then the name holds what it held.

use std::fmt::Display;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use lfn_core::report::Document;

use super::json;
use crate::exit::Failure;

/// A file to be.
#[derive(Debug)]
pub struct SaveFile {
    /// Where it shall be.
    path: PathBuf,
    /// Where it is until then; nothing of it is left if it never gets there.
    part: PathBuf,
    file: File,
}

impl SaveFile {
    /// Makes the file beside the name it shall have.
    pub fn create(typed: &Path) -> Result<Self, Failure> {
        if typed.as_os_str() == "-" {
            return Err(Failure::usage("--save -: a file is needed").hint("--json prints the result on stdout"));
        }
        let path = meant(typed).map_err(|error| unwritable(typed, error))?;
        let part = beside(&path).ok_or_else(|| unwritable(typed, "names no file"))?;
        let file = OpenOptions::new().write(true).create_new(true).open(&part);
        Ok(SaveFile { file: file.map_err(|error| unwritable(typed, error))?, path, part })
    }

    /// Writes the result and gives the file its name.
    pub fn write(self, document: &Document) -> Result<(), Failure> {
        let written = || -> io::Result<()> {
            let mut out = BufWriter::new(&self.file);
            json::write(&mut out, document)?;
            out.flush()?;
            self.file.sync_all()?;
            fs::rename(&self.part, &self.path)
        };
        written().map_err(|error| unwritable(&self.path, error))
    }
}

impl Drop for SaveFile {
    fn drop(&mut self) {
        // There is none any more once it has its name.
        let _ = fs::remove_file(&self.part);
    }
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
