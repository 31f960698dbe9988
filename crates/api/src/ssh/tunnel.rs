//! Port forwarding through ssh, for a server behind a firewall that blocks its port. The existing ssh connection
//! forwards a port of this host (`ssh -O forward`), so that the user need not type a password again.
//!
//! ssh needs a control socket that only this user can access. If the user already shares connections, their socket is
//! used. Otherwise the socket exists only until the copy begins, so that `kill -9` of lfn and of ssh leaves no file.

use std::io::{self, ErrorKind};
use std::net::Ipv4Addr;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use lfn_session::transport::tcp::Listener;

/// Maximum length of the path of a control socket, bytes, with the suffix that ssh adds (`sun_path`, unix(7)).
const MAX_SOCKET_PATH: usize = 80;

/// Control socket of a running ssh.
#[derive(Debug, Default)]
pub(super) struct ControlSocket {
    own: Option<OwnSocket>,
    /// The user's own socket, which lfn does not remove.
    is_shared: bool,
}

/// A port of this host that ssh forwards. Dropping cancels the forward, since a shared connection outlives lfn. Options
/// of the user's ssh command can share a connection too.
#[derive(Debug)]
pub(super) struct Forward {
    /// Port on this host's loopback interface.
    pub port: u16,
    cancel: Command,
}

impl Drop for Forward {
    fn drop(&mut self) {
        // The connection may be closed already, and lfn's own control socket is removed.
        let _ = self.cancel.output();
    }
}

#[derive(Debug)]
struct OwnSocket {
    path: PathBuf,
}

impl ControlSocket {
    /// Uses the shared connection at `path` if there is one, else creates a socket. Has none if no directory is
    /// suitable.
    pub fn new(path: Option<String>) -> Self {
        if path.is_some() {
            return ControlSocket { own: None, is_shared: true };
        }
        ControlSocket { own: OwnSocket::new(), is_shared: false }
    }

    /// Returns the options with which ssh creates the control socket.
    pub fn options(&self) -> Vec<String> {
        let Some(path) = self.path() else { return Vec::new() };
        vec!["-oControlMaster=yes".into(), "-oControlPersist=no".into(), format!("-oControlPath={}", path.display())]
    }

    /// Forwards a port of this host to the remote port.
    pub fn forward(&self, words: &[String], host: &str, remote_port: u16) -> io::Result<Forward> {
        let path = self.path();
        if path.is_none() && !self.is_shared {
            return Err(io::Error::other("ssh has no control socket"));
        }
        for _ in 0..3 {
            // ssh cannot choose a free port itself. A port that is free now is unlikely to be taken in a moment.
            let port = Listener::bind((Ipv4Addr::LOCALHOST, 0).into(), 1)?.local_address()?.port();
            let control_command = |what: &str| {
                let mut command = Command::new(&words[0]);
                command.args(&words[1..]).args(["-O", what]);
                command.args(path.as_ref().map(|path| format!("-oControlPath={}", path.display())));
                command.arg(format!("-L127.0.0.1:{port}:127.0.0.1:{remote_port}")).arg(host).stdin(Stdio::null());
                command
            };
            if control_command("forward").output()?.status.success() {
                return Ok(Forward { port, cancel: control_command("cancel") });
            }
        }
        Err(io::Error::other("ssh refuses to forward a port"))
    }

    fn path(&self) -> Option<PathBuf> {
        self.own.as_ref().map(|socket| socket.path.clone())
    }
}

impl Drop for OwnSocket {
    fn drop(&mut self) {
        // ssh removes its socket, unless it was killed.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl OwnSocket {
    /// Chooses the user's runtime directory (mode 0700, XDG Base Directory Specification), or a sticky directory such
    /// as /tmp, where no other user can replace the socket. ssh gives the socket mode 0600.
    fn new() -> Option<Self> {
        let name = format!("lfn-{:08x}", getrandom::u32().ok()?);
        let fits = |path: &PathBuf| path.is_absolute() && path.as_os_str().len() < MAX_SOCKET_PATH;
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|directory| is_private(directory));
        let temporary = [std::env::temp_dir(), "/tmp".into()];
        let temporary = temporary.into_iter().filter(|directory| is_private(directory) || is_sticky(directory));
        let path = runtime.into_iter().chain(temporary).map(|directory| directory.join(&name)).find(fits)?;
        path.parent().into_iter().for_each(remove_dead_sockets);
        Some(OwnSocket { path })
    }
}

/// Removes the sockets of copies that were killed together with their ssh.
fn remove_dead_sockets(directory: &Path) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let digits = name.to_str().and_then(|name| name.strip_prefix("lfn-"));
        let is_socket_name =
            digits.is_some_and(|digits| digits.len() == 8 && digits.bytes().all(|d| d.is_ascii_hexdigit()));
        let own = rustix::process::geteuid().as_raw();
        if is_socket_name
            && entry.metadata().is_ok_and(|it| it.uid() == own && it.file_type().is_socket())
            && UnixStream::connect(entry.path()).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
        {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Reports whether only the owner of a file can remove or replace it in the directory.
fn is_sticky(directory: &Path) -> bool {
    std::fs::metadata(directory).is_ok_and(|it| it.is_dir() && it.mode() & 0o1000 != 0)
}

/// Reports whether the directory belongs to this user and no other user can enter it.
fn is_private(directory: &Path) -> bool {
    let own = rustix::process::geteuid().as_raw();
    std::fs::metadata(directory).is_ok_and(|it| it.is_dir() && it.uid() == own && it.mode() & 0o077 == 0)
}
