//! What `lfn emulate` tells the commands that run on its path: that it is one, its figures, and the far side's ticket.
//!
//! It speaks through the environment, which only the user's own processes can read, so a ticket does not show in `ps`.

use std::env;

use lfn_core::path::PathProfile;
use lfn_core::session::Ticket;

use crate::exit::Failure;

/// The name of the far side.
pub const FAR: &str = "far";

const EMULATED: &str = "LFN_EMULATED";
const PATH: &str = "LFN_PATH";
const RETURN_PATH: &str = "LFN_RETURN_PATH";
const FAR_TICKET: &str = "LFN_FAR_TICKET";
const FAR_ADDRESS: &str = "LFN_FAR";

/// Whether this process runs inside `lfn emulate`.
pub fn is_inside() -> bool {
    env::var_os(EMULATED).is_some_and(|value| value == "1")
}

/// The figures of the path as seen from near, if this process runs on one.
pub fn path() -> Result<Option<PathProfile>, Failure> {
    profile(PATH)
}

/// Those of the way back, as seen from far; of a path that has none of its own, the same.
pub fn return_path() -> Result<Option<PathProfile>, Failure> {
    Ok(profile(RETURN_PATH)?.or(path()?))
}

fn profile(variable: &str) -> Result<Option<PathProfile>, Failure> {
    let Some(json) = env::var(variable).ok().filter(|_| is_inside()) else { return Ok(None) };
    serde_json::from_str(&json).map(Some).map_err(|error| {
        Failure::msg(format!("the environment variable {variable} is not a path: {error}"))
            .hint(format!("it is for `lfn emulate` to set: unset {variable}"))
    })
}

/// The ticket of the far side, if that is who is meant by `name`.
pub fn far_ticket(name: &str) -> Result<Option<Ticket>, Failure> {
    let Ok(ticket) = env::var(FAR_TICKET) else { return Ok(None) };
    if name == FAR || env::var(FAR_ADDRESS).is_ok_and(|address| address == name) {
        let wrong = |e| Failure::msg(format!("the environment variable {FAR_TICKET}: {e}"));
        return ticket.parse().map(Some).map_err(wrong);
    }
    Ok(None)
}
