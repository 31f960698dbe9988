//! `lfn serve --stdio`: the far end of one `lfn copy` over ssh, started by it and gone with it.
//!
//! It is an ordinary server but for three things: its key and its token live in memory alone and leave over ssh, its client
//! is the user who runs it and may copy wherever that user may, and it lives no longer than its standard input. When that
//! closes (the copy is over, ssh has lost its connection, the near side was killed) it ends, and leaves neither file nor
//! process.

use std::env;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lfn_net::server::{ServeError, Server};
use lfn_net::service;
use lfn_sys::process::raise_files;

use super::{Args, Stop, config, log};
use crate::exit::{Exit, Failure};
use crate::print;
use crate::ssh::{Announcement, Ports};

/// How long a copy that is under way may go on when nobody holds the other end any more: time to end in order, so that
/// the next one need not read again what is here.
const DRAIN: Duration = Duration::from_secs(3);

/// How long it stays where no copy runs.
const IDLE: Duration = Duration::from_secs(120);

/// Flags of a server that was started over ssh.
#[derive(clap::Args, Debug)]
pub(super) struct Stdio {
    /// Be the far end of one copy: `lfn copy` runs this over ssh. Key and token are new and kept nowhere, what this user
    /// may read and write can be copied, and it ends when standard input does
    #[arg(long, conflicts_with_all = ["root", "config", "insecure", "new_token", "metrics"], help_heading = "Started over ssh")]
    stdio: bool,
    /// With --stdio: listen on one of these ports [default: any free one]
    #[arg(long, value_name = "FIRST-LAST", requires = "stdio", help_heading = "Started over ssh")]
    ports: Option<Ports>,
}

impl Stdio {
    /// Whether the server is to be one of those.
    pub(super) fn is_wanted(&self) -> bool {
        self.stdio
    }
}

/// Serves until standard input closes.
pub(super) fn run(mut args: Args) -> Result<Exit, Failure> {
    args.ephemeral = true;
    args.drain = DRAIN;
    let stop = Stop::on_signals()?;
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default())?;
    raise_files();
    let server = listen(&mut args)?;
    announce(&server)?;
    let (asked, admission) = (stop.asked.clone(), server.admission());
    thread::Builder::new().name("idle".into()).spawn(move || end_idle(&asked, || admission.running() > 0))?;
    let asked = stop.asked.clone();
    thread::Builder::new().name("stdin".into()).spawn(move || wait_for_end(&asked))?;
    server.run(&stop.asked, &stop.again);
    Ok(stop.exit())
}

/// Nothing is said on standard input: what matters is its end.
fn wait_for_end(stop: &AtomicBool) {
    let mut unheard = [0; 256];
    loop {
        match io::stdin().lock().read(&mut unheard) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(length) if length > 0 => {}
            _ => return stop.store(true, Ordering::Relaxed),
        }
    }
}

/// Nobody has come for a long time: the near side may be gone without sshd having noticed.
fn end_idle(stop: &AtomicBool, busy: impl Fn() -> bool) {
    let mut last = Instant::now();
    while last.elapsed() < IDLE {
        thread::sleep(Duration::from_secs(1));
        if busy() {
            last = Instant::now();
        }
    }
    stop.store(true, Ordering::Relaxed);
}

/// A server on the first of the ports that is free, on every address of this host.
fn listen(args: &mut Args) -> Result<Server, Failure> {
    let addresses = args.bind.map_or(vec![Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()], |one| vec![one]);
    let mut last = None;
    for port in args.stdio.ports.unwrap_or(Ports::ANY).iter() {
        for address in &addresses {
            let config = config(args, SocketAddr::new(*address, port))?;
            match Server::bind(config, service::serve, log::log(args.log, true, false)) {
                Ok(server) => return Ok(server),
                Err(error) => last = Some(error),
            }
        }
    }
    Err(match last {
        Some(error @ ServeError::Listen { .. }) => {
            Failure::new(error).hint("give other ports: lfn copy --ssh-ports FIRST-LAST")
        }
        Some(error) => Failure::new(error),
        None => Failure::msg("no port to listen on"),
    })
}

/// The one line that the near side waits for.
fn announce(server: &Server) -> Result<(), Failure> {
    let ticket = server.ticket("")?;
    let addresses = reached_at(env::var("SSH_CONNECTION").ok().as_deref()).into_iter().collect();
    let line = Announcement::new(&ticket, addresses);
    let mut out = print::json();
    writeln!(out, "{}", serde_json::to_string(&line)?)?;
    Ok(out.flush()?)
}

/// The address that ssh came to: client's address and port, server's address and port stand in the variable (ssh(1)).
fn reached_at(connection: Option<&str>) -> Option<IpAddr> {
    // Without its scope a link-local address means nothing to the other host.
    let address = connection?.split(' ').nth(2)?;
    address.parse().ok().filter(|address| !matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    #[test]
    fn sshd_tells_which_address_was_dialled() {
        assert_eq!(reached_at(Some("192.0.2.7 50000 192.0.2.1 22")), Some("192.0.2.1".parse().unwrap()));
        assert_eq!(reached_at(Some("::1 50000 2001:db8::1 22")), Some("2001:db8::1".parse().unwrap()));
        for connection in
            [None, Some(""), Some("a b c d"), Some("fe80::2%eth0 1 fe80::1%eth0 22"), Some("x 1 fe80::1 22")]
        {
            assert_eq!(reached_at(connection), None, "{connection:?}");
        }
    }
}
