//! Environment variables of the commands on both sides, and the interfaces that they see in `/sys`.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use lfn_sys::namespace;

use crate::emulator::control::{self, ControlAddress};
use crate::emulator::network::{PathEnd, SideName};
use crate::emulator::{Placement, Setup};

/// Search path of execvp and of shells without a `PATH`. A `PATH` that only this module sets would replace it.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Sets the variables for both sides: the addresses of all paths, and the figures of the first path for predictions.
pub(super) fn set(command: &mut Command, setup: &Setup, control: ControlAddress) {
    command.env("LFN_EMULATED", "1").env(control::ENV_VARIABLE, control.to_string());
    for end in
        setup.path_numbers().flat_map(|path| [SideName::Near, SideName::Far].map(|side| PathEnd::new(side, path)))
    {
        command.env(end.variable(), end.v4().to_string());
        command.env(format!("{}_IPV6", end.variable()), end.v6().to_string());
    }
    command.env_remove("LFN_FAR_TICKET");
    if let Some(path) = setup.paths.first() {
        for (variable, profile) in [("LFN_PATH", path.profile), ("LFN_RETURN_PATH", path.return_profile())] {
            // Serialisation of these figures cannot fail.
            let _ = serde_json::to_string(&profile).map(|json| command.env(variable, json));
        }
    }
    if let Some(paths) = search_path() {
        command.env("PATH", paths);
    }
    if matches!(setup.placement, Placement::Namespaces { near: None, far: None }) {
        namespace::mount_own_sysfs(command);
    }
}

/// Returns `PATH` plus the directory of this program, so that `lfn` is this program even if it is not installed.
pub(super) fn search_path() -> Option<OsString> {
    let program = std::env::current_exe().ok()?;
    // An empty entry would stand for the current directory.
    let paths = std::env::var_os("PATH").filter(|paths| !paths.is_empty()).unwrap_or_else(|| DEFAULT_PATH.into());
    insert_directory(&paths, program.parent()?, |directory| directory.join("lfn").is_file())
}

/// Inserts `own_directory` as late as possible, but before any other `lfn`. The directory may also contain other
/// programs, for example a `ping`, that the user does not intend to run.
fn insert_directory(paths: &OsStr, own_directory: &Path, has_lfn: impl Fn(&Path) -> bool) -> Option<OsString> {
    let mut paths: Vec<PathBuf> = std::env::split_paths(paths).collect();
    let position = paths.iter().position(|path| has_lfn(path)).unwrap_or(paths.len());
    if paths.get(position).is_none_or(|path| path != own_directory) {
        paths.insert(position, own_directory.to_owned());
    }
    std::env::join_paths(paths).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_directory_hides_no_other_program() {
        let rows = [
            ("/bin:/usr/bin", "/bin:/usr/bin:/build"),
            ("/bin:/installed:/usr/bin", "/bin:/build:/installed:/usr/bin"),
            ("/bin:/build:/installed", "/bin:/build:/installed"),
        ];
        let has_lfn = |path: &Path| ["/build", "/installed"].map(Path::new).contains(&path);
        for (before, after) in rows {
            assert_eq!(insert_directory(before.as_ref(), Path::new("/build"), has_lfn).unwrap(), after);
        }
    }
}
