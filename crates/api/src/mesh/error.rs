//! Reasons why a hub or an agent does not start.

use std::io;
use std::path::PathBuf;

use lfn_mesh::archive::ArchiveError;
use lfn_mesh::sites::SitesErrors;
use lfn_mesh::spool::SpoolError;
use lfn_session::SessionError;
use lfn_session::identity::IdentityError;
use lfn_session::server::ServeError;
use lfn_web::WebError;

use crate::error_kind::ErrorKind;
use crate::serve::ServeStartError;

/// Reasons why a command of the mesh fails.
#[derive(Debug, thiserror::Error)]
pub enum MeshError {
    #[error("cannot read {}: {source}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is longer than {max} bytes", .path.display())]
    TooLong { path: PathBuf, max: usize },
    #[error("{}: {}", .path.display(), first_line(.errors))]
    Sites { path: PathBuf, errors: SitesErrors },
    #[error("the sites file has no host {0}")]
    NoSuchHost(String),
    #[error("the sites file has no agent host {name}")]
    NoSuchAgent {
        name: String,
        /// Agents of the site of this name.
        agents_of_site: Vec<String>,
    },
    #[error("{0} has no address in the sites file")]
    NoAddress(String),
    #[error("no host of the sites file has an address of this host")]
    NotAHostOfTheMesh,
    #[error("{} is damaged", .0.display())]
    DamagedState(PathBuf),
    #[error("the agent has no ticket of a hub")]
    NoTicket,
    #[error("no hub has been started with the state in {}", .0.display())]
    NoHub(PathBuf),
    #[error("another hub runs with the state in {}", .0.display())]
    StateInUse(PathBuf),
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    #[error(transparent)]
    Spool(#[from] SpoolError),
    #[error(transparent)]
    Serve(#[from] ServeStartError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error(transparent)]
    Ticket(#[from] lfn_session::TicketError),
    #[error(transparent)]
    Page(#[from] WebError),
    #[error("cannot start: {0}")]
    Io(#[from] io::Error),
}

/// Returns the first problem of a sites file, and the number of the others.
fn first_line(errors: &SitesErrors) -> String {
    let text = errors.to_string();
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default().to_owned();
    match lines.count() {
        0 => first,
        others => format!("{first} (and {others} more problems)"),
    }
}

impl MeshError {
    /// Returns one action that may fix the error, if there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            MeshError::Sites { path, .. } => Some(format!("list all problems: lfn mesh check {}", path.display())),
            MeshError::NoSuchHost(_) => Some("use a name of a host of the sites file".to_owned()),
            MeshError::NoSuchAgent { name, agents_of_site } if !agents_of_site.is_empty() => {
                Some(format!("{name} is a site; use a host of this site: {}", agents_of_site.join(", ")))
            }
            MeshError::NoSuchAgent { .. } => {
                Some("`lfn mesh plan` lists the hosts; an agent has kind = \"agent\"".to_owned())
            }
            MeshError::NoAddress(host) => {
                Some(format!("set the address of {host} in the sites file, or give --ticket-host"))
            }
            MeshError::NotAHostOfTheMesh => Some("name the host of this machine: --host NAME".to_owned()),
            MeshError::NoTicket => Some("print the ticket at the hub: lfn mesh ticket SITES HOST".to_owned()),
            MeshError::NoHub(_) => {
                Some("start the hub first (lfn mesh hub SITES), or name its directory: --hub-state DIR".to_owned())
            }
            MeshError::StateInUse(_) => Some("stop the other hub, or give another --hub-state".to_owned()),
            MeshError::Archive(error) => error.hint(),
            MeshError::Serve(ServeStartError::Serve(ServeError::Listen { source, .. }))
                if source.kind() == io::ErrorKind::AddrInUse =>
            {
                let flags = "--port PORT for a hub, --test-port PORT for an agent";
                Some(format!("stop the program that uses this port, or use another one: {flags}"))
            }
            MeshError::Serve(error) => error.hint(),
            MeshError::Identity(error) => error.hint(),
            MeshError::Session(error) => error.hint(),
            MeshError::Page(error) => error.hint(),
            MeshError::Spool(SpoolError::Full(path)) => Some(format!("free space on the disk of {}", path.display())),
            MeshError::Spool(SpoolError::InUse(_)) => Some("stop the other agent, or give another --state".to_owned()),
            _ => None,
        }
    }

    /// Returns the kind of the error, which decides the exit code of a command.
    pub fn kind(&self) -> ErrorKind {
        match self {
            MeshError::Read { .. }
            | MeshError::TooLong { .. }
            | MeshError::Sites { .. }
            | MeshError::NoSuchHost(_)
            | MeshError::NoSuchAgent { .. }
            | MeshError::NoAddress(_)
            | MeshError::NotAHostOfTheMesh
            | MeshError::NoTicket
            | MeshError::Ticket(_) => ErrorKind::Usage,
            MeshError::Serve(error) => error.kind(),
            _ => ErrorKind::Failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use super::*;

    #[test]
    fn a_port_in_use_hints_another_port() {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 7324));
        let listen = ServeError::Listen { address, source: io::ErrorKind::AddrInUse.into() };
        let hint = MeshError::Serve(ServeStartError::Serve(listen)).hint().unwrap_or_default();
        assert!(hint.contains("--port PORT"), "{hint}");
    }

    #[test]
    fn a_site_instead_of_an_agent_hints_its_hosts() {
        let agents_of_site = vec!["aztec".to_owned(), "winterpark".to_owned()];
        let error = MeshError::NoSuchAgent { name: "ncar".to_owned(), agents_of_site };
        assert_eq!(error.hint().as_deref(), Some("ncar is a site; use a host of this site: aztec, winterpark"));
    }
}
