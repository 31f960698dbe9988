use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::thread;

use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};

use super::open;
use crate::storage::tests::fixtures::{Recorder, directory_entry, exists, name, remove, write};
use crate::storage::{ObjectKind, Removal, RemovalVisitor, Storage};
use crate::work_meter::WorkMeter;

/// More levels than descriptors, and a longer path than PATH_MAX.
const LEVELS: usize = 3000;

/// Creates directories named `d`, each in the one before.
fn create_chain(top: &Path, levels: usize) {
    let mut directory = openat(CWD, top, OFlags::PATH, Mode::empty()).unwrap();
    for _ in 0..levels {
        mkdirat(&directory, "d", Mode::from_raw_mode(0o755)).unwrap();
        directory = openat(&directory, "d", OFlags::PATH, Mode::empty()).unwrap();
    }
}

/// Returns the number of descriptors of this process below a directory. Other tests open files at the same time.
fn descriptors_below(top: &Path) -> usize {
    let is_below = |target: std::io::Result<std::path::PathBuf>| match target {
        Ok(target) => target.starts_with(top),
        // Only the paths of this test are too long.
        Err(error) => error.kind() == std::io::ErrorKind::InvalidFilename,
    };
    let descriptors = fs::read_dir("/proc/self/fd").unwrap().map(Result::unwrap);
    descriptors.filter(|descriptor| is_below(fs::read_link(descriptor.path()))).count()
}

/// Counts the descriptors while the tree is removed.
struct DescriptorCounter<'a> {
    top: &'a Path,
    asked: usize,
    removed: usize,
    max_descriptors: usize,
}

impl RemovalVisitor for DescriptorCounter<'_> {
    fn may_remove(&mut self, _path: &[u8], _kind: ObjectKind) -> bool {
        self.asked += 1;
        if self.asked.is_multiple_of(100) {
            self.max_descriptors = self.max_descriptors.max(descriptors_below(self.top));
        }
        true
    }

    fn removed(&mut self, _path: &[u8], _kind: ObjectKind) {
        self.removed += 1;
    }
}

#[test]
fn deep_tree_is_removed_with_few_descriptors() {
    let home = tempfile::tempdir().unwrap();
    let storage = open(home.path());
    create_chain(home.path(), LEVELS);
    for dry_run in [true, false] {
        let mut counter = DescriptorCounter { top: home.path(), asked: 0, removed: 0, max_descriptors: 0 };
        let meter = WorkMeter::default();
        // A thread of the default size must be enough.
        let remove = || storage.remove_tree(&name("d"), Removal { dry_run, meter: &meter }, &mut counter).unwrap();
        thread::scope(|scope| assert!(scope.spawn(remove).join().unwrap()));
        assert_eq!(counter.removed, LEVELS);
        assert!((10..=32).contains(&counter.max_descriptors), "{}", counter.max_descriptors);
        assert_eq!(exists(&storage, "d"), dry_run);
    }
}

#[test]
fn kept_entry_in_a_deep_tree_keeps_the_directories_around_it() {
    let home = tempfile::tempdir().unwrap();
    let storage = open(home.path());
    create_chain(home.path(), 100);
    let path = ["d"; 40].join("/");
    for file in ["a", "b", "kept"] {
        write(&storage, format!("{path}/{file}"), b"x").unwrap();
    }
    let kept: &'static [u8] = format!("{path}/kept").leak().as_bytes();
    for dry_run in [true, false] {
        let (gone, removed) = remove(&storage, "d", &[kept], dry_run);
        // Two files, and the 60 directories below the kept file.
        assert!(!gone && removed.len() == 62, "{removed:?}");
    }
    assert!(exists(&storage, kept) && !exists(&storage, format!("{path}/a")) && !exists(&storage, format!("{path}/d")));
}

/// Replaces a directory by a link to another directory, and moves another one away, while the walk is below them.
struct Attacker<'a> {
    home: &'a Path,
    at: Vec<u8>,
    attack: fn(&Path),
}

impl RemovalVisitor for Attacker<'_> {
    fn may_remove(&mut self, path: &[u8], _kind: ObjectKind) -> bool {
        if path == self.at {
            (self.attack)(self.home);
        }
        true
    }

    fn removed(&mut self, _path: &[u8], _kind: ObjectKind) {}
}

fn attack(levels: usize, at: usize, attack: fn(&Path)) -> (tempfile::TempDir, Result<bool, String>) {
    let home = tempfile::tempdir().unwrap();
    for directory in ["dest", "outside", "outside/in", "other"] {
        fs::create_dir(home.path().join(directory)).unwrap();
    }
    fs::write(home.path().join("outside/precious"), "x").unwrap();
    fs::write(home.path().join("other/precious"), "x").unwrap();
    create_chain(&home.path().join("dest"), levels);
    let storage = open(&home.path().join("dest"));
    let mut attacker = Attacker { home: home.path(), at: ["d"; 60][..at].join("/").into_bytes(), attack };
    let meter = WorkMeter::default();
    let removal = Removal { dry_run: false, meter: &meter };
    let removed = storage.remove_tree(&name("d"), removal, &mut attacker).map_err(|error| error.to_string());
    assert!(home.path().join("outside/precious").exists() && home.path().join("other/precious").exists());
    (home, removed)
}

#[test]
fn walk_does_not_follow_a_moved_directory() {
    // The walk holds only the deepest 24 levels open: it must return through `..`.
    let moved = |home: &Path| fs::rename(home.join("dest/d/d/d"), home.join("outside/in/d")).unwrap();
    let (home, removed) = attack(50, 50, moved);
    assert!(removed.as_ref().is_err_and(|error| error.contains("moved meanwhile")), "{removed:?}");
    assert!(home.path().join("outside/in").exists());
}

#[test]
fn walk_does_not_follow_a_link_that_replaces_a_directory() {
    let replaced = |home: &Path| {
        fs::remove_dir_all(home.join("dest/d/d")).unwrap();
        symlink(home.join("other"), home.join("dest/d/d")).unwrap();
    };
    let (home, removed) = attack(3, 2, replaced);
    assert!(removed.is_err(), "{removed:?}");
    assert!(home.path().join("other").exists());
}

#[test]
fn links_in_a_removed_tree_are_not_followed() {
    let home = tempfile::tempdir().unwrap();
    let storage = open(&home.path().join("dest"));
    let outside = home.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("precious"), "x").unwrap();
    storage.create_directory(&directory_entry("d"), false).unwrap();
    symlink(&outside, home.path().join("dest/d/link")).unwrap();
    assert_eq!(remove(&storage, "d", &[], false), (true, vec![b"d/link".to_vec(), b"d".to_vec()]));
    assert!(outside.join("precious").exists());
}

#[test]
fn directory_without_write_access_is_removed() {
    let home = tempfile::tempdir().unwrap();
    let storage = open(home.path());
    storage.create_directory(&directory_entry("a"), false).unwrap();
    for directory in ["a/b", "a/b/c"] {
        storage.create_directory(&directory_entry(directory), false).unwrap();
    }
    write(&storage, "a/b/c/file", b"x").unwrap();
    write(&storage, "a/b/kept", b"x").unwrap();
    for (directory, mode) in [("a/b/c", 0o500), ("a/b", 0o555)] {
        fs::set_permissions(home.path().join(directory), fs::Permissions::from_mode(mode)).unwrap();
    }
    let times = fs::metadata(home.path().join("a")).unwrap().modified().unwrap();
    let (gone, removed) = remove(&storage, "a/b", &[b"a/b/kept"], false);
    assert_eq!((gone, removed), (false, vec![b"a/b/c/file".to_vec(), b"a/b/c".to_vec()]));
    assert_eq!(fs::metadata(home.path().join("a/b")).unwrap().permissions().mode() & 0o777, 0o555);
    assert_eq!(fs::metadata(home.path().join("a")).unwrap().modified().unwrap(), times);
}

#[test]
fn stopped_removal_keeps_the_rest() {
    let home = tempfile::tempdir().unwrap();
    let storage = open(home.path());
    create_chain(home.path(), 3);
    let meter = WorkMeter::default();
    meter.stop();
    let mut recorder = Recorder::default();
    let removal = Removal { dry_run: false, meter: &meter };
    assert!(!storage.remove_tree(&name("d"), removal, &mut recorder).unwrap() && recorder.removed.is_empty());
}
