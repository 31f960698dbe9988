use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use lfn_base::units::Bytes;
use lfn_session::Token;
use lfn_session::wire::copy::blocks::{Layout, Subtree};
use lfn_session::wire::copy::options::Verify;
use lfn_session::wire::copy::preserve::Preserve;

use super::super::location::{EntryLocation, TopHandle};
use super::super::names::partial_name;
use super::super::partial_lock::lock_partial_file;
use super::super::single_block_file::SingleBlockFile;
use super::super::{DestinationOptions, LocalStorage, PartialOwner};
use super::open;
use crate::TransferError;
use crate::base_dir::BaseDir;
use crate::proto::zeros::{hash_zeros, split_hole};
use crate::storage::tests::fixtures::{BLOCK, LargeFile, exists, file_entry, list, name, read, symlink_entry, write};
use crate::storage::{OpenedPartial, PartialRequest, Storage, UnpublishedFile};
use crate::work_meter::WorkMeter;

fn is_changed(result: &Result<(), TransferError>) -> bool {
    matches!(result, Err(TransferError::PartialFileChanged { .. }))
}

#[test]
fn foreign_write_during_the_copy_is_reported() {
    for verify in [Verify::Blake3, Verify::Off] {
        let home = tempfile::tempdir().unwrap();
        let storage = open(home.path());
        let large = LargeFile { verify, ..LargeFile::new("big", 4) };
        let OpenedPartial { file, .. } = large.open(&storage).unwrap();
        large.write_blocks(&file, [0, 1]);
        let path = home.path().join(".big.lfn-partial");
        fs::File::options().write(true).open(&path).unwrap().write_all_at(b"foreign", 3).unwrap();
        large.write_blocks(&file, [2, 3]);
        file.set_attributes(&large.entry).unwrap();
        let published = file.publish(false);
        assert!(is_changed(&published), "{published:?}");
        drop(file);
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0, "the partial file is discarded");
    }
}

/// Holes of an interrupted copy are kept without reading them, also with blocks of another size. Data in a recorded
/// hole is found.
#[test]
fn recorded_holes_are_verified() {
    const LENGTH: u64 = 1 << 40;
    let home = tempfile::tempdir().unwrap();
    let preserve = Preserve { sparse: true, ..Preserve::default() };
    let options = DestinationOptions { preserve, ..DestinationOptions::default() };
    let storage = || LocalStorage::open_destination(&BaseDir::Local, home.path(), options).unwrap();
    let path = home.path().join(".big.lfn-partial");
    let (entry, meter, verify) = (file_entry("big", LENGTH as usize), Arc::<WorkMeter>::default(), Verify::Blake3);
    let open = |block: u64| {
        let layout = Layout::new(Bytes(LENGTH), Bytes(block)).unwrap();
        let afford = &|_| Ok(());
        let request = PartialRequest { entry: &entry, layout, verify, reserve: false, afford, meter: &meter };
        (layout, storage().open_partial(&request).unwrap())
    };
    let (layout, OpenedPartial { file, kept }) = open(1 << 20);
    assert_eq!(kept, []);
    let holes: Vec<Subtree> = split_hole(layout, verify, 0, layout.blocks() - 1).collect();
    holes.iter().for_each(|hole| file.write_hole(*hole, hash_zeros(&layout, verify, *hole)).unwrap());
    drop(file);
    let expected: Vec<_> = holes.iter().map(|hole| (*hole, hash_zeros(&layout, verify, *hole))).collect();
    let (_, OpenedPartial { file, kept }) = open(1 << 20);
    assert_eq!(kept, expected, "a clean stop");
    // Another process may have written to the file.
    drop(fs::File::options().write(true).open(&path).unwrap());
    drop(file);
    let (_, OpenedPartial { file, kept }) = open(1 << 20);
    assert_eq!(kept, expected, "all holes are verified");
    drop(file);
    let (other, OpenedPartial { file, kept }) = open(16 << 20);
    let blocks: u64 = kept.iter().map(|(blocks, _)| blocks.blocks()).sum();
    assert_eq!(blocks, other.blocks());
    assert!(kept.iter().all(|(blocks, hash)| hash_zeros(&other, verify, *blocks) == *hash) && kept.len() < 10);
    drop(file);
    fs::File::options().write(true).open(&path).unwrap().write_all_at(b"x", LENGTH / 2 + 5).unwrap();
    let (_, OpenedPartial { kept, .. }) = open(16 << 20);
    let blocks: u64 = kept.iter().map(|(blocks, _)| blocks.blocks()).sum();
    assert_eq!(blocks, other.blocks() / 2);
}

#[test]
fn foreign_write_before_the_final_name_is_reported() {
    let home = tempfile::tempdir().unwrap();
    let storage = open(home.path());
    let large = LargeFile::new("big", 2);
    let path = home.path().join(".big.lfn-partial");
    // The other program opened the file before the copy, and keeps it open.
    fs::write(&path, b"").unwrap();
    let mut foreign = fs::File::options().append(true).open(&path).unwrap();
    let OpenedPartial { file, .. } = large.open(&storage).unwrap();
    large.write_blocks(&file, [0, 1]);
    file.set_attributes(&large.entry).unwrap();
    foreign.write_all(b"more").unwrap();
    assert!(is_changed(&file.publish(false)));
}

#[test]
fn foreign_reader_does_not_disturb_the_copy() {
    let home = tempfile::tempdir().unwrap();
    let storage = open(home.path());
    let large = LargeFile::new("big", 3);
    let OpenedPartial { file, .. } = large.open(&storage).unwrap();
    large.write_blocks(&file, 0..3);
    fs::read(home.path().join(".big.lfn-partial")).unwrap();
    // A program that opens the file for writing and changes nothing, as another copy does to lock it.
    drop(fs::File::options().append(true).open(home.path().join(".big.lfn-partial")).unwrap());
    file.set_attributes(&large.entry).unwrap();
    file.publish(false).unwrap();
    assert_eq!(read(&storage, "big"), large.bytes);
}

#[test]
fn foreign_times_do_not_stay() {
    let home = tempfile::tempdir().unwrap();
    let storage = open(home.path());
    let large = LargeFile::new("big", 2);
    let OpenedPartial { file, .. } = large.open(&storage).unwrap();
    large.write_blocks(&file, 0..2);
    file.set_attributes(&large.entry).unwrap();
    let foreign = fs::File::open(home.path().join(".big.lfn-partial")).unwrap();
    foreign.set_modified(std::time::SystemTime::now()).unwrap();
    file.publish(false).unwrap();
    let modified = fs::metadata(home.path().join("big")).unwrap().modified().unwrap();
    assert_eq!(modified.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs(), 1_700_000_000);
}

#[test]
fn waiting_copy_does_not_open_the_partial_file() {
    let home = tempfile::tempdir().unwrap();
    let storage = open(home.path());
    let large = LargeFile::new("big", 2);
    let OpenedPartial { file, .. } = large.open(&storage).unwrap();
    assert!(!storage.is_partial_released(&name("big")));
    let other = open(home.path());
    assert!(matches!(large.open(&other), Err(TransferError::Locked { .. })));
    // The journal of an interrupted copy is clean only if no other process opened the partial file.
    large.write_blocks(&file, [1]);
    drop(file);
    assert!(storage.is_partial_released(&name("big")));
    let path = home.path().join(".big.lfn-partial");
    let mut damaged = large.bytes[BLOCK..].to_vec();
    damaged[0] ^= 1;
    assert_eq!(large.open(&other).unwrap().kept, [(Subtree::of_block(1), large.hash(1))]);
    fs::File::options().write(true).open(path).unwrap().write_all_at(&damaged, BLOCK as u64).unwrap();
    assert_eq!(large.open(&other).unwrap().kept, [], "a change after a clean stop is found");
}

#[test]
fn partial_file_of_another_owner_is_locked() {
    let home = tempfile::tempdir().unwrap();
    let open = |token: u8| {
        let owner = PartialOwner::for_token(&Token::from_bytes([token; 16]).hash());
        let options = DestinationOptions { partial_owner: Some(owner), ..DestinationOptions::default() };
        LocalStorage::open_destination(&BaseDir::Local, home.path(), options).unwrap()
    };
    let (one, other, large) = (open(1), open(2), LargeFile::new("big", 3));
    let OpenedPartial { file, .. } = large.open(&one).unwrap();
    large.write_blocks(&file, [0]);
    drop(file);
    assert!(
        matches!(large.open(&other), Err(TransferError::Locked { .. })) && !other.is_partial_released(&name("big"))
    );
    assert_eq!(large.open(&one).unwrap().kept.len(), 1);
}

#[test]
fn discarded_partial_files_leave_nothing() {
    let home = tempfile::tempdir().unwrap();
    let options = DestinationOptions { discards_partial_files: true, ..DestinationOptions::default() };
    let storage = LocalStorage::open_destination(&BaseDir::Local, home.path(), options).unwrap();
    assert!(!storage.capabilities().resumes);
    let large = LargeFile::new("big", 3);
    let OpenedPartial { file, .. } = large.open(&storage).unwrap();
    large.write_blocks(&file, [0]);
    drop(file);
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
    large.complete(&storage, false).unwrap();
    assert_eq!(read(&storage, "big"), large.bytes);
}

#[test]
fn foreign_file_in_the_place_of_the_partial_file_stays() {
    let home = tempfile::tempdir().unwrap();
    let storage = open(home.path());
    let large = LargeFile::new("big", 2);
    let OpenedPartial { file, .. } = large.open(&storage).unwrap();
    large.write_blocks(&file, 0..2);
    let path = home.path().join(".big.lfn-partial");
    fs::write(home.path().join("other"), b"foreign").unwrap();
    fs::rename(home.path().join("other"), &path).unwrap();
    assert!(matches!(file.publish(true), Err(TransferError::Forbidden { .. })));
    drop(file);
    assert_eq!(fs::read(path).unwrap(), b"foreign");
}

/// Several copies with `--force` write the same names.
#[test]
fn two_writers_of_one_name_never_report_that_it_exists() {
    const ROUNDS: usize = 50;
    let home = tempfile::tempdir().unwrap();
    let large = LargeFile::new("large", 2);
    let writer = || {
        let storage = open(home.path());
        for _ in 0..ROUNDS {
            let results = [
                storage.write_file(&file_entry("small", 1), b"x").unwrap().publish(true),
                storage.create_symlink(&symlink_entry("link", "t"), &"t".into(), true),
                large.complete(&storage, true),
            ];
            for result in results {
                assert!(matches!(result, Ok(()) | Err(TransferError::Locked { .. })), "{result:?}");
            }
        }
    };
    std::thread::scope(|scope| (0..3).for_each(|_| drop(scope.spawn(writer))));
    assert_eq!(list(&open(home.path()), "."), [&b"large"[..], b"link", b"small"]);
    assert_eq!(read(&open(home.path()), "large"), large.bytes);
}

/// During a replacement the file has the name of a partial file for a moment.
#[test]
fn other_copies_cannot_lock_a_file_during_a_replacement() {
    let home = tempfile::tempdir().unwrap();
    let storage = open(home.path());
    write(&storage, "x", b"old").unwrap();
    let directory: Arc<std::os::fd::OwnedFd> = Arc::new(fs::File::open(home.path()).unwrap().into());
    let top = Arc::new(TopHandle { directory: directory.clone(), display_path: "x".into() });
    let location = EntryLocation { directory, name: "x".into(), display_path: "x".into(), top, owner: None };
    let small = SingleBlockFile::with_partial_name(location.clone(), 0o644).unwrap();
    let partial = partial_name(&location.name);
    assert!(matches!(lock_partial_file(&location, &partial, 0o600), Err(TransferError::Locked { .. })));
    small.publish(true).unwrap();
    drop(small);
    assert!(exists(&storage, "x") && !home.path().join(partial).exists());
}

#[test]
fn only_the_marked_directory_is_recognised() {
    let [home, other] = [0, 1].map(|_| tempfile::tempdir().unwrap());
    let storage = open(home.path());
    storage.create_marker("0123abcd").unwrap();
    assert!(open(home.path()).has_marker("0123abcd"));
    assert!(!open(other.path()).has_marker("0123abcd"));
    fs::create_dir(home.path().join(".lfn-11.lfn-partial")).unwrap();
    for marker in ["", "0123abce", "11", "../0123abcd", "0123ABCD/"] {
        assert!(!storage.has_marker(marker), "{marker}");
    }
    storage.remove_marker("0123abcd");
    assert!(!storage.has_marker("0123abcd"));
}
