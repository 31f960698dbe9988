//! Unexpected files and disks: full, limited, changing, in use by another program, or with remains of a crash.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{Pair, finish, is_root, names, report_of, text, wait_for, write};
use crate::support::lfn_path;
use crate::support::missing_program;
use crate::support::server::Server;
use crate::support::skip::{Missing, skip};

#[test]
fn two_copies_to_one_destination_do_not_mix() {
    let pair = Pair::new();
    fs::File::create(pair.near("big")).unwrap().set_len(2 << 30).unwrap();
    write(&pair.near("other"), 3_000_000);
    let child = pair.command(&["big", "far:a"]).spawn().unwrap();
    wait_for("the partial file", || !names(&pair.home.path().join("far")).is_empty());
    // The first copy keeps its lock, however long the second one waits.
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    let second = pair.copy(&["other", "far:a"]);
    assert_eq!(second.status.code(), Some(1), "{}", text(&second.stdout));
    assert!(text(&second.stderr).contains("another copy to it is running"), "{}", text(&second.stderr));
    for signal in [rustix::process::Signal::INT, rustix::process::Signal::CONT] {
        rustix::process::kill_process(pid, signal).unwrap();
    }
    finish(child);
    assert!(!pair.far("a").exists());
}

/// Both copies succeed, whichever publishes a file first.
#[test]
fn same_copy_started_twice_succeeds() {
    for flags in [&["-a"][..], &["-a", "--force"], &["-a", "--checksum"]] {
        let pair = Pair::new();
        fs::create_dir(pair.near("tree")).unwrap();
        let files = (0..40).map(|number| (format!("small{number}"), 1000)).chain([("big".to_owned(), 80_000_000)]);
        let files: Vec<_> = files.map(|(name, length)| (write(&pair.near("tree").join(&name), length), name)).collect();
        let args = [flags, &["tree/", "far:x", "--json"]].concat();
        let copies = [(); 3].map(|()| pair.command(&args).spawn().unwrap());
        for copy in copies {
            report_of(&args, &finish(copy));
        }
        assert!(files.iter().all(|(content, name)| fs::read(pair.far("x").join(name)).unwrap() == *content));
        assert_eq!(names(&pair.far("x")).len(), files.len(), "{flags:?}");
        let report = pair.copies(&[flags, &["tree/", "far:x"]].concat());
        assert_eq!((&report["counts"]["files"], &report["moved_bytes"]), (&0.into(), &0.into()), "{report}");
    }
}

/// Another user could write anything into the partial file and its journal.
#[test]
fn partial_file_of_another_user_is_not_resumed() {
    if !is_root() {
        return skip("partial_file_of_another_user_is_not_resumed", &Missing::User("root"));
    }
    for foreign in [&[][..], &["partial"], &["journal"], &["partial", "journal"]] {
        let pair = Pair::new();
        fs::File::create(pair.near("big")).unwrap().set_len(256 << 20).unwrap();
        let child = pair.command(&["big", "far:a", "--rate", "400mbit"]).spawn().unwrap();
        wait_for("blocks", || fs::metadata(pair.far(".a.lfn-journal")).is_ok_and(|journal| journal.len() > 1000));
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT).unwrap();
        finish(child);
        for kind in foreign {
            std::os::unix::fs::lchown(pair.far(&format!(".a.lfn-{kind}")), Some(1234), None).unwrap();
        }
        let report = pair.copies(&["big", "far:a"]);
        assert_eq!(report["counts"]["resumed_bytes"] != 0, foreign.is_empty(), "{foreign:?} {report}");
        assert_eq!(fs::metadata(pair.far("a")).unwrap().uid(), 0);
        assert_eq!(names(&pair.far("")), ["a"]);
    }
}

#[test]
fn remains_of_a_crash_are_reused_but_no_symlink() {
    let pair = Pair::new();
    let content = write(&pair.near("a"), 3_000_000);
    write(&pair.far(".a.lfn-partial"), 5000);
    pair.copies(&["a", "far:a"]);
    assert_eq!(fs::read(pair.far("a")).unwrap(), content);
    assert_eq!(names(&pair.home.path().join("far")), ["a"]);

    let target = pair.home.path().join("target");
    fs::write(&target, "target").unwrap();
    for (name, symbolic) in [("s", true), ("h", false)] {
        let partial = pair.far(&format!(".{name}.lfn-partial"));
        if symbolic {
            symlink(&target, &partial).unwrap()
        } else {
            fs::hard_link(&target, &partial).unwrap()
        }
        // The link is replaced, and its target is not written.
        pair.copies(&["a", &format!("far:{name}")]);
        assert_eq!(fs::read_to_string(&target).unwrap(), "target");
        assert_eq!(fs::read(pair.far(name)).unwrap(), content);
        assert!(!partial.is_symlink() && !partial.exists());
    }
}

#[test]
fn changed_source_is_detected() {
    const LENGTH: u64 = 256 << 20;
    let pair = Pair::new();
    for change in ["truncate", "write", "write, put times back", "replace", "remove"] {
        // Remains of the interrupted copy.
        for name in names(&pair.home.path().join("far")) {
            fs::remove_file(pair.far(&name)).unwrap();
        }
        fs::File::create(pair.near("big")).unwrap().set_len(LENGTH).unwrap();
        let child = pair.command(&["big", "far:a", "--rate", "1gbit"]).spawn().unwrap();
        wait_for("the partial file", || !names(&pair.home.path().join("far")).is_empty());
        let file = fs::OpenOptions::new().write(true).open(pair.near("big")).unwrap();
        match change {
            "truncate" => file.set_len(10).unwrap(),
            "replace" => {
                fs::write(pair.near("new"), "another").unwrap();
                fs::rename(pair.near("new"), pair.near("big")).unwrap();
            }
            "remove" => fs::remove_file(pair.near("big")).unwrap(),
            "write, put times back" => {
                // A change of bytes that are not read yet is copied.
                wait_for("the first blocks", || read_bytes(child.id()) > 16 << 20);
                let modified = file.metadata().unwrap().modified().unwrap();
                file.write_all_at(b"new", 100).unwrap();
                file.set_modified(modified).unwrap();
            }
            _ => file.write_all_at(b"new", LENGTH - 100).unwrap(),
        }
        let output = finish(child);
        assert_eq!(output.status.code(), Some(1), "{change}: {}", text(&output.stdout));
        assert!(text(&output.stderr).contains("big: changed during the copy"), "{}", text(&output.stderr));
        assert!(!pair.far("a").exists());
    }
}

/// Returns the bytes that a process has read so far (`rchar` of proc_pid_io(5)).
fn read_bytes(pid: u32) -> u64 {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
    io.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap()
}

#[test]
fn chmod_during_a_copy_is_no_failure() {
    let pair = Pair::new();
    fs::File::create(pair.near("big")).unwrap().set_len(1 << 30).unwrap();
    let child = pair.command(&["big", "far:a"]).spawn().unwrap();
    wait_for("the partial file", || !names(&pair.home.path().join("far")).is_empty());
    fs::set_permissions(pair.near("big"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::hard_link(pair.near("big"), pair.near("link")).unwrap();
    let output = finish(child);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(fs::metadata(pair.far("a")).unwrap().len(), 1 << 30);
}

#[test]
fn too_small_disk_is_refused_before_data_moves() {
    let pair = Pair::new();
    // No file system here has a pebibyte.
    for args in [["random:1000TiB", "far:a"], ["far:random:1000TiB", "a"]] {
        let started = Instant::now();
        let errors = pair.refuses(&args, 3, "disk full (1000 TiB needed, ");
        assert!(errors.contains(" free)") && started.elapsed() < Duration::from_secs(60), "{errors}");
    }
}

#[test]
fn copy_resumes_when_byte_quota_allows_it() {
    let pair = Pair::new();
    let far = pair.far("");
    let limited = || Server::start(&["--root", far.to_str().unwrap(), "--client-bytes", "5MB"]);
    let of = |server: &Server, place: &str| server.ticket.replace('#', &format!("/{place}#"));
    fs::create_dir(pair.near("tree")).unwrap();
    for (name, length) in [("a", 3_000_000), ("b", 6_000_000), ("c", 900_000)] {
        write(&pair.near("tree").join(name), length);
    }
    // Data that leaves before the server's request can use up the quota of other files. These files are copied the next
    // time.
    wait_for("what the quota has room for", || {
        let output = pair.copy(&["tree", &of(&limited(), "")]);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{errors}");
        assert!(errors.contains(" of 5 MB per 24 h left"), "{errors}");
        let all = names(&pair.far("tree"));
        errors.contains("lfn: tree/b: ") && ["a", "c"].iter().all(|name| all.iter().any(|there| there == name))
    });
    assert_eq!(pair.copies(&["tree", "far:"])["counts"]["files"], 1);
    // A sending server does not know in advance how much the client needs.
    let content = write(&pair.far("big"), 9_000_000);
    let server = limited();
    // Once during the copy and once at the start.
    for _ in 0..2 {
        let output = pair.copy(&[&of(&server, "big"), "big", "--streams", "1"]);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{errors}");
        assert!(errors.contains("0 B of 5 MB") && errors.contains("hint: try again in "), "{errors}");
    }
    let report = pair.copies(&["far:big", "big"]);
    assert!(report["counts"]["resumed_bytes"].as_u64().unwrap() >= 1 << 20, "{report}");
    assert_eq!(fs::read(pair.near("big")).unwrap(), content);
}

#[test]
fn disk_that_fills_up_ends_the_copy() {
    let pair = Pair::new();
    fs::create_dir(pair.far("small")).unwrap();
    if !is_root() {
        return skip("disk_that_fills_up_ends_the_copy", &Missing::User("root"));
    }
    let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "none"]).arg(pair.far("small")).output();
    if !mount.is_ok_and(|output| output.status.success()) {
        return skip("disk_that_fills_up_ends_the_copy", &Missing::Feature("mount of a tmpfs"));
    }
    let output = pair.copy(&["random:3MiB", "far:small/a"]);
    let fits = pair.copy(&["random:500KiB", "far:small/a"]);
    let left = names(&pair.far("small"));
    // The server closes its files shortly after its last message.
    wait_for("umount", || Command::new("umount").arg(pair.far("small")).output().unwrap().status.success());
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("disk full (3 MiB needed, 10"), "{}", text(&output.stderr));
    assert!(fits.status.success(), "{}", text(&fits.stderr));
    assert_eq!(left, ["a"]);
}

/// Returns whether Debian's strace exists and may trace. Otherwise skips `test`.
fn can_trace(test: &str) -> bool {
    if let Some(missing) = missing_program(&["strace"]) {
        skip(test, &missing);
        return false;
    }
    let can = Command::new("strace").args(["-qq", "-o", "/dev/null", "true"]).status().is_ok_and(|s| s.success());
    if !can {
        skip(test, &Missing::Feature("permission to trace"));
    }
    can
}

/// Runs a copy under strace.
fn traced(pair: &Pair, flags: &[&str], args: &[&str]) -> std::process::Output {
    let mut command = Command::new("strace");
    command.args(["-f", "-qq"]).args(flags).arg(lfn_path()).arg("copy").args(args);
    command.current_dir(pair.near("")).env("LFN_FAR_TICKET", &pair.server.ticket);
    command.env("HOME", pair.home.path()).env_remove("LFN_PATH").stdin(Stdio::null());
    finish(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
}

/// Existing files can come from a copy that was interrupted during the flush.
#[test]
fn existing_files_are_flushed_like_new_ones() {
    if !can_trace("existing_files_are_flushed_like_new_ones") {
        return;
    }
    let pair = Pair::new();
    fs::create_dir(pair.near("tree")).unwrap();
    for name in ["tree/a", "tree/b", "one"] {
        write(&pair.near(name), 1000);
    }
    // Each call, with its path below the near directory.
    let syncs = |args: &[&str]| {
        let log = pair.home.path().join("log");
        let output = traced(&pair, &["-y", "-o", log.to_str().unwrap(), "-e", "trace=fsync,syncfs"], args);
        assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
        let near = fs::canonicalize(pair.near("")).unwrap();
        let call = |line: &str| {
            let (call, rest) = line.split_once(' ')?.1.trim_start().split_once('(')?;
            let path = rest.split_once('<')?.1.split_once('>')?.0;
            Some(format!("{call} {}", Path::new(path).strip_prefix(&near).ok()?.display()))
        };
        fs::read_to_string(&log).unwrap().lines().filter_map(call).collect::<Vec<_>>()
    };
    let whole = |calls: &[String]| calls.iter().filter(|call| call.starts_with("syncfs")).count();
    assert!(whole(&syncs(&["--fsync", "none", "tree", "dst"])) == 0);
    for sync in ["end", "file"] {
        assert_eq!(whole(&syncs(&["--fsync", sync, "tree", "dst"])), 1, "{sync}");
        assert!(syncs(&["-n", "--fsync", sync, "tree", "dst"]).is_empty());
    }
    assert!(syncs(&["--fsync", "none", "tree", "dst"]).is_empty() && syncs(&["tree", "null:"]).is_empty());
    // Deletions must be flushed too, and the directory alone is not enough.
    fs::remove_file(pair.near("tree/a")).unwrap();
    fs::remove_file(pair.near("tree/b")).unwrap();
    assert_eq!(whole(&syncs(&["--delete", "tree/", "dst/tree"])), 1);
    // A copy of one file flushes nothing else.
    assert_eq!(syncs(&["--fsync", "none", "one", "copy"]), [""; 0]);
    assert_eq!(syncs(&["one", "copy"]), ["fsync copy", "fsync "]);
    let calls = syncs(&["one", "new/"]);
    assert_eq!((whole(&calls), &calls[1..]), (0, &["fsync new".to_owned(), "fsync ".to_owned()][..]), "{calls:?}");
}

/// `syncfs` does not work on a file system in user space, so each file is flushed separately.
#[test]
fn fuse_files_are_flushed_one_by_one() {
    if !can_trace("fuse_files_are_flushed_one_by_one") {
        return;
    }
    let pair = Pair::new();
    fs::create_dir(pair.near("tree")).unwrap();
    (0..50).for_each(|n| drop(write(&pair.near(&format!("tree/{n}")), 1000)));
    for (sync, fuse, least) in [("file", true, 50), ("end", true, 50), ("end", false, 0)] {
        let (log, to) = (pair.home.path().join("log"), format!("{sync}{fuse}"));
        let mut flags = vec!["-o", log.to_str().unwrap(), "-e", "trace=fsync,fstatfs"];
        // FUSE_SUPER_MAGIC as the result of the kernel's file system query.
        flags.extend(fuse.then_some(["-e", "inject=fstatfs:poke_exit=@arg2=4655736500000000"]).into_iter().flatten());
        let output = traced(&pair, &flags, &["--fsync", sync, "tree", &to]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let calls = fs::read_to_string(&log).unwrap();
        let synced = calls.lines().filter(|line| line.contains("fsync(") && line.ends_with("= 0")).count();
        assert!(synced >= least && (synced == 0) == (least == 0), "{sync}: {synced}, {calls}");
    }
}

/// NFS supports no flag of `renameat2`.
#[test]
fn directory_replaces_file_without_rename_exchange() {
    if !can_trace("directory_replaces_file_without_rename_exchange") {
        return;
    }
    let pair = Pair::new();
    fs::create_dir_all(pair.near("from/x")).unwrap();
    fs::create_dir(pair.near("to")).unwrap();
    write(&pair.near("from/x/y"), 1000);
    write(&pair.near("to/x"), 1000);
    let args = ["--force", "from/", "to/"];
    let refused = traced(&pair, &["-o", "/dev/null", "-e", "inject=renameat2,rename,renameat:error=EINVAL"], &args);
    assert_eq!((refused.status.code(), names(&pair.near("to"))), (Some(1), vec!["x".to_owned()]));
    assert!(pair.near("to/x").is_file(), "{}", text(&refused.stderr));
    let output = traced(&pair, &["-o", "/dev/null", "-e", "inject=renameat2:error=EINVAL"], &args);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!((names(&pair.near("to")), names(&pair.near("to/x"))), (vec!["x".into()], vec!["y".into()]));
}

#[test]
fn read_error_or_disk_quota_fails_one_file_only() {
    // Debian's strace makes the system call fail for this path, as on a damaged disk.
    if !can_trace("read_error_or_disk_quota_fails_one_file_only") {
        return;
    }
    let pair = Pair::new();
    for side in [pair.near("up"), pair.far("down")] {
        fs::create_dir(&side).unwrap();
        ["a", "b", "c"].iter().for_each(|name| drop(write(&side.join(name), 300_000)));
    }
    let (source, partial) = (pair.near("up/b"), pair.near("down/.b.lfn-partial"));
    for (path, fault, places, code, says) in [
        (source, "pread64,read:error=EIO", ["up", "far:"], 1, "up/b: cannot read: Input/output error"),
        (partial, "pwrite64,write:error=EDQUOT", ["far:down", "."], 3, "down/b: cannot write it: Disk quota exceeded"),
    ] {
        let (path, fault) = (path.to_str().unwrap(), format!("inject={fault}"));
        let output = traced(
            &pair,
            &["-o", "/dev/null", "-P", path, "-e", &fault],
            &[&places[..], &["--block-size", "64KiB"]].concat(),
        );
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{errors}");
        assert!(errors.contains(says) && errors.matches("cannot").count() == 1, "{errors}");
    }
    for there in [pair.far("up"), pair.near("down")] {
        let whole =
            ["a", "b", "c"].map(|name| fs::read(there.join(name)).is_ok_and(|bytes| bytes == super::content(300_000)));
        assert_eq!(whole, [true, false, true], "{}", there.display());
        assert!(!there.join("b").exists());
    }
}

/// The file has its mode before its name. It must be resumable and removable without write permission of its owner.
#[test]
fn read_only_file_resumes_after_interrupted_flush() {
    if !can_trace("read_only_file_resumes_after_interrupted_flush") {
        return;
    }
    let pair = Pair::new();
    fs::create_dir_all(pair.near("to")).unwrap();
    write(&pair.near("a"), 3_000_000);
    fs::set_permissions(pair.near("a"), std::os::unix::fs::PermissionsExt::from_mode(0o444)).unwrap();
    let partial = fs::canonicalize(pair.near("to")).unwrap().join(".a.lfn-partial");
    let cut = || {
        let flags = ["-o", "/dev/null", "-P", partial.to_str().unwrap(), "-e", "inject=fsync:signal=KILL"];
        traced(&pair, &flags, &["a", "to"]);
        assert!(fs::metadata(&partial).unwrap().permissions().readonly());
    };
    cut();
    let report = pair.copies(&["a", "to"]);
    assert_eq!(
        (&report["counts"]["resumed_bytes"], &report["moved_bytes"]),
        (&3_000_000.into(), &0.into()),
        "{report}"
    );
    assert!(fs::metadata(pair.near("to/a")).unwrap().permissions().readonly());
    fs::remove_file(pair.near("to/a")).unwrap();
    cut();
    let cleaned = pair.copy(&["--clean", "--force", "--older-than", "0s", "to"]);
    assert!(cleaned.status.success() && names(&pair.near("to")).is_empty(), "{}", text(&cleaned.stdout));
}

#[test]
fn file_size_limit_is_a_write_error() {
    let pair = Pair::new();
    let mut command = Command::new("sh");
    // The limit is 100 blocks of 512 bytes.
    command.args(["-c", "ulimit -f 100; exec \"$0\" copy far:random:1MB a"]).arg(lfn_path());
    command.current_dir(pair.home.path().join("near")).env("LFN_FAR_TICKET", &pair.server.ticket);
    let output = finish(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    assert_eq!(output.status.code(), Some(1), "{:?}", output.status);
    assert!(text(&output.stderr).contains("cannot write it: File too large"), "{}", text(&output.stderr));
    assert!(names(&pair.home.path().join("near")).is_empty());
}

#[test]
fn unreadable_pattern_matches_are_reported() {
    if !can_trace("unreadable_pattern_matches_are_reported") {
        return;
    }
    for (pattern, fault, says) in [
        ("runs/*/x", "openat:error=EACCES", "cannot read runs/b/x: Permission denied"),
        ("runs/*/*", "openat:error=EACCES", "b: cannot read: Permission denied (runs/b)"),
        ("runs/*/*", "getdents64:error=EIO", "b: cannot read: Input/output error (runs/b)"),
        ("runs/b/*", "openat:error=EACCES", "cannot read runs/b: Permission denied"),
    ] {
        let pair = Pair::new();
        for name in ["runs/a/y", "runs/b/x", "dst/extra"] {
            fs::create_dir_all(pair.near(name).parent().unwrap()).unwrap();
            write(&pair.near(name), 10);
        }
        let at = if pattern.ends_with('x') { "runs/b/x" } else { "runs/b" };
        let fault = format!("inject={fault}");
        let output = traced(&pair, &["-o", "/dev/null", "-P", at, "-e", &fault], &["--delete", pattern, "dst"]);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{pattern}: {errors}");
        assert!(errors.contains(says) && !pair.near("dst/x").exists(), "{pattern}: {errors}");
        assert_eq!(pair.near("dst/y").exists(), pattern == "runs/*/*", "{errors}");
    }
}

/// After a kill at any replacement, the same command completes the copy and leaves no temporary entries.
#[test]
fn copy_recovers_from_kill_during_replacement() {
    if !can_trace("copy_recovers_from_kill_during_replacement") {
        return;
    }
    for (call, most) in [("renameat2", 4), ("unlinkat", 8)] {
        for when in 1..=most {
            let pair = Pair::new();
            fs::create_dir_all(pair.near("from/d")).unwrap();
            write(&pair.near("from/d/in"), 10);
            write(&pair.near("from/large"), 1_500_000);
            fs::hard_link(pair.near("from/d/in"), pair.near("from/hard")).unwrap();
            symlink("nowhere", pair.near("from/soft")).unwrap();
            fs::create_dir(pair.near("to")).unwrap();
            ["d", "hard", "soft", "large"].iter().for_each(|name| drop(write(&pair.near("to").join(name), 3)));
            let (args, fault) = (["-a", "--force", "from/", "to/"], format!("inject={call}:signal=KILL:when={when}"));
            traced(&pair, &["-o", "/dev/null", "-e", &fault], &args);
            pair.copies(&args);
            // A copy removes temporary entries next to an up-to-date file when it examines the file.
            pair.copies(&args);
            let mut there = names(&pair.near("to"));
            there.sort();
            assert_eq!(there, ["d", "hard", "large", "soft"], "{call} {when}");
            assert_eq!(fs::read(pair.near("to/large")).unwrap(), fs::read(pair.near("from/large")).unwrap());
            assert_eq!(fs::read(pair.near("to/hard")).unwrap(), fs::read(pair.near("from/d/in")).unwrap());
        }
    }
}
