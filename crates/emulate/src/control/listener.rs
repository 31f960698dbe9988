//! Listening sockets of a run, and their connections.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener, UnixStream};
use std::sync::Arc;

use lfn_session::server::accept::Listen;
use lfn_session::transport::Handle;
use lfn_sys::namespace::NetNamespace;

use super::ControlAddress;
use crate::network::SideName;

/// Listener of a run.
#[derive(Debug)]
pub(crate) struct ControlSocket {
    pub(crate) listener: UnixListener,
    /// Side of the link in this network namespace. `None` where the run was started.
    pub(crate) side: Option<SideName>,
}

/// An accepted connection of a client.
pub(crate) struct ControlConnection {
    pub(super) stream: UnixStream,
    /// Side of the link that the client is on, if it is on one.
    pub(super) side: Option<SideName>,
    handle: Arc<dyn Handle>,
}

/// Listens in the network namespace of the calling thread.
pub(crate) fn open_socket(address: ControlAddress) -> io::Result<UnixListener> {
    let listener = UnixListener::bind_addr(&UnixAddr::from_abstract_name(address.name())?)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Listens in another network namespace.
pub(crate) fn open_socket_in(namespace: &NetNamespace, address: ControlAddress) -> io::Result<UnixListener> {
    namespace.run(|| open_socket(address))?
}

impl AsFd for ControlSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Listen for ControlSocket {
    type Connection = ControlConnection;

    fn accept(&self) -> io::Result<(ControlConnection, SocketAddr)> {
        let (stream, _) = self.listener.accept()?;
        let handle = Arc::new(UnixHandle(stream.try_clone()?));
        Ok((ControlConnection { stream, side: self.side, handle }, LOCAL_PEER))
    }

    fn handle(connection: &ControlConnection) -> &Arc<dyn Handle> {
        &connection.handle
    }
}

/// Address of all peers, see [`Listen::accept`].
const LOCAL_PEER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Handle of a connection. Unix sockets have no network address.
#[derive(Debug)]
struct UnixHandle(UnixStream);

impl Handle for UnixHandle {
    fn shut_down(&self, side: Shutdown) -> io::Result<()> {
        self.0.shutdown(side)
    }

    fn abort(&self) {
        // The peer may have closed the connection.
        let _ = self.0.shutdown(Shutdown::Both);
    }

    fn local_address(&self) -> io::Result<SocketAddr> {
        Ok(LOCAL_PEER)
    }

    fn peer_address(&self) -> io::Result<SocketAddr> {
        Ok(LOCAL_PEER)
    }

    fn is_finished_by_peer(&self) -> bool {
        false
    }
}
