//! What to do with an entry whose place at the destination may be taken: a decision without a file.
//!
//! What is there already is not sent again; what differs is not lost without a word that allows it. A symbolic link
//! there is replaced itself and never followed; a device, a socket or a FIFO is never replaced. Times are compared as
//! the destination can keep them.

use serde::{Deserialize, Serialize};

use super::entry::{Entry, Kind, Modified};
use crate::units::Bytes;

/// What stands where an entry is to stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum There {
    /// Nothing.
    Nothing,
    /// A regular file.
    File {
        /// Its length.
        length: Bytes,
        /// When its content was changed.
        modified: Modified,
    },
    /// A directory.
    Directory,
    /// A symbolic link, whatever it leads to.
    Symlink,
    /// A device, a socket or a FIFO.
    Other,
}

/// What the user allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Allowed {
    /// Replace what differs.
    pub force: bool,
    /// Replace what is older; leave what is newer.
    pub update: bool,
    /// Believe digests, not lengths and times; replace what differs.
    pub checksum: bool,
    /// Make the destination equal: replace what differs, a directory too.
    pub delete: bool,
}

/// What to do with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing is in the way.
    Take,
    /// Nothing is to be sent; a directory's attributes may be set still.
    Skip(Skipped),
    /// What is there gives way, a directory with all it holds.
    Replace,
    /// Neither sent nor replaced.
    Refuse(Obstacle),
    /// Only the digests tell: decide again with them.
    CompareDigests,
}

/// Why nothing is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skipped {
    /// It is there already.
    Same,
    /// A newer one is there, and `--update` leaves it.
    Newer,
}

/// What is in the way; reads behind the name of the entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    /// A file of another length.
    #[error("a file of {there} is there, this one has {here}: --force replaces it, --update if it is older")]
    Length {
        /// The one there.
        there: Bytes,
        /// The one that would come.
        here: Bytes,
    },
    /// A file of another time.
    #[error(
        "a file of the same length is there, modified at another time: --checksum compares them, --force replaces it"
    )]
    Time,
    /// A file, and whether it is the same cannot be told or is known not to be so.
    #[error("something else is there: --force replaces it")]
    Content,
    /// A thing of another kind.
    #[error("a {0} is there: --force replaces it")]
    Kind(&'static str),
    /// A directory where none is to be.
    #[error("a directory is there: only --delete replaces it")]
    Directory,
    /// All that somebody may know who may not look.
    #[error("the name is taken: --force replaces a file")]
    Taken,
    /// What no option replaces.
    #[error("a device, a socket or a FIFO is there, and is never replaced")]
    Other,
}

/// What to do with `entry` where `there` stands. `equal` tells, where it is known, that both are the same: by the digest
/// of a file, the target of a symbolic link, the inode of a hard link.
pub fn decide(entry: &Entry, there: There, equal: Option<bool>, allowed: Allowed) -> Verdict {
    match (&entry.kind, there) {
        (_, There::Nothing) => Verdict::Take,
        (_, There::Other) => Verdict::Refuse(Obstacle::Other),
        (Kind::Directory, There::Directory) => Verdict::Skip(Skipped::Same),
        (_, There::Directory) if allowed.delete => Verdict::Replace,
        (_, There::Directory) => Verdict::Refuse(Obstacle::Directory),
        (Kind::File { length }, There::File { length: old, modified }) => {
            file(entry.modified, *length, (old, modified), equal, allowed)
        }
        (Kind::HardLink { .. }, There::File { .. }) | (Kind::Symlink { .. }, There::Symlink) if equal == Some(true) => {
            Verdict::Skip(Skipped::Same)
        }
        (Kind::HardLink { .. }, There::File { modified, .. }) if allowed.leaves(modified, entry.modified) => {
            Verdict::Skip(Skipped::Newer)
        }
        (Kind::HardLink { .. }, There::File { .. }) | (Kind::Symlink { .. }, There::Symlink) => {
            allowed.replaces_or(Obstacle::Content)
        }
        (_, There::File { .. }) => allowed.replaces_or(Obstacle::Kind("file")),
        (_, There::Symlink) => allowed.replaces_or(Obstacle::Kind("symbolic link")),
    }
}

/// The same for somebody who may write and not look: nothing depends on what a file that is there holds, how long it is
/// or how old, so that no answer tells.
pub fn decide_blind(entry: &Entry, there: There, allowed: Allowed) -> Verdict {
    match (&entry.kind, there) {
        (_, There::Nothing) => Verdict::Take,
        (Kind::Directory, There::Directory) => Verdict::Skip(Skipped::Same),
        (Kind::Directory, _) | (_, There::Directory | There::Other) => Verdict::Refuse(Obstacle::Taken),
        (_, There::File { .. } | There::Symlink) if allowed.force => Verdict::Replace,
        (_, There::File { .. } | There::Symlink) => Verdict::Refuse(Obstacle::Taken),
    }
}

fn file(new: Modified, length: Bytes, old: (Bytes, Modified), equal: Option<bool>, allowed: Allowed) -> Verdict {
    if allowed.leaves(old.1, new) {
        return Verdict::Skip(Skipped::Newer);
    }
    let same = match (allowed.checksum, length == old.0) {
        (_, false) => false,
        (true, true) => match equal {
            None => return Verdict::CompareDigests,
            Some(equal) => equal,
        },
        (false, true) => old.1.keeps(new),
    };
    match same {
        true => Verdict::Skip(Skipped::Same),
        false if length != old.0 => allowed.replaces_or(Obstacle::Length { there: old.0, here: length }),
        false => allowed.replaces_or(Obstacle::Time),
    }
}

impl Allowed {
    /// Whether a file stays because it is newer than the one that would come.
    fn leaves(&self, old: Modified, new: Modified) -> bool {
        self.update && old > new && !old.keeps(new)
    }

    /// Newer files are out before this is asked, so `--update` is as good as the others; as with rsync, another kind of
    /// thing is no matter of dates.
    fn replaces_or(&self, obstacle: Obstacle) -> Verdict {
        if self.replaces() { Verdict::Replace } else { Verdict::Refuse(obstacle) }
    }

    /// Whether anything may give way.
    pub fn replaces(self) -> bool {
        self.force || self.update || self.checksum || self.delete
    }
}

#[cfg(test)]
mod tests {
    use super::Verdict::{CompareDigests, Refuse, Replace, Skip, Take};
    use super::*;
    use crate::transfer::entry::Name;

    const NONE: Allowed = Allowed { force: false, update: false, checksum: false, delete: false };
    const FORCE: Allowed = Allowed { force: true, ..NONE };
    const UPDATE: Allowed = Allowed { update: true, ..NONE };
    const CHECKSUM: Allowed = Allowed { checksum: true, ..NONE };
    const DELETE: Allowed = Allowed { delete: true, ..NONE };

    fn entry(kind: Kind) -> Entry {
        Entry::new(Name::new("a").unwrap(), kind, 0o644, Modified::new(100, 500_000_001).unwrap()).unwrap()
    }

    fn there(length: u64, seconds: i64, nanoseconds: u32) -> There {
        There::File { length: Bytes(length), modified: Modified::new(seconds, nanoseconds).unwrap() }
    }

    #[test]
    fn files() {
        let same = there(5, 100, 500_000_001);
        let coarse = there(5, 100, 0);
        let (older, newer, shorter) = (there(5, 99, 0), there(5, 100, 500_000_002), there(4, 100, 500_000_001));
        let length = Refuse(Obstacle::Length { there: Bytes(4), here: Bytes(5) });
        let time = Refuse(Obstacle::Time);
        let (is, newer_is) = (Skip(Skipped::Same), Skip(Skipped::Newer));
        let cases = [
            // what is there: without a word, --force, --update, --checksum, --delete
            ("nothing", There::Nothing, [Take, Take, Take, Take, Take]),
            ("same", same, [is, is, is, CompareDigests, is]),
            ("same, whole seconds", coarse, [is, is, is, CompareDigests, is]),
            ("older", older, [time, Replace, Replace, CompareDigests, Replace]),
            ("newer", newer, [time, Replace, newer_is, CompareDigests, Replace]),
            ("shorter", shorter, [length, Replace, Replace, Replace, Replace]),
        ];
        for (what, there, verdicts) in cases {
            for (allowed, verdict) in [NONE, FORCE, UPDATE, CHECKSUM, DELETE].into_iter().zip(verdicts) {
                let entry = entry(Kind::File { length: Bytes(5) });
                assert_eq!(decide(&entry, there, None, allowed), verdict, "{what}, {allowed:?}");
            }
        }
    }

    #[test]
    fn digests_decide_where_they_are_asked_for() {
        let entry = entry(Kind::File { length: Bytes(5) });
        let same = there(5, 100, 500_000_001);
        let both = Allowed { update: true, ..CHECKSUM };
        let cases = [
            (same, Some(true), CHECKSUM, Skip(Skipped::Same)),
            (same, Some(false), CHECKSUM, Replace),
            (there(5, 1, 0), Some(true), CHECKSUM, Skip(Skipped::Same)),
            (there(4, 100, 500_000_001), Some(true), CHECKSUM, Replace),
            (there(5, 200, 0), None, both, Skip(Skipped::Newer)),
            (there(5, 1, 0), None, both, CompareDigests),
            // Not asked for, they change nothing.
            (same, Some(false), NONE, Skip(Skipped::Same)),
        ];
        for (there, equal, allowed, verdict) in cases {
            assert_eq!(decide(&entry, there, equal, allowed), verdict, "{there:?} {equal:?} {allowed:?}");
        }
    }

    #[test]
    fn another_name_of_a_file_is_as_old_as_the_file() {
        let hard = entry(Kind::HardLink { to: 0 });
        let (older, newer, coarse) = (there(5, 99, 0), there(5, 100, 500_000_002), there(5, 100, 0));
        let both = Allowed { force: true, ..UPDATE };
        for (there, equal, allowed, verdict) in [
            (newer, Some(false), UPDATE, Skip(Skipped::Newer)),
            (newer, None, both, Skip(Skipped::Newer)),
            (newer, Some(true), UPDATE, Skip(Skipped::Same)),
            (older, Some(false), UPDATE, Replace),
            (coarse, Some(false), UPDATE, Replace),
            (newer, Some(false), FORCE, Replace),
            (newer, Some(false), NONE, Refuse(Obstacle::Content)),
            (There::Symlink, Some(false), UPDATE, Replace),
        ] {
            assert_eq!(decide(&hard, there, equal, allowed), verdict, "{there:?} {equal:?} {allowed:?}");
        }
    }

    #[test]
    fn other_kinds() {
        let kinds = [
            Kind::Directory,
            Kind::File { length: Bytes(5) },
            Kind::Symlink { target: "x".into() },
            Kind::HardLink { to: 0 },
        ];
        for (number, kind) in kinds.into_iter().enumerate() {
            let entry = entry(kind);
            for allowed in [NONE, FORCE, UPDATE, CHECKSUM, DELETE] {
                let may = allowed != NONE;
                assert_eq!(decide(&entry, There::Nothing, None, allowed), Take);
                assert_eq!(decide(&entry, There::Other, None, allowed), Refuse(Obstacle::Other));
                let directory = decide(&entry, There::Directory, None, allowed);
                match number {
                    0 => assert_eq!(directory, Skip(Skipped::Same)),
                    _ if allowed == DELETE => assert_eq!(directory, Replace),
                    _ => assert_eq!(directory, Refuse(Obstacle::Directory)),
                }
                for there in [there(5, 1, 0), There::Symlink] {
                    let verdict = decide(&entry, there, Some(false), allowed);
                    let same_kind = matches!((number, there), (1, There::File { .. }));
                    if !same_kind {
                        assert_eq!(verdict == Replace, may, "{entry:?} {there:?} {allowed:?}");
                        assert_eq!(matches!(verdict, Refuse(_)), !may, "{entry:?} {there:?} {allowed:?}");
                    }
                }
            }
        }
        let link = entry(Kind::Symlink { target: "x".into() });
        assert_eq!(decide(&link, There::Symlink, Some(true), FORCE), Skip(Skipped::Same));
        assert_eq!(decide(&link, There::Symlink, None, NONE), Refuse(Obstacle::Content));
        let hard = entry(Kind::HardLink { to: 0 });
        assert_eq!(decide(&hard, there(5, 1, 0), Some(true), NONE), Skip(Skipped::Same));
        assert_eq!(decide(&hard, There::Symlink, Some(true), NONE), Refuse(Obstacle::Kind("symbolic link")));
    }
}
