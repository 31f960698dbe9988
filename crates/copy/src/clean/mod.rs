//! Finds and deletes the files that interrupted copies left in directories of this host.
//!
//! [`clean_local`] reports each file at once and keeps no list. [`crate::proto::leftover`] decides which files
//! belong to a copy and when they may be deleted. [`walk`] finds the names, and [`leftover_pair`] opens, locks and
//! deletes the files.

mod leftover_pair;
mod walk;

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use lfn_session::wire::copy::byte_string::ByteString;

use crate::proto::leftover::CleanRule;

pub use walk::CleanEvent;

use super::TransferError;

/// Cleans directories of this host. An error at one place does not stop the search at the others.
///
/// # Errors
/// [`TransferError::Interrupted`]; problems with single directories are reported as events.
pub fn clean_local(
    places: &[PathBuf],
    rule: CleanRule,
    interrupted: &AtomicBool,
    on_event: &mut dyn FnMut(CleanEvent),
) -> Result<(), TransferError> {
    let mut report = |event: Option<CleanEvent>| {
        event.into_iter().for_each(&mut *on_event);
        if interrupted.load(Ordering::Relaxed) { Err(TransferError::Interrupted) } else { Ok(()) }
    };
    for place in places {
        match walk::walk(place, rule, &mut report) {
            Ok(()) => {}
            Err(TransferError::Interrupted) => return Err(TransferError::Interrupted),
            Err(error) => {
                let path = ByteString::from(place.as_os_str().as_bytes());
                report(Some(CleanEvent::Unreadable { path, reason: error.entry_message() }))?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
