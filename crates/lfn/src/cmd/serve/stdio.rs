//! `lfn serve --stdio`: the server for one `lfn copy` or `lfn test` over ssh, which starts and ends it.
//!
//! An ordinary server with three differences. Its key and token are only in memory, and ssh carries them to the client.
//! Its client acts as the user who runs it, and may copy wherever this user may. It ends when standard input closes: at
//! the end of the copy, when ssh loses its connection, or when the client is killed. It leaves no file and no process.

use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{env, thread};

use lfn_api::serve::{self, ListeningServer, ServeOptions, ServeStartError};
use lfn_api::ssh::{Announcement, PortRange};
use lfn_session::server::{ServeError, ServerEvent};
use lfn_sys::process::raise_open_file_limit;

use super::{ServeArgs, StopRequest};
use crate::exit::{Exit, Failure};
use crate::print;

/// Maximum time for a running copy after the client is gone. An orderly end saves the next copy from reading the
/// partial files again.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(3);

/// Maximum time without a copy.
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);

/// Serves until standard input closes.
pub(super) fn run(mut args: ServeArgs) -> Result<Exit, Failure> {
    args.ephemeral = true;
    args.drain = DRAIN_TIMEOUT;
    // The only client is the user who started the server.
    args.limits.allow_long_tests();
    let stop = StopRequest::on_signals()?;
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default())?;
    raise_open_file_limit();
    let server = listen(&args)?;
    announce(&server)?;
    let (requested, has_sessions) = (stop.requested.clone(), server.has_sessions());
    thread::Builder::new().name("idle".into()).spawn(move || stop_when_idle(&requested, has_sessions))?;
    let requested = stop.requested.clone();
    thread::Builder::new().name("stdin".into()).spawn(move || wait_for_stdin_end(&requested))?;
    server.run(&stop.requested, &stop.immediate)?;
    Ok(stop.exit())
}

/// Waits for the end of standard input and ignores its data.
fn wait_for_stdin_end(stop: &AtomicBool) {
    let mut buffer = [0; 256];
    loop {
        match io::stdin().lock().read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(length) if length > 0 => {}
            _ => return stop.store(true, Ordering::Relaxed),
        }
    }
}

/// Stops the server after a long time without sessions. The client may be gone without sshd noticing it.
fn stop_when_idle(stop: &AtomicBool, has_sessions: impl Fn() -> bool) {
    let mut last = Instant::now();
    while last.elapsed() < IDLE_TIMEOUT {
        thread::sleep(Duration::from_secs(1));
        if has_sessions() {
            last = Instant::now();
        }
    }
    stop.store(true, Ordering::Relaxed);
}

/// Listens on the first free port of the range, on all addresses of this host.
fn listen(args: &ServeArgs) -> Result<ListeningServer, Failure> {
    let mut last = None;
    // The client knows the host: the address of the ssh server.
    let ticket_host = Some(String::new());
    let options = ServeOptions { ticket_host, iperf3: None, stamp: None, ..args.options() };
    for port in args.stdio.ports.unwrap_or(PortRange::ANY).iter() {
        match serve::listen(&ServeOptions { port, ..options.clone() }, |_: &ServerEvent<'_>| {}) {
            Ok(server) => return Ok(server),
            Err(error @ ServeStartError::Serve(_)) => last = Some(error),
            Err(error) => return Err(error.into()),
        }
    }
    Err(match last {
        Some(error @ ServeStartError::Serve(ServeError::Listen { .. })) => {
            Failure::new(error).hint("use other ports: --ssh-ports 7400-7409")
        }
        Some(error) => Failure::new(error),
        None => Failure::msg("no port to listen on"),
    })
}

/// Prints the announcement that the client waits for.
fn announce(server: &ListeningServer) -> Result<(), Failure> {
    let addresses = ssh_server_address(env::var("SSH_CONNECTION").ok().as_deref()).into_iter().collect();
    let line = Announcement::new(&server.ready().ticket, addresses);
    let mut out = print::json();
    writeln!(out, "{}", serde_json::to_string(&line)?)?;
    Ok(out.flush()?)
}

/// Returns the server address of the ssh connection. SSH_CONNECTION has the client's address and port, then the
/// server's (ssh(1)).
fn ssh_server_address(connection: Option<&str>) -> Option<IpAddr> {
    // A link-local address needs its scope, and the scope is not valid on the client.
    let address = connection?.split(' ').nth(2)?;
    address.parse().ok().filter(|address| !matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    #[test]
    fn ssh_connection_gives_the_server_address() {
        assert_eq!(ssh_server_address(Some("192.0.2.7 50000 192.0.2.1 22")), Some("192.0.2.1".parse().unwrap()));
        assert_eq!(ssh_server_address(Some("::1 50000 2001:db8::1 22")), Some("2001:db8::1".parse().unwrap()));
        for connection in
            [None, Some(""), Some("a b c d"), Some("fe80::2%eth0 1 fe80::1%eth0 22"), Some("x 1 fe80::1 22")]
        {
            assert_eq!(ssh_server_address(connection), None, "{connection:?}");
        }
    }
}
