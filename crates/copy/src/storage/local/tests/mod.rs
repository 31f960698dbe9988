//! Tests of the local storage that need its files on disk.

mod partial_files;
mod removal;
mod trees;

use std::path::Path;

use super::{DestinationOptions, LocalStorage};
use crate::TransferError;
use crate::base_dir::BaseDir;

pub(super) fn open(path: &Path) -> LocalStorage {
    LocalStorage::open_destination(&BaseDir::Local, path, DestinationOptions::default()).unwrap()
}

fn assert_removed(error: &TransferError, path: &Path) {
    assert!(
        matches!(error, TransferError::DestinationRemoved { path: removed } if Path::new(removed) == path),
        "{error}"
    );
}
