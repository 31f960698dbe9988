//! The sources of a copy, as the user or the client gave them.

use std::path::PathBuf;
use std::sync::Arc;

use lfn_base::units::Bytes;
use lfn_session::wire::copy::entry::Name;
use rustix::io::Errno;

use crate::base_dir::{BaseDir, path_text};

/// A source of a copy.
#[derive(Debug)]
pub(crate) enum Source {
    /// A file or a directory. With a slash at its end, the contents of the directory (the rule of rsync).
    File {
        base: Arc<BaseDir>,
        path: PathBuf,
    },
    /// Names from a list (`--files-from`) below a directory, with their parent directories.
    FilesFrom {
        base: Arc<BaseDir>,
        path: PathBuf,
        names: Vec<Name>,
    },
    /// Exactly these entries of a file list, with their parent directories. The path is as in `File`.
    Entries {
        base: Arc<BaseDir>,
        path: PathBuf,
        names: Vec<Name>,
    },
    /// A file that is a piece of a larger one. Its first byte is at `offset` of that file.
    Piece {
        base: Arc<BaseDir>,
        path: PathBuf,
        offset: Bytes,
    },
    /// A path that matches a pattern and cannot be read.
    Unreadable {
        path: PathBuf,
        error: Errno,
    },
    /// Random bytes, which do not compress.
    Random {
        seed: u64,
        bytes: Bytes,
    },
    Zero {
        bytes: Bytes,
    },
}

impl Source {
    /// Creates a source of a file or a directory, or of only these names in it.
    pub(crate) fn new(base: Arc<BaseDir>, path: PathBuf, names: Option<&Vec<Name>>) -> Self {
        match names {
            Some(names) => Source::FilesFrom { base, path, names: names.clone() },
            None => Source::File { base, path },
        }
    }

    /// Returns the source as the user knows it, for messages.
    pub(crate) fn display_name(&self) -> String {
        match self {
            Source::File { path, .. }
            | Source::Piece { path, .. }
            | Source::FilesFrom { path, .. }
            | Source::Entries { path, .. }
            | Source::Unreadable { path, .. } => path_text(path),
            Source::Random { bytes, .. } => format!("random:{}", bytes.0),
            Source::Zero { bytes } => format!("zero:{}", bytes.0),
        }
    }
}
