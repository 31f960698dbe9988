//! The file of `--report`: opened before the run, because one that cannot be written is better known then, and
//! written after it. A run that never began leaves no file behind, and one that was there as it was.

use std::fmt::Display;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use lfn_net::emulator::Outcome;
use serde::Serialize;

use crate::exit::Failure;

/// What the file says of itself; `doc/emulate-output.md` tells the fields.
const SCHEMA: &str = "lfn.emulate/1";

/// The one object in the file.
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    #[serde(flatten)]
    outcome: &'a Outcome,
}

/// A report to be written.
pub struct Report {
    path: PathBuf,
    file: File,
    /// Made by us, and so ours to remove.
    is_new: bool,
}

impl Report {
    /// Makes sure that it can be written.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let (file, is_new) = match OpenOptions::new().write(true).create_new(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                (OpenOptions::new().write(true).open(path), false)
            }
            made => (made, true),
        };
        let file = file.map_err(|error| unwritable(path, error))?;
        Ok(Report { path: path.to_owned(), file, is_new })
    }

    /// Writes it, in place of what the file held.
    pub fn write(self, outcome: &Outcome) -> Result<(), Failure> {
        // A pipe or a terminal has no length to set.
        if self.file.metadata().is_ok_and(|data| data.is_file()) {
            self.file.set_len(0).map_err(|error| unwritable(&self.path, error))?;
        }
        let document = Document { schema: SCHEMA, outcome };
        serde_json::to_writer_pretty(&self.file, &document).map_err(|error| unwritable(&self.path, error))
    }

    /// There is nothing to report.
    pub fn discard(self) {
        if self.is_new {
            // Of two failures the run's is the one to tell.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn unwritable(path: &Path, error: impl Display) -> Failure {
    Failure::msg(format!("--report {}: {error}", path.display())).hint("--report report.json, where you may write")
}
