//! Hard links: which files a later link may name, and the links that wait for a file.

use std::collections::HashMap;

use lfn_base::units::Bytes;
use lfn_session::wire::copy::digest::Digest;
use lfn_session::wire::copy::entry::Name;

use crate::proto::linkable_files::LinkableFiles;
use crate::storage::FileId;

/// Facts about a file that later hard links may name.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LinkedFileInfo {
    pub(super) id: Option<FileId>,
    /// Set only if digests are reported.
    pub(super) digest: Option<Digest>,
    /// Length of the source's file, if a newer file exists at the destination and stays.
    pub(super) newer_kept: Option<Bytes>,
}

/// The target of a hard link.
#[derive(Debug)]
pub(super) enum LinkTarget {
    Existing(Name),
    /// The target has no outcome yet. The link is planned again when it has.
    Pending,
    Missing,
}

/// The files that hard links may name. Both ends remember the same ones ([`LinkableFiles`]).
#[derive(Debug, Default)]
pub(super) struct HardLinks {
    linkable: LinkableFiles,
    /// Names of the linkable files that exist.
    names: HashMap<u32, Name>,
    /// A hard link is created only from the same object, so the identities and digests of linkable files are kept here.
    infos: HashMap<u32, LinkedFileInfo>,
    /// Files without an outcome, with the hard links that wait for them.
    waiting: HashMap<u32, Vec<u32>>,
    /// Hard links to files that have their outcome, with the name of the file. `None` if the file failed.
    resolved: HashMap<u32, Option<Name>>,
}

impl HardLinks {
    /// Adds a file that later hard links may name.
    pub(super) fn add_linkable(&mut self, number: u32, name: &Name) {
        for old in self.linkable.push(number, name.as_bytes().len()) {
            self.names.remove(&old);
            self.infos.remove(&old);
        }
    }

    /// Returns the target `to` of the link `number`. `is_pending` states whether the target has no outcome yet.
    pub(super) fn resolve(&mut self, number: u32, to: u32, is_pending: bool) -> LinkTarget {
        if let Some(resolved) = self.resolved.remove(&number) {
            return resolved.map_or(LinkTarget::Missing, LinkTarget::Existing);
        }
        if let Some(name) = self.names.get(&to) {
            return LinkTarget::Existing(name.clone());
        }
        if to >= number || !is_pending {
            return LinkTarget::Missing;
        }
        self.waiting.entry(to).or_default().push(number);
        LinkTarget::Pending
    }

    /// Changes the facts about a file that later hard links may name.
    pub(super) fn update(&mut self, number: u32, change: impl FnOnce(&mut LinkedFileInfo)) {
        if self.linkable.contains(number) {
            change(self.infos.entry(number).or_default());
        }
    }

    /// Returns the facts about a file that hard links may name.
    pub(super) fn info(&self, number: u32) -> LinkedFileInfo {
        self.infos.get(&number).copied().unwrap_or_default()
    }

    /// Handles the outcome of an entry. Returns the hard links that waited for it.
    pub(super) fn settle(&mut self, number: u32, name: &Name, is_linkable: bool) -> Vec<u32> {
        self.resolved.remove(&number);
        if is_linkable && self.linkable.contains(number) {
            self.names.insert(number, name.clone());
        }
        let links = self.waiting.remove(&number).unwrap_or_default();
        for link in &links {
            self.resolved.insert(*link, is_linkable.then(|| name.clone()));
        }
        links
    }

    /// Forgets that the link `number` waits for the file `to`. The sender may give up a link before its file arrives.
    pub(super) fn cancel_wait(&mut self, number: u32, to: u32) {
        if let Some(links) = self.waiting.get_mut(&to) {
            links.retain(|link| *link != number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cancelled_link_waits_for_nothing() {
        let (mut links, name) = (HardLinks::default(), Name::new("x").unwrap());
        links.add_linkable(0, &name);
        for number in [1, 2] {
            assert!(matches!(links.resolve(number, 0, true), LinkTarget::Pending));
        }
        links.cancel_wait(1, 0);
        assert_eq!(links.settle(0, &name, true), [2]);
        assert!(links.waiting.is_empty() && links.resolved.len() == 1);
        links.settle(2, &name, false);
        assert!(links.resolved.is_empty());
        assert!(matches!(links.resolve(3, 0, false), LinkTarget::Existing(target) if target == name));
    }
}
