//! Processes, sockets and secrets of both sides, while they run and after one side has ended.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Child;

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

use super::Host;
use crate::copy::{finish, wait_for};
use crate::support::eventually;
use crate::support::server::{kill, text};

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

/// Returns the number of established connections to a loopback port.
fn connections(port: u64) -> usize {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| fs::read_to_string(table).unwrap_or_default());
    let of = |line: &str| line.split_whitespace().nth(2).is_some_and(|there| there.ends_with(&format!(":{port:04X}")));
    tables.iter().flat_map(|table| table.lines()).filter(|line| of(line)).count()
}

/// Returns the CPU time of a process in hundredths of a second.
fn ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<_> = stat[stat.rfind(')').unwrap()..].split(' ').collect();
    [12, 13].map(|field| fields[field].parse::<u64>().unwrap()).iter().sum()
}
