use lfn_base::units::Bytes;
use lfn_session::limits::Denial;
use lfn_session::wire::copy::blocks::{Layout, Subtree};
use lfn_session::wire::copy::entry::Modified;

use super::TestStorage;
use super::fixtures::{BLOCK, LargeFile, exists, metadata, name, read, write};
use crate::TransferError;
use crate::storage::{Existing, OpenedPartial, PartialRequest};

fn keeps_files(storage: &TestStorage) -> bool {
    storage.can(|can| can.writes && can.keeps_data)
}

pub(super) fn blocks_may_arrive_in_any_order(make: impl Fn() -> TestStorage) {
    let storage = make();
    if !storage.can(|can| can.writes) {
        return;
    }
    let large = LargeFile::new("big", 5);
    let OpenedPartial { file, kept } = large.open(&*storage).unwrap();
    assert!(kept.is_empty());
    std::thread::scope(|scope| {
        for index in [4, 0, 3, 1, 2] {
            let (large, file) = (&large, &file);
            scope.spawn(move || large.write_blocks(file, [index]));
        }
    });
    assert_eq!(storage.stat(&name("big")).unwrap(), Existing::Nothing);
    file.set_attributes(&large.entry).unwrap();
    assert!(file.was_created_since(Modified::default()));
    let id = file.id();
    file.publish(false).unwrap();
    drop(file);
    if keeps_files(&storage) {
        let found = metadata(&*storage, "big");
        assert_eq!((Some(found.id), found.length.0), (id, large.bytes.len() as u64));
        assert_eq!(found.modified, large.entry.modified);
        assert!(!storage.has_partial(&name("big")).unwrap());
    }
    if storage.stores_files() {
        assert_eq!(read(&*storage, "big"), large.bytes);
        assert_eq!(storage.list(&name(".")).unwrap().count(), 1);
    }
}

pub(super) fn second_writer_of_a_name_is_locked_out(make: impl Fn() -> TestStorage) {
    let storage = make();
    if !keeps_files(&storage) {
        return;
    }
    let (large, other) = (LargeFile::new("big", 3), LargeFile::new("other", 3));
    let first = large.open(&*storage).unwrap();
    assert!(matches!(large.open(&*storage), Err(TransferError::Locked { .. })));
    other.complete(&*storage, false).unwrap();
    large.write_blocks(&first.file, 0..3);
    first.file.publish(false).unwrap();
    drop(first);
    // The name is free for the next copy.
    large.complete(&*storage, true).unwrap();
}

pub(super) fn next_copy_resumes_intact_blocks(make: impl Fn() -> TestStorage) {
    let storage = make();
    if !keeps_files(&storage) {
        return;
    }
    let large = LargeFile::new("big", 5);
    let OpenedPartial { file, .. } = large.open(&*storage).unwrap();
    large.write_blocks(&file, [1, 3]);
    drop(file);
    let resumes = storage.can(|can| can.resumes);
    assert_eq!(storage.has_partial(&name("big")).unwrap(), resumes);
    let OpenedPartial { file, mut kept } = large.open(&*storage).unwrap();
    kept.sort_by_key(|(blocks, _)| *blocks);
    let expected = [1, 3].map(|index| (Subtree::of_block(index), large.hash(index)));
    let expected = if resumes { expected.to_vec() } else { Vec::new() };
    assert_eq!(kept, expected);
    drop((file, kept));
    large.complete(&*storage, false).unwrap();
    if storage.stores_files() {
        assert_eq!(read(&*storage, "big"), large.bytes);
    }
}

pub(super) fn blocks_of_another_source_are_not_resumed(make: impl Fn() -> TestStorage) {
    let storage = make();
    if !keeps_files(&storage) {
        return;
    }
    let large = LargeFile::new("big", 3);
    let mut newer = LargeFile::new("big", 3);
    newer.entry.modified = Modified::new(1_700_000_001, 0).unwrap();
    let longer = LargeFile::new("big", 4);
    for other in [newer, longer] {
        let OpenedPartial { file, .. } = large.open(&*storage).unwrap();
        large.write_blocks(&file, [0, 1]);
        drop(file);
        assert!(other.open(&*storage).unwrap().kept.is_empty());
    }
}

pub(super) fn useless_partial_file_is_removed(make: impl Fn() -> TestStorage) {
    let storage = make();
    if !keeps_files(&storage) {
        return;
    }
    let large = LargeFile::new("big", 3);
    let OpenedPartial { file, .. } = large.open(&*storage).unwrap();
    large.write_blocks(&file, [0, 1]);
    file.discard_on_close();
    drop(file);
    assert!(!storage.has_partial(&name("big")).unwrap());
    // A file without any block is useless too.
    drop(large.open(&*storage).unwrap());
    assert!(!storage.has_partial(&name("big")).unwrap());
}

pub(super) fn complete_file_does_not_replace_without_force(make: impl Fn() -> TestStorage) {
    let storage = make();
    if !keeps_files(&storage) {
        return;
    }
    write(&*storage, "big", b"old").unwrap();
    let large = LargeFile::new("big", 3);
    assert!(matches!(large.complete(&*storage, false), Err(TransferError::Exists { .. })));
    assert!(!storage.has_partial(&name("big")).unwrap(), "another copy was first");
    assert_eq!(metadata(&*storage, "big").length.0, 3);
    large.complete(&*storage, true).unwrap();
    assert_eq!(metadata(&*storage, "big").length.0, large.bytes.len() as u64);
}

pub(super) fn refused_quota_fails_the_file(make: impl Fn() -> TestStorage) {
    let storage = make();
    if !storage.can(|can| can.writes) {
        return;
    }
    let large = LargeFile::new("big", 3);
    let refuse = |missing: Bytes| {
        assert_eq!(missing.0, large.bytes.len() as u64);
        let denied = Denial::Streams { requested: 1, max: 0 };
        Err(TransferError::Quota { path: "big".into(), denied })
    };
    let opened = storage.open_partial(&PartialRequest {
        entry: &large.entry,
        layout: large.layout,
        verify: large.verify,
        reserve: false,
        afford: &refuse,
        meter: &large.meter,
    });
    assert!(matches!(opened, Err(TransferError::Quota { .. })));
    assert!(!storage.has_partial(&name("big")).unwrap() && !exists(&*storage, "big"));
}

pub(super) fn stopped_verification_is_interrupted(make: impl Fn() -> TestStorage) {
    let storage = make();
    if !keeps_files(&storage) || !storage.can(|can| can.resumes) {
        return;
    }
    let large = LargeFile::new("big", 4);
    let OpenedPartial { file, .. } = large.open(&*storage).unwrap();
    large.write_blocks(&file, [0, 1]);
    drop(file);
    // With other blocks, a storage that verifies must read them; one that does not starts again.
    let block_size = Bytes(2 * BLOCK as u64);
    let resized =
        LargeFile { layout: Layout::new(large.layout.bytes(), block_size).unwrap(), ..LargeFile::new("big", 4) };
    resized.meter.stop();
    let opened = resized.open(&*storage).map(|opened| opened.kept);
    match opened {
        Ok(kept) => assert!(kept.is_empty()),
        Err(error) => {
            assert!(matches!(error, TransferError::Interrupted), "{error}");
            assert_eq!(large.open(&*storage).unwrap().kept.len(), 2, "an unverified file stays");
        }
    }
}
