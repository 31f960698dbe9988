//! Far ends that ssh starts, with Debian's sshd on a port of loopback, its keys and its home directory made for the test:
//! what arrives, what is said where ssh comes to nothing, and that nobody is left when either side is gone.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use crate::clean::left;
use crate::support::server::{kill, text};
use crate::support::{eventually, lfn, lfn_path, path_with_servers, processes_with};
use crate::{finish, is_root, report_of, wait_for, write};

/// An sshd and both sides' directories.
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
    /// None where sshd is not installed, after saying so; under `CI=true` that is a failure.
    fn new() -> Option<Self> {
        let missing = |program: &str| {
            let found = std::env::split_paths(&path_with_servers()).any(|place| place.join(program).is_file());
            (!found).then(|| format!("{program} is not on the PATH; on Debian: apt-get install openssh-server"))
        };
        if let Some(what) = ["sshd", "ssh", "ssh-keygen"].into_iter().find_map(missing) {
            assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{what}");
            eprintln!("SKIPPED: {what}");
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
        // A shell that is not silent, and a home directory that is not the tester's.
        let force = format!(
            "echo Welcome; cd '{far}'; HOME='{far}' PATH=\"{bin}:$PATH\"; export HOME PATH; exec sh -c \"$SSH_ORIGINAL_COMMAND\"",
            far = path("far").display(),
            bin = path("bin").display()
        );
        fs::write(path("force"), force).unwrap();
        let (sshd, port) = serve(home.path());
        let host = Host { sshd, port, home };
        host.knows("host");
        host.configure();
        Some(host)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// The near side takes this key for the host's.
    fn knows(&self, key: &str) {
        let key = fs::read_to_string(self.path(&format!("{key}.pub"))).unwrap();
        fs::write(self.path("known"), format!("[127.0.0.1]:{} {key}there {key}", self.port)).unwrap();
    }

    /// `there` and `other` are the host, `walled` a name of it that only ssh can come to.
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

    /// `lfn copy` in the near directory; what it starts there is known by the path of this home.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = lfn();
        command.arg("copy").args(args).current_dir(self.path("near"));
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

    #[track_caller]
    fn refuses(&self, args: &[&str], code: i32, what: &str, hint: &str) {
        let output = self.copy(args);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {errors}");
        let lines: Vec<_> = errors.lines().collect();
        let [line, hinted] = lines.as_slice() else { panic!("{args:?}: {errors}") };
        assert!(line.starts_with("lfn: ") && line.contains(what), "{errors}");
        assert!(hinted.starts_with("hint: ") && hinted.contains(hint), "{errors}");
    }

    /// The far ends that run.
    fn far_ends(&self) -> Vec<String> {
        let marker = format!("{} serve", self.path("bin/lfn").display());
        processes_with(&marker).into_iter().filter(|line| line.starts_with(&marker)).collect()
    }

    /// Their numbers.
    fn far_processes(&self) -> Vec<u32> {
        let marker = format!("{} serve", self.path("bin/lfn").display());
        let is_far = |pid: &u32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).replace('\0', " ").starts_with(&marker)
        };
        let entries = fs::read_dir("/proc").unwrap().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_far).collect()
    }

    /// Neither processes nor sockets are left.
    #[track_caller]
    fn leaves_nothing(&self) {
        assert!(eventually(|| self.far_ends().is_empty()), "{:?}", self.far_ends());
        assert!(eventually(|| fs::read_dir(self.path("run")).unwrap().next().is_none()));
    }

    /// A script there that keeps what lfn says on standard output.
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

/// sshd on a free port; as root it wants a directory that a service manager would have made.
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
fn files_go_up_and_down_over_ssh() {
    let Some(host) = Host::new() else { return };
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
    // With a user's name, found in the PATH there, in the clear, to where nothing is served but for this user.
    let user = text(&Command::new("id").arg("-un").output().unwrap().stdout);
    let from = format!("{}@there:b", user.trim());
    host.copies(&[&from, "d", "--remote-lfn", "lfn", "--clear-data"]);
    assert_eq!(fs::read(host.path("near/d")).unwrap(), content);
    host.copies(&["there:zero:1000", "null:"]);
    host.refuses(&["there:none", "e"], 1, "none: no such file", "spelt");
    host.refuses(&["there:~you/a", "e"], 2, "~you/a", "./~NAME");
    host.leaves_nothing();
    assert_eq!(fs::read_dir(host.path("far")).unwrap().count(), 4);
}

#[test]
fn a_tree_goes_there_and_back() {
    let Some(host) = Host::new() else { return };
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
    assert_eq!((&again["tally"]["files"], &again["tally"]["bytes"]), (&0.into(), &0.into()), "{again}");
    host.leaves_nothing();
}

#[test]
fn a_tree_goes_from_one_host_to_another() {
    let Some(host) = Host::new() else { return };
    let content = write(&host.path("far/tree"), 3_000_003);
    fs::rename(host.path("far/tree"), host.path("far/file")).unwrap();
    fs::create_dir(host.path("far/tree")).unwrap();
    fs::rename(host.path("far/file"), host.path("far/tree/file")).unwrap();
    let report = host.copies(&["there:tree", "other:into"]);
    assert_eq!((&report["tally"]["files"], &report["tally"]["bytes"]), (&1.into(), &content.len().into()), "{report}");
    assert_eq!(fs::read(host.path("far/into/tree/file")).unwrap(), content);
    host.refuses(&["there:none", "other:into"], 1, "none: no such file", "");
    host.leaves_nothing();
}

#[test]
fn what_cut_copies_left_is_cleaned_over_ssh() {
    let Some(host) = Host::new() else { return };
    left(&host.path("far/in"), "a");
    let output = host.copy(&["--clean", "there:in"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("in/.a.lfn-partial: 0 B of 5 kB of a, written 3 days ago"));
    let output = host.copy(&["--clean", "there:~/in", "--force"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(fs::read_dir(host.path("far/in")).unwrap().count(), 0);
    host.leaves_nothing();
}

#[test]
fn where_ssh_comes_to_nothing_one_line_says_why() {
    let Some(host) = Host::new() else { return };
    write(&host.path("near/a"), 10);
    let none = ["a", "there:b", "--remote-lfn", "no-such-lfn"];
    host.refuses(&none, 1, "'no-such-lfn' is not installed there", "--remote-lfn PATH");
    host.refuses(&["a", "no-such-host.invalid:b"], 1, "unknown host 'no-such-host.invalid'", "lfn hosts add");
    host.refuses(&["a", "me@-oProxyCommand=true:b"], 2, "not a host", "as for ssh");
    host.refuses(&["a", "there:b", "--ssh", "ssh '"], 2, "a quote is not closed", "--ssh");
    host.refuses(&["a", "there:b", "--ssh", "no-such-ssh"], 1, "cannot start no-such-ssh", "--ssh COMMAND");
    let other = ["a", "there:b", "--remote-lfn", "echo '{\"schema\":\"lfn.stdio/99\"}' #"];
    host.refuses(&other, 1, "lfn.stdio/99", "same version");
    host.refuses(&["a", "there:b", "--remote-lfn", "true"], 1, "without saying where it listens", "true --version");
    let taken = TcpListener::bind(("::", 0)).or_else(|_| TcpListener::bind(("0.0.0.0", 0))).unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    host.refuses(&["a", "there:b", "--ssh-ports", &port], 1, "cannot listen on", "--ssh-ports");
    host.knows("other");
    host.refuses(&["a", "there:b"], 1, "Host key verification failed", " there true`");
    host.knows("host");
    fs::write(host.path("authorized"), "").unwrap();
    host.refuses(&["a", "there:b"], 1, "Permission denied", "lets you in");
    assert_eq!(fs::read_dir(host.path("far")).unwrap().count(), 0);
    host.leaves_nothing();
}

#[test]
fn nothing_secret_stands_in_an_argument_or_the_surroundings() {
    let Some(host) = Host::new() else { return };
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

/// Established connections to a port of loopback.
fn connections(port: u64) -> usize {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| fs::read_to_string(table).unwrap_or_default());
    let of = |line: &str| line.split_whitespace().nth(2).is_some_and(|there| there.ends_with(&format!(":{port:04X}")));
    tables.iter().flat_map(|table| table.lines()).filter(|line| of(line)).count()
}

/// Starts a copy without end, and waits until the far end is at work.
fn under_way(host: &Host, args: &[&str]) -> Child {
    let noted = host.noted("noted", "");
    let child = host.command(&[args, &["--remote-lfn", &noted]].concat()).spawn().unwrap();
    let said = PathBuf::from(format!("{noted}.said"));
    wait_for("the far end's line", || fs::read_to_string(&said).is_ok_and(|said| said.ends_with('\n')));
    let line: Value = serde_json::from_str(&fs::read_to_string(&said).unwrap()).unwrap();
    wait_for("its connections", || connections(line["port"].as_u64().unwrap()) > 2);
    child
}

#[test]
fn a_near_side_that_is_gone_leaves_no_far_side() {
    let Some(host) = Host::new() else { return };
    let mut child = under_way(&host, &["zero:1TB", "there:null:"]);
    assert_eq!(host.far_ends().len(), 1);
    child.kill().unwrap();
    child.wait().unwrap();
    host.leaves_nothing();
}

#[test]
fn an_interrupt_ends_both_sides() {
    let Some(host) = Host::new() else { return };
    let child = under_way(&host, &["there:zero:1TB", "null:"]);
    kill("INT", child.id());
    let output = finish(child);
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    host.leaves_nothing();
}

#[test]
fn a_far_end_that_never_speaks_can_be_interrupted() {
    let Some(host) = Host::new() else { return };
    let begun = host.path("begun");
    let mute = format!("touch '{}'; exec cat #", begun.display());
    let child = host.command(&["there:a", "b", "--remote-lfn", &mute]).spawn().unwrap();
    wait_for("the command there", || begun.exists());
    kill("INT", child.id());
    let output = finish(child);
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    host.leaves_nothing();
}

/// As where the host there was started anew, and the connection of ssh died without a word.
#[test]
fn a_far_end_that_is_gone_is_started_again_though_ssh_has_not_noticed() {
    let Some(host) = Host::new() else { return };
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

/// Processor time that a process has used, in hundredths of a second.
fn ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<_> = stat[stat.rfind(')').unwrap()..].split(' ').collect();
    [12, 13].map(|field| fields[field].parse::<u64>().unwrap()).iter().sum()
}

#[test]
fn a_far_side_that_is_gone_ends_the_copy() {
    let Some(host) = Host::new() else { return };
    // Otherwise it is started again.
    let child = under_way(&host, &["zero:1TB", "there:null:", "--patience", "0s"]);
    let far = host.far_processes();
    assert_eq!(far.len(), 1);
    // Connections may be there before a server has said a word on them: it is under way when that has worked for a while.
    wait_for("its work", || ticks(far[0]) >= 50);
    kill("KILL", far[0]);
    let output = finish(child);
    let errors = text(&output.stderr);
    assert!(output.status.code() == Some(3) && errors.contains("hint: "), "{errors}");
    host.leaves_nothing();
}

#[test]
fn a_wall_between_is_passed_inside_ssh() {
    let Some(host) = Host::new() else { return };
    let content = write(&host.path("near/a"), 2_000_003);
    // sshd says where it was reached; without that word no address is left that the near side could try.
    let unknown = format!("env -u SSH_CONNECTION {}", host.path("bin/lfn").display());
    let output = host.copy(&["a", "walled:a", "--remote-lfn", &unknown]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("the data go through ssh"), "{}", text(&output.stderr));
    assert_eq!(fs::read(host.path("far/a")).unwrap(), content);
    // Where sshd says it, that address is tried.
    let output = host.copy(&["walled:a", "b"]);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    assert_eq!(fs::read(host.path("near/b")).unwrap(), content);
    host.leaves_nothing();
}

/// It outlives the copy, and is left as it was; whether the configuration says that it is shared, or an argument.
#[test]
fn a_connection_of_the_users_own_is_passed_through_and_left() {
    let Some(host) = Host::new() else { return };
    let content = write(&host.path("near/a"), 100_000);
    let shared = format!("-F '{}' -S '{}'", host.path("config").display(), host.path("run/master").display());
    let ssh = |words: &str| Command::new("sh").args(["-c", &format!("exec ssh {shared} {words}")]).output().unwrap();
    assert!(ssh("-M -N -f walled > /dev/null 2>&1").status.success());
    // "Master running (pid=N)"
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

/// On how many ports a process listens.
fn listening(pid: u32) -> usize {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten().flat_map(|fd| fs::read_link(fd.path()));
    let open: Vec<_> = open.map(|file| file.display().to_string()).collect();
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| fs::read_to_string(table).unwrap_or_default());
    let lines = tables.iter().flat_map(|table| table.lines()).map(|line| line.split_whitespace().collect::<Vec<_>>());
    // State 0A (TCP_LISTEN), and the socket's inode.
    lines.filter(|line| line[3] == "0A" && open.contains(&format!("socket:[{}]", line[9]))).count()
}

#[test]
fn a_forced_command_may_let_less_be_done() {
    let Some(host) = Host::new() else { return };
    write(&host.path("near/a"), 10);
    let content = write(&host.path("far/b"), 1000);
    let forced = format!("{} serve --stdio --read-only #", host.path("bin/lfn").display());
    host.refuses(&["a", "there:a", "--remote-lfn", &forced], 1, "not for uploads", "");
    host.copies(&["there:b", "b", "--remote-lfn", &forced]);
    assert_eq!(fs::read(host.path("near/b")).unwrap(), content);
    host.leaves_nothing();
}

#[test]
fn the_far_end_listens_where_it_is_told_to() {
    let Some(host) = Host::new() else { return };
    let free = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let noted = host.noted("noted", "");
    let ports = format!("{free}-{}", free.saturating_add(20));
    host.copies(&["there:zero:10", "null:", "--ssh-ports", &ports, "--remote-lfn", &noted]);
    let said = fs::read_to_string(format!("{noted}.said")).unwrap();
    let line: Value = serde_json::from_str(&said).unwrap();
    let port = line["port"].as_u64().unwrap();
    assert!((u64::from(free)..=u64::from(free) + 20).contains(&port), "{said}");
}
