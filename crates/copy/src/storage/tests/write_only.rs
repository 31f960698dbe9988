//! A write-only client learns no kind, size or time of an existing object.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use lfn_session::wire::copy::overwrite::Conflict;
use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::fixtures::{LargeFile, directory_entry, file_entry, hard_link_entry, name, read, symlink_entry, write};
use crate::TransferError;
use crate::base_dir::BaseDir;
use crate::storage::local::{DestinationOptions, LocalStorage};
use crate::storage::memory::MemoryStorage;
use crate::storage::write_only::{VisibleObjects, WriteOnly};
use crate::storage::{Existing, Storage};

fn local(path: &Path) -> LocalStorage {
    LocalStorage::open_destination(&BaseDir::Local, path, DestinationOptions::default()).unwrap()
}

fn hidden<S: Storage>(storage: S) -> WriteOnly<S> {
    WriteOnly::new(storage, VisibleObjects::Written(Default::default()))
}

/// Creates one object of each kind. All of them have the name `x`, so that messages can be compared.
fn create_objects(home: &Path) {
    for kind in ["file", "empty", "directory", "full", "link", "link-to-directory", "dangling", "fifo"] {
        fs::create_dir(home.join(kind)).unwrap();
    }
    fs::write(home.join("file/x"), "content").unwrap();
    fs::write(home.join("empty/x"), "").unwrap();
    fs::create_dir(home.join("directory/x")).unwrap();
    fs::create_dir_all(home.join("full/x/inside")).unwrap();
    symlink("../file/x", home.join("link/x")).unwrap();
    symlink("../directory", home.join("link-to-directory/x")).unwrap();
    symlink("nowhere", home.join("dangling/x")).unwrap();
    mknodat(CWD, home.join("fifo/x"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
}

fn text<T>(result: Result<T, TransferError>) -> String {
    match result {
        Ok(_) => "done".into(),
        Err(error) => format!("{error} | {}", error.entry_message()),
    }
}

/// Returns everything that a client learns about the object `x`, without a permission to replace it.
fn answers(storage: &dyn Storage) -> Vec<String> {
    let link = storage.create_symlink(&symlink_entry("x", "t"), &"t".into(), false);
    write(storage, "own", b"own").unwrap();
    vec![
        format!("{:?}", storage.stat(&name("x")).unwrap()),
        text(write(storage, "x", b"new")),
        text(LargeFile::new("x", 3).complete(storage, false)),
        text(storage.create_directory(&directory_entry("x"), false)),
        text(storage.create_directory(&directory_entry("x"), true)),
        text(link),
        text(storage.create_hard_link(&hard_link_entry("x"), &name("own"), None, false)),
        text(storage.create_hard_link(&hard_link_entry("own2"), &name("x"), None, false)),
        text(storage.open_file(&name("x"))),
        text(storage.read_link(&name("x"))),
        text(storage.list(&name("x"))),
        text(storage.remove_directory(&name("x"), false)),
        text(storage.update_attributes(&file_entry("x", 1))),
        text(storage.finish_directory(&directory_entry("x"), false, None)),
        format!("{:?}", storage.make_directory_writable(&directory_entry("x"))),
        format!("{}", storage.was_created_since(&name("x"), Default::default())),
        format!("{:?}", storage.has_partial(&name("x")).unwrap()),
    ]
}

#[test]
fn answers_do_not_depend_on_the_kind_of_an_object() {
    let home = tempfile::tempdir().unwrap();
    create_objects(home.path());
    let mut kinds: Vec<_> = fs::read_dir(home.path()).unwrap().map(|kind| kind.unwrap().path()).collect();
    kinds.sort();
    let all: Vec<_> = kinds
        .iter()
        .map(|kind| answers(&hidden(local(kind))).join("\n").replace(&kind.display().to_string(), "TOP"))
        .collect();
    assert!(all[0].contains("Hidden"), "{}", all[0]);
    for (kind, answers) in kinds.iter().zip(&all) {
        assert_eq!(answers, &all[0], "{}", kind.display());
    }
    assert_eq!(fs::read(home.path().join("file/x")).unwrap(), b"content");
    assert!(fs::read_dir(home.path().join("directory/x")).unwrap().next().is_none());
}

#[test]
fn refusals_below_an_object_do_not_depend_on_its_kind() {
    let home = tempfile::tempdir().unwrap();
    create_objects(home.path());
    let mut all = Vec::new();
    for kind in ["file", "empty", "link", "link-to-directory", "dangling", "fifo"] {
        let storage = hidden(local(&home.path().join(kind)));
        let large = LargeFile::new("x/y", 3);
        let results = [
            storage.stat(&name("x/y")).map(drop),
            write(&storage, "x/y", b"new"),
            large.complete(&storage, false),
            storage.create_directory(&directory_entry("x/y"), false),
            storage.create_symlink(&symlink_entry("x/y", "t"), &"t".into(), true),
            storage.has_partial(&name("x/y")).map(drop),
        ];
        for result in results {
            let error = result.unwrap_err();
            let in_use = matches!(error, TransferError::Conflict { obstacle: Conflict::NameInUse, .. });
            assert!(in_use, "{kind}: {error}");
            all.push(error.entry_message());
        }
    }
    all.dedup();
    assert_eq!(all.len(), 1);
}

#[test]
fn force_replaces_files_and_links_only() {
    let home = tempfile::tempdir().unwrap();
    create_objects(home.path());
    for kind in ["file", "empty", "link", "link-to-directory", "dangling"] {
        let top = home.path().join(kind);
        hidden(local(&top)).write_file(&file_entry("x", 1), b"n").unwrap().publish(true).unwrap();
        assert_eq!(fs::read(top.join("x")).unwrap(), b"n", "{kind}");
    }
    for kind in ["directory", "full", "fifo"] {
        let storage = hidden(local(&home.path().join(kind)));
        let results = [
            storage.write_file(&file_entry("x", 1), b"n").unwrap().publish(true),
            LargeFile::new("x", 3).complete(&storage, true),
            storage.create_symlink(&symlink_entry("x", "t"), &"t".into(), true),
        ];
        for result in results {
            let error = result.unwrap_err();
            assert!(matches!(error, TransferError::Conflict { obstacle: Conflict::NameInUse, .. }), "{kind}: {error}");
        }
    }
}

#[test]
fn next_session_sees_the_files_of_its_copy_only() {
    let (written, inner) = (std::sync::Arc::default(), MemoryStorage::default());
    write(&inner, "foreign", b"foreign").unwrap();
    let open = || WriteOnly::new(inner.clone(), VisibleObjects::Written(std::sync::Arc::clone(&written)));
    write(&open(), "own", b"own").unwrap();
    open().create_symlink(&symlink_entry("link", "t"), &"t".into(), false).unwrap();
    let next = open();
    assert!(
        matches!(next.stat(&name("own")), Ok(Existing::Object(_)))
            && next.was_created_since(&name("own"), Default::default())
    );
    assert_eq!(next.read_link(&name("link")).unwrap(), "t".into());
    assert_eq!(next.stat(&name("foreign")).unwrap(), Existing::Hidden);
    // A file that another program changed is not the copy's file any more.
    inner.set_modified(&file_entry("own", 3)).unwrap();
    assert_eq!(next.stat(&name("own")).unwrap(), Existing::Hidden);
}

#[test]
fn own_area_shows_everything_to_its_copy() {
    let home = tempfile::tempdir().unwrap();
    let storage = WriteOnly::new(local(home.path()), VisibleObjects::All);
    assert!(storage.top().has_no_conflicts && storage.top().is_shared && storage.top().id.is_none());
    write(&storage, "a", b"x").unwrap();
    assert!(matches!(storage.stat(&name("a")), Ok(Existing::Object(_))) && !storage.top().has_no_conflicts);
    assert!(!hidden(local(&home.path().join("new"))).top().has_no_conflicts, "the answer reveals nothing");
    assert_eq!(read(storage.inner(), "a"), b"x");
}
