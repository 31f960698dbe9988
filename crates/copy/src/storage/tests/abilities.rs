use lfn_session::wire::copy::options::FsyncPolicy;
use lfn_session::wire::copy::preserve::Preserve;

use super::TestStorage;
use super::fixtures::{LargeFile, Recorder, directory_entry, file_entry, hard_link_entry, name, symlink_entry, write};
use crate::TransferError;
use crate::storage::{Existing, Metadata, ObjectKind, Removal, SyncScope};
use crate::work_meter::WorkMeter;

fn assert_unsupported<T>(result: Result<T, TransferError>, what: &str) {
    let error = result.err().unwrap_or_else(|| panic!("{what} succeeds"));
    assert!(matches!(error, TransferError::Unsupported { .. }), "{what}: {error}");
}

pub(super) fn missing_abilities_answer_with_errors(make: impl Fn() -> TestStorage) {
    let storage = make();
    if !storage.can(|can| can.reads) {
        let all = Preserve::ALL;
        assert_unsupported(storage.list(&name(".")).map(drop), "list");
        assert_unsupported(storage.open_file(&name("a")).map(drop), "open_file");
        assert_unsupported(storage.read_link(&name("a")), "read_link");
        assert_unsupported(storage.read_attributes(&mut file_entry("a", 1), all), "read_attributes");
    }
    if !storage.can(|can| can.writes) {
        let meter = WorkMeter::default();
        let removal = Removal { dry_run: true, meter: &meter };
        assert_unsupported(write(&*storage, "a", b"x"), "write_file");
        assert_unsupported(LargeFile::new("a", 2).open(&*storage).map(drop), "open_partial");
        assert_unsupported(storage.create_directory(&directory_entry("a"), false), "create_directory");
        assert_unsupported(storage.create_symlink(&symlink_entry("a", "x"), &"x".into(), true), "create_symlink");
        let link = storage.create_hard_link(&hard_link_entry("a"), &name("b"), None, true);
        assert_unsupported(link, "create_hard_link");
        assert_unsupported(storage.remove_directory(&name("a"), true), "remove_directory");
        assert_unsupported(storage.remove_tree(&name("a"), removal, &mut Recorder::default()), "remove_tree");
        assert_unsupported(storage.finish_directory(&directory_entry("a"), true, None), "finish_directory");
        assert_unsupported(storage.update_attributes(&file_entry("a", 1)), "update_attributes");
        assert_unsupported(storage.set_modified(&file_entry("a", 1)), "set_modified");
        assert!(storage.create_scratch_file(false).is_none() && !storage.has_partial(&name("a")).unwrap());
    }
}

pub(super) fn top_is_a_directory(make: impl Fn() -> TestStorage) {
    let mut storage = make();
    let top = storage.top();
    assert!(top.single_name.is_none() && !top.is_missing, "{top:?}");
    assert!(!top.is_new || !storage.can(|can| can.keeps_data), "{top:?}");
    let root = storage.stat(&name(".")).unwrap();
    assert!(matches!(root, Existing::Object(Metadata { kind: ObjectKind::Directory, .. })), "{root:?}");
    if !storage.can(|can| can.reveals_existing) {
        assert!(top.id.is_none() && top.is_shared, "{top:?}");
    }
    // Without a name for a single file, this does nothing.
    storage.make_top_directory().unwrap();
    storage.remove_new_top();
    assert!(matches!(storage.stat(&name(".")), Ok(Existing::Object(_))));
}

pub(super) fn sync_of_nothing_succeeds(make: impl Fn() -> TestStorage) {
    let storage = make();
    storage.sync(SyncScope::Everything).unwrap();
    storage.sync(SyncScope::OneEntry { existing: None }).unwrap();
    for policy in [FsyncPolicy::File, FsyncPolicy::End, FsyncPolicy::None] {
        assert!(storage.sync_files(&[], policy).is_empty());
    }
    storage.note_up_to_date(&name("missing"));
    storage.remove_leftovers(&name("missing"));
}
