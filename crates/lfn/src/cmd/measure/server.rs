//! The server of a test: one that runs, known by its ticket, or one that ssh starts for this test.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lfn_api::resolve::{ReachedServer, ServerResolver};
use lfn_core::session::split_host_port;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::exit::{Exit, Failure};

/// Resolves the server. Starts it over ssh if no ticket is known for the name.
pub(super) fn reach(host: &str, resolver: &ServerResolver) -> Result<ReachedServer, Failure> {
    if !resolver.is_over_ssh(host)? {
        return Ok(ReachedServer::running(resolver.resolve(host)?));
    }
    refuse_other_names(host)?;
    let interrupted = Arc::new(AtomicBool::new(false));
    // ssh may ask for a password. Until the test starts, a signal ends the command.
    let is_starting = Arc::new(AtomicBool::new(true));
    for signal in [SIGINT, SIGTERM] {
        let code = i32::from(Exit::Interrupted.code());
        signal_hook::flag::register_conditional_shutdown(signal, code, is_starting.clone())?;
    }
    let started = resolver.start_for_test(host, &interrupted);
    is_starting.store(false, Ordering::SeqCst);
    Ok(started?)
}

/// Refuses a name with a port, which ssh cannot use, and loopback: a test of this host needs no ssh.
fn refuse_other_names(host: &str) -> Result<(), Failure> {
    let has_port = host.rsplit_once(':').is_some_and(|(name, port)| !name.contains(':') && port.parse::<u16>().is_ok());
    let (name, _) = split_host_port(host).map_err(Failure::usage)?;
    let is_loopback = name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    if is_loopback {
        return Err(Failure::msg(format!("no ticket is saved for '{host}'")).hint(format!(
            "run `lfn serve --insecure --bind 127.0.0.1` in another terminal, then here: lfn test --insecure {host}"
        )));
    }
    if has_port {
        return Err(Failure::msg(format!("no ticket is saved for '{host}', and a host for ssh has no port"))
            .hint(format!("start the server over ssh: lfn test {name}")));
    }
    Ok(())
}
