//! How a far end is reached that is no server yet: over ssh, which starts one for this copy.

use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use lfn_net::session::SessionError;
use lfn_net::session::dial::Target;

use super::super::places::HERE;
use crate::exit::Failure;
use crate::remote::{self, Trust, Waiting};
use crate::ssh::{self, Link, Ports, Ssh};

const HEADING: &str = "Over ssh";

/// What starts the far end.
#[derive(clap::Args, Debug)]
pub struct ReachFlags {
    /// The program that reaches USER@HOST, with its arguments [default: $LFN_SSH, or ssh]
    #[arg(long, value_name = "COMMAND", help_heading = HEADING)]
    ssh: Option<String>,
    /// What starts lfn there, if it is not in the PATH; the shell there reads it
    #[arg(long, value_name = "PATH", default_value = "lfn", help_heading = HEADING)]
    remote_lfn: String,
    /// Have it listen there on the first of these ports that is free, where a firewall lets no others through
    #[arg(long, value_name = "FIRST-LAST", help_heading = HEADING)]
    ssh_ports: Option<Ports>,
}

/// A far end to dial, and what keeps it there.
#[derive(Debug)]
pub struct Reached {
    pub target: Target,
    _link: Option<Arc<Mutex<Option<Link>>>>,
}

impl ReachFlags {
    /// Whether nobody but ssh can know who is meant.
    pub fn is_over_ssh(&self, name: &str, trust: &Trust) -> Result<bool, Failure> {
        Ok(name != HERE && !remote::is_ticket(name) && remote::known(name, trust)?.is_none())
    }

    /// Finds the far end, or starts it.
    /// One that is started may send to another far end if `sends_on`.
    pub fn reach(
        &self,
        (name, sends_on): (&str, bool),
        trust: &Trust,
        waiting: &Waiting,
        interrupted: &Arc<AtomicBool>,
    ) -> Result<Reached, Failure> {
        if name != HERE && !self.is_over_ssh(name, trust)? {
            remote::wait_for_ticket(name, interrupted)?;
            return Ok(Reached { target: remote::resolve(name, trust, waiting)?, _link: None });
        }
        let command = self.ssh.clone().or_else(|| std::env::var("LFN_SSH").ok().filter(|command| !command.is_empty()));
        let ssh = Ssh::new(command.as_deref().unwrap_or("ssh"), &self.remote_lfn, self.ssh_ports)?.sending_on(sends_on);
        let start = move |name: &str, interrupted: &AtomicBool| match name {
            HERE => ssh::here(interrupted),
            name => ssh.start(name, interrupted),
        };
        let link = start(name, interrupted)?;
        let mut target = link.target.clone();
        target.patience = waiting.patience();
        let link = Arc::new(Mutex::new(Some(link)));
        // Whoever still dials when the copy is over does not keep the far end.
        let (held, name, interrupted) = (Arc::downgrade(&link), name.to_owned(), interrupted.clone());
        let target = target.found_by(move || {
            let held = held.upgrade().ok_or_else(|| lost("the copy is over"))?;
            let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(link) = held.as_mut()
                && link.is_alive()
            {
                return link.target.resolve_again();
            }
            // The old one first: it may have to let go of what the new one wants.
            drop(held.take());
            let link = start(&name, &interrupted).map_err(|failure| lost(failure.words().0))?;
            Ok(held.insert(link).target.clone())
        });
        Ok(Reached { target, _link: Some(link) })
    }
}

fn lost(why: impl Into<String>) -> SessionError {
    SessionError::Io { peer: "ssh", source: io::Error::other(why.into()) }
}
