//! Import of files into the archive, and export of the archive.

use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use lfn_mesh::archive::{Archive, ArchiveError, EntryFilter};
use lfn_mesh::entry::Entry;
use lfn_mesh::from_result::{ResultError, ResultHosts};
use lfn_mesh::import_file::{ImportFileError, MAX_FILE_BYTES, read_file};
use lfn_results::report::ReadError;
use lfn_sys::clock::since_1970;
use serde::ser::{Error as _, Serialize, SerializeSeq, SerializeStruct, Serializer};

use crate::documents::{ExportSchema, ImportDocument, ImportedFile};
use crate::error_kind::ErrorKind;
use crate::show::read_contents;

/// Options of the function [`import`].
#[derive(Debug, Clone)]
pub struct ImportOptions {
    pub archive: PathBuf,
    /// Files in this order; `-` is standard input.
    pub files: Vec<PathBuf>,
    /// Name of the host that ran the commands; `None`: the name in each result.
    pub from: Option<String>,
    /// Name of their server.
    pub to: Option<String>,
}

/// Reasons why files cannot be imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error("{}: {source}", .file.display())]
    Read { file: PathBuf, source: io::Error },
    #[error("{}: longer than {} MiB", .0.display(), MAX_FILE_BYTES >> 20)]
    TooLong(PathBuf),
    #[error("{}: {source}", .file.display())]
    File { file: PathBuf, source: Box<ImportFileError> },
    #[error(transparent)]
    Archive(#[from] ArchiveError),
}

impl ImportError {
    /// Returns one action that may fix the error, if there is one.
    pub fn hint(&self) -> Option<String> {
        let source = match self {
            ImportError::Read { .. } => return Some("check the path; - reads standard input".to_owned()),
            ImportError::TooLong(_) => return Some("divide the file at the ends of lines: split -C 400M".to_owned()),
            ImportError::Archive(error) => return error.hint(),
            ImportError::File { source, .. } => source,
        };
        let hint = match &**source {
            ImportFileError::Lines { .. } => "correct these lines; nothing of this file was stored",
            ImportFileError::Exported { .. } => "correct this entry; nothing of this file was stored",
            ImportFileError::TooMany => "divide the file at the ends of lines: split -l 500000",
            ImportFileError::Read(ReadError::Trailing) => "put each result into its own file",
            ImportFileError::Read(_) => {
                "import the output of `lfn mesh export`, `lfn test --json` or `iperf3 --client HOST --json`"
            }
            ImportFileError::Result(ResultError::NoNearName) => "name the host that ran the command: --from NAME",
            ImportFileError::Result(ResultError::NoFarName) => "name the server: --to NAME",
            ImportFileError::Result(_) => "measure again with `lfn test HOST --report result.json`",
            ImportFileError::Entry(_) => "name both hosts: --from NAME --to NAME",
        };
        Some(hint.to_owned())
    }

    /// Returns the kind of the error, which decides the exit code of a command.
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::Failed
    }
}

/// Imports files, each in one transaction: a file with an error stores nothing, and the files before it remain stored.
/// An entry that the archive has already is not stored again.
pub fn import(options: &ImportOptions) -> Result<ImportDocument, ImportError> {
    let mut archive = Archive::open(&options.archive)?;
    let hosts = ResultHosts { near: options.from.as_deref(), far: options.to.as_deref() };
    let mut files = Vec::new();
    for file in &options.files {
        let contents = read_contents(file, MAX_FILE_BYTES);
        let bytes = contents.map_err(|source| ImportError::Read { file: file.clone(), source })?;
        if bytes.len() as u64 > MAX_FILE_BYTES {
            return Err(ImportError::TooLong(file.clone()));
        }
        let failed = |source| ImportError::File { file: file.clone(), source: Box::new(source) };
        let entries = read_file(&bytes, hosts).map_err(failed)?;
        let counts = archive.insert_batches(entries.batches(), since_1970())?;
        files.push(ImportedFile {
            file: file.display().to_string(),
            stored: counts.iter().map(|count| count.stored as u64).sum(),
            known: counts.iter().map(|count| count.known as u64).sum(),
        });
    }
    let sum = |of: fn(&ImportedFile) -> u64| files.iter().map(of).sum();
    let (stored, known) = (sum(|file| file.stored), sum(|file| file.known));
    Ok(ImportDocument { stored, known, files, ..ImportDocument::default() })
}

/// Calls `visit` with the selected entries of an archive until `visit` fails. The memory does not depend on the number of
/// entries.
pub fn export(
    archive: &Path,
    filter: EntryFilter<'_>,
    visit: &mut dyn FnMut(&Entry) -> io::Result<()>,
) -> Result<io::Result<()>, ArchiveError> {
    let mut archive = Archive::open_read_only(archive)?;
    let mut result = Ok(());
    archive.each_entry(filter, &mut |entry| {
        result = visit(&entry);
        if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(result)
}

/// The selected entries of an archive as one document, schema `lfn.mesh.export/1`. The entries are read while the document is
/// written, so the memory does not depend on their number. An error of the archive is an error of the serializer.
#[derive(Debug, Clone, Copy)]
pub struct ExportedEntries<'a> {
    pub archive: &'a Path,
    pub filter: EntryFilter<'a>,
}

impl Serialize for ExportedEntries<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut document = serializer.serialize_struct("ExportDocument", 2)?;
        document.serialize_field("schema", &ExportSchema::Current)?;
        document.serialize_field("entries", &EntryList(self))?;
        document.end()
    }
}

/// The list in [`ExportedEntries`].
struct EntryList<'a>(&'a ExportedEntries<'a>);

impl Serialize for EntryList<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        let mut archive = Archive::open_read_only(self.0.archive).map_err(S::Error::custom)?;
        let mut written = Ok(());
        let visited = archive.each_entry(self.0.filter, &mut |entry| {
            written = list.serialize_element(&entry);
            if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        written?;
        visited.map_err(S::Error::custom)?;
        list.end()
    }
}
