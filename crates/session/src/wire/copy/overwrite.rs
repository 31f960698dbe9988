//! Decides about an entry if its name exists at the destination. This module accesses no files.
//!
//! An entry that is up to date is not sent again. A different entry is replaced only if an option allows this. An
//! existing symbolic link is replaced itself and never followed. A device, a socket or a FIFO is never replaced. Times
//! are compared at the precision of the destination.

use lfn_base::units::Bytes;
use serde::{Deserialize, Serialize};

use super::entry::{Entry, EntryKind, Modified};

/// The existing object at the path of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    Nothing,
    File {
        length: Bytes,
        modified: Modified,
    },
    Directory,
    /// A symbolic link, whatever its target.
    Symlink,
    /// A device, a socket or a FIFO.
    Other,
    /// An object of another copy, about which the client may learn only that its name is in use.
    Hidden,
}

/// Options of the user about existing files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OverwritePolicy {
    /// Replace files that differ.
    pub force: bool,
    /// Replace older files and keep newer files.
    pub update: bool,
    /// Compare digests instead of sizes and times; replace files that differ.
    pub checksum: bool,
    /// Make the destination equal to the source: replace anything that differs, also a directory.
    pub delete: bool,
}

/// Decision about an entry if its name may exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverwriteDecision {
    /// The path is free.
    Create,
    /// Send nothing. Attributes of a directory may still be set.
    Skip(SkipReason),
    /// Replace the existing object, a directory with all its contents.
    Replace,
    /// Keep the existing object and send nothing.
    Refuse(Conflict),
    /// Decide again when both digests are known.
    CompareDigests,
}

/// Reason why an entry is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkipReason {
    UpToDate,
    /// The existing file is newer, and `--update` keeps it.
    Newer,
}

/// Conflict with an existing object. The text follows the name of the entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
    #[error("a file of {} exists, the source has {}", sizes(*.existing, *.here)[0], sizes(*.existing, *.here)[1])]
    Length { existing: Bytes, here: Bytes },
    #[error("a file of the same size but another modification time exists")]
    Time,
    /// A file that differs, or may differ.
    #[error("a different object exists")]
    Content,
    #[error("a {0} exists")]
    Kind(&'static str),
    #[error("a directory exists")]
    Directory,
    /// The only information that a write-only client may learn.
    #[error("the name is in use")]
    NameInUse,
    #[error("a device, a socket or a FIFO exists and is never replaced")]
    Other,
}

impl Conflict {
    /// Returns the action for the user, if there is one.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Conflict::Length { .. } => Some("use --force to replace it, or --update to replace older files"),
            Conflict::Time => Some("use --checksum to compare them, or --force to replace it"),
            Conflict::Content | Conflict::Kind(_) => Some("use --force to replace it"),
            Conflict::Directory => Some("only --delete replaces it"),
            Conflict::NameInUse => Some("--force replaces a file, and nothing else"),
            Conflict::Other => None,
        }
    }
}

/// Formats two different sizes in one unit. Sizes that would look equal are exact.
fn sizes(existing: Bytes, here: Bytes) -> [String; 2] {
    let rounded = Bytes::in_common_decimal_unit([existing, here]);
    if rounded[0] == rounded[1] { [existing.exact(), here.exact()] } else { rounded }
}

/// Decides about `entry` if `there` exists at its path. `equal` is known for some entries: both digests of a file, both
/// targets of a symbolic link, or both inodes of a hard link are equal.
pub fn decide(entry: &Entry, there: Existing, equal: Option<bool>, allowed: OverwritePolicy) -> OverwriteDecision {
    match (&entry.kind, there) {
        (_, Existing::Nothing) => OverwriteDecision::Create,
        // The result does not depend on the kind of the object, so that no answer reveals the kind.
        (EntryKind::Directory, Existing::Hidden) => OverwriteDecision::Skip(SkipReason::UpToDate),
        (_, Existing::Hidden) if allowed.force => OverwriteDecision::Replace,
        (_, Existing::Hidden) => OverwriteDecision::Refuse(Conflict::NameInUse),
        (_, Existing::Other) => OverwriteDecision::Refuse(Conflict::Other),
        (EntryKind::Directory, Existing::Directory) => OverwriteDecision::Skip(SkipReason::UpToDate),
        (_, Existing::Directory) if allowed.delete => OverwriteDecision::Replace,
        (_, Existing::Directory) => OverwriteDecision::Refuse(Conflict::Directory),
        (EntryKind::File { length }, Existing::File { length: old, modified }) => {
            decide_file(entry.modified, *length, old, modified, equal, allowed)
        }
        (EntryKind::HardLink { .. }, Existing::File { .. }) | (EntryKind::Symlink { .. }, Existing::Symlink)
            if equal == Some(true) =>
        {
            OverwriteDecision::Skip(SkipReason::UpToDate)
        }
        (EntryKind::HardLink { .. }, Existing::File { modified, .. })
            if allowed.keeps_newer(modified, entry.modified) =>
        {
            OverwriteDecision::Skip(SkipReason::Newer)
        }
        (EntryKind::HardLink { .. }, Existing::File { .. }) | (EntryKind::Symlink { .. }, Existing::Symlink) => {
            allowed.replace_or_refuse(Conflict::Content)
        }
        (_, Existing::File { .. }) => allowed.replace_or_refuse(Conflict::Kind("file")),
        (_, Existing::Symlink) => allowed.replace_or_refuse(Conflict::Kind("symbolic link")),
    }
}

fn decide_file(
    new: Modified,
    length: Bytes,
    old_length: Bytes,
    old_modified: Modified,
    equal: Option<bool>,
    allowed: OverwritePolicy,
) -> OverwriteDecision {
    if allowed.keeps_newer(old_modified, new) {
        return OverwriteDecision::Skip(SkipReason::Newer);
    }
    let same = match (allowed.checksum, length == old_length) {
        (_, false) => false,
        (true, true) => match equal {
            None => return OverwriteDecision::CompareDigests,
            Some(equal) => equal,
        },
        (false, true) => old_modified.is_truncation_of(new),
    };
    match same {
        true => OverwriteDecision::Skip(SkipReason::UpToDate),
        false if length != old_length => {
            allowed.replace_or_refuse(Conflict::Length { existing: old_length, here: length })
        }
        false => allowed.replace_or_refuse(Conflict::Time),
    }
}

impl OverwritePolicy {
    /// Reports whether `--update` keeps a file because it is newer than the source.
    fn keeps_newer(&self, old: Modified, new: Modified) -> bool {
        self.update && old > new && !old.is_truncation_of(new)
    }

    /// Newer files are handled before, so `--update` permits the replacement like the other options. As in rsync, times
    /// do not matter between objects of different kinds.
    fn replace_or_refuse(&self, obstacle: Conflict) -> OverwriteDecision {
        if self.may_replace() { OverwriteDecision::Replace } else { OverwriteDecision::Refuse(obstacle) }
    }

    /// Reports whether any option permits a replacement.
    pub fn may_replace(self) -> bool {
        self.force || self.update || self.checksum || self.delete
    }
}

#[cfg(test)]
mod tests {
    use super::OverwriteDecision::{CompareDigests, Create, Refuse, Replace, Skip};
    use super::*;
    use crate::wire::copy::entry::Name;

    const NONE: OverwritePolicy = OverwritePolicy { force: false, update: false, checksum: false, delete: false };
    const FORCE: OverwritePolicy = OverwritePolicy { force: true, ..NONE };
    const UPDATE: OverwritePolicy = OverwritePolicy { update: true, ..NONE };
    const CHECKSUM: OverwritePolicy = OverwritePolicy { checksum: true, ..NONE };
    const DELETE: OverwritePolicy = OverwritePolicy { delete: true, ..NONE };

    fn entry(kind: EntryKind) -> Entry {
        Entry::new(Name::new("a").unwrap(), kind, 0o644, Modified::new(100, 500_000_001).unwrap()).unwrap()
    }

    fn existing(length: u64, seconds: i64, nanoseconds: u32) -> Existing {
        Existing::File { length: Bytes(length), modified: Modified::new(seconds, nanoseconds).unwrap() }
    }

    #[test]
    fn decides_about_existing_files() {
        let same = existing(5, 100, 500_000_001);
        let coarse = existing(5, 100, 0);
        let (older, newer, shorter) =
            (existing(5, 99, 0), existing(5, 100, 500_000_002), existing(4, 100, 500_000_001));
        let length = Refuse(Conflict::Length { existing: Bytes(4), here: Bytes(5) });
        let time = Refuse(Conflict::Time);
        let (is, newer_is) = (Skip(SkipReason::UpToDate), Skip(SkipReason::Newer));
        let cases = [
            // Existing object: without option, with --force, --update, --checksum, --delete.
            ("nothing", Existing::Nothing, [Create, Create, Create, Create, Create]),
            ("same", same, [is, is, is, CompareDigests, is]),
            ("same, whole seconds", coarse, [is, is, is, CompareDigests, is]),
            ("older", older, [time, Replace, Replace, CompareDigests, Replace]),
            ("newer", newer, [time, Replace, newer_is, CompareDigests, Replace]),
            ("shorter", shorter, [length, Replace, Replace, Replace, Replace]),
        ];
        for (what, there, verdicts) in cases {
            for (allowed, verdict) in [NONE, FORCE, UPDATE, CHECKSUM, DELETE].into_iter().zip(verdicts) {
                let entry = entry(EntryKind::File { length: Bytes(5) });
                assert_eq!(decide(&entry, there, None, allowed), verdict, "{what}, {allowed:?}");
            }
        }
    }

    #[test]
    fn checksum_option_compares_digests() {
        let entry = entry(EntryKind::File { length: Bytes(5) });
        let same = existing(5, 100, 500_000_001);
        let both = OverwritePolicy { update: true, ..CHECKSUM };
        let cases = [
            (same, Some(true), CHECKSUM, Skip(SkipReason::UpToDate)),
            (same, Some(false), CHECKSUM, Replace),
            (existing(5, 1, 0), Some(true), CHECKSUM, Skip(SkipReason::UpToDate)),
            (existing(4, 100, 500_000_001), Some(true), CHECKSUM, Replace),
            (existing(5, 200, 0), None, both, Skip(SkipReason::Newer)),
            (existing(5, 1, 0), None, both, CompareDigests),
            // Without `--checksum`, digests change nothing.
            (same, Some(false), NONE, Skip(SkipReason::UpToDate)),
        ];
        for (there, equal, allowed, verdict) in cases {
            assert_eq!(decide(&entry, there, equal, allowed), verdict, "{there:?} {equal:?} {allowed:?}");
        }
    }

    #[test]
    fn update_applies_to_hard_links() {
        let hard = entry(EntryKind::HardLink { to: 0 });
        let (older, newer, coarse) = (existing(5, 99, 0), existing(5, 100, 500_000_002), existing(5, 100, 0));
        let both = OverwritePolicy { force: true, ..UPDATE };
        for (there, equal, allowed, verdict) in [
            (newer, Some(false), UPDATE, Skip(SkipReason::Newer)),
            (newer, None, both, Skip(SkipReason::Newer)),
            (newer, Some(true), UPDATE, Skip(SkipReason::UpToDate)),
            (older, Some(false), UPDATE, Replace),
            (coarse, Some(false), UPDATE, Replace),
            (newer, Some(false), FORCE, Replace),
            (newer, Some(false), NONE, Refuse(Conflict::Content)),
            (Existing::Symlink, Some(false), UPDATE, Replace),
        ] {
            assert_eq!(decide(&hard, there, equal, allowed), verdict, "{there:?} {equal:?} {allowed:?}");
        }
    }

    #[test]
    fn hidden_objects_are_skipped_replaced_or_refused() {
        for allowed in [NONE, FORCE, UPDATE, CHECKSUM, DELETE] {
            for kind in [
                EntryKind::File { length: Bytes(5) },
                EntryKind::Symlink { target: "x".into() },
                EntryKind::HardLink { to: 0 },
            ] {
                let expected = if allowed == FORCE { Replace } else { Refuse(Conflict::NameInUse) };
                for equal in [None, Some(true), Some(false)] {
                    assert_eq!(decide(&entry(kind.clone()), Existing::Hidden, equal, allowed), expected, "{kind:?}");
                }
            }
            let directory = entry(EntryKind::Directory);
            assert_eq!(decide(&directory, Existing::Hidden, None, allowed), Skip(SkipReason::UpToDate));
        }
    }

    #[test]
    fn decides_about_other_kinds() {
        let kinds = [
            EntryKind::Directory,
            EntryKind::File { length: Bytes(5) },
            EntryKind::Symlink { target: "x".into() },
            EntryKind::HardLink { to: 0 },
        ];
        for (number, kind) in kinds.into_iter().enumerate() {
            let entry = entry(kind);
            for allowed in [NONE, FORCE, UPDATE, CHECKSUM, DELETE] {
                let may = allowed != NONE;
                assert_eq!(decide(&entry, Existing::Nothing, None, allowed), Create);
                assert_eq!(decide(&entry, Existing::Other, None, allowed), Refuse(Conflict::Other));
                let directory = decide(&entry, Existing::Directory, None, allowed);
                match number {
                    0 => assert_eq!(directory, Skip(SkipReason::UpToDate)),
                    _ if allowed == DELETE => assert_eq!(directory, Replace),
                    _ => assert_eq!(directory, Refuse(Conflict::Directory)),
                }
                for there in [existing(5, 1, 0), Existing::Symlink] {
                    let verdict = decide(&entry, there, Some(false), allowed);
                    let same_kind = matches!((number, there), (1, Existing::File { .. }));
                    if !same_kind {
                        assert_eq!(verdict == Replace, may, "{entry:?} {there:?} {allowed:?}");
                        assert_eq!(matches!(verdict, Refuse(_)), !may, "{entry:?} {there:?} {allowed:?}");
                    }
                }
            }
        }
        let link = entry(EntryKind::Symlink { target: "x".into() });
        assert_eq!(decide(&link, Existing::Symlink, Some(true), FORCE), Skip(SkipReason::UpToDate));
        assert_eq!(decide(&link, Existing::Symlink, None, NONE), Refuse(Conflict::Content));
        let hard = entry(EntryKind::HardLink { to: 0 });
        assert_eq!(decide(&hard, existing(5, 1, 0), Some(true), NONE), Skip(SkipReason::UpToDate));
        assert_eq!(decide(&hard, Existing::Symlink, Some(true), NONE), Refuse(Conflict::Kind("symbolic link")));
    }

    #[test]
    fn hints_and_not_errors_name_flags() {
        for (conflict, remedy) in [
            (Conflict::Length { existing: Bytes(4), here: Bytes(5) }, Some("--update")),
            (Conflict::Time, Some("--checksum")),
            (Conflict::Content, Some("--force")),
            (Conflict::Kind("file"), Some("--force")),
            (Conflict::Directory, Some("--delete")),
            (Conflict::NameInUse, Some("--force")),
            (Conflict::Other, None),
        ] {
            assert!(!conflict.to_string().contains("--"), "{conflict}");
            assert_eq!(conflict.hint().is_some(), remedy.is_some(), "{conflict}");
            assert!(
                remedy.is_none_or(|remedy| conflict.hint().is_some_and(|hint| hint.contains(remedy))),
                "{conflict}"
            );
        }
    }
}
