//! What the commands on both sides are told through their environment.

use std::ffi::OsString;
use std::process::Command;

use crate::emulator::Setup;
use crate::emulator::control::{self, Address};
use crate::emulator::place::{End, SideName};

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
    let profile = setup.paths.first().and_then(|path| serde_json::to_string(&path.profile).ok());
    if let Some(json) = profile {
        command.env("LFN_PATH", json);
    }
    if let Some(paths) = path() {
        command.env("PATH", paths);
    }
}

/// `PATH` with this program's directory in front, so that `lfn` means this one though it is not installed.
pub(super) fn path() -> Option<OsString> {
    let program = std::env::current_exe().ok()?;
    // An empty entry would mean the current directory.
    let paths = std::env::var_os("PATH").filter(|paths| !paths.is_empty()).unwrap_or_else(|| USUAL_PATH.into());
    let all = std::iter::once(program.parent()?.to_owned()).chain(std::env::split_paths(&paths));
    std::env::join_paths(all).ok()
}
