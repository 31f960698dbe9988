//! A sandbox for test networks: namespaces of the test, in which it is root.
//!
//! A test runs its own binary again. The new process enters the sandbox first, because only a process with one thread
//! can. The networks disappear when the process ends.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use lfn_sys::namespace::{self, CloneSide, NetNamespace, NewNamespaces, UserIdentity};
use lfn_sys::netlink::{MacAddress, Netlink, VethEnd};
use lfn_sys::process::{self, ProcessExit, exit_immediately};

/// Forks. Returns in a child that is root of new namespaces. The parent waits for the child and exits with its status.
pub fn enter() {
    let user = !UserIdentity::current().is_root() || namespace::test_clone(false).is_err();
    enter_with(user);
}

/// Works like [`enter`], with or without a user namespace. This user namespace has its own limits (`/proc/sys/user`).
pub fn enter_with(user: bool) {
    let identity = UserIdentity::current();
    match namespace::clone_into_namespaces(NewNamespaces { user, network: true }).expect("namespaces are to be had") {
        CloneSide::Parent(pid) => exit_immediately(match process::wait(pid) {
            Some(ProcessExit::Exited(status)) => status,
            _ => 1,
        }),
        CloneSide::Child => {
            if user {
                identity.become_root().expect("its own user namespace takes it");
            }
            process::die_with_parent().expect("it can be tied to its parent");
            namespace::make_mounts_private().expect("mounts can be made private");
            namespace::mount_proc().expect("a /proc for this PID namespace");
        }
    }
}

/// Connects this namespace and another one with a veth pair, and sets both interfaces up.
pub fn join(here: &str, other: &NetNamespace, there: &str, number: u8) {
    let end = |name, place| VethEnd { name, mac: MacAddress([2, 0, 0, 0, place, number]) };
    let mut netlink = Netlink::open().expect("netlink");
    netlink.add_veth(end(here, 1), end(there, 2), other, 1500).expect("a veth pair");
    up(here);
    other.run(|| up(there)).expect("the other namespace");
}

/// Sets an interface of the calling thread's namespace up.
pub fn up(name: &str) {
    let mut netlink = Netlink::open().expect("netlink");
    let index = netlink.index(name).expect("the interface is there");
    netlink.set_up(index).expect("it comes up");
}

/// Adds an address of a /24 to an interface of a namespace.
pub fn address(namespace: &NetNamespace, name: &str, address: [u8; 4]) {
    let work = || {
        let mut netlink = Netlink::open()?;
        let index = netlink.index(name)?;
        netlink.add_address(index, address.into(), 24)
    };
    namespace.run(work).and_then(|result| result).expect("the address is taken");
}

/// Returns whether a namespace has an interface of this name.
pub fn has_interface(namespace: &NetNamespace, name: &str) -> bool {
    namespace.run(|| Netlink::open()?.interface(name)).expect("the namespace").is_ok()
}

/// Starts a command in a namespace.
pub fn spawn_in(namespace: &NetNamespace, command: &mut Command) -> Child {
    namespace.run(|| command.spawn()).expect("the namespace").expect("the command starts")
}

/// A running command with its standard error. Killed on drop.
pub struct Running {
    child: Child,
    lines: Receiver<String>,
    said: String,
}

impl Running {
    /// Starts the command and reads its output.
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

    /// Waits up to a minute until the command prints these words.
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
        super::server::kill(name, self.pid());
    }

    /// Returns the exit status and the complete output.
    pub fn end(mut self) -> (ExitStatus, String) {
        let status = self.child.wait().expect("it ends");
        // Waits until other holders of the pipe end too.
        self.said.extend(self.lines.iter().map(|line| line + "\n"));
        (status, std::mem::take(&mut self.said))
    }

    /// Returns the next line of a piped standard output.
    pub fn line(&mut self) -> String {
        let (mut line, mut byte) = (Vec::new(), [0]);
        let stdout = self.child.stdout.as_mut().expect("stdout is piped");
        while stdout.read(&mut byte).expect("it writes") == 1 && byte != *b"\n" {
            line.push(byte[0]);
        }
        String::from_utf8(line).expect("it writes text")
    }

    /// Returns the complete piped standard output.
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
