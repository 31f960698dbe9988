use super::TestStorage;
use super::fixtures::{LargeFile, directory_entry, exists, list, metadata, modified, name, read, write};
use crate::TransferError;
use crate::storage::{Existing, ObjectKind};

fn keeps_files(storage: &TestStorage) -> bool {
    storage.can(|can| can.writes && can.keeps_data)
}

pub(super) fn directories_are_created_and_finished(make: impl Fn() -> TestStorage) {
    let storage = make();
    if !storage.can(|can| can.writes) {
        return;
    }
    let entry = directory_entry("d");
    storage.create_directory(&entry, false).unwrap();
    write(&*storage, "d/a", b"x").unwrap();
    storage.finish_directory(&entry, true, None).unwrap();
    if keeps_files(&storage) {
        assert!(matches!(storage.create_directory(&entry, false), Err(TransferError::Exists { .. })));
        assert!(exists(&*storage, "d") && exists(&*storage, "d/a"));
    }
    if storage.stores_files() {
        let found = metadata(&*storage, "d");
        assert_eq!((found.kind, found.modified, found.mode), (ObjectKind::Directory, modified(), 0o755));
        assert_eq!((list(&*storage, "."), list(&*storage, "d")), (vec![b"d".to_vec()], vec![b"a".to_vec()]));
        assert_eq!(storage.make_directory_writable(&entry), None, "the owner has access already");
    }
}

pub(super) fn deep_directories_hold_files(make: impl Fn() -> TestStorage) {
    const LEVELS: usize = 500;
    let storage = make();
    if !storage.can(|can| can.writes) {
        return;
    }
    for levels in 1..=LEVELS {
        storage.create_directory(&directory_entry(["d"; LEVELS][..levels].join("/")), false).unwrap();
    }
    let path = format!("{}/big", ["d"; LEVELS].join("/"));
    let large = LargeFile::new(&path, 3);
    large.complete(&*storage, false).unwrap();
    if storage.stores_files() {
        assert_eq!(read(&*storage, &path), large.bytes);
    }
}

pub(super) fn directory_replaces_a_file(make: impl Fn() -> TestStorage) {
    let storage = make();
    if !keeps_files(&storage) {
        return;
    }
    write(&*storage, "x", b"file").unwrap();
    assert!(storage.create_directory(&directory_entry("x"), false).is_err());
    storage.create_directory(&directory_entry("x"), true).unwrap();
    write(&*storage, "x/inside", b"y").unwrap();
    if storage.stores_files() {
        assert_eq!((list(&*storage, "."), list(&*storage, "x")), (vec![b"x".to_vec()], vec![b"inside".to_vec()]));
    }
}

pub(super) fn only_empty_directories_are_removed(make: impl Fn() -> TestStorage) {
    let storage = make();
    if !storage.stores_files() {
        return;
    }
    for directory in ["empty", "full"] {
        storage.create_directory(&directory_entry(directory), false).unwrap();
    }
    write(&*storage, "full/a", b"x").unwrap();
    write(&*storage, "file", b"x").unwrap();
    assert!(storage.remove_directory(&name("empty"), true).unwrap() && exists(&*storage, "empty"));
    assert!(storage.remove_directory(&name("empty"), false).unwrap());
    assert_eq!(storage.stat(&name("empty")).unwrap(), Existing::Nothing);
    assert!(storage.remove_directory(&name("empty"), false).unwrap(), "the directory is gone");
    for dry_run in [true, false] {
        assert!(!storage.remove_directory(&name("full"), dry_run).unwrap());
    }
    assert!(storage.remove_directory(&name("file"), false).is_err());
    assert!(exists(&*storage, "full/a") && exists(&*storage, "file"));
}
