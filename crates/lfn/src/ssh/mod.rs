//! A far end that is not there yet: `lfn serve --stdio`, started over ssh for one copy and gone with it.
//!
//! ssh carries one line, with the port, the token and the fingerprint of that server; so who may do what there is for ssh
//! to say, and nothing secret stands in an argument on either host. The data then go over connections of their own, and
//! only where those are not let through, through ssh ([`tunnel`]). The server lives as long as our end of ssh's standard
//! input is open, which the kernel closes whatever becomes of us.

mod announcement;
mod config;
mod trouble;
mod tunnel;
mod words;

use std::io::{self, BufRead, BufReader, Read};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lfn_net::session::SessionError;
use lfn_net::session::dial::{Line, Target};
use lfn_net::transfer::TransferError;

pub use announcement::{Announcement, Ports};
use config::SshConfig;
use tunnel::{Control, Forward};

use crate::exit::{Exit, Failure};
use crate::print;
use crate::remote::session_failure;

/// How long ssh may take until the far end has said where it listens; a person may have to type a password.
const STARTS_WITHIN: Duration = Duration::from_secs(120);

/// How long a connection to the far end's port may take before another way is tried.
const REACHES_WITHIN: Duration = Duration::from_secs(5);

/// How long is waited to hear that nobody listens there.
const REFUSES_WITHIN: Duration = Duration::from_secs(2);

/// How long ssh may take to end, once its standard input is closed.
const ENDS_WITHIN: Duration = Duration::from_secs(3);

/// How long its last words may take to come.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// How often a wait looks up to see whether it was interrupted.
const LOOK_UP: Duration = Duration::from_millis(20);

/// Of what the far side's shell says before the line that is waited for.
const MOST_SAID: u64 = 64 << 10;

/// How far ends are reached over ssh.
#[derive(Debug, Clone)]
pub struct Ssh {
    /// As typed, for hints.
    typed: String,
    /// The program, and its first arguments.
    words: Vec<String>,
    /// What starts lfn there.
    remote: String,
    ports: Option<Ports>,
    sends_on: bool,
}

/// A far end, and ssh that keeps it alive; dropped, both end.
#[derive(Debug)]
pub struct Link {
    /// Where its server is.
    pub target: Target,
    _forward: Option<Forward>,
    running: Running,
    _control: Control,
}

/// ssh at work.
#[derive(Debug)]
struct Running {
    child: Child,
    /// What came on its standard error, and who reads that.
    said: Arc<Mutex<String>>,
    hears: Option<JoinHandle<()>>,
}

impl Ssh {
    /// `command` as a shell would split it; `remote` is for the shell there to read.
    pub fn new(command: &str, remote: &str, ports: Option<Ports>) -> Result<Self, Failure> {
        let words = words::split(command).filter(|words| !words.is_empty());
        let words = words.ok_or_else(|| {
            Failure::usage(format!("--ssh '{command}': no command, or a quote is not closed"))
                .hint("--ssh 'ssh -p 2222'")
        })?;
        Ok(Ssh { typed: command.trim().to_owned(), words, remote: remote.to_owned(), ports, sends_on: false })
    }

    /// Far ends that send to another far end, if `sends_on`; a command that a key is bound to may not let them.
    pub fn sending_on(self, sends_on: bool) -> Self {
        Ssh { sends_on, ..self }
    }

    /// Starts a far end at `host`, which may have a user before an `@`.
    pub fn start(&self, host: &str, interrupted: &AtomicBool) -> Result<Link, Failure> {
        let name = plain(host)?;
        let config = if self.is_openssh() { SshConfig::of(&self.words, &name) } else { SshConfig::default() };
        let control = if self.is_openssh() { Control::new(config.control_path.clone()) } else { Control::default() };
        let mut running = self.run(&name, &config, &control)?;
        let announced = running.announced(host, (&self.typed, &self.remote), interrupted)?;
        let typed = name.rsplit('@').next().unwrap_or(&name);
        let mut hosts = vec![config.host.unwrap_or_else(|| typed.to_owned())];
        hosts.extend(announced.addresses.iter().map(ToString::to_string));
        let mut forward = None;
        let target = match reachable(&hosts, announced.port) {
            Ok(host) => Target::new(announced.ticket(host)),
            Err(error) => {
                let closed = closed(host, announced.port, &error);
                let forwarded = control.forward(&self.words, &name, announced.port).map_err(|_| closed)?;
                print::talk(format_args!(
                    "lfn: port {} of {host} cannot be reached ({error}): the data go through ssh, which is slower\n",
                    announced.port
                ));
                let mut ticket = announced.ticket("127.0.0.1".to_owned());
                ticket.port = forwarded.port;
                forward = Some(forwarded);
                Target::new(ticket)
            }
        };
        let target = target.map_err(session_failure)?;
        Ok(Link { target, _forward: forward, running, _control: control })
    }

    /// Whether it takes OpenSSH's options. Another program is given no more than a host and a command.
    fn is_openssh(&self) -> bool {
        Path::new(&self.words[0]).file_name().is_some_and(|name| name == "ssh")
    }

    fn run(&self, host: &str, config: &SshConfig, control: &Control) -> Result<Running, Failure> {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]);
        if self.is_openssh() {
            command.arg("-T").args(control.options());
            // Without one the kernel gives up after two minutes.
            command.args((!config.has_timeout).then_some("-oConnectTimeout=30"));
            if !config.looks {
                // Without that it may hold a connection that is dead for a quarter of an hour, and what goes through it with
                // it. Shorter outages than five minutes are outlived: starting anew may ask for a password.
                command.args(["-oServerAliveInterval=30", "-oServerAliveCountMax=10"]);
            }
        }
        let ports = self.ports.map(|ports| format!(" --ports {ports}")).unwrap_or_default();
        let sends_on = if self.sends_on { " --third-party" } else { "" };
        command.arg(host).arg(format!("{} serve --stdio{sends_on}{ports}", self.remote));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().map_err(|error| {
            Failure::msg(format!("{host}: cannot start {}: {error}", self.words[0]))
                .hint("install OpenSSH's client, or say what does the same: --ssh COMMAND")
        })?;
        Ok(Running { child, said: Arc::default(), hears: None })
    }
}

/// Starts a far end on this host, for a copy that does not leave it: without ssh, and heard by loopback alone.
pub fn here(interrupted: &AtomicBool) -> Result<Link, Failure> {
    // This very program, whatever has taken its name since.
    let mut command = Command::new("/proc/self/exe");
    command.arg0("lfn").args(["serve", "--stdio", "--read-only", "--bind", "127.0.0.1"]);
    // An interrupt from the terminal is for the near side, which ends both in order.
    command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().map_err(|error| Failure::msg(format!("cannot start lfn serve: {error}")))?;
    let mut running = Running { child, said: Arc::default(), hears: None };
    let announced = running.announced("this host", ("ssh", "lfn"), interrupted)?;
    let target = Target::new(announced.ticket("127.0.0.1".to_owned())).map_err(session_failure)?;
    Ok(Link { target, _forward: None, running, _control: Control::default() })
}

impl Link {
    /// Whether the far end may still be there: it ends with ssh. ssh itself may not know for hours that its connection
    /// is gone, as where the host was started anew; then the port is refused there.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.running.child.try_wait(), Ok(None)) && !self.is_refused()
    }

    fn is_refused(&self) -> bool {
        let mut target = self.target.clone();
        target.within = REFUSES_WITHIN;
        let refused = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        matches!(Line::connect(&target), Err(SessionError::Unreachable { source, .. }) if refused(&source))
    }
}

impl Running {
    /// Waits for the far end's line.
    fn announced(
        &mut self,
        host: &str,
        (ssh, remote): (&str, &str),
        interrupted: &AtomicBool,
    ) -> Result<Announcement, Failure> {
        let lines = self.listen()?;
        let deadline = Instant::now() + STARTS_WITHIN;
        loop {
            if interrupted.load(Ordering::Relaxed) {
                return Err(Failure::new(TransferError::Interrupted).with_exit(Exit::Interrupted));
            }
            match lines.recv_timeout(LOOK_UP) {
                Ok(announced) => return announced.check(host),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) if Instant::now() >= deadline => {
                    return Err(Failure::msg(format!("{host}: no word over ssh within {STARTS_WITHIN:?}"))
                        .hint(format!("see what `{ssh} {host} true` does")));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
        let status = self.ended();
        self.heard_all();
        let said = (*self.said.lock().unwrap_or_else(PoisonError::into_inner)).clone();
        Err(trouble::explain(host, (ssh, remote), status.and_then(|status| status.code()), &said))
    }

    /// Reads both its outputs as long as it runs, so that it never waits for us.
    fn listen(&mut self) -> Result<Receiver<Announcement>, Failure> {
        let (sender, lines) = channel();
        if let Some(stdout) = self.child.stdout.take() {
            thread::Builder::new().name("ssh".into()).spawn(move || find_announcement(stdout, sender))?;
        }
        if let Some(stderr) = self.child.stderr.take() {
            let said = self.said.clone();
            let hears = thread::Builder::new().name("ssh".into()).spawn(move || {
                for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
                    trouble::note(&mut said.lock().unwrap_or_else(PoisonError::into_inner), &line);
                }
            })?;
            self.hears = Some(hears);
        }
        Ok(lines)
    }

    /// Waits until what it said last has been read, a moment at most: others may hold its standard error open.
    fn heard_all(&self) {
        let deadline = Instant::now() + LAST_WORDS;
        while self.hears.as_ref().is_some_and(|hears| !hears.is_finished()) && Instant::now() < deadline {
            thread::sleep(LOOK_UP);
        }
    }

    /// How it ended, if it does in time.
    fn ended(&mut self) -> Option<ExitStatus> {
        drop(self.child.stdin.take());
        let deadline = Instant::now() + ENDS_WITHIN;
        while Instant::now() < deadline {
            match self.child.try_wait() {
                Ok(None) => thread::sleep(LOOK_UP),
                Ok(status) => return status,
                Err(_) => return None,
            }
        }
        None
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.ended().is_none() {
            // It is our own child, and has not been waited for: nobody else has its number.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Finds the line among those that a shell says which is not silent; reads on to the end, so that nobody waits for us.
fn find_announcement(stdout: ChildStdout, sender: Sender<Announcement>) {
    let mut reader = BufReader::new(stdout);
    let found =
        (&mut reader).take(MOST_SAID).split(b'\n').map_while(Result::ok).find_map(|line| Announcement::read(&line));
    if let Some(announced) = found {
        // Whoever waits no longer has said why.
        let _ = sender.send(announced);
    }
    drop(sender);
    let _ = io::copy(&mut reader, &mut io::sink());
}

/// The argument that ssh takes: an IPv6 address without brackets, and never an option.
fn plain(host: &str) -> Result<String, Failure> {
    let wrong = |what| Failure::usage(format!("'{host}': {what}")).hint("USER@HOST:PATH, as for ssh");
    if host.starts_with('-') {
        return Err(wrong("no host begins with a dash"));
    }
    let (user, name) = match host.rsplit_once('@') {
        Some((user, name)) => (Some(user), name),
        None => (None, host),
    };
    let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    let odd = |c: char| c.is_whitespace() || c.is_control();
    if name.is_empty() || name.starts_with('-') || user == Some("") || host.contains(odd) {
        return Err(wrong("not a host"));
    }
    Ok(user.map_or(name.to_owned(), |user| format!("{user}@{name}")))
}

/// The first of these whose port can be connected to; the last error if there is none.
fn reachable(hosts: &[String], port: u16) -> Result<String, io::Error> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "no address");
    for host in hosts {
        let addresses = (host.as_str(), port).to_socket_addrs();
        match addresses {
            Ok(addresses) => {
                for address in addresses {
                    match TcpStream::connect_timeout(&address, REACHES_WITHIN) {
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

fn closed(host: &str, port: u16, error: &io::Error) -> Failure {
    Failure::msg(format!("{host}: port {port} cannot be reached: {error}, and ssh does not forward to it"))
        .hint("open a port in the firewall there, or a range, and name it: --ssh-ports 7400-7409")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    #[test]
    fn a_host_is_never_an_option() {
        assert_eq!(plain("far").unwrap(), "far");
        assert_eq!(plain("me@far.example").unwrap(), "me@far.example");
        assert_eq!(plain("[2001:db8::1]").unwrap(), "2001:db8::1");
        assert_eq!(plain("a@b@[::1]").unwrap(), "a@b@::1");
        for host in ["-oProxyCommand=x", "-oProxyCommand=x@far", "me@-x", "@far", "me@", "", "a b", "a\nb"] {
            assert!(plain(host).is_err(), "{host:?}");
        }
    }
}
