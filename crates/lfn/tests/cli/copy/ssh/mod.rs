//! Servers that ssh starts, with Debian's sshd on a loopback port and with test keys and a test home directory:
//! transferred files, errors of ssh, and no process left when one side ends.

mod connections;
mod processes;
mod transfers;

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use super::{finish, is_root, report_of, wait_for};
use crate::support::missing_program;
use crate::support::server::text;
use crate::support::skip::skip;
use crate::support::{eventually, lfn, lfn_path, path_with_servers, processes_with};

/// An sshd and the directories of both sides.
struct Host {
    sshd: Child,
    port: u16,
    home: tempfile::TempDir,
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.sshd.kill();
        let _ = self.sshd.wait();
    }
}

impl Host {
    /// Returns None if sshd is not installed, and skips `test`.
    fn new(test: &str) -> Option<Self> {
        if let Some(missing) = missing_program(&["sshd", "ssh", "ssh-keygen"]) {
            skip(test, &missing);
            return None;
        }
        let home = tempfile::tempdir().unwrap();
        for (name, mode) in [("near", 0o755), ("far", 0o755), ("bin", 0o755), ("run", 0o700)] {
            fs::DirBuilder::new().mode(mode).create(home.path().join(name)).unwrap();
        }
        let path = |name: &str| home.path().join(name);
        for key in ["host", "user", "other"] {
            let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(path(key)).status();
            assert!(made.unwrap().success());
        }
        fs::copy(path("user.pub"), path("authorized")).unwrap();
        symlink(lfn_path(), path("bin/lfn")).unwrap();
        // A shell that prints text at login, and a home directory that is not the tester's.
        let force = format!(
            "echo Welcome; cd '{far}'; HOME='{far}' PATH=\"{bin}:$PATH\"; export HOME PATH; exec sh -c \"$SSH_ORIGINAL_COMMAND\"",
            far = path("far").display(),
            bin = path("bin").display()
        );
        fs::write(path("force"), force).unwrap();
        let (sshd, port) = serve(home.path());
        let host = Host { sshd, port, home };
        host.accept_host_key("host");
        host.configure();
        Some(host)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// The near side accepts this host key.
    fn accept_host_key(&self, key: &str) {
        let key = fs::read_to_string(self.path(&format!("{key}.pub"))).unwrap();
        fs::write(self.path("known"), format!("[127.0.0.1]:{} {key}there {key}", self.port)).unwrap();
    }

    /// `there` and `other` name the host. `walled` names it at an address that only ssh reaches.
    fn configure(&self) {
        let home = self.home.path().display();
        let user = text(&Command::new("id").arg("-un").output().unwrap().stdout);
        let Host { port, .. } = self;
        let proxy = format!("bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}; cat <&3 & exec cat >&3'");
        let config = format!(
            "Host walled\n HostName walled.invalid\n HostKeyAlias there\n ProxyCommand {proxy}\n\
             Host there other\n HostName 127.0.0.1\n\
             Host *\n Port {port}\n User {user}\n IdentityFile {home}/user\n IdentitiesOnly yes\n BatchMode yes\n \
             StrictHostKeyChecking yes\n UserKnownHostsFile {home}/known\n GlobalKnownHostsFile none\n"
        );
        fs::write(self.path("config"), config).unwrap();
    }

    /// Returns `lfn copy` in the near directory. Its processes are recognised by the path of this home.
    fn command(&self, args: &[&str]) -> Command {
        self.command_of("copy", args)
    }

    fn command_of(&self, verb: &str, args: &[&str]) -> Command {
        let mut command = lfn();
        command.arg(verb).args(args).current_dir(self.path("near"));
        if !args.contains(&"--remote-lfn") {
            command.arg("--remote-lfn").arg(self.path("bin/lfn"));
        }
        for name in ["LFN_FAR_TICKET", "LFN_PATH", "LFN_EMULATED", "LFN_FAR", "SSH_AUTH_SOCK"] {
            command.env_remove(name);
        }
        command.env("LFN_SSH", format!("ssh -F '{}'", self.path("config").display()));
        command.env("HOME", self.home.path()).env("XDG_RUNTIME_DIR", self.path("run"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn copy(&self, args: &[&str]) -> Output {
        finish(self.command(args).spawn().unwrap())
    }

    #[track_caller]
    fn copies(&self, args: &[&str]) -> Value {
        report_of(args, &self.copy(&[args, &["--json"]].concat()))
    }

    /// Runs `lfn test` like [`copy`](Self::copy).
    fn test(&self, args: &[&str]) -> Output {
        finish(self.command_of("test", args).spawn().unwrap())
    }

    #[track_caller]
    fn refuses(&self, args: &[&str], code: i32, what: &str, hint: &str) {
        refused(&self.copy(args), args, code, what, hint);
    }

    #[track_caller]
    fn refuses_test(&self, args: &[&str], code: i32, what: &str, hint: &str) {
        refused(&self.test(args), args, code, what, hint);
    }

    /// Returns the running servers.
    fn far_ends(&self) -> Vec<String> {
        let marker = format!("{} serve", self.path("bin/lfn").display());
        processes_with(&marker).into_iter().filter(|line| line.starts_with(&marker)).collect()
    }

    /// Returns their process ids.
    fn far_processes(&self) -> Vec<u32> {
        let marker = format!("{} serve", self.path("bin/lfn").display());
        let is_far = |pid: &u32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).replace('\0', " ").starts_with(&marker)
        };
        let entries = fs::read_dir("/proc").unwrap().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_far).collect()
    }

    /// Asserts that no process and no socket is left.
    #[track_caller]
    fn leaves_nothing(&self) {
        assert!(eventually(|| self.far_ends().is_empty()), "{:?}", self.far_ends());
        assert!(eventually(|| fs::read_dir(self.path("run")).unwrap().next().is_none()));
    }

    /// Returns a remote script that records the standard output of lfn.
    fn noted(&self, name: &str, before: &str) -> String {
        let script = self.path(name);
        let lfn = self.path("bin/lfn");
        fs::write(
            &script,
            format!("#!/bin/sh\n{before} '{}' \"$@\" | tee '{}.said'\n", lfn.display(), script.display()),
        )
        .unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        script.to_str().unwrap().to_owned()
    }
}

#[track_caller]
fn refused(output: &Output, args: &[&str], code: i32, what: &str, hint: &str) {
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {errors}");
    let lines: Vec<_> = errors.lines().collect();
    let [line, hinted] = lines.as_slice() else { panic!("{args:?}: {errors}") };
    assert!(line.starts_with("lfn: ") && line.contains(what), "{errors}");
    assert!(hinted.starts_with("hint: ") && hinted.contains(hint), "{errors}");
}

/// Starts sshd on a free port. As root it needs a directory that a service manager usually creates.
fn serve(home: &Path) -> (Child, u16) {
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let home = home.display();
    let sshd = format!(
        "exec $(command -v sshd) -D -e -f /dev/null -p {port} -o ListenAddress=127.0.0.1 -o HostKey={home}/host \
         -o PidFile=none -o AuthorizedKeysFile={home}/authorized -o StrictModes=no -o UsePAM=no \
         -o PermitRootLogin=yes -o 'ForceCommand=sh {home}/force'"
    );
    let mut command = Command::new("sh");
    if is_root() {
        command = Command::new("unshare");
        let run = "mount -t tmpfs tmpfs /run && mkdir /run/sshd";
        command.args(["--mount", "sh", "-c", &format!("{run} && {sshd}")]);
    } else {
        command.args(["-c", &sshd]);
    }
    let log = fs::File::create(format!("{home}/sshd.log")).unwrap();
    command.env("PATH", path_with_servers()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    let child = command.spawn().unwrap();
    wait_for("sshd", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    (child, port)
}
