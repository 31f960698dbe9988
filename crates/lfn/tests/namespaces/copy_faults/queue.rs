//! Faults of three movers that share a queue. Every file arrives once and complete, and the movers that live report it.
//!
//! Seeds and numbers of trials are as for other copies ([`super`]).

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Output, Stdio};
use std::thread;
use std::time::Duration;

use lfn_base::random_data::fill_random;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::trial::{Draw, finish, read_tree, text};
use crate::support::lfn;
use crate::support::nats::NatsServer;

/// Movers of a trial.
const MOVERS: usize = 3;

/// Source directories of a trial. Each is a part of the manifest of its own.
const SOURCES: usize = 6;

/// The fault comes at a random moment of this time.
const FAULT_WINDOW: u64 = 2500;

/// One kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueFault {
    MoverKilled,
    MoverFrozen,
    QueueServerKilled,
    QueueServerRestarted,
    MessagesLost,
    ServerKilled,
}

impl QueueFault {
    pub const ALL: [QueueFault; 6] = [
        QueueFault::MoverKilled,
        QueueFault::MoverFrozen,
        QueueFault::QueueServerKilled,
        QueueFault::QueueServerRestarted,
        QueueFault::MessagesLost,
        QueueFault::ServerKilled,
    ];
}

impl fmt::Display for QueueFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            QueueFault::MoverKilled => "queue: kill -9 of a mover",
            QueueFault::MoverFrozen => "queue: a mover frozen for a while",
            QueueFault::QueueServerKilled => "queue: kill -9 of its server, which comes back",
            QueueFault::QueueServerRestarted => "queue: NATS server stopped and started again",
            QueueFault::MessagesLost => "queue: NATS server loses the messages",
            QueueFault::ServerKilled => "queue: kill -9 of the server of the copy, which comes back",
        })
    }
}

/// Observations of a trial.
pub struct QueueSeen {
    /// All movers were running when the fault came.
    pub struck: bool,
    /// Leases that movers got after another mover.
    pub redeliveries: u64,
}

/// A trial with its values.
pub struct QueueTrial {
    pub fault: QueueFault,
    draw: Draw,
    home: tempfile::TempDir,
    content: BTreeMap<PathBuf, Vec<u8>>,
}

struct CopyServer {
    child: Child,
    ticket: String,
}

impl Drop for CopyServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl QueueTrial {
    pub fn new(seed: u64) -> Self {
        let fault = QueueFault::ALL[(seed % QueueFault::ALL.len() as u64) as usize];
        let home = tempfile::tempdir().unwrap();
        for name in ["near", "far", "state"] {
            fs::create_dir(home.path().join(name)).unwrap();
        }
        QueueTrial { fault, draw: Draw::new(seed ^ 0x9e75), home, content: BTreeMap::new() }
    }

    pub fn run(mut self) -> Result<QueueSeen, String> {
        self.create_files();
        let mut nats = NatsServer::start(self.home.path());
        let mut server = self.serve(0);
        let rate = 8 + self.draw.below(16);
        let mut movers: Vec<_> = (0..MOVERS).map(|_| self.mover(&nats, &server.ticket, rate)).collect();
        thread::sleep(Duration::from_millis(self.draw.below(FAULT_WINDOW)));
        let struck = movers.iter_mut().all(|mover| mover.try_wait().unwrap().is_none());
        let victim = self.draw.below(MOVERS as u64) as usize;
        let pause = Duration::from_millis(self.draw.below(2500));
        match self.fault {
            QueueFault::MoverKilled => {
                let _ = movers[victim].kill();
                let _ = movers.remove(victim).wait();
            }
            QueueFault::MoverFrozen => {
                let _ = kill_process(Pid::from_child(&movers[victim]), Signal::STOP);
                thread::sleep(pause);
                let _ = kill_process(Pid::from_child(&movers[victim]), Signal::CONT);
            }
            QueueFault::QueueServerKilled | QueueFault::QueueServerRestarted | QueueFault::MessagesLost => {
                // A mover that cannot connect at first fails, because the address is probably wrong.
                self.wait_for_manifest(&mut movers);
                nats.stop(self.fault == QueueFault::QueueServerKilled);
                if self.fault == QueueFault::MessagesLost {
                    nats.delete_stream("LFN_trial");
                }
                thread::sleep(pause);
                nats.start_again();
            }
            QueueFault::ServerKilled => {
                self.wait_for_manifest(&mut movers);
                let port = server.ticket.rsplit_once('#').unwrap().0.rsplit_once(':').unwrap().1.parse().unwrap();
                server.child.kill().unwrap();
                server.child.wait().unwrap();
                thread::sleep(pause);
                server = self.serve(port);
            }
        }
        self.check_final_names()?;
        let mut redeliveries = 0;
        for output in movers.into_iter().map(finish).collect::<Result<Vec<_>, _>>()? {
            redeliveries += self.report(&output)?["queue"]["redeliveries"].as_u64().unwrap_or_default();
        }
        if read_tree(&self.destination()) != self.content {
            return Err("the queue is complete, and the files are not equal".to_owned());
        }
        let again = self.report(&finish(self.mover(&nats, &server.ticket, rate))?)?;
        if again["queue"]["complete"] != true || again["moved_bytes"] != 0 {
            return Err(format!("the next mover does not find a complete queue: {}", again["queue"]));
        }
        Ok(QueueSeen { struck, redeliveries })
    }

    fn destination(&self) -> PathBuf {
        self.home.path().join("far/data")
    }

    /// Returns the report of a mover that must have found the queue complete.
    fn report(&self, output: &Output) -> Result<Value, String> {
        let errors = text(&output.stderr);
        if !output.status.success() {
            return Err(format!("a mover ended with {}: {errors}", output.status));
        }
        let report: Value = serde_json::from_slice(&output.stdout).map_err(|error| format!("{error}: {errors}"))?;
        let files = self.content.len() as u64;
        // The directories of the files are entries too.
        let is_whole = report["queue"]["done_entries"].as_u64().is_some_and(|done| done > files);
        if is_whole { Ok(report) } else { Err(format!("a mover reports {}", report["queue"])) }
    }

    fn create_files(&mut self) {
        let mut lengths = BTreeMap::new();
        for source in 0..SOURCES {
            lengths.insert(PathBuf::from(format!("{source}/large")), 500_000 + self.draw.below(4_000_000));
            for n in 0..self.draw.below(20) {
                let folder = ["", "a/", "a/b/"][self.draw.below(3) as usize];
                let length = self.draw.below(3) * self.draw.below(50_000);
                lengths.insert(PathBuf::from(format!("{source}/{folder}{n}")), length);
            }
        }
        for (name, length) in lengths {
            let mut content = vec![0; length as usize];
            fill_random(self.draw.next(), 0, &mut content);
            let path = self.home.path().join("near").join(&name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, &content).unwrap();
            self.content.insert(name, content);
        }
    }

    /// Starts a server with the same key and token each time.
    fn serve(&self, port: u16) -> CopyServer {
        let mut command = lfn();
        command.args(["serve", "--quiet", "--bind", "127.0.0.1", "--ticket-host", "127.0.0.1"]);
        command.args(["--port", &port.to_string(), "--root"]).arg(self.home.path().join("far"));
        command.env("HOME", self.home.path().join("state")).env_remove("XDG_STATE_HOME").env_remove("XDG_CONFIG_HOME");
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut ticket = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ticket).unwrap();
        assert!(!ticket.is_empty(), "the server does not start");
        CopyServer { child, ticket: ticket.trim().to_owned() }
    }

    fn mover(&self, nats: &NatsServer, ticket: &str, rate: u64) -> Child {
        let mut command = lfn();
        command.arg("copy").args((0..SOURCES).map(|source| source.to_string())).arg("far:data");
        command.args(["--json", "--lease", "1s", "--retry-for", "30s", "--block-size", "64KiB"]);
        command.args(["--queue", &nats.queue("trial"), "--rate", &format!("{rate}mbit"), "--streams", "2"]);
        command.current_dir(self.home.path().join("near")).env("HOME", self.home.path());
        command.env("LFN_FAR_TICKET", ticket).env_remove("LFN_PATH").env_remove("LFN_EMULATED");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Waits until a mover has begun to copy.
    fn wait_for_manifest(&self, movers: &mut [Child]) {
        while !self.destination().exists() && movers.iter_mut().any(|mover| mover.try_wait().unwrap().is_none()) {
            thread::sleep(Duration::from_millis(2));
        }
        // The other movers connect in the same moment.
        thread::sleep(Duration::from_millis(200));
    }

    /// Checks that every final name has its complete content.
    fn check_final_names(&self) -> Result<(), String> {
        for (name, content) in read_tree(&self.destination()) {
            let file = name.file_name().unwrap_or_default().to_string_lossy();
            if !file.starts_with('.') && self.content.get(&name) != Some(&content) {
                return Err(format!("{} has {} bytes that are not its own", name.display(), content.len()));
            }
        }
        Ok(())
    }
}
