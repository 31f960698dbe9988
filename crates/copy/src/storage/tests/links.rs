use lfn_session::wire::copy::byte_string::ByteString;

use super::TestStorage;
use super::fixtures::{
    directory_entry, exists, file_entry, hard_link_entry, metadata, name, read, symlink_entry, write,
};
use crate::TransferError;
use crate::storage::ObjectKind;

fn keeps_links(storage: &TestStorage) -> bool {
    storage.can(|can| can.writes && can.keeps_data && can.links)
}

pub(super) fn symlinks_are_stored_and_replaced(make: impl Fn() -> TestStorage) {
    let storage = make();
    if !storage.can(|can| can.writes && can.links) {
        return;
    }
    let create =
        |target: &str, replace| storage.create_symlink(&symlink_entry("l", target), &ByteString::from(target), replace);
    create("../outside", false).unwrap();
    if !keeps_links(&storage) {
        return;
    }
    let found = metadata(&*storage, "l");
    assert_eq!((found.kind, storage.read_link(&name("l")).unwrap()), (ObjectKind::Symlink, "../outside".into()));
    assert!(matches!(create("other", false), Err(TransferError::Exists { .. })));
    create("other", true).unwrap();
    assert_eq!(storage.read_link(&name("l")).unwrap(), "other".into());
    // A link replaces a file, and a file replaces a link.
    write(&*storage, "file", b"x").unwrap();
    storage.create_symlink(&symlink_entry("file", "l"), &"l".into(), true).unwrap();
    assert_eq!(metadata(&*storage, "file").kind, ObjectKind::Symlink);
    storage.write_file(&file_entry("l", 1), b"y").unwrap().publish(true).unwrap();
    assert_eq!(metadata(&*storage, "l").kind, ObjectKind::File);
    if storage.stores_files() {
        assert!(storage.open_file(&name("file")).is_err(), "a link is not followed");
        assert!(storage.read_link(&name("l")).is_err());
    }
}

pub(super) fn hard_links_name_one_file(make: impl Fn() -> TestStorage) {
    let storage = make();
    if !storage.can(|can| can.writes && can.links) {
        return;
    }
    storage.create_directory(&directory_entry("d"), false).unwrap();
    let file = storage.write_file(&file_entry("a", 4), b"data").unwrap();
    file.publish(false).unwrap();
    storage.create_hard_link(&hard_link_entry("d/b"), &name("a"), file.id(), false).unwrap();
    if !keeps_links(&storage) {
        return;
    }
    let (one, other) = (metadata(&*storage, "a"), metadata(&*storage, "d/b"));
    assert_eq!((one.id, one.links, other.links), (other.id, 2, 2));
    let again = || storage.create_hard_link(&hard_link_entry("c"), &name("a"), Some(one.id), false);
    again().unwrap();
    assert!(matches!(again(), Err(TransferError::Exists { .. })));
    write(&*storage, "old", b"old").unwrap();
    storage.create_hard_link(&hard_link_entry("old"), &name("a"), Some(one.id), true).unwrap();
    // The link exists already.
    storage.create_hard_link(&hard_link_entry("old"), &name("a"), Some(one.id), true).unwrap();
    assert_eq!(metadata(&*storage, "old").links, 4);
    if storage.stores_files() {
        assert_eq!(read(&*storage, "old"), b"data");
    }
}

pub(super) fn hard_link_needs_the_expected_file(make: impl Fn() -> TestStorage) {
    let storage = make();
    if !keeps_links(&storage) {
        return;
    }
    write(&*storage, "a", b"first").unwrap();
    let expected = metadata(&*storage, "a").id;
    storage.write_file(&file_entry("a", 6), b"second").unwrap().publish(true).unwrap();
    let linked = storage.create_hard_link(&hard_link_entry("b"), &name("a"), Some(expected), false);
    assert!(linked.is_err());
    assert!(storage.create_hard_link(&hard_link_entry("b"), &name("missing"), Some(expected), false).is_err());
    assert!(!exists(&*storage, "b"));
}
