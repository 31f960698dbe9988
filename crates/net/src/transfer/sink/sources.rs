//! Whether several sources bring the same name (`a/x b/x dst`): of two directories one is made, of anything else the first
//! stays.
//!
//! Only names in the destination's own directory can come from several sources; what is below such a one may then come
//! twice too. That something there was brought by this copy is told by its age.

use std::collections::HashSet;

use lfn_core::transfer::entry::Name;

use super::extra::{Fingerprint, fingerprint};

/// Most names that are remembered, 16 MiB of them; with more, any may be one that came before.
const MOST: usize = 1 << 20;

/// What is known of the sources of a copy.
#[derive(Debug, Default)]
pub(super) struct Sources {
    names: HashSet<Fingerprint>,
    meet: bool,
}

impl Sources {
    /// Takes the next name of the list.
    pub(super) fn pass(&mut self, name: &Name) {
        if name.is_root() || name.as_bytes().contains(&b'/') {
            return;
        }
        self.meet |= self.names.len() == MOST || !self.names.insert(fingerprint(name.as_bytes()));
    }

    /// Whether what stands there may have been brought by another source of this copy.
    pub(super) fn meet(&self) -> bool {
        self.meet
    }
}
