//! A NATS server with JetStream, which a test starts, restarts and stops.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::{eventually, path_with_servers};

/// A NATS server whose files are in a directory of the test.
pub struct NatsServer {
    child: Child,
    directory: PathBuf,
    port: u16,
    flags: Vec<String>,
}

impl NatsServer {
    /// Starts the server on a free port of loopback.
    pub fn start(directory: &Path) -> Self {
        NatsServer::with_flags(directory, &["-js"])
    }

    /// Starts the server with these flags.
    pub fn with_flags(directory: &Path, flags: &[&str]) -> Self {
        let directory = directory.join("nats");
        fs::create_dir_all(&directory).unwrap();
        let flags: Vec<_> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let child = spawn(&directory, "-1", &flags);
        let mut server = NatsServer { child, directory, port: 0, flags };
        server.port = server.wait();
        server
    }

    /// Returns the URL of a queue on this server.
    pub fn queue(&self, name: &str) -> String {
        format!("nats://127.0.0.1:{}/{name}", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Stops the server, at once with `kill`.
    pub fn stop(&mut self, kill: bool) {
        if kill {
            self.child.kill().unwrap();
        } else {
            let pid = rustix::process::Pid::from_child(&self.child);
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        }
        self.child.wait().unwrap();
        let _ = fs::remove_file(self.ports_file());
    }

    /// Starts a stopped server on the same port, with the same files.
    pub fn start_again(&mut self) {
        self.child = spawn(&self.directory, &self.port.to_string(), &self.flags);
        self.wait();
    }

    /// Deletes the files of a stream of a stopped server.
    pub fn delete_stream(&self, name: &str) {
        fs::remove_dir_all(self.directory.join("jetstream/$G/streams").join(name)).unwrap();
    }

    fn ports_file(&self) -> PathBuf {
        self.directory.join(format!("nats-server_{}.ports", self.child.id()))
    }

    /// Waits until the server listens, and returns its port.
    fn wait(&self) -> u16 {
        let mut port = None;
        assert!(eventually(|| {
            let text = fs::read_to_string(self.ports_file()).unwrap_or_default();
            let ports: Option<serde_json::Value> = serde_json::from_str(&text).ok();
            let url = ports.as_ref().and_then(|ports| ports["nats"][0].as_str());
            port = url.and_then(|url| url.rsplit_once(':')?.1.parse().ok());
            port.is_some()
        }));
        port.unwrap()
    }
}

fn spawn(directory: &Path, port: &str, flags: &[String]) -> Child {
    let mut command = Command::new("nats-server");
    command.args(["-a", "127.0.0.1", "-p", port, "--ports_file_dir"]).arg(directory).arg("-sd").arg(directory);
    command.args(flags).env("PATH", path_with_servers()).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
