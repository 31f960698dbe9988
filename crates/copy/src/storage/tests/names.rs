use lfn_session::wire::copy::entry::Name;

use super::TestStorage;
use super::fixtures::{LargeFile, directory_entry, exists, list, name, read, symlink_entry, write};
use crate::TransferError;

pub(super) fn names_cannot_leave_the_tree(make: impl Fn() -> TestStorage) {
    for bad in ["", "/etc/passwd", "..", "../a", "a/../b", "a/..", "./a", "a//b", "a/", "a\0b"] {
        assert!(Name::new(bad).is_err(), "{bad:?}");
    }
    // The top directory is no file.
    let storage = make();
    if storage.can(|can| can.reads) {
        assert!(storage.open_file(&name(".")).is_err());
    }
}

pub(super) fn reserved_names_are_refused(make: impl Fn() -> TestStorage) {
    let storage = make();
    for suffix in [".lfn-partial", ".lfn-journal", ".lfn-replaced", ".LFN-Partial"] {
        let reserved = format!("d/.a{suffix}");
        let is_reserved = storage.is_reserved(format!(".a{suffix}").as_bytes());
        assert_eq!(storage.check_name(&name(&reserved)).is_err(), is_reserved, "{reserved}");
        if is_reserved {
            let refused = write(&*storage, &reserved, b"x");
            assert!(matches!(refused, Err(TransferError::Forbidden { .. })), "{reserved}");
        }
        for ordinary in [suffix.to_owned(), format!(".{suffix}"), format!("a{suffix}")] {
            storage.check_name(&name(&ordinary)).unwrap();
            assert!(!storage.is_reserved(ordinary.as_bytes()), "{ordinary}");
            if storage.can(|can| can.writes) {
                write(&*storage, &ordinary, b"x").unwrap();
                assert!(!storage.can(|can| can.keeps_data) || exists(&*storage, &ordinary), "{ordinary}");
            }
        }
    }
}

pub(super) fn unusual_names_are_stored(make: impl Fn() -> TestStorage) {
    let storage = make();
    if !storage.can(|can| can.writes) {
        return;
    }
    let long = vec![b'n'; 255];
    let unusual: Vec<&[u8]> =
        vec![b"\xff\xfe", b"cr\rlf\n", b" ", b"-rf", b"\\", "\u{e4}\u{1f980}".as_bytes(), b"a\x1b[31m", b"*?[", &long];
    for (number, bytes) in unusual.iter().enumerate() {
        write(&*storage, bytes, &[number as u8; 10]).unwrap();
    }
    if storage.stores_files() {
        let mut sorted: Vec<_> = unusual.iter().map(|bytes| bytes.to_vec()).collect();
        sorted.sort();
        assert_eq!(list(&*storage, "."), sorted);
        for (number, bytes) in unusual.iter().enumerate() {
            assert_eq!(read(&*storage, bytes), [number as u8; 10]);
        }
    }
    let large = LargeFile::new(&long, 3);
    large.complete(&*storage, true).unwrap();
    if storage.stores_files() {
        assert_eq!(read(&*storage, &long), large.bytes);
    }
}

pub(super) fn links_on_the_way_are_not_followed(make: impl Fn() -> TestStorage) {
    let storage = make();
    if !storage.can(|can| can.writes && can.keeps_data && can.links) {
        return;
    }
    storage.create_directory(&directory_entry("d"), false).unwrap();
    for (link, target) in [("to-directory", "d"), ("to-parent", ".."), ("dangling", "nowhere")] {
        storage.create_symlink(&symlink_entry(link, target), &target.into(), false).unwrap();
        let inside = format!("{link}/x");
        assert!(write(&*storage, &inside, b"x").is_err(), "{link}");
        assert!(LargeFile::new(&inside, 2).open(&*storage).is_err(), "{link}");
        assert!(storage.create_directory(&directory_entry(&inside), false).is_err(), "{link}");
        assert!(storage.stat(&name(&inside)).is_err(), "{link}");
        assert!(storage.list(&name(link)).is_err(), "{link}");
    }
    assert!(!exists(&*storage, "d/x"));
}

pub(super) fn files_on_the_way_are_refused(make: impl Fn() -> TestStorage) {
    let storage = make();
    if !storage.can(|can| can.writes && can.keeps_data) {
        return;
    }
    write(&*storage, "file", b"x").unwrap();
    assert!(write(&*storage, "file/x", b"x").is_err());
    assert!(storage.create_directory(&directory_entry("file/x"), true).is_err());
    assert!(LargeFile::new("file/x", 2).open(&*storage).is_err());
    if storage.stores_files() {
        assert_eq!(read(&*storage, "file"), b"x");
    }
}

pub(super) fn missing_parents_are_refused(make: impl Fn() -> TestStorage) {
    let storage = make();
    if !storage.can(|can| can.writes && can.keeps_data) {
        return;
    }
    assert!(matches!(write(&*storage, "no/such/file", b"x"), Err(TransferError::NotFound { .. })));
    assert!(storage.create_directory(&directory_entry("no/such"), false).is_err());
    assert!(!exists(&*storage, "no"));
}
