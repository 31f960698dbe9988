//! Environment variables that `lfn emulate` sets for the commands on its path: the path's figures and the far side's
//! ticket.
//!
//! Only processes of the same user can read the environment, so the ticket does not appear in `ps`. A process in an
//! attached network namespace does not inherit the variables, and asks the emulation for them.

use std::collections::BTreeMap;
use std::env;
use std::net::Ipv4Addr;
use std::sync::OnceLock;

use lfn_core::path::PathProfile;
use lfn_core::session::Ticket;
use lfn_net::emulator::control;

use crate::exit::Failure;

pub const FAR: &str = "far";

const EMULATED: &str = "LFN_EMULATED";
const PATH: &str = "LFN_PATH";
const RETURN_PATH: &str = "LFN_RETURN_PATH";
const FAR_TICKET: &str = "LFN_FAR_TICKET";
const FAR_ADDRESS: &str = "LFN_FAR";

/// Reports whether `lfn emulate` started this process, or a program that started it.
pub fn is_inside() -> bool {
    env::var_os(EMULATED).is_some_and(|value| value == "1")
}

/// Returns a variable of the emulated path: from the environment, or from the emulation that is attached to this network
/// namespace.
fn variable(name: &str) -> Option<String> {
    if is_inside() { env::var(name).ok() } else { attached()?.get(name).cloned() }
}

/// Returns the variables of the emulation that is attached to this network namespace, if the command line names the far
/// side. An attached namespace may have other networks, where the figures of the emulated path do not apply.
fn attached() -> Option<&'static BTreeMap<String, String>> {
    static ATTACHED: OnceLock<Option<BTreeMap<String, String>>> = OnceLock::new();
    let read = || {
        let words: Vec<String> = crate::typed::words().collect();
        if !words.iter().any(|word| host(word) == FAR || host(word).parse::<Ipv4Addr>().is_ok()) {
            return None;
        }
        let variables = control::attached_environment()?;
        let address = variables.get(FAR_ADDRESS)?;
        words.iter().any(|word| [FAR, address].contains(&host(word))).then_some(variables)
    };
    ATTACHED.get_or_init(read).as_ref()
}

/// Returns the host of `HOST` or `HOST:PATH`.
fn host(word: &str) -> &str {
    word.split_once(':').map_or(word, |(host, _)| host)
}

/// Returns the side of the emulated path that this process is on: `near` or `far`.
pub fn side() -> Option<String> {
    variable("LFN_SIDE")
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

fn profile(name: &str) -> Result<Option<PathProfile>, Failure> {
    let Some(json) = variable(name) else { return Ok(None) };
    serde_json::from_str(&json).map(Some).map_err(|error| {
        Failure::msg(format!("the environment variable {name} is not a path: {error}"))
            .hint(format!("only `lfn emulate` sets this variable; run: unset {name}"))
    })
}

/// Returns the ticket of the far side if `name` is `far` or the far side's address.
pub fn far_ticket(name: &str) -> Result<Option<Ticket>, Failure> {
    // A program may pass on the ticket without the other variables.
    let Some(ticket) = env::var(FAR_TICKET).ok().or_else(|| variable(FAR_TICKET)) else { return Ok(None) };
    let address = env::var(FAR_ADDRESS).ok().or_else(|| variable(FAR_ADDRESS));
    if name == FAR || address.is_some_and(|address| address == name) {
        let wrong = |e| Failure::msg(format!("the environment variable {FAR_TICKET}: {e}"));
        return ticket.parse().map(Some).map_err(wrong);
    }
    Ok(None)
}
