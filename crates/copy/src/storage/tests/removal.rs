use super::TestStorage;
use super::fixtures::{LargeFile, directory_entry, exists, list, remove, symlink_entry, write};

/// Creates a tree of nine entries: `t/{a,l,one/{b,two/{c,keep}},three/}`.
fn create_tree(storage: &TestStorage) {
    for directory in ["t", "t/one", "t/one/two", "t/three"] {
        storage.create_directory(&directory_entry(directory), false).unwrap();
    }
    for file in ["t/a", "t/one/b", "t/one/two/c", "t/one/two/keep"] {
        write(&**storage, file, b"x").unwrap();
    }
    storage.create_symlink(&symlink_entry("t/l", "one"), &"one".into(), false).unwrap();
}

fn removes_trees(storage: &TestStorage) -> bool {
    storage.stores_files() && storage.can(|can| can.links)
}

pub(super) fn tree_is_removed_with_its_contents(make: impl Fn() -> TestStorage) {
    let storage = make();
    if !removes_trees(&storage) {
        return;
    }
    create_tree(&storage);
    let (gone, removed) = remove(&*storage, "t", &[], false);
    assert!(gone && removed.len() == 9 && list(&*storage, ".").is_empty(), "{removed:?}");
    // Contents come before their directory.
    for (number, path) in removed.iter().enumerate() {
        let inside = [path.as_slice(), b"/"].concat();
        assert!(removed[number..].iter().all(|later| !later.starts_with(&inside)), "{removed:?}");
    }
    // The same names are free.
    create_tree(&storage);
    assert_eq!(remove(&*storage, "t/a", &[], false), (true, vec![b"t/a".to_vec()]));
    assert_eq!(remove(&*storage, "t/l", &[], false), (true, vec![b"t/l".to_vec()]));
    assert!(exists(&*storage, "t/one/b"));
}

pub(super) fn kept_entries_keep_their_directories(make: impl Fn() -> TestStorage) {
    let storage = make();
    if !removes_trees(&storage) {
        return;
    }
    for dry_run in [true, false] {
        if dry_run {
            create_tree(&storage);
        }
        let (gone, mut removed) = remove(&*storage, "t", &[b"t/one/two/keep"], dry_run);
        removed.sort();
        assert!(!gone);
        assert_eq!(removed, [&b"t/a"[..], b"t/l", b"t/one/b", b"t/one/two/c", b"t/three"]);
    }
    assert_eq!(list(&*storage, "t/one/two"), [b"keep".to_vec()]);
    // A kept directory keeps all its contents, and so does an incomplete file of another copy.
    write(&*storage, "t/one/two/c", b"x").unwrap();
    assert_eq!(remove(&*storage, "t", &[b"t/one"], false), (false, Vec::new()));
    let large = LargeFile::new("t/one/big", 3);
    let file = large.open(&*storage).unwrap().file;
    large.write_blocks(&file, [1]);
    let (gone, removed) = remove(&*storage, "t", &[], false);
    assert!(!gone && removed.len() == 3, "{removed:?}");
    large.write_blocks(&file, [0, 2]);
    file.publish(false).unwrap();
    assert!(exists(&*storage, "t/one/big"));
}

pub(super) fn dry_run_removes_nothing(make: impl Fn() -> TestStorage) {
    let storage = make();
    if !removes_trees(&storage) {
        return;
    }
    create_tree(&storage);
    let (gone, removed) = remove(&*storage, "t", &[], true);
    assert!(gone && removed.len() == 9, "{removed:?}");
    assert!(exists(&*storage, "t/one/two/keep") && exists(&*storage, "t/three"));
}

pub(super) fn missing_tree_counts_as_removed(make: impl Fn() -> TestStorage) {
    let storage = make();
    if !storage.stores_files() {
        return;
    }
    assert_eq!(remove(&*storage, "missing", &[], false), (true, Vec::new()));
}
