//! Remote servers started over ssh: `lfn serve --stdio`, started for one copy or test and ended with it.
//!
//! ssh carries one line with the port, the token and the fingerprint of the server. So ssh decides who is authorised,
//! and no secret appears in an argument on either host. The data use separate connections. Only if a firewall blocks
//! these, the data of a copy go through ssh ([`tunnel`]). The server lives as long as the near end of ssh's standard
//! input is open. The kernel closes this end even if lfn is killed.

mod announcement;
mod config;
mod error;
mod tunnel;

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lfn_session::SessionError;
use lfn_session::dial::{ServerConnection, Target};
use lfn_session::transport::tcp::TcpConnection;
use lfn_sys::names::lookup;
use parking_lot::Mutex;

pub use announcement::{Announcement, PortRange};
use config::SshConfig;
pub use error::{SshError, SshExit};
use tunnel::{ControlSocket, Forward};

use crate::command_line::{join, quote};
use crate::resolve_event::ResolveEvent;

/// Maximum time until the server announces itself. The user may have to type a password.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// Maximum time for a connection to the server's port before the next address is tried.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum time to detect that the port refuses connections.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum time for ssh to exit after its standard input is closed.
const EXIT_TIMEOUT: Duration = Duration::from_secs(3);

/// Maximum time to read the rest of standard error.
const STDERR_TIMEOUT: Duration = Duration::from_secs(2);

const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Maximum length of other shell output before the announcement, bytes.
const MAX_PREAMBLE: u64 = 64 << 10;

/// Settings for servers started over ssh.
#[derive(Debug, Clone)]
pub struct Ssh {
    command_line: String,
    /// Program and its first arguments.
    command: Vec<String>,
    /// Command that starts lfn on the remote host.
    remote_lfn: String,
    ports: Option<PortRange>,
    allow_third_party: bool,
    /// The data may go through ssh if the server's port is unreachable.
    allow_forwarding: bool,
}

/// A server started over ssh, with the ssh process that keeps it alive. Both end when it is dropped.
#[derive(Debug)]
pub struct SshServer {
    pub target: Target,
    _forward: Option<Forward>,
    process: SshProcess,
}

#[derive(Debug)]
struct SshProcess {
    child: Child,
    /// Standard error so far, and the thread that reads it.
    stderr_text: Arc<Mutex<String>>,
    stderr_reader: Option<JoinHandle<()>>,
}

impl Ssh {
    /// Creates the settings. `command` is split as a shell splits it. The remote shell parses `remote`.
    pub fn new(command: &str, remote: &str, ports: Option<PortRange>) -> Result<Self, SshError> {
        let words = shell_words::split(command).ok().filter(|words| !words.is_empty());
        let words = words.ok_or_else(|| SshError::BadCommand(command.to_owned()))?;
        Ok(Ssh {
            command_line: command.trim().to_owned(),
            command: words,
            remote_lfn: remote.to_owned(),
            ports,
            allow_third_party: false,
            allow_forwarding: true,
        })
    }

    /// Sets whether the servers may send to other servers. A key that is bound to a command may not allow this flag.
    pub fn with_third_party(self, sends_on: bool) -> Self {
        Ssh { allow_third_party: sends_on, ..self }
    }

    /// Fails if the server's port is unreachable, instead of sending the data through ssh.
    pub fn without_forwarding(self) -> Self {
        Ssh { allow_forwarding: false, ..self }
    }

    /// Returns the command line that runs lfn with these words on `host`, which may be USER@HOST.
    pub fn remote_command_line(&self, host: &str, words: &[&OsStr]) -> Result<String, SshError> {
        let host = ssh_host_argument(host)?;
        // The shells of both hosts parse the command.
        let arguments = join(words);
        let remote = format!("{} {arguments}", self.remote_lfn);
        let needs_quotes = arguments.contains('\'') || quote(&self.remote_lfn) != self.remote_lfn;
        let remote = if needs_quotes { quote(remote) } else { remote };
        Ok(format!("{} {} {remote}", self.command_line, quote(host)))
    }

    /// Starts a server on `host`, which may be USER@HOST.
    pub fn start(
        &self,
        host: &str,
        interrupted: &AtomicBool,
        on_event: &dyn Fn(&ResolveEvent<'_>),
    ) -> Result<SshServer, SshError> {
        let name = ssh_host_argument(host)?;
        let config = if self.is_openssh() { SshConfig::query(&self.command, &name) } else { SshConfig::default() };
        let control =
            if self.is_openssh() { ControlSocket::new(config.control_path.clone()) } else { ControlSocket::default() };
        let mut running = self.run(&name, &config, &control)?;
        let announced = running.wait_for_announcement(host, &self.command_line, &self.remote_lfn, interrupted)?;
        let typed = name.rsplit('@').next().unwrap_or(&name);
        let mut hosts = vec![config.host.unwrap_or_else(|| typed.to_owned())];
        hosts.extend(announced.addresses.iter().map(ToString::to_string));
        let mut forward = None;
        let target = match first_reachable(&hosts, announced.port) {
            Ok(host) => Target::new(announced.ticket(host)),
            Err(source) if !self.allow_forwarding => {
                return Err(SshError::BlockedTest { host: host.to_owned(), port: announced.port, source });
            }
            Err(source) => {
                let Ok(forwarded) = control.forward(&self.command, &name, announced.port) else {
                    return Err(SshError::BlockedPort { host: host.to_owned(), port: announced.port, source });
                };
                on_event(&ResolveEvent::DataThroughSsh { host, port: announced.port, error: &source });
                let mut ticket = announced.ticket("127.0.0.1".to_owned());
                ticket.port = forwarded.port;
                forward = Some(forwarded);
                Target::new(ticket)
            }
        };
        let target = target?;
        // Nothing needs the control socket any more. It would stay behind after kill -9.
        drop(control);
        Ok(SshServer { target, _forward: forward, process: running })
    }

    /// Reports whether the program accepts OpenSSH's options. Any other program gets only a host and a command.
    fn is_openssh(&self) -> bool {
        Path::new(&self.command[0]).file_name().is_some_and(|name| name == "ssh")
    }

    fn run(&self, host: &str, config: &SshConfig, control: &ControlSocket) -> Result<SshProcess, SshError> {
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]);
        if self.is_openssh() {
            command.arg("-T").args(control.options());
            // Without a timeout the kernel gives up after two minutes.
            command.args((!config.has_timeout).then_some("-oConnectTimeout=30"));
            if !config.has_keepalive {
                // Without keep-alives ssh keeps a dead connection for up to a quarter of an hour, and everything that
                // goes through it. Outages of less than five minutes are survived, since a new connection may ask for a
                // password.
                command.args(["-oServerAliveInterval=30", "-oServerAliveCountMax=10"]);
            }
        }
        let ports = self.ports.map(|ports| format!(" --ports {ports}")).unwrap_or_default();
        let sends_on = if self.allow_third_party { " --third-party" } else { "" };
        command.arg(host).arg(format!("{} serve --stdio{sends_on}{ports}", self.remote_lfn));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().map_err(|source| SshError::Start {
            host: host.to_owned(),
            program: self.command[0].clone(),
            source,
        })?;
        Ok(SshProcess { child, stderr_text: Arc::default(), stderr_reader: None })
    }
}

/// Starts a server on this host, for a copy that does not leave it: without ssh, and on loopback only.
pub fn start_local(program: &Path, interrupted: &AtomicBool) -> Result<SshServer, SshError> {
    let mut command = Command::new(program);
    command.arg0("lfn").args(["serve", "--no-defaults", "--stdio", "--read-only", "--bind", "127.0.0.1"]);
    // Only the client handles an interrupt from the terminal. The client then ends both in order.
    command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().map_err(SshError::StartLocal)?;
    let mut running = SshProcess { child, stderr_text: Arc::default(), stderr_reader: None };
    let announced = running.wait_for_announcement("this host", "ssh", "lfn", interrupted)?;
    let target = Target::new(announced.ticket("127.0.0.1".to_owned()))?;
    Ok(SshServer { target, _forward: None, process: running })
}

impl SshServer {
    /// Reports whether the server may still be running. The server ends with ssh. ssh itself may not notice a lost
    /// connection for hours, for example after a restart of the remote host. The port is then refused.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.process.child.try_wait(), Ok(None)) && !self.is_refused()
    }

    fn is_refused(&self) -> bool {
        let mut target = self.target.clone();
        target.connect_timeout = REFUSAL_TIMEOUT;
        let refused = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        matches!(ServerConnection::connect(&target), Err(SessionError::Unreachable { source, .. }) if refused(&source))
    }
}

impl SshProcess {
    /// Waits for the announcement of the server.
    fn wait_for_announcement(
        &mut self,
        host: &str,
        ssh: &str,
        remote: &str,
        interrupted: &AtomicBool,
    ) -> Result<Announcement, SshError> {
        let lines = self.read_output().map_err(SshError::Thread)?;
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            if interrupted.load(Ordering::Relaxed) {
                return Err(SshError::Interrupted);
            }
            match lines.recv_timeout(POLL_INTERVAL) {
                Ok(announced) => return announced.check_version(host),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) if Instant::now() >= deadline => {
                    let (host, ssh) = (host.to_owned(), ssh.to_owned());
                    return Err(SshError::NoAnswer { host, ssh, timeout: START_TIMEOUT });
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
        let status = self.wait_for_exit();
        self.wait_for_stderr();
        let stderr_text = (*self.stderr_text.lock()).clone();
        Err(SshExit::explain(host, ssh, remote, status.and_then(|status| status.code()), &stderr_text).into())
    }

    /// Starts threads that read both outputs, so that ssh never blocks on a full pipe.
    fn read_output(&mut self) -> io::Result<Receiver<Announcement>> {
        let (sender, lines) = channel();
        if let Some(stdout) = self.child.stdout.take() {
            thread::Builder::new().name("ssh".into()).spawn(move || find_announcement(stdout, sender))?;
        }
        if let Some(stderr) = self.child.stderr.take() {
            let stderr_text = self.stderr_text.clone();
            let hears = thread::Builder::new().name("ssh".into()).spawn(move || {
                for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
                    error::append_line(&mut stderr_text.lock(), &line);
                }
            })?;
            self.stderr_reader = Some(hears);
        }
        Ok(lines)
    }

    /// Waits until standard error is read to its end, with a short timeout: other processes may keep it open.
    fn wait_for_stderr(&self) {
        let deadline = Instant::now() + STDERR_TIMEOUT;
        while self.stderr_reader.as_ref().is_some_and(|hears| !hears.is_finished()) && Instant::now() < deadline {
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Closes standard input and waits for the exit, up to [`EXIT_TIMEOUT`].
    fn wait_for_exit(&mut self) -> Option<ExitStatus> {
        drop(self.child.stdin.take());
        let deadline = Instant::now() + EXIT_TIMEOUT;
        while Instant::now() < deadline {
            match self.child.try_wait() {
                Ok(None) => thread::sleep(POLL_INTERVAL),
                Ok(status) => return status,
                Err(_) => return None,
            }
        }
        None
    }
}

impl Drop for SshProcess {
    fn drop(&mut self) {
        if self.wait_for_exit().is_none() {
            // The child has not been waited for, so its process id is not in use by another process.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Finds the announcement among other output of the shell. Reads on to the end, so that the remote side never blocks.
fn find_announcement(stdout: ChildStdout, sender: Sender<Announcement>) {
    let mut reader = BufReader::new(stdout);
    let found =
        (&mut reader).take(MAX_PREAMBLE).split(b'\n').map_while(Result::ok).find_map(|line| Announcement::parse(&line));
    if let Some(announced) = found {
        // The receiver may have given up and reported the reason.
        let _ = sender.send(announced);
    }
    drop(sender);
    let _ = io::copy(&mut reader, &mut io::sink());
}

/// Returns the host argument for ssh: an IPv6 address without brackets, and never an option.
fn ssh_host_argument(host: &str) -> Result<String, SshError> {
    let wrong = |reason| SshError::BadHost { host: host.to_owned(), reason };
    if host.starts_with('-') {
        return Err(wrong("a host cannot begin with a dash"));
    }
    let (user, name) = match host.rsplit_once('@') {
        Some((user, name)) => (Some(user), name),
        None => (None, host),
    };
    let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    let odd = |c: char| c.is_whitespace() || c.is_control();
    if name.is_empty() || name.starts_with('-') || user == Some("") || host.contains(odd) {
        return Err(wrong("not a valid host"));
    }
    Ok(user.map_or(name.to_owned(), |user| format!("{user}@{name}")))
}

/// Returns the first host that accepts a connection to the port, or the last error.
fn first_reachable(hosts: &[String], port: u16) -> Result<String, io::Error> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "no address");
    for host in hosts {
        let addresses = lookup(host, port);
        match addresses {
            Ok(addresses) => {
                for address in addresses {
                    match TcpConnection::connect(address, CONNECT_TIMEOUT) {
                        Ok(_) => return Ok(host.clone()),
                        Err(error) => last = error,
                    }
                }
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    #[test]
    fn host_is_never_an_ssh_option() {
        assert_eq!(ssh_host_argument("far").unwrap(), "far");
        assert_eq!(ssh_host_argument("me@far.example").unwrap(), "me@far.example");
        assert_eq!(ssh_host_argument("[2001:db8::1]").unwrap(), "2001:db8::1");
        assert_eq!(ssh_host_argument("a@b@[::1]").unwrap(), "a@b@::1");
        for host in ["-oProxyCommand=x", "-oProxyCommand=x@far", "me@-x", "@far", "me@", "", "a b", "a\nb"] {
            assert!(ssh_host_argument(host).is_err(), "{host:?}");
        }
    }
}
