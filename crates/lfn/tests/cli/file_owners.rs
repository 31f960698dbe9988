//! Files of other users: only root can create them, so these tests need root.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::Path;

use lfn_session::atomic_file::AtomicFile;
use lfn_session::symlink_guard::check;

use crate::support::is_root;
use crate::support::skip::{Missing, skip};

const OTHER_USER: u32 = 12_345;

#[test]
fn foreign_files_in_sticky_directories_are_refused() {
    if !is_root() {
        return skip("foreign_files_in_sticky_directories_are_refused", &Missing::User("root"));
    }
    let home = tempfile::tempdir().unwrap();
    let shared = home.path().join("shared");
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, Permissions::from_mode(0o1777)).unwrap();
    let [target, link, new, linked_directory] = ["target", "link", "new", "way"].map(|name| shared.join(name));
    fs::write(&target, "before").unwrap();
    symlink("target", &link).unwrap();
    symlink(home.path(), &linked_directory).unwrap();
    symlink(&link, home.path().join("to-link")).unwrap();
    lchown(&link, Some(OTHER_USER), None).unwrap();
    lchown(&linked_directory, Some(OTHER_USER), None).unwrap();
    let is_denied = |path: &Path| check(path).is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied);
    assert!(is_denied(&link) && is_denied(&linked_directory.join("new")) && is_denied(&home.path().join("to-link")));
    assert!(!is_denied(&target) && !is_denied(&new));
    chown(&target, Some(OTHER_USER), None).unwrap();
    assert!(is_denied(&target));
    fs::set_permissions(&shared, Permissions::from_mode(0o755)).unwrap();
    check(&link).unwrap();
}

#[test]
fn files_of_root_belong_to_the_owner_of_the_directory() {
    if !is_root() {
        return skip("files_of_root_belong_to_the_owner_of_the_directory", &Missing::User("root"));
    }
    let home = tempfile::tempdir().unwrap();
    chown(home.path(), Some(OTHER_USER), Some(OTHER_USER)).unwrap();
    let secret = home.path().join("secret");
    for _ in 0..2 {
        AtomicFile::create_private(&secret).unwrap().commit().unwrap();
        let found = fs::metadata(&secret).unwrap();
        assert_eq!((found.uid(), found.gid(), found.permissions().mode() & 0o777), (OTHER_USER, OTHER_USER, 0o600));
    }
}
