//! Files of a packet log, and their format.

use std::io;
use std::path::{Path, PathBuf};

use super::record::TapPoint;
use crate::watch::output::OutputFile;

/// Open files to log to: one file, or one for each capture point.
#[derive(Clone, Debug)]
pub struct LogFiles {
    pub(super) format: LogFormat,
    pub(super) outputs: Vec<OutputFile>,
}

/// Content of a packet log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// The outcome of every packet, one JSON object per line.
    JsonLines,
    /// Every packet on both sides of the link, and every packet dropped between them.
    Pcapng,
}

/// Reason why a log cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The extension of the file name selects the format.
    #[error("{}: unknown log format; the name must end in .jsonl or .pcapng", .0.display())]
    Suffix(PathBuf),
    /// The file cannot be opened for writing.
    #[error("{}: {reason}", file.display())]
    Open { file: PathBuf, reason: io::Error },
}

impl LogFiles {
    /// Opens or creates the files. The extension of the name selects the format. `NAME.pcapng` stands for
    /// `NAME.near.pcapng`, `NAME.far.pcapng` and `NAME.dropped.pcapng`. An existing file keeps its content until the
    /// run starts.
    pub fn open(path: &Path) -> Result<Self, LogError> {
        let format = match path.extension().and_then(|extension| extension.to_str()) {
            Some("jsonl") => LogFormat::JsonLines,
            Some("pcapng") => LogFormat::Pcapng,
            _ => return Err(LogError::Suffix(path.to_owned())),
        };
        let paths = match format {
            LogFormat::JsonLines => vec![path.to_owned()],
            LogFormat::Pcapng => TapPoint::ALL.map(|point| path.with_extension(point.extension())).into(),
        };
        let mut files = LogFiles { format, outputs: Vec::new() };
        for path in paths {
            match OutputFile::open(&path) {
                Ok(output) => files.outputs.push(output),
                Err(reason) => {
                    files.discard();
                    return Err(LogError::Open { file: path, reason });
                }
            }
        }
        Ok(files)
    }

    /// Returns the open output files.
    pub fn outputs(&self) -> &[OutputFile] {
        &self.outputs
    }

    /// Deletes the files that this process created, because there is nothing to write.
    pub fn discard(&self) {
        self.outputs.iter().for_each(OutputFile::discard);
    }
}
