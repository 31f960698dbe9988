//! Servers that ssh starts, with Debian's sshd on a loopback port and with test keys and a test home directory:
//! transferred files, errors of ssh, and no process left when one side ends.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

use super::clean::left;
use super::{finish, is_root, report_of, wait_for, write};
use crate::support::missing_program;
use crate::support::server::{kill, text};
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

impl Host {
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

#[test]
fn files_are_copied_over_ssh_both_ways() {
    let Some(host) = Host::new("files_are_copied_over_ssh_both_ways") else { return };
    let content = write(&host.path("near/a"), 3_000_003);
    let whole = host.path("far/whole");
    for (to, at) in [
        ("there:b", host.path("far/b")),
        ("there:", host.path("far/a")),
        ("there:~/c", host.path("far/c")),
        (&format!("there:{}", whole.display()), whole.clone()),
    ] {
        let report = host.copies(&["a", to]);
        assert_eq!(fs::read(at).unwrap(), content, "{to}");
        assert_eq!(report["digest_blake3"], blake3::hash(&content).to_hex().as_str());
    }
    // With a user name, a binary from the PATH, without encryption, to a directory outside any root.
    let user = text(&Command::new("id").arg("-un").output().unwrap().stdout);
    let from = format!("{}@there:b", user.trim());
    host.copies(&[&from, "d", "--remote-lfn", "lfn", "--clear-data"]);
    assert_eq!(fs::read(host.path("near/d")).unwrap(), content);
    host.copies(&["there:zero:1000", "null:"]);
    host.refuses(&["there:none", "e"], 1, "none: no such file", "check the spelling");
    host.refuses(&["there:~you/a", "e"], 2, "~you/a", "./~NAME");
    host.leaves_nothing();
    assert_eq!(fs::read_dir(host.path("far")).unwrap().count(), 4);
}

#[test]
fn tree_is_copied_over_ssh_both_ways() {
    let Some(host) = Host::new("tree_is_copied_over_ssh_both_ways") else { return };
    for number in 0..40 {
        let directory = host.path(&format!("near/tree/{}/{number}", number % 3));
        fs::create_dir_all(&directory).unwrap();
        write(&directory.join("file"), number * 4711);
    }
    host.copies(&["tree", "there:"]);
    host.copies(&["there:tree/", "back"]);
    let same = Command::new("diff").arg("-r").arg(host.path("near/tree")).arg(host.path("near/back")).output().unwrap();
    assert!(same.status.success(), "{}", text(&same.stdout));
    let again = host.copies(&["tree", "there:"]);
    assert_eq!((&again["counts"]["files"], &again["counts"]["bytes"]), (&0.into(), &0.into()), "{again}");
    host.leaves_nothing();
}

#[test]
fn third_party_copy_works_over_ssh() {
    let Some(host) = Host::new("third_party_copy_works_over_ssh") else { return };
    let content = write(&host.path("far/tree"), 3_000_003);
    fs::rename(host.path("far/tree"), host.path("far/file")).unwrap();
    fs::create_dir(host.path("far/tree")).unwrap();
    fs::rename(host.path("far/file"), host.path("far/tree/file")).unwrap();
    let report = host.copies(&["there:tree", "other:into"]);
    assert_eq!(
        (&report["counts"]["files"], &report["counts"]["bytes"]),
        (&1.into(), &content.len().into()),
        "{report}"
    );
    assert_eq!(fs::read(host.path("far/into/tree/file")).unwrap(), content);
    host.refuses(&["there:none", "other:into"], 1, "none: no such file", "");
    host.leaves_nothing();
}

#[test]
fn hint_of_remote_clean_works_when_pasted() {
    let Some(host) = Host::new("hint_of_remote_clean_works_when_pasted") else { return };
    left(&host.path("far/two in"), "a");
    for place in ["there:two in", "there:~/two in"] {
        let refused = host.copy(&["--clean", place]);
        assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
        let errors = text(&refused.stderr);
        let hint = errors.lines().last().unwrap().strip_prefix("hint: ").unwrap();
        let output = Command::new("sh").args(["-c", hint]).current_dir(host.path("near")).output().unwrap();
        assert!(text(&output.stdout).contains("two in/.a.lfn-partial: 0 B of 5 kB of a"), "{hint}: {output:?}");
    }
}

#[test]
fn ssh_failures_are_one_line_errors() {
    let Some(host) = Host::new("ssh_failures_are_one_line_errors") else { return };
    write(&host.path("near/a"), 10);
    let none = ["a", "there:b", "--remote-lfn", "no-such-lfn"];
    host.refuses(&none, 1, "'no-such-lfn' is not installed on that host", "--remote-lfn PATH");
    host.refuses(&["a", "no-such-host.invalid:b"], 1, "unknown host 'no-such-host.invalid'", "lfn hosts add");
    host.refuses(&["a", "me@-oProxyCommand=true:b"], 2, "not a valid host", "as for scp");
    host.refuses(&["a", "there:b", "--ssh", "ssh '"], 2, "unclosed quote", "--ssh");
    host.refuses(&["a", "there:b", "--ssh", "no-such-ssh"], 1, "cannot start no-such-ssh", "--ssh COMMAND");
    let other = ["a", "there:b", "--remote-lfn", "echo '{\"schema\":\"lfn.stdio/99\"}' #"];
    host.refuses(&other, 1, "lfn.stdio/99", "same version");
    host.refuses(&["a", "there:b", "--remote-lfn", "true"], 1, "without announcing its port", "true --version");
    let taken = TcpListener::bind(("::", 0)).or_else(|_| TcpListener::bind(("0.0.0.0", 0))).unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    host.refuses(&["a", "there:b", "--ssh-ports", &port], 1, "cannot listen on", "--ssh-ports");
    host.accept_host_key("other");
    host.refuses(&["a", "there:b"], 1, "Host key verification failed", " there true`");
    host.accept_host_key("host");
    fs::write(host.path("authorized"), "").unwrap();
    host.refuses(&["a", "there:b"], 1, "Permission denied", "check that this login works");
    assert_eq!(fs::read_dir(host.path("far")).unwrap().count(), 0);
    host.leaves_nothing();
}

#[test]
fn no_secret_in_arguments_or_environment() {
    let Some(host) = Host::new("no_secret_in_arguments_or_environment") else { return };
    let noted = host.noted("noted", "");
    let mut child = host.command(&["there:zero:1TB", "null:", "--remote-lfn", &noted]).spawn().unwrap();
    let said = PathBuf::from(format!("{noted}.said"));
    wait_for("the far end's line", || fs::read_to_string(&said).is_ok_and(|said| said.ends_with('\n')));
    let line: Value = serde_json::from_str(&fs::read_to_string(&said).unwrap()).unwrap();
    let secrets = ["token", "fingerprint"].map(|key| line[key].as_str().unwrap().to_owned());
    assert!(secrets[0].len() == 22 && secrets[1].len() == 43, "{secrets:?}");
    wait_for("its connections", || connections(line["port"].as_u64().unwrap()) > 2);
    for process in fs::read_dir("/proc").unwrap().flatten() {
        for part in ["cmdline", "environ"] {
            let bytes = fs::read(process.path().join(part)).unwrap_or_default();
            let bytes = String::from_utf8_lossy(&bytes);
            assert!(secrets.iter().all(|secret| !bytes.contains(secret.as_str())), "{part}: {bytes}");
        }
    }
    assert!(!host.far_ends().is_empty());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(eventually(|| host.far_ends().is_empty()), "{:?}", host.far_ends());
}

/// Returns the number of established connections to a loopback port.
fn connections(port: u64) -> usize {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| fs::read_to_string(table).unwrap_or_default());
    let of = |line: &str| line.split_whitespace().nth(2).is_some_and(|there| there.ends_with(&format!(":{port:04X}")));
    tables.iter().flat_map(|table| table.lines()).filter(|line| of(line)).count()
}

/// Starts an endless copy and waits until the server works.
fn start_endless_copy(host: &Host, args: &[&str]) -> Child {
    let noted = host.noted("noted", "");
    let child = host.command(&[args, &["--remote-lfn", &noted]].concat()).spawn().unwrap();
    let said = PathBuf::from(format!("{noted}.said"));
    wait_for("the far end's line", || fs::read_to_string(&said).is_ok_and(|said| said.ends_with('\n')));
    let line: Value = serde_json::from_str(&fs::read_to_string(&said).unwrap()).unwrap();
    wait_for("its connections", || connections(line["port"].as_u64().unwrap()) > 2);
    child
}

#[test]
fn killed_client_leaves_no_ssh_server() {
    let Some(host) = Host::new("killed_client_leaves_no_ssh_server") else { return };
    let mut child = start_endless_copy(&host, &["zero:1TB", "there:null:"]);
    assert_eq!(host.far_ends().len(), 1);
    child.kill().unwrap();
    child.wait().unwrap();
    host.leaves_nothing();
}

#[test]
fn interrupt_ends_both_sides() {
    let Some(host) = Host::new("interrupt_ends_both_sides") else { return };
    let child = start_endless_copy(&host, &["there:zero:1TB", "null:"]);
    kill("INT", child.id());
    let output = finish(child);
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    host.leaves_nothing();
}

#[test]
fn silent_ssh_server_can_be_interrupted() {
    let Some(host) = Host::new("silent_ssh_server_can_be_interrupted") else { return };
    let begun = host.path("begun");
    let mute = format!("touch '{}'; exec cat #", begun.display());
    let child = host.command(&["there:a", "b", "--remote-lfn", &mute]).spawn().unwrap();
    wait_for("the command there", || begun.exists());
    kill("INT", child.id());
    let output = finish(child);
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    host.leaves_nothing();
}

/// The host was restarted, and the connection of ssh died without a message.
#[test]
fn lost_ssh_server_is_restarted() {
    let Some(host) = Host::new("lost_ssh_server_is_restarted") else { return };
    let script = host.noted("noted", "");
    let outlived = format!("{}cat > /dev/null\n", fs::read_to_string(&script).unwrap());
    fs::write(&script, outlived).unwrap();
    let child = host.command(&["zero:1TB", "there:null:", "--remote-lfn", &script]).spawn().unwrap();
    let mut gone = None;
    for _ in 0..2 {
        wait_for("a far end", || host.far_processes().iter().any(|pid| Some(*pid) != gone));
        let far = host.far_processes()[0];
        wait_for("its work", || ticks(far) >= 50);
        kill("KILL", far);
        gone = Some(far);
    }
    kill("INT", child.id());
    let output = finish(child);
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    host.leaves_nothing();
}

/// Returns the CPU time of a process in hundredths of a second.
fn ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<_> = stat[stat.rfind(')').unwrap()..].split(' ').collect();
    [12, 13].map(|field| fields[field].parse::<u64>().unwrap()).iter().sum()
}

#[test]
fn lost_ssh_server_ends_copy_without_retries() {
    let Some(host) = Host::new("lost_ssh_server_ends_copy_without_retries") else { return };
    // With retries, the server would be started again.
    let child = start_endless_copy(&host, &["zero:1TB", "there:null:", "--retry-for", "0s"]);
    let far = host.far_processes();
    assert_eq!(far.len(), 1);
    // Connections can exist before the server has sent a message. The copy runs when the server has used some CPU time.
    wait_for("its work", || ticks(far[0]) >= 50);
    kill("KILL", far[0]);
    let output = finish(child);
    let errors = text(&output.stderr);
    assert!(output.status.code() == Some(3) && errors.contains("hint: "), "{errors}");
    host.leaves_nothing();
}

#[test]
fn data_goes_through_ssh_behind_a_firewall() {
    let Some(host) = Host::new("data_goes_through_ssh_behind_a_firewall") else { return };
    let content = write(&host.path("near/a"), 2_000_003);
    // sshd reports the address at which it was reached. Without this variable the client knows no address.
    let unknown = format!("env -u SSH_CONNECTION {}", host.path("bin/lfn").display());
    let output = host.copy(&["a", "walled:a", "--remote-lfn", &unknown]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("the data go through ssh"), "{}", text(&output.stderr));
    assert_eq!(fs::read(host.path("far/a")).unwrap(), content);
    // With the variable, the client tries this address.
    let output = host.copy(&["walled:a", "b"]);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    assert_eq!(fs::read(host.path("near/b")).unwrap(), content);
    host.leaves_nothing();
}

/// The host of ssh can be this host.
#[test]
fn delete_over_ssh_never_deletes_a_source() {
    let Some(host) = Host::new("delete_over_ssh_never_deletes_a_source") else { return };
    for name in ["runs/a", "runs/deep/b", "runs/deep/er/c"] {
        fs::create_dir_all(host.path("near").join(name).parent().unwrap()).unwrap();
        write(&host.path("near").join(name), 10);
    }
    let listing = || text(&Command::new("find").arg(host.path("near")).output().unwrap().stdout);
    let before = listing();
    let there = format!("there:{}/", host.path("near").display());
    let at = |path: &str| format!("{there}{path}");
    let own = "a directory cannot be copied into itself";
    let below = "is below the destination, where the copy would delete it";
    for (source, destination, what) in [
        ("runs/", at("runs/deep"), own),
        ("runs/", at("runs/deep/er/new"), own),
        ("runs", at("runs"), own),
        (&at("runs/"), "runs/deep".into(), own),
        (&at("runs"), "runs/deep/er".into(), own),
        ("runs/deep/", at("runs"), below),
        (&at("runs/deep/"), "runs".into(), below),
    ] {
        for flags in [&["--delete"][..], &["--delete", "-a", "--force"]] {
            let args = [flags, &[source, &destination]].concat();
            host.refuses(&args, 1, what, "omit --delete");
            assert_eq!(listing(), before, "{args:?}");
        }
    }
    // Without a deletion, the destination is skipped.
    let output = host.copy(&["runs/", &at("runs/deep")]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("deep: is the destination of the copy"), "{}", text(&output.stderr));
    assert!(host.path("near/runs/deep/a").exists() && !host.path("near/runs/deep/deep").exists());
    host.leaves_nothing();
}

/// ssh cannot remove its own socket if it is killed too.
#[test]
fn killed_forwarded_copy_leaves_no_file() {
    let Some(host) = Host::new("killed_forwarded_copy_leaves_no_file") else { return };
    let noted = host.noted("noted", "env -u SSH_CONNECTION");
    let mut command = host.command(&["zero:1TB", "walled:null:", "--remote-lfn", &noted]);
    // Without a runtime directory, the socket is in the temporary directory.
    let temporary = host.path("run");
    fs::set_permissions(&temporary, fs::Permissions::from_mode(0o1777)).unwrap();
    command.env("TMPDIR", &temporary).env_remove("XDG_RUNTIME_DIR").process_group(0);
    let mut child = command.spawn().unwrap();
    let port = || {
        let said = fs::read_to_string(format!("{noted}.said")).ok().filter(|said| said.ends_with('\n'))?;
        serde_json::from_str::<Value>(&said).ok()?["port"].as_u64()
    };
    wait_for("the data streams", || port().is_some_and(|port| connections(port) > 2));
    assert!(!host.far_ends().is_empty());
    kill_process_group(Pid::from_child(&child), Signal::KILL).unwrap();
    child.wait().unwrap();
    host.leaves_nothing();
}

#[test]
fn path_is_tested_over_ssh() {
    let Some(host) = Host::new("path_is_tested_over_ssh") else { return };
    let user = text(&Command::new("id").arg("-un").output().unwrap().stdout);
    let named = format!("{}@there", user.trim());
    for (args, directions) in [
        (&["there", "--count", "200"][..], &["forward"][..]),
        (&[&named, "--count", "200", "--reverse", "--remote-lfn", "lfn"], &["reverse"]),
        (&["there", "--count", "200", "--both"], &["forward", "reverse"]),
        (&["there", "-t", "300ms", "--bidir"], &["forward", "reverse"]),
        (&["there", "-t", "300ms", "--udp"], &["forward"]),
    ] {
        let output = host.test(&[args, &["--json"]].concat());
        let result = report_of(args, &output);
        assert!(output.stderr.is_empty(), "{args:?}: {}", text(&output.stderr));
        let runs: Vec<_> = result["runs"].as_array().unwrap().iter().map(|run| &run["direction"]).collect();
        assert_eq!(runs, directions, "{args:?}");
        assert_eq!(result["origin"]["hosts"]["far"], args[0], "{args:?}");
    }
    host.leaves_nothing();
}

#[test]
fn test_over_ssh_fails_with_a_clear_error() {
    let Some(host) = Host::new("test_over_ssh_fails_with_a_clear_error") else { return };
    // The result of a test through ssh would be about ssh.
    let unknown = format!("env -u SSH_CONNECTION {}", host.path("bin/lfn").display());
    let walled = ["walled", "--remote-lfn", &unknown];
    host.refuses_test(&walled, 1, "would measure ssh, not the path", "--ssh-ports 7400-7409");
    let none = ["there", "--remote-lfn", "no-such-lfn"];
    host.refuses_test(&none, 1, "'no-such-lfn' is not installed on that host", "--remote-lfn PATH");
    host.refuses_test(
        &["me@no-such-host.invalid"],
        1,
        "unknown host 'me@no-such-host.invalid'",
        "lfn hosts add no-such",
    );
    host.refuses_test(&["there:7323"], 1, "a host for ssh has no port", "lfn test there");
    host.refuses_test(&["localhost"], 1, "no ticket is saved for 'localhost'", "lfn test --insecure localhost");
    host.refuses_test(&["-oProxyCommand=x"], 2, "", "");
    // A misspelt saved name is suggested.
    let mut add = lfn();
    let ticket = format!("lfn://{}@192.0.2.1:7323#{}", "A".repeat(22), "A".repeat(43));
    add.args(["hosts", "add", "near1.invalid", &ticket]).env("HOME", host.home.path()).env_remove("XDG_CONFIG_HOME");
    assert!(add.status().unwrap().success());
    host.refuses_test(
        &["naer1.invalid"],
        1,
        "unknown host 'naer1.invalid'",
        "did you mean the saved name near1.invalid?",
    );
    host.leaves_nothing();
}

/// A shared connection outlives the copy unchanged, whether the configuration or an argument shares it.
#[test]
fn shared_ssh_connection_is_used_and_kept() {
    let Some(host) = Host::new("shared_ssh_connection_is_used_and_kept") else { return };
    let content = write(&host.path("near/a"), 100_000);
    let shared = format!("-F '{}' -S '{}'", host.path("config").display(), host.path("run/master").display());
    let ssh = |words: &str| Command::new("sh").args(["-c", &format!("exec ssh {shared} {words}")]).output().unwrap();
    assert!(ssh("-M -N -f walled > /dev/null 2>&1").status.success());
    // The output is "Master running (pid=N)".
    let said = text(&ssh("-O check walled").stderr);
    let master = said.split_once("pid=").unwrap().1.split_once(')').unwrap().0.parse().unwrap();
    let unknown = format!("env -u SSH_CONNECTION {}", host.path("bin/lfn").display());
    for (more, name) in [("", "a"), (" -o ControlMaster=auto", "b")] {
        let place = format!("walled:{name}");
        let output = host.copy(&["a", &place, "--ssh", &format!("ssh {shared}{more}"), "--remote-lfn", &unknown]);
        assert!(text(&output.stderr).contains("the data go through ssh"), "{}", text(&output.stderr));
        assert_eq!(fs::read(host.path("far").join(name)).unwrap(), content);
        assert_eq!(listening(master), 0);
    }
    assert!(ssh("-O exit walled").status.success());
}

/// Returns the number of ports on which a process listens.
fn listening(pid: u32) -> usize {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten().flat_map(|fd| fs::read_link(fd.path()));
    let open: Vec<_> = open.map(|file| file.display().to_string()).collect();
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| fs::read_to_string(table).unwrap_or_default());
    let lines = tables.iter().flat_map(|table| table.lines()).map(|line| line.split_whitespace().collect::<Vec<_>>());
    // State 0A is TCP_LISTEN; the last column is the socket's inode.
    lines.filter(|line| line[3] == "0A" && open.contains(&format!("socket:[{}]", line[9]))).count()
}

#[test]
fn forced_command_can_restrict_rights() {
    let Some(host) = Host::new("forced_command_can_restrict_rights") else { return };
    write(&host.path("near/a"), 10);
    let content = write(&host.path("far/b"), 1000);
    let forced = format!("{} serve --stdio --read-only #", host.path("bin/lfn").display());
    host.refuses(&["a", "there:a", "--remote-lfn", &forced], 1, "does not allow uploads", "");
    host.copies(&["there:b", "b", "--remote-lfn", &forced]);
    assert_eq!(fs::read(host.path("near/b")).unwrap(), content);
    host.leaves_nothing();
}

#[test]
fn ssh_server_listens_on_the_given_ports() {
    let Some(host) = Host::new("ssh_server_listens_on_the_given_ports") else { return };
    let free = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let noted = host.noted("noted", "");
    let ports = format!("{free}-{}", free.saturating_add(20));
    host.copies(&["there:zero:10", "null:", "--ssh-ports", &ports, "--remote-lfn", &noted]);
    let said = fs::read_to_string(format!("{noted}.said")).unwrap();
    let line: Value = serde_json::from_str(&said).unwrap();
    let port = line["port"].as_u64().unwrap();
    assert!((u64::from(free)..=u64::from(free) + 20).contains(&port), "{said}");
}
