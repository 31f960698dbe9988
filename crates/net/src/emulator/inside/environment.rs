//! What the commands on both sides are told through their environment, and what they see of their side in `/sys`.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use lfn_sys::namespace;

use crate::emulator::control::{self, Address};
use crate::emulator::place::{End, SideName};
use crate::emulator::{Place, Setup};

/// Where programs are found without a `PATH`: what execvp and shells take then, which a `PATH` of ours would end.
const USUAL_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What both sides are told: where they are, and the figures of the path for predictions. Of several paths, all the
/// addresses and the figures of the first.
pub(super) fn set(command: &mut Command, setup: &Setup, control: Address) {
    command.env("LFN_EMULATED", "1").env(control::VARIABLE, control.to_string());
    for end in setup.path_numbers().flat_map(|path| [SideName::Near, SideName::Far].map(|side| End::new(side, path))) {
        command.env(end.variable(), end.v4().to_string());
        command.env(format!("{}_IPV6", end.variable()), end.v6().to_string());
    }
    command.env_remove("LFN_FAR_TICKET");
    if let Some(path) = setup.paths.first() {
        for (variable, profile) in [("LFN_PATH", path.profile), ("LFN_RETURN_PATH", path.return_profile())] {
            // Figures always have a text.
            let _ = serde_json::to_string(&profile).map(|json| command.env(variable, json));
        }
    }
    if let Some(paths) = path() {
        command.env("PATH", paths);
    }
    if matches!(setup.place, Place::Sides { near: None, far: None }) {
        namespace::with_interfaces_in_sys(command);
    }
}

/// `PATH` with this program's directory added, so that `lfn` means this one though it is not installed.
pub(super) fn path() -> Option<OsString> {
    let program = std::env::current_exe().ok()?;
    // An empty entry would mean the current directory.
    let paths = std::env::var_os("PATH").filter(|paths| !paths.is_empty()).unwrap_or_else(|| USUAL_PATH.into());
    with_program(&paths, program.parent()?, |directory| directory.join("lfn").is_file())
}

/// Adds `own` as far back as it goes: who builds or unpacks `lfn` into a directory does not mean to run the `ping` that may
/// lie there too. Only another `lfn` must not come before it.
fn with_program(paths: &OsStr, own: &Path, has_lfn: impl Fn(&Path) -> bool) -> Option<OsString> {
    let mut paths: Vec<PathBuf> = std::env::split_paths(paths).collect();
    let place = paths.iter().position(|path| has_lfn(path)).unwrap_or(paths.len());
    if paths.get(place).is_none_or(|path| path != own) {
        paths.insert(place, own.to_owned());
    }
    std::env::join_paths(paths).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_beside_lfn_hides_nothing() {
        let rows = [
            ("/bin:/usr/bin", "/bin:/usr/bin:/build"),
            ("/bin:/installed:/usr/bin", "/bin:/build:/installed:/usr/bin"),
            ("/bin:/build:/installed", "/bin:/build:/installed"),
        ];
        let has_lfn = |path: &Path| ["/build", "/installed"].map(Path::new).contains(&path);
        for (before, after) in rows {
            assert_eq!(with_program(before.as_ref(), Path::new("/build"), has_lfn).unwrap(), after);
        }
    }
}
