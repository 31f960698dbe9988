//! `--checksum`, `--verify`, `--fsync` and `--manifest`, checked with b3sum.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::Value;

use super::{Pair, content, names, write};
use crate::support::server::text;
use crate::support::skip::skip;
use crate::support::{lfn, missing_program};

fn set_time(path: &Path, seconds: u64) {
    File::options().write(true).open(path).unwrap().set_modified(UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
}

fn time(path: &Path) -> u64 {
    path.metadata().unwrap().modified().unwrap().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn has_hidden_file(pair: &Pair) -> bool {
    names(&pair.near("")).iter().any(|name| name.starts_with('.'))
}

#[test]
fn checksum_sends_only_different_files() {
    for up in [true, false] {
        let pair = Pair::new();
        let (source, there) =
            if up { (pair.near("src"), pair.far("dst")) } else { (pair.far("src"), pair.near("dst")) };
        let places = if up { ["src/", "far:dst"] } else { ["far:src/", "dst"] };
        fs::create_dir(&source).unwrap();
        fs::create_dir(&there).unwrap();
        let lengths = [("small", 1000), ("large", 3_000_000), ("empty", 0)];
        for (name, length) in lengths {
            for (kind, flip) in [("same", false), ("other", true)] {
                let name = format!("{name}-{kind}");
                let mut bytes = write(&source.join(&name), length);
                if flip && length > 0 {
                    bytes[length / 2] ^= 1;
                }
                fs::write(there.join(&name), bytes).unwrap();
                set_time(&source.join(&name), 1000);
                // The same time for different content, and a different time for the same content.
                set_time(&there.join(&name), if flip { 1000 } else { 5000 });
            }
        }
        // The directory itself exists too.
        for verify in ["blake3", "xxh3"] {
            let dry = pair.copy(&["-n", "--checksum", "--verify", verify, "--json", places[0], places[1]]);
            let dry: Value = serde_json::from_slice(&dry.stdout).unwrap();
            assert_eq!((&dry["counts"]["files"], &dry["counts"]["skipped"]), (&2.into(), &5.into()), "{dry}");
        }
        let report = pair.copies(&["--checksum", places[0], places[1]]);
        let tally = &report["counts"];
        assert_eq!(
            (&tally["files"], &tally["skipped"], &tally["failed"]),
            (&2.into(), &5.into(), &0.into()),
            "{tally}"
        );
        assert_eq!(tally["bytes"], 3_001_000);
        for (name, length) in lengths {
            for kind in ["same", "other"] {
                let name = format!("{name}-{kind}");
                assert_eq!(fs::read(there.join(&name)).unwrap(), content(length), "{name}");
                assert_eq!(time(&there.join(&name)), 1000, "{name}");
            }
        }
    }
    let pair = Pair::new();
    write(&pair.near("a"), 5);
    pair.refuses(&["--checksum", "--verify", "off", "a", "far:a"], 2, "--checksum needs hashes");
}

#[test]
fn all_verify_and_fsync_modes_copy_files() {
    let pair = Pair::new();
    let length = 2_500_001;
    let bytes = write(&pair.near("a"), length);
    for (verify, words) in
        [("blake3", "verified by BLAKE3"), ("xxh3", "verified by XXH3 (errors only)"), ("off", "not verified")]
    {
        for (fsync, kept) in
            [("file", "flushed to disk"), ("end", "flushed to disk at the end"), ("none", "not flushed")]
        {
            let how = ["--force", "--verify", verify, "--fsync", fsync, "--block-size", "64KiB"];
            let _ = fs::remove_file(pair.far("b"));
            let output = pair.copy(&[&how[..], &["a", "far:b"]].concat());
            let said = text(&output.stdout);
            assert!(output.status.success() && said.contains(words) && said.contains(kept), "{said}");
            assert_eq!(said.contains("blake3 "), verify == "blake3", "{said}");
            assert!(fs::read(pair.far("b")).unwrap() == bytes);
            let _ = fs::remove_file(pair.near("c"));
            let report = pair.copies(&[&how[..], &["far:b", "c"]].concat());
            assert_eq!((&report["verify"], &report["fsync"]), (&verify.into(), &fsync.into()));
            assert_eq!(report["digest_blake3"].is_string(), verify == "blake3", "{report}");
            assert!(fs::read(pair.near("c")).unwrap() == bytes);
        }
    }
    pair.refuses(&["--verify", "md5", "a", "far:x"], 2, "'md5' is not one of blake3, xxh3, off");
    pair.refuses(&["--fsync", "often", "a", "far:x"], 2, "'often' is not one of file, end, none");
}

/// Returns the lines of a manifest, in any order.
fn lines(path: &Path) -> BTreeSet<Vec<u8>> {
    fs::read(path).unwrap().split(|byte| *byte == b'\n').map(<[u8]>::to_vec).filter(|line| !line.is_empty()).collect()
}

#[test]
fn b3sum_accepts_the_manifest() {
    if let Some(missing) = missing_program(&["b3sum"]) {
        return skip("b3sum_accepts_the_manifest", &missing);
    }
    for up in [true, false] {
        let pair = Pair::new();
        let (source, there) =
            if up { (pair.near("src"), pair.far("dst")) } else { (pair.far("src"), pair.near("dst")) };
        let places = if up { ["src", "far:dst"] } else { ["far:src", "dst"] };
        fs::create_dir_all(source.join("d")).unwrap();
        for (name, length) in [("small", 1000), ("empty", 0), ("d/large", 3_000_000), ("d/odd\nname\\ ", 7), ("d/é", 9)]
        {
            write(&source.join(name), length);
        }
        let manifest = pair.near("manifest");
        let check = |files: usize, what: &str| {
            let output = Command::new("b3sum").arg("--check").arg(&manifest).current_dir(&there).output().unwrap();
            assert!(output.status.success(), "{what}: {}{}", text(&output.stdout), text(&output.stderr));
            assert_eq!(lines(&manifest).len(), files, "{what}");
        };
        let report = pair.copies(&["--manifest", "manifest", places[0], places[1]]);
        assert_eq!(report["manifest_files"], 5);
        check(5, "first");
        let first = lines(&manifest);
        // Existing files are read for the manifest, with or without a comparison. The manifest is replaced as a whole.
        fs::write(&manifest, "old").unwrap();
        write(&source.join("late"), 11);
        for flags in [&["--manifest", "manifest"][..], &["--manifest", "manifest", "--checksum"]] {
            let report = pair.copies(&[flags, &places].concat());
            assert_eq!(report["manifest_files"], 6);
            check(6, "again");
            assert!(lines(&manifest).is_superset(&first));
        }
        // An incomplete file is not in the manifest.
        fs::write(there.join("src/small"), "another").unwrap();
        let output = pair.copy(&["--manifest", "manifest", places[0], places[1]]);
        assert_eq!(output.status.code(), Some(1));
        check(5, "one refused");
        assert!(!has_hidden_file(&pair));
    }
    let pair = Pair::new();
    write(&pair.near("a"), 5);
    pair.copies(&["--manifest", "m", "a", "far:other name"]);
    assert!(fs::read_to_string(pair.near("m")).unwrap().ends_with("  other name\n"));
    pair.refuses(&["--manifest", "m", "--verify", "xxh3", "a", "far:b"], 2, "--manifest needs --verify blake3");
    pair.refuses(&["--manifest", "no/m", "a", "far:b"], 1, "cannot write the manifest");
    pair.refuses(&["--manifest", "m", "missing", "far:b"], 1, "no such file");
    assert!(!has_hidden_file(&pair));
}

/// Hard links are separate files for a verifier. None of them is unlisted, whether new or existing.
#[test]
fn manifest_lists_all_hard_links() {
    if let Some(missing) = missing_program(&["b3sum"]) {
        return skip("manifest_lists_all_hard_links", &missing);
    }
    let pair = Pair::new();
    fs::create_dir(pair.near("src")).unwrap();
    for (name, other, length) in [("a", "b", 1000), ("c", "d", 3_000_000), ("e", "f", 0)] {
        write(&pair.near("src").join(name), length);
        fs::hard_link(pair.near("src").join(name), pair.near("src").join(other)).unwrap();
    }
    for what in ["first", "again"] {
        pair.copies(&["-H", "--manifest", "manifest", "src", "far:"]);
        let listed = lines(&pair.near("manifest"));
        assert_eq!(listed.len(), 6, "{what}");
        let root = pair.far("");
        let output = Command::new("b3sum").arg("--check").arg(pair.near("manifest")).current_dir(root).output();
        assert!(output.unwrap().status.success(), "{what}");
    }
}

/// The escape of a carriage return at the end of a name needs b3sum 1.5.5 or later.
#[test]
fn b3sum_and_verify_accept_carriage_returns() {
    if let Some(missing) = missing_program(&["b3sum"]) {
        return skip("b3sum_and_verify_accept_carriage_returns", &missing);
    }
    let pair = Pair::new();
    fs::create_dir_all(pair.near("src/d\re")).unwrap();
    let names = ["a\rb", "\rfirst", "d\re/plain", "both\r\n", "back\r\\slash"];
    for name in names {
        write(&pair.near("src").join(name), 1000);
    }
    pair.copies(&["--manifest", "manifest", "src/", "far:dst"]);
    let check = || {
        let mut command = Command::new("b3sum");
        command.arg("--check").arg(pair.near("manifest")).current_dir(pair.far("dst")).output().unwrap()
    };
    let output = check();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    write(&pair.near("src/last\r"), 1000);
    pair.copies(&["--manifest", "manifest", "src/", "far:dst"]);
    let output = check();
    let version = Command::new("b3sum").arg("--version").output().unwrap();
    let numbers = text(&version.stdout)
        .trim()
        .rsplit(' ')
        .next()
        .map(|version| version.split('.').map(|number| number.parse().unwrap()).collect::<Vec<u32>>());
    assert_eq!(output.status.success(), numbers >= Some(vec![1, 5, 5]), "{}", text(&output.stderr));
    let mut verify = lfn();
    let output = verify.args(["verify", "manifest"]).arg(pair.far("dst")).current_dir(pair.near("")).output().unwrap();
    assert!(output.status.success() && text(&output.stdout).starts_with("6 files match"), "{output:?}");
}
