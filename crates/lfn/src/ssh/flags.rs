//! Flags for servers started over ssh, and the servers that copies and tests reach.
//!
//! A name without a saved ticket is a host for ssh, which starts a server for this copy or test.

use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use lfn_net::session::SessionError;
use lfn_net::session::dial::Target;

use super::{PortRange, Ssh, SshServer, start_local};
use crate::exit::Failure;
use crate::remote::{self, QueueArgs, TrustArgs};

/// Server of a local copy. Users cannot type this name.
pub const LOCAL: &str = "";

const HEADING: &str = "Over ssh";

/// Flags for servers started over ssh.
#[derive(clap::Args, Debug)]
pub struct SshFlags {
    /// Use this command to reach USER@HOST [default: ssh]
    #[arg(long, value_name = "COMMAND", help_heading = HEADING)]
    ssh: Option<String>,
    /// Specify the lfn to run on the remote host, if it is not in the PATH
    ///
    /// The remote shell parses the value.
    #[arg(long, value_name = "PATH", default_value = "lfn", help_heading = HEADING)]
    remote_lfn: String,
    /// Listen on the first free port of this range on the remote host, if a firewall blocks other ports
    #[arg(long, value_name = "FIRST-LAST", help_heading = HEADING)]
    ssh_ports: Option<PortRange>,
}

/// A server to dial, and the handle that keeps it alive.
#[derive(Debug)]
pub struct ReachedServer {
    pub target: Target,
    _link: Option<Arc<Mutex<Option<SshServer>>>>,
}

impl ReachedServer {
    /// Wraps a server that runs without ssh.
    pub fn running(target: Target) -> Self {
        ReachedServer { target, _link: None }
    }
}

impl SshFlags {
    /// Reports whether the name can only be a host for ssh.
    pub fn is_over_ssh(&self, name: &str, trust: &TrustArgs) -> Result<bool, Failure> {
        Ok(name != LOCAL && !remote::is_ticket(name) && remote::find_ticket(name, trust)?.is_none())
    }

    /// Starts a server on `host` for a test. Fails if the load would go through ssh: the result would be about ssh and
    /// not about the path.
    pub fn start_for_test(
        &self,
        host: &str,
        waiting: &QueueArgs,
        interrupted: &AtomicBool,
    ) -> Result<ReachedServer, Failure> {
        let link = self.settings()?.without_forwarding().start(host, interrupted)?;
        let mut target = link.target.clone();
        target.queue = waiting.queue_wait();
        Ok(ReachedServer { target, _link: Some(Arc::new(Mutex::new(Some(link)))) })
    }

    fn settings(&self) -> Result<Ssh, Failure> {
        Ssh::new(self.ssh.as_deref().unwrap_or("ssh"), &self.remote_lfn, self.ssh_ports)
    }

    /// Resolves the server, or starts it over ssh. A started server may send to other servers if `allow_third_party`.
    pub fn find_or_start(
        &self,
        name: &str,
        allow_third_party: bool,
        trust: &TrustArgs,
        waiting: &QueueArgs,
        interrupted: &Arc<AtomicBool>,
    ) -> Result<ReachedServer, Failure> {
        if name != LOCAL && !self.is_over_ssh(name, trust)? {
            remote::wait_for_ticket(name, interrupted)?;
            return remote::resolve(name, trust, waiting).map(ReachedServer::running);
        }
        let ssh = self.settings()?.with_third_party(allow_third_party);
        let start = move |name: &str, interrupted: &AtomicBool| match name {
            LOCAL => start_local(interrupted),
            name => ssh.start(name, interrupted),
        };
        let link = start(name, interrupted)?;
        let mut target = link.target.clone();
        target.queue = waiting.queue_wait();
        let link = Arc::new(Mutex::new(Some(link)));
        // Threads that still dial after the end of the copy must not keep the server alive.
        let (server, name, interrupted) = (Arc::downgrade(&link), name.to_owned(), interrupted.clone());
        let target = target.with_resolver(move || {
            let server = server.upgrade().ok_or_else(|| ssh_error("the copy has ended"))?;
            let mut server = server.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(link) = server.as_mut()
                && link.is_alive()
            {
                return link.target.resolve_again();
            }
            // The old server ends first, since the new one may need its port.
            drop(server.take());
            let link = start(&name, &interrupted).map_err(|failure| ssh_error(failure.lines().0))?;
            Ok(server.insert(link).target.clone())
        });
        Ok(ReachedServer { target, _link: Some(link) })
    }
}

fn ssh_error(why: impl Into<String>) -> SessionError {
    SessionError::Io { peer: "ssh", source: io::Error::other(why.into()) }
}
