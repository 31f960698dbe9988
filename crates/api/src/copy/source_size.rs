//! Size of local sources before the copy. The number of streams depends on it.

use std::fs;
use std::path::{Path, PathBuf};

use lfn_base::units::Bytes;

/// Maximum number of entries of directories that are looked at. A larger tree has an unknown size.
const MAX_ENTRIES: usize = 10_000;

/// Returns the total length of the files, as far as it can be found fast. Filters are not applied, so that the size is
/// a maximum.
pub(super) fn total_size<'a>(paths: impl Iterator<Item = &'a Path>) -> Option<Bytes> {
    let mut total = 0_u64;
    let mut entries = 0;
    for path in paths {
        let metadata = fs::metadata(path).ok()?;
        if metadata.is_file() {
            total = total.checked_add(metadata.len())?;
            continue;
        }
        let mut directories = vec![PathBuf::from(path)];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(directory).ok()? {
                let entry = entry.ok()?;
                entries += 1;
                if entries > MAX_ENTRIES {
                    return None;
                }
                // Links are not followed.
                let metadata = entry.metadata().ok()?;
                if metadata.is_dir() {
                    directories.push(entry.path());
                } else if metadata.is_file() {
                    total = total.checked_add(metadata.len())?;
                }
            }
        }
    }
    Some(Bytes(total))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    #[test]
    fn files_of_a_tree_are_added() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir_all(home.path().join("a/b")).unwrap();
        for (name, length) in [("a/x", 10), ("a/b/y", 200), ("z", 3000)] {
            fs::write(home.path().join(name), vec![0; length]).unwrap();
        }
        std::os::unix::fs::symlink(home.path(), home.path().join("a/loop")).unwrap();
        let size = |names: &[&str]| {
            let paths: Vec<_> = names.iter().map(|name| home.path().join(name)).collect();
            total_size(paths.iter().map(PathBuf::as_path))
        };
        assert_eq!(size(&["a"]), Some(Bytes(210)));
        assert_eq!(size(&["a", "z"]), Some(Bytes(3210)));
        assert_eq!(size(&["missing"]), None);
    }
}
