use std::io;
use std::sync::Arc;

use lfn_base::units::Bytes;
use lfn_session::wire::copy::blocks::{Layout, Subtree};
use lfn_session::wire::copy::entry::Modified;
use lfn_session::wire::copy::options::{FsyncPolicy, Verify};

use super::TestStorage;
use super::fixtures::{BLOCK, exists, file_entry, metadata, modified, name, read, write};
use crate::TransferError;
use crate::proto::zeros::hash_zeros;
use crate::storage::{Existing, PartialRequest, SyncScope};
use crate::work_meter::WorkMeter;

pub(super) fn small_file_appears_when_published(make: impl Fn() -> TestStorage) {
    let storage = make();
    if !storage.can(|can| can.writes) {
        return;
    }
    for (path, bytes) in [("small", &b"data"[..]), ("empty", b"")] {
        let file = storage.write_file(&file_entry(path, bytes.len()), bytes).unwrap();
        assert_eq!(storage.stat(&name(path)).unwrap(), Existing::Nothing, "{path}");
        let _ = storage.is_synced_later(&*file);
        for policy in [FsyncPolicy::None, FsyncPolicy::End, FsyncPolicy::File] {
            let results = storage.sync_files(&[file.clone(), file.clone()], policy);
            assert!(results.len() == 2 && results.iter().all(Result::is_ok), "{path}");
        }
        let id = file.id();
        file.publish(false).unwrap();
        if storage.can(|can| can.keeps_data) {
            assert_eq!(Some(metadata(&*storage, path).id), id, "{path}");
        }
        if storage.stores_files() {
            assert_eq!(read(&*storage, path), bytes);
        }
    }
    storage.note_up_to_date(&name("small"));
    storage.sync(SyncScope::OneEntry { existing: Some(&name("small")) }).unwrap();
    storage.sync(SyncScope::Everything).unwrap();
}

pub(super) fn existing_file_is_replaced_only_by_force(make: impl Fn() -> TestStorage) {
    let storage = make();
    if !storage.can(|can| can.writes && can.keeps_data) {
        return;
    }
    write(&*storage, "a", b"old").unwrap();
    let file = storage.write_file(&file_entry("a", 3), b"new").unwrap();
    assert!(matches!(file.publish(false), Err(TransferError::Exists { .. })));
    drop(file);
    if storage.stores_files() {
        assert_eq!(read(&*storage, "a"), b"old");
    }
    storage.write_file(&file_entry("a", 5), b"newer").unwrap().publish(true).unwrap();
    assert_eq!(metadata(&*storage, "a").length.0, 5);
    // A free name needs no force, and force does not need an existing file.
    storage.write_file(&file_entry("b", 1), b"b").unwrap().publish(true).unwrap();
    assert!(exists(&*storage, "b"));
}

pub(super) fn unpublished_file_leaves_nothing(make: impl Fn() -> TestStorage) {
    let storage = make();
    if !storage.can(|can| can.writes) {
        return;
    }
    drop(storage.write_file(&file_entry("a", 1), b"x").unwrap());
    assert_eq!(storage.stat(&name("a")).unwrap(), Existing::Nothing);
    if storage.can(|can| can.reads) {
        assert_eq!(storage.list(&name(".")).unwrap().count(), 0);
    }
}

pub(super) fn attributes_of_a_file_are_stored(make: impl Fn() -> TestStorage) {
    let storage = make();
    if !storage.can(|can| can.writes && can.keeps_data) {
        return;
    }
    write(&*storage, "a", b"data").unwrap();
    let found = metadata(&*storage, "a");
    assert_eq!((found.length.0, found.modified, found.links), (4, modified(), 1));
    assert!(storage.was_created_since(&name("a"), Modified::new(0, 0).unwrap()));
    let unknown = storage.was_created_since(&name("missing"), Modified::new(0, 0).unwrap());
    assert!(!unknown);
    let mut entry = file_entry("a", 4);
    entry.modified = Modified::new(1_600_000_000, 0).unwrap();
    storage.set_modified(&entry).unwrap();
    storage.update_attributes(&entry).unwrap();
    // Objects of a storage that reveals nothing keep their attributes.
    let expected = if storage.can(|can| can.reveals_existing) { entry.modified } else { modified() };
    assert_eq!(metadata(&*storage, "a").modified, expected);
    assert_eq!(storage.unpreserved(), Default::default());
}

pub(super) fn read_past_the_end_fails(make: impl Fn() -> TestStorage) {
    let storage = make();
    if !storage.can(|can| can.reads) {
        return;
    }
    let path = if storage.stores_files() {
        write(&*storage, "a", &[1; BLOCK]).unwrap();
        b"a".to_vec()
    } else {
        storage.list(&name(".")).unwrap().next().unwrap().unwrap()
    };
    let file = storage.open_file(&name(&path)).unwrap();
    let length = file.metadata().unwrap().length.0;
    assert_eq!(metadata(&*storage, &path).length.0, length);
    let mut buffer = [0; 10];
    file.read_exact_at(&mut buffer, length - 10).unwrap();
    let (mut whole, mut part) = (vec![0; length as usize], [0; 5]);
    file.read_exact_at(&mut whole, 0).unwrap();
    file.read_exact_at(&mut part, 3).unwrap();
    assert_eq!((&whole[length as usize - 10..], &whole[3..8]), (&buffer[..], &part[..]));
    let error = file.read_exact_at(&mut buffer, length - 9).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    assert_eq!((file.next_data(0).unwrap(), file.next_data(length).unwrap()), (Some(0), None));
    assert!(storage.open_file(&name("missing")).is_err());
}

pub(super) fn holes_are_found(make: impl Fn() -> TestStorage) {
    let storage = make();
    if !storage.stores_files() || !storage.can(|can| can.holes) {
        return;
    }
    const LARGE_BLOCK: u64 = 65_536;
    let (length, meter) = (4 * LARGE_BLOCK, Arc::<WorkMeter>::default());
    let (entry, layout) =
        (file_entry("sparse", length as usize), Layout::new(Bytes(length), Bytes(LARGE_BLOCK)).unwrap());
    let (verify, afford) = (Verify::Blake3, &|_| Ok(()));
    let request = PartialRequest { entry: &entry, layout, verify, reserve: false, afford, meter: &meter };
    let file = storage.open_partial(&request).unwrap().file;
    let (block, bytes) = (layout.block(2).unwrap(), [1; LARGE_BLOCK as usize]);
    file.write_block(block, verify.hash(&layout, block, &bytes), &bytes).unwrap();
    // A hole replaces data that an earlier copy wrote.
    let (block, hole) = (layout.block(1).unwrap(), Subtree { first: 0, level: 1 });
    file.write_block(block, verify.hash(&layout, block, &bytes), &bytes).unwrap();
    file.write_hole(hole, hash_zeros(&layout, verify, hole)).unwrap();
    file.set_attributes(&entry).unwrap();
    file.publish(false).unwrap();
    let file = storage.open_file(&name("sparse")).unwrap();
    assert_eq!(file.next_data(0).unwrap(), Some(2 * LARGE_BLOCK));
    assert_eq!(file.next_data(2 * LARGE_BLOCK + 5).unwrap(), Some(2 * LARGE_BLOCK + 5));
    assert_eq!(file.next_data(3 * LARGE_BLOCK).unwrap(), None);
    let mut hole = [1; 100];
    file.read_exact_at(&mut hole, LARGE_BLOCK).unwrap();
    assert_eq!(hole, [0; 100]);
}
