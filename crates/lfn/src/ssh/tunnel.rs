//! The way through ssh, for a far end whose port a firewall closes: the connection that ssh has already is asked to
//! forward a port of this host (`ssh -O forward`), so that nobody is asked for a password again.
//!
//! For that ssh keeps a control socket where nobody but this user can go; where the user has connections shared anyway,
//! theirs is used. ssh removes its socket when it ends, also when we are killed.

use std::fs::DirBuilder;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a control socket's name may be long, with what ssh adds to it meanwhile (`sun_path`, unix(7)).
const LONGEST: usize = 80;

/// Where ssh takes orders while it runs.
#[derive(Debug, Default)]
pub(super) struct Control {
    own: Option<Socket>,
    /// The user's own is left as it is.
    shared: bool,
}

/// A port of this host that ssh forwards, until it is asked to stop: a connection of the user's own outlives us.
#[derive(Debug)]
pub(super) struct Forward {
    /// On this host's loopback interface.
    pub port: u16,
    cancel: Command,
}

impl Drop for Forward {
    fn drop(&mut self) {
        // A connection that is gone forwards nothing.
        let _ = self.cancel.output();
    }
}

/// A control socket of ours.
#[derive(Debug)]
struct Socket {
    path: PathBuf,
    /// Made for it.
    directory: Option<PathBuf>,
}

impl Control {
    /// A socket of its own, unless connections are shared at `path` anyway. None where there is no place for one.
    pub fn new(path: Option<String>) -> Self {
        if path.is_some() {
            return Control { own: None, shared: true };
        }
        Control { own: Socket::new(), shared: false }
    }

    /// The options that have ssh make it.
    pub fn options(&self) -> Vec<String> {
        let Some(path) = self.path() else { return Vec::new() };
        vec!["-oControlMaster=yes".into(), "-oControlPersist=no".into(), format!("-oControlPath={}", path.display())]
    }

    /// Has ssh forward a port of this host to that one there.
    pub fn forward(&self, words: &[String], host: &str, there: u16) -> io::Result<Forward> {
        let path = self.path();
        if path.is_none() && !self.shared {
            return Err(io::Error::other("ssh takes no orders"));
        }
        for _ in 0..3 {
            // ssh takes no port of the kernel's choice: one that is free now will hardly be taken in a moment.
            let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
            let order = |what: &str| {
                let mut command = Command::new(&words[0]);
                command.args(&words[1..]).args(["-O", what]);
                command.args(path.as_ref().map(|path| format!("-oControlPath={}", path.display())));
                command.arg(format!("-L127.0.0.1:{port}:127.0.0.1:{there}")).arg(host).stdin(Stdio::null());
                command
            };
            if order("forward").output()?.status.success() {
                return Ok(Forward { port, cancel: order("cancel") });
            }
        }
        Err(io::Error::other("ssh refuses to forward a port"))
    }

    fn path(&self) -> Option<PathBuf> {
        self.own.as_ref().map(|socket| socket.path.clone())
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // It is gone with ssh, unless that was killed.
        let _ = std::fs::remove_file(&self.path);
        if let Some(directory) = &self.directory {
            let _ = std::fs::remove_dir(directory);
        }
    }
}

impl Socket {
    /// In the user's runtime directory (mode 0700, XDG Base Directory Specification), or in a new one like it.
    fn new() -> Option<Self> {
        let name = format!("lfn-{:08x}", getrandom::u32().ok()?);
        let fits = |path: &PathBuf| path.is_absolute() && path.as_os_str().len() < LONGEST;
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|place| is_private(place));
        if let Some(path) = runtime.map(|place| place.join(&name)).filter(fits) {
            return Some(Socket { path, directory: None });
        }
        let places = [std::env::temp_dir(), "/tmp".into()].map(|place| place.join(&name));
        let made = |place: &PathBuf| fits(&place.join("ssh")) && DirBuilder::new().mode(0o700).create(place).is_ok();
        let directory = places.into_iter().find(made)?;
        Some(Socket { path: directory.join("ssh"), directory: Some(directory) })
    }
}

/// Whether it is a directory of this user's that nobody else may enter.
fn is_private(place: &Path) -> bool {
    let own = rustix::process::geteuid().as_raw();
    std::fs::metadata(place).is_ok_and(|it| it.is_dir() && it.uid() == own && it.mode() & 0o077 == 0)
}
