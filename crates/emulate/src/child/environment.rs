//! Environment variables of the commands on both sides, and the interfaces that they see in `/sys`.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use lfn_base::units::show_duration;
use lfn_sys::namespace;

use crate::control::{self, ControlAddress};
use crate::network::{PathEnd, SideName};
use crate::{Placement, Setup};

/// Environment variable with the ticket of the far server, only on the near side.
pub(super) const TICKET_VARIABLE: &str = "LFN_FAR_TICKET";

/// Environment variable with the start of a shell prompt.
pub(super) const PROMPT_VARIABLE: &str = "LFN_PROMPT";

/// Search path of execvp and of shells without a `PATH`. A `PATH` that only this module sets would replace it.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Returns the variables of a side: the addresses of all paths, and the figures of the first path for predictions.
pub(super) fn variables(setup: &Setup, control: ControlAddress, side: SideName) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::from([
        ("LFN_EMULATED".to_owned(), "1".to_owned()),
        ("LFN_SIDE".to_owned(), PathEnd::new(side, 0).name()),
        (PROMPT_VARIABLE.to_owned(), prompt(setup)),
        (control::ENV_VARIABLE.to_owned(), control.to_string()),
    ]);
    for end in
        setup.path_numbers().flat_map(|path| [SideName::Near, SideName::Far].map(|side| PathEnd::new(side, path)))
    {
        variables.insert(end.variable(), end.v4().to_string());
        variables.insert(format!("{}_IPV6", end.variable()), end.v6().to_string());
    }
    if let Some(path) = setup.paths.first() {
        for (variable, profile) in [("LFN_PATH", path.profile), ("LFN_RETURN_PATH", path.return_profile())] {
            // Serialisation of these figures cannot fail.
            let _ = serde_json::to_string(&profile).map(|json| variables.insert(variable.to_owned(), json));
        }
    }
    variables
}

/// Returns the start of a shell prompt that names the link: `(lfn 539ms 135Mb/s) `.
pub(super) fn prompt(setup: &Setup) -> String {
    let link = match &setup.paths[..] {
        [path] => {
            let figures = [show_duration(path.profile.base_rtt), path.profile.capacity.to_string()];
            // Not every shell prints other characters under every locale.
            figures.map(|figure| figure.replace(' ', "").replace('µ', "u")).join(" ")
        }
        paths => format!("{} paths", paths.len()),
    };
    format!("(lfn {link}) ")
}

/// Sets the variables of a side for a command.
pub(super) fn set(command: &mut Command, setup: &Setup, control: ControlAddress, side: SideName) {
    command.env_remove(TICKET_VARIABLE).envs(variables(setup, control, side));
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
    use lfn_link::EmulatedPath;
    use lfn_link::settings::HopSettings;

    use super::*;
    use crate::FarSide;

    #[test]
    fn prompt_names_the_link() {
        let mut settings = HopSettings::default();
        ["rtt=539ms", "rate=135mbit"].iter().for_each(|pair| settings.set_pair(pair).unwrap());
        let path = EmulatedPath::new(&[settings], 1500).unwrap();
        let mut setup = Setup::new(path.clone(), 1, FarSide::Nothing);
        assert_eq!(prompt(&setup), "(lfn 539ms 135Mb/s) ");
        setup.paths.push(path);
        assert_eq!(prompt(&setup), "(lfn 2 paths) ");
    }

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
