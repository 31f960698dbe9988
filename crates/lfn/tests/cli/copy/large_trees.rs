//! Trees with more entries than fit in the memory limit.

use std::fs;
use std::thread;
use std::time::Duration;

use super::{Pair, finish};

/// Returns the peak memory of a process in KiB, or 0 after its end.
fn most_memory(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("0 kB");
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Creates a large tree of hard links, which uses little space. Each link is an entry of the copy, with a long name.
fn make_tree(pair: &Pair, name: &str, entries: usize) {
    for directory in 0..entries / 1000 {
        let inside = pair.near(name).join(directory.to_string());
        fs::create_dir_all(&inside).unwrap();
        fs::write(inside.join("0"), "one of many").unwrap();
        for file in 1..1000 {
            fs::hard_link(inside.join("0"), inside.join(format!("{file:0>200}"))).unwrap();
        }
    }
}

/// Copies a tree to a new server. Returns the peak memory of client and server in KiB.
fn memory_for(entries: usize) -> [u64; 2] {
    let pair = Pair::new();
    make_tree(&pair, "tree", entries);
    let client = pair.command(&["tree", "far:null:", "--json"]).spawn().unwrap();
    let id = client.id();
    let watch = thread::spawn(move || {
        let mut most = 0;
        loop {
            let now = most_memory(id);
            if now == 0 {
                return most;
            }
            most = now;
            thread::sleep(Duration::from_millis(5));
        }
    });
    let output = finish(client);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["counts"]["files"], entries, "{report}");
    [watch.join().unwrap(), most_memory(pair.server.child.id())]
}

/// Both ends hold only entries that are listed and not settled, at most 16,384 of any number.
#[test]
fn memory_does_not_grow_with_the_number_of_files() {
    let (few, many) = (memory_for(32_000), memory_for(160_000));
    for (end, (few, many)) in ["client", "server"].iter().zip(few.into_iter().zip(many)) {
        assert!(few > 1024, "{end}: {few} KiB is no measurement");
        // The number of waiting entries depends on timing. The names of 128,000 entries alone are 25 MiB.
        assert!(many < few + 22 * 1024, "{end}: {few} KiB for 32,000 entries, {many} KiB for 160,000");
        // About 25 MiB of it are pages of the program, and vary with the code that has run.
        assert!(many < 76 * 1024, "{end}: {many} KiB");
    }
}

/// Each file that waits for a flush or for its digest holds a descriptor, usually of its directory.
#[test]
fn many_directories_need_few_descriptors() {
    const DIRECTORIES: usize = 400;
    let pair = Pair::new();
    for number in 0..DIRECTORIES {
        let directory = pair.far(&format!("t/{number}"));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("a"), [number as u8; 3000]).unwrap();
    }
    for flags in [&[][..], &["--checksum"], &["--manifest", "m"]] {
        let mut command = crate::support::lfn_after(&["prlimit", "--nofile=128:128"]);
        command.args(["copy", "far:t", "."]).args(flags).current_dir(pair.near(""));
        command.env("LFN_FAR_TICKET", &pair.server.ticket).env("HOME", pair.home.path()).env_remove("LFN_PATH");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{flags:?}: {}", super::text(&output.stderr));
    }
    let manifest = fs::read_to_string(pair.near("m")).unwrap();
    assert_eq!(manifest.lines().count(), DIRECTORIES);
}
