//! File of `--report`. It is created before the command's work starts, so that an error is reported early. It gets its name when
//! the result is complete; until then an existing file is kept. An open descriptor of this command, for example
//! /dev/stdout, gets the result after its other output.
//!
//! During the work the file has no name (`O_TMPFILE`, open(2)), so a killed command leaves nothing. On a file system
//! without such files, it is a hidden file in the same directory.

use std::fmt::Display;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use lfn_emulate::symlink_guard;
use rustix::fs::{AtFlags, CWD, OFlags, linkat};
use serde::Serialize;

use crate::exit::Failure;
use crate::print::sanitize::SafeWriter;
use crate::{print, typed};

/// True if this command has written its report.
static IS_REPORT_WRITTEN: AtomicBool = AtomicBool::new(false);

/// Reports whether this command has written its report.
pub fn is_report_written() -> bool {
    IS_REPORT_WRITTEN.load(Ordering::Relaxed)
}

/// Records that this command has written its report.
pub fn set_report_written() {
    IS_REPORT_WRITTEN.store(true, Ordering::Relaxed);
}

/// Destination of a report.
#[derive(Debug)]
pub enum ReportFile {
    /// A file with a name.
    Named(NamedFile),
    /// A descriptor that is open.
    Open(PathBuf, File),
}

/// A file that gets its name later.
#[derive(Debug)]
pub struct NamedFile {
    /// Final path of the file.
    path: PathBuf,
    /// Temporary path; the file is deleted there if it never gets its name.
    temporary: PathBuf,
    file: File,
    /// True if the file has no name yet.
    has_no_name: bool,
}

impl ReportFile {
    /// Creates the file in the directory of its final name.
    pub fn create(typed: &Path) -> Result<Self, Failure> {
        Self::create_with_mode(typed, 0o666)
    }

    /// Creates the file so that only this user can read it.
    pub fn create_private(typed: &Path) -> Result<Self, Failure> {
        Self::create_with_mode(typed, 0o600)
    }

    fn create_with_mode(typed: &Path, mode: u32) -> Result<Self, Failure> {
        if typed == Path::new("/dev/stdout") {
            let file = print::raw_text().as_fd().try_clone_to_owned().map_err(|error| report_error(typed, error))?;
            return Ok(ReportFile::Open(typed.to_owned(), file.into()));
        }
        refuse_file_of_the_command(typed)?;
        if is_open_already(typed) {
            let file = OpenOptions::new().append(true).open(typed).map_err(|error| report_error(typed, error))?;
            return Ok(ReportFile::Open(typed.to_owned(), file));
        }
        let file = NamedFile::create(typed, mode).map_err(|error| report_error(typed, error))?;
        Ok(ReportFile::Named(file))
    }

    /// Writes the result to the file.
    pub fn write(self, document: &impl Serialize) -> Result<(), Failure> {
        set_report_written();
        match self {
            ReportFile::Named(file) => {
                let path = file.path.clone();
                file.write(|out| write_json(out, document)).map_err(|error| report_error(&path, error))
            }
            ReportFile::Open(path, file) => {
                let mut out = SafeWriter::json(BufWriter::new(file));
                let written = write_json(&mut out, document).and_then(|()| out.flush());
                written.map_err(|error| report_error(&path, error))
            }
        }
    }
}

impl NamedFile {
    /// Creates the file in the directory of its final name.
    pub fn create(typed: &Path, mode: u32) -> io::Result<Self> {
        symlink_guard::check(typed)?;
        let path = resolve(typed)?;
        let temporary = hidden_path(&path).ok_or_else(|| io::Error::other("is not a file name"))?;
        let (file, has_no_name) = match create_nameless(&path, mode) {
            Ok(file) => (file, true),
            Err(_) => (create_named(&temporary, mode)?, false),
        };
        Ok(NamedFile { path, temporary, file, has_no_name })
    }

    /// Writes the content, flushes it to disk, then gives the file its name.
    pub fn write(self, content: impl FnOnce(&mut BufWriter<&File>) -> io::Result<()>) -> io::Result<()> {
        let mut out = BufWriter::new(&self.file);
        content(&mut out)?;
        out.flush()?;
        drop(out);
        self.file.sync_all()?;
        if self.has_no_name {
            let file = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            linkat(CWD, file, CWD, &self.temporary, AtFlags::SYMLINK_FOLLOW)?;
        }
        fs::rename(&self.temporary, &self.path)
    }
}

impl Drop for NamedFile {
    fn drop(&mut self) {
        // The temporary file no longer exists after the rename.
        let _ = fs::remove_file(&self.temporary);
    }
}

/// Reports whether the path is a descriptor of this process: /dev/stdout, /dev/fd/3, /proc/self/fd/3.
pub fn is_open_already(typed: &Path) -> bool {
    let link = fs::read_link(typed).unwrap_or_default();
    [typed, &link].iter().any(|path| path.starts_with("/proc/self/fd") || path.starts_with("/dev/fd"))
}

fn create_named(temporary: &Path, mode: u32) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(mode).open(temporary)
}

/// Creates a file without a name in the directory of `path`. It gets its name through `/proc` later.
fn create_nameless(path: &Path, mode: u32) -> io::Result<File> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let flags = OFlags::TMPFILE.bits().cast_signed();
    let file = OpenOptions::new().write(true).mode(mode).custom_flags(flags).open(directory)?;
    fs::metadata(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    Ok(file)
}

/// Resolves a symbolic link to the file, which may not exist yet. Only a regular file is replaced.
fn resolve(typed: &Path) -> io::Result<PathBuf> {
    /// Maximum number of links that the kernel follows (path_resolution(7)).
    const MAX_LINKS: usize = 40;
    let mut path = typed.to_owned();
    for _ in 0..MAX_LINKS {
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

/// Returns an error if the path is another file of the command line: an input, or the destination of a copy.
fn refuse_file_of_the_command(typed: &Path) -> Result<(), Failure> {
    let Some(report) = final_path(typed) else { return Ok(()) };
    let mut words = typed::words().skip(1).take_while(|word| word != "--");
    while let Some(word) = words.next() {
        if word == "--report" {
            words.next();
            continue;
        }
        let value =
            word.strip_prefix("--").and_then(|flag| flag.split_once('=')).map_or(word.as_str(), |(_, value)| value);
        if !word.starts_with("--report=") && final_path(Path::new(value)).is_some_and(|other| other == report) {
            return Err(Failure::usage(format!("--report {}: another argument is the same file", typed.display()))
                .hint(typed::corrected("report", "report.json")));
        }
    }
    Ok(())
}

/// Returns the absolute path of a file whose directory exists. Follows links.
fn final_path(typed: &Path) -> Option<PathBuf> {
    let path = resolve(typed).ok()?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Some(directory.canonicalize().ok()?.join(path.file_name()?))
}

/// Returns a hidden name in the same directory, unique to this process.
fn hidden_path(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_string_lossy().into_owned();
    Some(path.with_file_name(format!(".{name}.{}.part", std::process::id())))
}

fn write_json(out: &mut impl Write, document: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, document)?;
    writeln!(out)
}

fn report_error(path: &Path, error: impl Display) -> Failure {
    Failure::msg(format!("--report {}: {error}", path.display()))
        .hint("choose a file in a directory that you can write to: --report result.json")
}
