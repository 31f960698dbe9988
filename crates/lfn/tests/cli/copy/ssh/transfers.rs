//! Files copied over ssh, copies that must delete nothing, and errors.

use std::fs;
use std::net::TcpListener;
use std::process::Command;

use super::Host;
use crate::copy::clean::left;
use crate::copy::write;
use crate::support::server::text;

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
