//! A place to build networks in without touching the machine's: namespaces of the test's own, in which it is root.
//!
//! A test runs its own binary again, and that enters the sandbox before it does anything else, because only a process of
//! one thread can. What it makes there is gone when it ends.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use lfn_sys::namespace::{self, Identity, NetNamespace, Own, Side};
use lfn_sys::netlink::{Mac, Netlink, VethEnd};
use lfn_sys::process::{self, Ending, exit_now};

/// Returns in a child that is root of new namespaces; this process waits for it and ends as it does.
pub fn enter() {
    let user = !Identity::current().is_root() || namespace::probe(false).is_err();
    enter_with(user);
}

/// The same, with a user namespace of its own or without. Limits on namespaces (`/proc/sys/user`) are of that.
pub fn enter_with(user: bool) {
    let identity = Identity::current();
    match namespace::clone_into_namespaces(Own { user, network: true }).expect("namespaces are to be had") {
        Side::Parent(pid) => exit_now(match process::wait(pid) {
            Some(Ending::Exited(status)) => status,
            _ => 1,
        }),
        Side::Child => {
            if user {
                identity.become_root_inside().expect("its own user namespace takes it");
            }
            process::die_with_parent().expect("it can be tied to its parent");
            namespace::make_mounts_private().expect("mounts can be made private");
            namespace::mount_proc().expect("a /proc for this PID namespace");
        }
    }
}

/// Joins this namespace and another by a veth pair, which is up at both ends.
pub fn join(here: &str, other: &NetNamespace, there: &str, number: u8) {
    let end = |name, place| VethEnd { name, mac: Mac([2, 0, 0, 0, place, number]) };
    let mut netlink = Netlink::open().expect("netlink");
    netlink.add_veth(end(here, 1), end(there, 2), other, 1500).expect("a veth pair");
    up(here);
    other.run(|| up(there)).expect("the other namespace");
}

/// Brings up an interface of the calling thread's namespace.
pub fn up(name: &str) {
    let mut netlink = Netlink::open().expect("netlink");
    let index = netlink.index(name).expect("the interface is there");
    netlink.set_up(index).expect("it comes up");
}

/// Gives an interface of a namespace an address of a /24.
pub fn address(namespace: &NetNamespace, name: &str, address: [u8; 4]) {
    let work = || {
        let mut netlink = Netlink::open()?;
        let index = netlink.index(name)?;
        netlink.add_address(index, address.into(), 24)
    };
    namespace.run(work).and_then(|result| result).expect("the address is taken");
}

/// Whether a namespace has an interface of that name.
pub fn has_interface(namespace: &NetNamespace, name: &str) -> bool {
    namespace.run(|| Netlink::open()?.interface(name)).expect("the namespace").is_ok()
}

/// Starts a command in a namespace.
pub fn spawn_in(namespace: &NetNamespace, command: &mut Command) -> Child {
    namespace.run(|| command.spawn()).expect("the namespace").expect("the command starts")
}

/// A command that runs, and what it says on stderr. Killed if it is forgotten.
pub struct Running {
    child: Child,
    lines: Receiver<String>,
    said: String,
}

impl Running {
    /// Starts it.
    pub fn start(command: &mut Command) -> Running {
        let mut child = command.stderr(Stdio::piped()).spawn().expect("the command starts");
        let stderr = child.stderr.take().expect("stderr is piped");
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            BufReader::new(stderr).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Running { child, lines, said: String::new() }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits, a minute at most, until it says something with these words in it.
    pub fn says(&mut self, words: &str) -> &mut Self {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !self.said.contains(words) {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => self.said += &(line + "\n"),
                Err(_) => panic!("it never said '{words}' but: {}", self.said),
            }
        }
        self
    }

    pub fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().expect("kill runs").success());
    }

    /// Its end, and all that it said.
    pub fn end(mut self) -> (ExitStatus, String) {
        let status = self.child.wait().expect("it ends");
        // Until whoever else holds the pipe is gone too.
        self.said.extend(self.lines.iter().map(|line| line + "\n"));
        (status, std::mem::take(&mut self.said))
    }

    /// The next line it writes to stdout, which has to be piped.
    pub fn line(&mut self) -> String {
        let (mut line, mut byte) = (Vec::new(), [0]);
        let stdout = self.child.stdout.as_mut().expect("stdout is piped");
        while stdout.read(&mut byte).expect("it writes") == 1 && byte != *b"\n" {
            line.push(byte[0]);
        }
        String::from_utf8(line).expect("it writes text")
    }

    /// All it wrote to stdout, which has to be piped.
    pub fn stdout(&mut self) -> String {
        let mut text = String::new();
        let stdout = self.child.stdout.as_mut().expect("stdout is piped");
        stdout.read_to_string(&mut text).expect("it writes text");
        text
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
