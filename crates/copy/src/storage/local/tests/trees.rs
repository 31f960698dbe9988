use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::sync::Arc;

use lfn_session::wire::copy::preserve::Preserve;

use super::super::{DestinationOptions, LocalStorage, LocalTree};
use super::{assert_removed, open};
use crate::TransferError;
use crate::base_dir::BaseDir;
use crate::proto::leftover::{JOURNAL, PARTIAL, REPLACED};
use crate::storage::tests::fixtures::{
    LargeFile, directory_entry, exists, file_entry, list, metadata, modified, name, read, symlink_entry, write,
};
use crate::storage::{Existing, OpenedPartial, Storage};

#[test]
fn names_of_bare_suffixes_are_stored() {
    let home = tempfile::tempdir().unwrap();
    let storage = open(home.path());
    for suffix in [PARTIAL, JOURNAL, REPLACED] {
        storage.check_name(&name(suffix)).unwrap();
        assert!(!storage.is_reserved(suffix.as_bytes()));
        write(&storage, suffix, b"small").unwrap();
        let large = LargeFile::new(suffix, 3);
        large.complete(&storage, true).unwrap();
        assert_eq!(read(&storage, suffix), large.bytes);
        let reserved = name(format!(".a{suffix}"));
        assert!(matches!(storage.check_name(&reserved), Err(TransferError::Forbidden { .. })));
    }
    assert_eq!(list(&storage, ".").len(), 3);
}

#[test]
fn removed_destination_is_reported_as_the_cause() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("dest");
    let storage = open(&path);
    storage.create_directory(&directory_entry("sub"), false).unwrap();
    let large = LargeFile::new("sub/big", 2);
    let OpenedPartial { file, .. } = large.open(&storage).unwrap();
    let small = storage.write_file(&file_entry("small", 1), b"x").unwrap();
    large.write_blocks(&file, 0..2);
    fs::remove_dir_all(&path).unwrap();
    let new = large.open(&storage).map(drop);
    let results = [
        file.publish(false),
        small.publish(false),
        small.publish(true),
        write(&storage, "a", b"x"),
        write(&storage, "sub/a", b"x"),
        LargeFile::new("b", 2).complete(&storage, false),
        new,
        storage.create_directory(&directory_entry("d"), false),
        storage.create_symlink(&symlink_entry("l", "x"), &"x".into(), false),
        storage.stat(&name("a")).map(drop),
    ];
    for (number, result) in results.into_iter().enumerate() {
        assert_removed(&result.expect_err(&number.to_string()), &path);
    }
    let text = storage.stat(&name("a")).unwrap_err().to_string();
    assert_eq!(text, format!("the destination {} was removed during the copy", path.display()));
}

#[test]
fn removed_subdirectory_is_an_ordinary_error() {
    let home = tempfile::tempdir().unwrap();
    let storage = open(home.path());
    storage.create_directory(&directory_entry("sub"), false).unwrap();
    write(&storage, "sub/a", b"x").unwrap();
    fs::remove_dir_all(home.path().join("sub")).unwrap();
    let error = write(&storage, "sub/b", b"x").unwrap_err();
    assert!(!matches!(error, TransferError::DestinationRemoved { .. }), "{error}");
}

#[test]
fn single_file_gets_the_name_of_the_path() {
    let home = tempfile::tempdir().unwrap();
    let options = DestinationOptions { single: true, ..DestinationOptions::default() };
    let open = |options| LocalStorage::open_destination(&BaseDir::Local, &home.path().join("new"), options).unwrap();
    let mut storage = open(options);
    assert_eq!(storage.top().single_name, Some("new".into()));
    assert!(storage.top().has_no_conflicts && !storage.top().is_new);
    write(&storage, "source", b"x").unwrap();
    assert_eq!(fs::read(home.path().join("new")).unwrap(), b"x");
    assert!(!open(options).top().has_no_conflicts);
    fs::remove_file(home.path().join("new")).unwrap();
    storage.make_top_directory().unwrap();
    assert!(storage.top().is_new && storage.top().single_name.is_none());
    write(&storage, "source", b"x").unwrap();
    storage.remove_new_top();
    assert_eq!(fs::read(home.path().join("new/source")).unwrap(), b"x");
}

#[test]
fn dry_run_creates_nothing() {
    let home = tempfile::tempdir().unwrap();
    let options = DestinationOptions { dry_run: true, ..DestinationOptions::default() };
    let storage = LocalStorage::open_destination(&BaseDir::Local, &home.path().join("new"), options).unwrap();
    assert!(storage.top().is_missing && storage.top().id.is_none());
    assert_eq!(storage.stat(&name("a")).unwrap(), Existing::Nothing);
    let scratch = storage.create_scratch_file(true).unwrap();
    let path = fs::read_link(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&scratch))).unwrap();
    assert!(!path.starts_with(home.path()) && fs::read_dir(home.path()).unwrap().count() == 0);
}

#[test]
fn source_is_read_without_following_links_below_it() {
    let home = tempfile::tempdir().unwrap();
    let top = home.path().join("source");
    fs::create_dir_all(top.join("a/b")).unwrap();
    fs::write(top.join("a/b/file"), "data").unwrap();
    symlink(top.join("a"), top.join("link")).unwrap();
    symlink(&top, home.path().join("to-source")).unwrap();
    let source =
        LocalTree::open(Arc::new(BaseDir::Local), &home.path().join("to-source"), true, Arc::default()).unwrap();
    assert_eq!(list(&source, "."), [b"a".to_vec(), b"link".to_vec()]);
    assert_eq!(read(&source, "a/b/file"), b"data");
    assert!(source.open_file(&name("link/b/file")).is_err() && source.list(&name("link")).is_err());
    assert_eq!(source.read_link(&name("link")).unwrap().as_bytes(), top.join("a").as_os_str().as_bytes());
    assert!(source.read_link(&name("a")).is_err() && !exists(&source, "missing"));
    let file = LocalTree::open(Arc::new(BaseDir::Local), &top.join("a/b/file"), true, Arc::default()).unwrap();
    assert_eq!(read(&file, "any"), b"data");
    assert!(matches!(write(&source, "x", b"x"), Err(TransferError::Unsupported { .. })));
}

#[test]
fn killed_replacement_is_cleaned_up() {
    let home = tempfile::tempdir().unwrap();
    let storage = open(home.path());
    storage.create_directory(&directory_entry("d"), false).unwrap();
    write(&storage, "file", b"x").unwrap();
    for leftover in [".d.lfn-replaced", ".file.lfn-journal", ".file.lfn-replaced", ".d.lfn-journal"] {
        fs::write(home.path().join(OsStr::new(leftover)), b"left").unwrap();
    }
    storage.remove_leftovers(&name("d"));
    storage.remove_leftovers(&name("file"));
    assert_eq!(list(&storage, "."), [&b".d.lfn-journal"[..], b".file.lfn-replaced", b"d", b"file"]);
}

#[test]
fn preserved_attributes_are_set_and_read() {
    let home = tempfile::tempdir().unwrap();
    let options = DestinationOptions { preserve: Preserve::ALL, ..DestinationOptions::default() };
    let storage = LocalStorage::open_destination(&BaseDir::Local, home.path(), options).unwrap();
    let mut entry = file_entry("a", 1);
    entry.mode = 0o640;
    storage.write_file(&entry, b"x").unwrap().publish(false).unwrap();
    assert_eq!(metadata(&storage, "a").mode, 0o640);
    entry.mode = 0o604;
    storage.update_attributes(&entry).unwrap();
    assert_eq!(metadata(&storage, "a").mode, 0o604);
    let mut read_back = file_entry("a", 1);
    storage.read_attributes(&mut read_back, Preserve::ALL).unwrap();
    let owner = read_back.owner.unwrap();
    let found = metadata(&storage, "a");
    assert_eq!((owner.uid, owner.gid), (found.uid, found.gid));
    let directory = directory_entry("d");
    storage.create_directory(&directory, false).unwrap();
    storage.finish_directory(&directory, false, Some(0o510)).unwrap();
    let found = metadata(&storage, "d");
    assert_eq!((found.mode, found.modified), (0o510, modified()));
}

#[test]
fn sparse_files_have_holes() {
    let home = tempfile::tempdir().unwrap();
    let preserve = Preserve { sparse: true, ..Preserve::default() };
    let options = DestinationOptions { preserve, ..DestinationOptions::default() };
    let storage = LocalStorage::open_destination(&BaseDir::Local, home.path(), options).unwrap();
    let mut bytes = vec![0; 1 << 20];
    bytes[512 << 10] = 1;
    write(&storage, "a", &bytes).unwrap();
    assert_eq!(read(&storage, "a"), bytes);
    let file = storage.open_file(&name("a")).unwrap();
    let data = file.next_data(0).unwrap().unwrap();
    assert!(data > 400 << 10 && file.next_data(600 << 10).unwrap().is_none(), "{data}");
}
