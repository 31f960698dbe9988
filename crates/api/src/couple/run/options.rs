//! Options of `couple run`.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;

use lfn_couple::channel::{ChannelOptions, ListenOptions};
use lfn_session::server::is_loopback;

use super::error::CoupleRunError;
use crate::emulator_env;
use crate::serve::{ServeStartError, TicketHost, state_directory};

/// Options of a run.
#[derive(Debug)]
pub struct CoupleRunOptions {
    pub channel: ChannelOptions,
    pub exchange: Exchange,
    /// Program of the model, with its arguments.
    pub command: Vec<OsString>,
    /// Directory for the files; `None` creates one, which is deleted at the end.
    pub directory: Option<PathBuf>,
    /// Keep the files of past steps.
    pub keep: bool,
}

/// Number of times that the model is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exchange {
    /// Once. The model waits for the files of each step.
    Files,
    /// Once before the first step, and once for each step.
    EachStep,
}

/// Returns the settings of a component that listens. The key and the token are saved for each component of a coupling, apart
/// from those of `lfn serve`, so that a component that is started again has the same ticket.
pub fn listen_options(
    bind: Option<IpAddr>,
    port: u16,
    ticket_host: Option<&str>,
    coupling: &str,
    component: &str,
    insecure: bool,
    insecure_anywhere: bool,
) -> Result<ListenOptions, CoupleRunError> {
    if insecure && !insecure_anywhere {
        let address = std::net::SocketAddr::new(bind.unwrap_or(std::net::Ipv4Addr::UNSPECIFIED.into()), port);
        if !(is_loopback(&address) || emulator_env::is_inside()) {
            return Err(ServeStartError::InsecureOnNetwork(address).into());
        }
    }
    let host = ticket_host.map_or_else(|| TicketHost::find(bind), TicketHost::chosen);
    let state = state_directory()?.join("couple").join(coupling).join(component);
    Ok(ListenOptions { bind, port, ticket_host: host.host, state: Some(state), insecure })
}
