//! Names of the storage's own files: partial files, journals and replaced entries.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::proto::leftover::{JOURNAL, PARTIAL, REPLACED};

/// Maximum length of a name that is part of a reserved name. Longer names are replaced by a hash, because most file
/// systems allow 255 bytes.
const MAX_STEM: usize = 240;

/// Returns `.NAME.lfn-partial`, the name of an incomplete file.
pub(crate) fn partial_name(name: &OsStr) -> OsString {
    reserved_name(name, PARTIAL)
}

/// Returns `.lfn-MARKER.lfn-partial`, the name of the empty file by which other hosts recognise the directory. A lead that is
/// killed leaves this file.
pub(super) fn marker_name(marker: &str) -> OsString {
    partial_name(OsStr::new(&format!("lfn-{marker}")))
}

/// Returns `.NAME.lfn-journal`, the name of its journal.
pub(super) fn journal_name(name: &OsStr) -> OsString {
    reserved_name(name, JOURNAL)
}

/// Returns `.NAME.lfn-replaced`, the name of an entry while a directory replaces it.
pub(super) fn replaced_name(name: &OsStr) -> OsString {
    reserved_name(name, REPLACED)
}

/// Returns whether the name has the form of a partial file, a journal or a replaced entry. Upper and lower case count
/// as equal. A name without a NAME in it, such as `.lfn-partial`, is an ordinary name.
pub(in super::super) fn is_reserved_name(name: &[u8]) -> bool {
    let Some(rest) = name.strip_prefix(b".") else { return false };
    let has_suffix = |suffix: &str| {
        let start = rest.len().checked_sub(suffix.len()).filter(|start| *start > 0);
        start.is_some_and(|start| rest[start..].eq_ignore_ascii_case(suffix.as_bytes()))
    };
    [PARTIAL, JOURNAL, REPLACED].into_iter().any(has_suffix)
}

fn reserved_name(name: &OsStr, suffix: &str) -> OsString {
    let mut reserved = vec![b'.'];
    match name.len() {
        ..=MAX_STEM => reserved.extend(name.as_bytes()),
        _ => reserved.extend(&blake3::hash(name.as_bytes()).to_hex().as_bytes()[..32]),
    }
    reserved.extend(suffix.as_bytes());
    OsString::from_vec(reserved)
}

#[cfg(test)]
mod tests {
    use crate::proto::leftover::LeftoverKind;

    use super::*;

    #[test]
    fn names_without_a_stem_are_ordinary() {
        for suffix in [PARTIAL, JOURNAL, REPLACED] {
            for ordinary in [suffix.to_owned(), format!(".{suffix}"), format!("a{suffix}"), format!(".a{suffix}2")] {
                assert!(!is_reserved_name(ordinary.as_bytes()), "{ordinary}");
                assert_eq!(LeftoverKind::parse_name(ordinary.as_bytes()), None, "{ordinary}");
                // The storage's own files of an ordinary name are recognised.
                let own = reserved_name(OsStr::new(&ordinary), suffix);
                assert!(is_reserved_name(own.as_bytes()), "{ordinary}");
                assert!(LeftoverKind::parse_name(own.as_bytes()).is_some_and(|(_, stem)| stem == ordinary.as_bytes()));
            }
            assert!(is_reserved_name(format!(".a{}", suffix.to_uppercase()).as_bytes()), "{suffix}");
        }
    }

    #[test]
    fn long_names_get_short_reserved_names() {
        let long = OsString::from_vec(vec![b'x'; 255]);
        assert!(partial_name(&long).len() < 255 && is_reserved_name(partial_name(&long).as_bytes()));
    }
}
