//! Names that another user put in the way of what is written: a symbolic link in `/tmp` that leads to a file of ours
//! would have us overwrite it. `fs.protected_symlinks` and its like (proc(5)) forbid the same, where they are on, but to
//! opening alone: who looks for the end of a link itself, or replaces what is there, has to look himself.
//!
//! Nobody can replace what is ours between this look and the writing: the directory is sticky.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Sticky, and writable by everybody.
const FOR_EVERYBODY: u32 = 0o1002;
/// As many as the kernel follows (path_resolution(7)).
const MOST_LINKS: u32 = 40;

/// An error if, in a directory where everybody may write, the file of this name or a symbolic link on the way to it was put
/// there by another user, who is not the owner of the directory either.
pub fn refuse(path: &Path) -> io::Result<()> {
    look(path, &mut 0)
}

fn look(path: &Path, links: &mut u32) -> io::Result<()> {
    // What is open already (/proc/self/fd) was opened by somebody who had looked.
    if path.starts_with("/proc") {
        return Ok(());
    }
    for place in path.ancestors().filter(|place| place.file_name().is_some()) {
        let entry = match fs::symlink_metadata(place) {
            Ok(entry) => entry,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        if place != path && !entry.is_symlink() {
            continue;
        }
        let parent = place.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if is_planted(&entry, &fs::metadata(parent)?) {
            let what = "another user put it into a directory where everybody may write";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
        }
        if entry.is_symlink() {
            *links += 1;
            if *links > MOST_LINKS {
                return Err(rustix::io::Errno::LOOP.into());
            }
            let end: PathBuf = parent.join(fs::read_link(place)?);
            look(&end, links)?;
        }
    }
    Ok(())
}

fn is_planted(entry: &fs::Metadata, directory: &fs::Metadata) -> bool {
    let is_for_everybody = directory.mode() & FOR_EVERYBODY == FOR_EVERYBODY;
    is_for_everybody && ![rustix::process::geteuid().as_raw(), directory.uid()].contains(&entry.uid())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};

    use super::*;

    #[test]
    fn what_another_user_put_into_a_directory_for_everybody_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let shared = home.path().join("shared");
        fs::create_dir(&shared).unwrap();
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).unwrap();
        let [target, link, ours, way] = ["target", "link", "ours", "way"].map(|name| shared.join(name));
        fs::write(&target, "before").unwrap();
        symlink("target", &link).unwrap();
        symlink(home.path(), &way).unwrap();
        symlink(&link, home.path().join("to-link")).unwrap();
        let by_way = way.join("new");
        for path in [&link, &ours, &by_way, &home.path().join("to-link"), Path::new("/dev/stdout")] {
            refuse(path).unwrap();
        }
        // Only the super-user can give things to somebody else.
        let somebody = Some(12_345);
        if lchown(&link, somebody, None).is_err() {
            return;
        }
        lchown(&way, somebody, None).unwrap();
        let denied = |path: &Path| refuse(path).is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied);
        assert!(denied(&link) && denied(&by_way) && denied(&home.path().join("to-link")));
        assert!(!denied(&target) && !denied(&ours));
        chown(&target, somebody, None).unwrap();
        assert!(denied(&target));
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o755)).unwrap();
        refuse(&link).unwrap();
    }

    #[test]
    fn links_that_lead_nowhere_end() {
        let home = tempfile::tempdir().unwrap();
        let [one, other] = ["one", "other"].map(|name| home.path().join(name));
        symlink(&one, &other).unwrap();
        symlink(&other, &one).unwrap();
        assert!(refuse(&one).is_err());
    }
}
