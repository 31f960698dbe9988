//! Copies that do not leave this host: as from a far end, and nobody is left of the one that was started for them.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::eventually;
use crate::{Pair, finish, text, wait_for, write};

#[test]
fn a_tree_goes_from_one_directory_to_another() {
    let pair = Pair::new();
    fs::create_dir_all(pair.near("runs/deep")).unwrap();
    for (name, length) in [("runs/a", 3_000_003), ("runs/deep/b", 10), ("runs/empty", 0)] {
        write(&pair.near(name), length);
    }
    std::os::unix::fs::symlink("a", pair.near("runs/link")).unwrap();
    let report = pair.copies(&["-a", "runs", "copies", "--manifest", "manifest"]);
    assert_eq!((&report["tally"]["files"], &report["protection"]), (&3.into(), &"clear".into()), "{report}");
    let (runs, copied) = (pair.near("runs"), pair.near("copies/runs"));
    let same = Command::new("diff").args(["-r", "--no-dereference"]).arg(runs).arg(copied).output().unwrap();
    assert!(same.status.success(), "{}", text(&same.stdout));
    assert_eq!(fs::read_to_string(pair.near("manifest")).unwrap().lines().count(), 3);
    let again = pair.copies(&["-a", "runs", "copies"]);
    assert_eq!((&again["tally"]["files"], &again["moved_bytes"]), (&0.into(), &0.into()), "{again}");
    write(&pair.near("copies/runs/more"), 1);
    pair.copies(&["-a", "--delete", "runs/", "copies/runs"]);
    assert!(!pair.near("copies/runs/more").exists());
    pair.copies(&["runs/a", "runs/deep/b", "copies"]);
    assert_eq!(fs::read(pair.near("copies/b")).unwrap(), fs::read(pair.near("runs/deep/b")).unwrap());
    pair.copies(&["random:1MB", "made"]);
    assert_eq!(fs::metadata(pair.near("made")).unwrap().len(), 1_000_000);
    pair.copies(&["zero:1MB", "null:"]);
}

#[test]
fn nothing_is_copied_into_itself() {
    let pair = Pair::new();
    fs::create_dir_all(pair.near("runs/deep")).unwrap();
    write(&pair.near("runs/a"), 10);
    for way in [["runs", "runs/deep"], ["runs/", "runs"], [".", "new"], ["runs/deep/..", "runs/deep/new"]] {
        pair.refuses(&way, 2, "cannot be copied into itself");
    }
    assert!(!pair.near("new").exists() && fs::read_dir(pair.near("runs")).unwrap().count() == 2);
    fs::write(pair.near("list"), "runs/a\n").unwrap();
    pair.copies(&["--files-from", "list", ".", "new"]);
    assert!(pair.near("new/runs/a").exists());
    pair.refuses(&["runs/none", "b"], 1, "runs/none: no such file");
}

/// The process that one has started.
fn child_of(parent: u32) -> Option<u32> {
    let numbers = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_child = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let behind_name = stat.rsplit(')').next().unwrap_or_default();
        behind_name.split_whitespace().nth(1) == Some(&parent.to_string())
    };
    numbers.into_iter().find(is_child)
}

#[test]
fn one_that_is_killed_is_gone_on_from_and_leaves_nobody() {
    let pair = Pair::new();
    fs::File::create(pair.near("big")).unwrap().set_len(2 << 30).unwrap();
    let journal = pair.near(".b.lfn-journal");
    let mut child = pair.command(&["big", "b"]).spawn().unwrap();
    wait_for("a block", || fs::metadata(&journal).is_ok_and(|journal| journal.len() > 1000));
    let other = child_of(child.id()).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(eventually(|| !Path::new(&format!("/proc/{other}")).exists()));
    let report = pair.copies(&["big", "b"]);
    assert!(report["tally"]["kept"].as_u64() > Some(0), "{report}");
    assert_eq!(fs::metadata(pair.near("b")).unwrap().len(), 2 << 30);
    // An interrupt ends both in order.
    fs::remove_file(pair.near("b")).unwrap();
    let child = pair.command(&["big", "b"]).spawn().unwrap();
    wait_for("a block", || fs::metadata(&journal).is_ok_and(|journal| journal.len() > 1000));
    let other = child_of(child.id()).unwrap();
    crate::support::server::kill("INT", child.id());
    let output = finish(child);
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    assert!(eventually(|| !Path::new(&format!("/proc/{other}")).exists()));
}
