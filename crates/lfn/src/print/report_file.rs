//! File of `--report`. It is created before the command's work starts, so that an error is reported early. It gets its
//! name when the result is complete; until then an existing file is kept. An open descriptor of this command, for
//! example /dev/stdout, gets the result after its other output.

use std::fmt::Display;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use lfn_api::pictures::Album;
use lfn_session::atomic_file::{self, AtomicFile};
use serde::Serialize;

use crate::exit::Failure;
use crate::print::html::HtmlPage;
use crate::print::sanitize::SafeWriter;
use crate::{print, typed};

/// True if this command has written its report.
static IS_REPORT_WRITTEN: AtomicBool = AtomicBool::new(false);

/// Reports whether this command has written its report.
pub fn is_report_written() -> bool {
    IS_REPORT_WRITTEN.load(Ordering::Relaxed)
}

/// Records that this command has written its report.
fn set_report_written() {
    IS_REPORT_WRITTEN.store(true, Ordering::Relaxed);
}

/// Destination of a report.
#[derive(Debug)]
pub enum ReportFile {
    /// A file with a name.
    Named(AtomicFile),
    /// A descriptor that is open.
    Open(PathBuf, File),
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
        refuse_file_of_the_command("report", typed, "report.json")?;
        if is_open_already(typed) {
            let file = OpenOptions::new().append(true).open(typed).map_err(|error| report_error(typed, error))?;
            return Ok(ReportFile::Open(typed.to_owned(), file));
        }
        let file = AtomicFile::create(typed, mode).map_err(|error| report_error(typed, error))?;
        Ok(ReportFile::Named(file))
    }

    /// Returns the present path of a file that has another name when it is complete.
    pub fn hidden_path(&self) -> Option<&Path> {
        match self {
            ReportFile::Named(file) => file.hidden_path(),
            ReportFile::Open(..) => None,
        }
    }

    /// Returns whether the file is a page.
    pub fn is_page(&self) -> bool {
        let ReportFile::Named(file) = self else { return false };
        file.path().extension().is_some_and(|extension| extension.eq_ignore_ascii_case("html"))
    }

    /// Writes a page to the file.
    pub fn write_page(self, page: &HtmlPage) -> Result<(), Failure> {
        set_report_written();
        let ReportFile::Named(mut file) = self else { return Ok(()) };
        let path = file.path().to_owned();
        let written = file.write_all(page.html().as_bytes()).and_then(|()| file.commit());
        written.map_err(|error| report_error(&path, error))
    }

    /// Writes the result to the file. A page has no charts.
    pub fn write(self, document: &impl Serialize) -> Result<(), Failure> {
        if self.is_page() {
            return self.write_page(&HtmlPage::of(document, Album::default()));
        }
        set_report_written();
        match self {
            ReportFile::Named(mut file) => {
                let path = file.path().to_owned();
                write_json(&mut file, document).and_then(|()| file.commit()).map_err(|error| report_error(&path, error))
            }
            ReportFile::Open(path, file) => {
                let mut out = SafeWriter::json(BufWriter::new(file));
                let written = write_json(&mut out, document).and_then(|()| out.flush());
                written.map_err(|error| report_error(&path, error))
            }
        }
    }
}

/// Reports whether the path is a descriptor of this process: /dev/stdout, /dev/fd/3, /proc/self/fd/3.
pub fn is_open_already(typed: &Path) -> bool {
    let link = fs::read_link(typed).unwrap_or_default();
    [typed, &link].iter().any(|path| path.starts_with("/proc/self/fd") || path.starts_with("/dev/fd"))
}

/// Returns an error if the path is another file of the command line or of a default: an input, or the destination of a
/// copy.
///
/// `flag` is the name of the flag of this path, and `other` a value for the hint.
pub fn refuse_file_of_the_command(flag: &str, typed: &Path, other: &str) -> Result<(), Failure> {
    let Some(output) = final_path(typed) else { return Ok(()) };
    let (own, own_with_value) = (format!("--{flag}"), format!("--{flag}="));
    let mut words = typed::words_with_defaults().into_iter().skip(1).take_while(|word| word != "--");
    while let Some(word) = words.next() {
        if word == own.as_str() {
            words.next();
            continue;
        }
        let value =
            word.strip_prefix("--").and_then(|flag| flag.split_once('=')).map_or(word.as_str(), |(_, value)| value);
        if !word.starts_with(&own_with_value) && final_path(Path::new(value)).is_some_and(|path| path == output) {
            return Err(Failure::usage(format!("--{flag} {}: another argument is the same file", typed.display()))
                .hint(typed::corrected(flag, other)));
        }
    }
    Ok(())
}

/// Returns the absolute path of a file whose directory exists. Follows links.
fn final_path(typed: &Path) -> Option<PathBuf> {
    let path = atomic_file::resolve(typed).ok()?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Some(directory.canonicalize().ok()?.join(path.file_name()?))
}

fn write_json(out: &mut impl Write, document: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, document)?;
    writeln!(out)
}

fn report_error(path: &Path, error: impl Display) -> Failure {
    Failure::msg(format!("--report {}: {error}", path.display()))
        .hint("choose a directory with free space that you can write to: --report result.json")
}
