//! What the commands on both sides are told through their environment.

use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::process::Command;

use super::Setup;
use super::topology::{FAR, NEAR};

/// Where programs are found without a `PATH`: what execvp and shells take then, which a `PATH` of ours would end.
const USUAL_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What both sides are told: where they are, and the figures of the path for predictions.
pub(super) fn set(command: &mut Command, setup: &Setup) {
    let address = |address: Ipv4Addr| address.to_string();
    command.env("LFN_EMULATED", "1").env("LFN_NEAR", address(NEAR)).env("LFN_FAR", address(FAR));
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
