//! The conformance suite: every storage passes the same tests. Only the capabilities of a storage decide which tests
//! apply to it.

mod abilities;
mod atomicity;
mod directories;
mod files;
pub(super) mod fixtures;
mod links;
mod names;
mod partials;
mod removal;
mod write_only;

use std::ops::{Deref, DerefMut};

use lfn_base::units::Bytes;

use self::fixtures::modified;
use super::generated::GeneratedStorage;
use super::local::{DestinationOptions, LocalStorage, LocalTree};
use super::memory::MemoryStorage;
use super::null::NullStorage;
use super::write_only::{VisibleObjects, WriteOnly};
use super::{Capabilities, Storage};
use crate::base_dir::BaseDir;

/// A new storage for one test.
struct TestStorage {
    storage: Box<dyn Storage>,
    _home: Option<tempfile::TempDir>,
}

impl Deref for TestStorage {
    type Target = dyn Storage;

    fn deref(&self) -> &Self::Target {
        &*self.storage
    }
}

impl DerefMut for TestStorage {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut *self.storage
    }
}

impl TestStorage {
    fn of(storage: impl Storage + 'static) -> Self {
        TestStorage { storage: Box::new(storage), _home: None }
    }

    fn in_new_directory(open: impl FnOnce(LocalStorage) -> Box<dyn Storage>) -> Self {
        let home = tempfile::tempdir().unwrap();
        let options = DestinationOptions::default();
        let local = LocalStorage::open_destination(&BaseDir::Local, home.path(), options).unwrap();
        TestStorage { storage: open(local), _home: Some(home) }
    }

    /// Returns a directory with a file, as the sender of a copy reads it.
    fn of_source() -> Self {
        let home = tempfile::tempdir().unwrap();
        let bytes: Vec<u8> = (0..2000).map(|at| at as u8).collect();
        std::fs::write(home.path().join("a"), bytes).unwrap();
        let tree = LocalTree::open(BaseDir::Local.into(), home.path(), false, Default::default()).unwrap();
        TestStorage { storage: Box::new(tree), _home: Some(home) }
    }

    /// Returns whether the tests of an ability apply.
    fn can(&self, needs: impl FnOnce(Capabilities) -> bool) -> bool {
        needs(self.storage.capabilities())
    }

    /// Returns whether written files can be read back.
    fn stores_files(&self) -> bool {
        self.can(|can| can.reads && can.writes && can.keeps_data)
    }
}

/// Defines the tests of the suite for one storage.
macro_rules! conformance {
    ($storage:ident, $make:expr, [$($group:ident: $($test:ident)+;)+]) => {
        mod $storage {
            use super::*;

            $($(
                #[test]
                fn $test() {
                    $group::$test($make);
                }
            )+)+
        }
    };
    ($($storage:ident: $make:expr;)+) => {
        $(conformance!($storage, $make, [
            abilities: missing_abilities_answer_with_errors top_is_a_directory sync_of_nothing_succeeds;
            names: names_cannot_leave_the_tree reserved_names_are_refused unusual_names_are_stored
                links_on_the_way_are_not_followed files_on_the_way_are_refused missing_parents_are_refused;
            files: small_file_appears_when_published existing_file_is_replaced_only_by_force
                unpublished_file_leaves_nothing attributes_of_a_file_are_stored read_past_the_end_fails;
            partials: blocks_may_arrive_in_any_order second_writer_of_a_name_is_locked_out
                next_copy_resumes_intact_blocks blocks_of_another_source_are_not_resumed
                useless_partial_file_is_removed complete_file_does_not_replace_without_force
                refused_quota_fails_the_file stopped_verification_is_interrupted;
            atomicity: readers_see_whole_files_only;
            directories: directories_are_created_and_finished deep_directories_hold_files
                directory_replaces_a_file only_empty_directories_are_removed;
            links: symlinks_are_stored_and_replaced hard_links_name_one_file hard_link_needs_the_expected_file;
            removal: tree_is_removed_with_its_contents kept_entries_keep_their_directories
                dry_run_removes_nothing missing_tree_counts_as_removed;
            files: holes_are_found;
        ]);)+
    };
}

conformance! {
    local: || TestStorage::in_new_directory(|local| Box::new(local));
    local_source: TestStorage::of_source;
    memory: || TestStorage::of(MemoryStorage::default());
    null: || TestStorage::of(NullStorage);
    random: || TestStorage::of(GeneratedStorage::random(7, Bytes(10_000), modified()));
    zero: || TestStorage::of(GeneratedStorage::zero(Bytes(10_000), modified()));
    write_only_local: || TestStorage::in_new_directory(|local| {
        Box::new(WriteOnly::new(local, VisibleObjects::Written(Default::default())))
    });
    write_only_memory: || {
        TestStorage::of(WriteOnly::new(MemoryStorage::default(), VisibleObjects::Written(Default::default())))
    };
    create_only_local: || TestStorage::in_new_directory(|local| Box::new(WriteOnly::new(local, VisibleObjects::All)));
}
