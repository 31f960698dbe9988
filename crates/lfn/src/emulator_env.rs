//! Environment variables that `lfn emulate` sets for the commands on its path: the path's figures and the far side's
//! ticket.
//!
//! Only processes of the same user can read the environment, so the ticket does not appear in `ps`.

use std::env;

use lfn_core::path::PathProfile;
use lfn_core::session::Ticket;

use crate::exit::Failure;

pub const FAR: &str = "far";

const EMULATED: &str = "LFN_EMULATED";
const PATH: &str = "LFN_PATH";
const RETURN_PATH: &str = "LFN_RETURN_PATH";
const FAR_TICKET: &str = "LFN_FAR_TICKET";
const FAR_ADDRESS: &str = "LFN_FAR";

/// Reports whether this process runs inside `lfn emulate`.
pub fn is_inside() -> bool {
    env::var_os(EMULATED).is_some_and(|value| value == "1")
}

/// Returns the figures of the path from near to far, if this process runs on an emulated path.
pub fn path() -> Result<Option<PathProfile>, Failure> {
    profile(PATH)
}

/// Returns the figures of the path from far to near. A path without figures of its own for this direction has the same
/// in both.
pub fn return_path() -> Result<Option<PathProfile>, Failure> {
    Ok(profile(RETURN_PATH)?.or(path()?))
}

fn profile(variable: &str) -> Result<Option<PathProfile>, Failure> {
    let Some(json) = env::var(variable).ok().filter(|_| is_inside()) else { return Ok(None) };
    serde_json::from_str(&json).map(Some).map_err(|error| {
        Failure::msg(format!("the environment variable {variable} is not a path: {error}"))
            .hint(format!("only `lfn emulate` sets this variable; run: unset {variable}"))
    })
}

/// Returns the ticket of the far side if `name` is `far` or the far side's address.
pub fn far_ticket(name: &str) -> Result<Option<Ticket>, Failure> {
    let Ok(ticket) = env::var(FAR_TICKET) else { return Ok(None) };
    if name == FAR || env::var(FAR_ADDRESS).is_ok_and(|address| address == name) {
        let wrong = |e| Failure::msg(format!("the environment variable {FAR_TICKET}: {e}"));
        return ticket.parse().map(Some).map_err(wrong);
    }
    Ok(None)
}
