//! What of a list is refused because nobody asked for it: names other than those of the sources, and links.
//!
//! Such an entry is none that an honest sender lists and cannot be sent; so it ends the copy, and does not fail by itself.

use lfn_core::transfer::asked::Asked;
use lfn_core::transfer::entry::{Entry, Kind};
use lfn_core::transfer::keep::Keep;

use super::super::TransferError;
use super::super::flow::lock;
use super::Receiver;

impl Receiver {
    /// From now on takes nothing else.
    pub(crate) fn take_only(&self, asked: Asked) {
        *lock(&self.asked) = Some(asked);
    }

    /// Looks at the next part of the list, in order.
    pub(super) fn check_asked(&self, entries: &[Entry]) -> Result<(), TransferError> {
        let mut asked = lock(&self.asked);
        for entry in entries {
            let has = asked.as_mut().is_none_or(|asked| asked.has(entry));
            let what = match (&entry.kind, self.keep) {
                _ if !has => "",
                (Kind::Symlink { .. }, Some(Keep { links: false, .. })) => " as a symbolic link",
                (Kind::HardLink { .. }, Some(Keep { hard_links: false, .. })) => " as another name of a file",
                _ => continue,
            };
            return Err(TransferError::Unasked { name: entry.name.to_string(), what });
        }
        Ok(())
    }
}
