//! `lfn verify` with manifests of lfn and of b3sum.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::support::schema::assert_valid;
use crate::support::skip::skip;
use crate::support::{lfn, missing_program};

fn verify(directory: &Path, args: &[&str]) -> (Option<i32>, Vec<String>, String) {
    let Output { status, stdout, stderr } = lfn().arg("verify").args(args).current_dir(directory).output().unwrap();
    let mut lines: Vec<String> = String::from_utf8(stdout).unwrap().lines().map(str::to_owned).collect();
    let last = lines.len().saturating_sub(1);
    lines[..last].sort();
    if args.contains(&"--output=ndjson") {
        lines.iter().for_each(|line| assert_valid("lfn.verify.event.2", &serde_json::from_str(line).unwrap()));
    }
    (status.code(), lines, String::from_utf8(stderr).unwrap())
}

/// Creates a directory of files and their b3sum output. Without b3sum, skips `test`.
fn create_files(test: &str) -> Option<tempfile::TempDir> {
    if let Some(missing) = missing_program(&["b3sum"]) {
        skip(test, &missing);
        return None;
    }
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    fs::create_dir_all(data.join("d/e")).unwrap();
    let names = ["small", "empty", "d/large", "d/e/odd\nname\\", "d/é", "d/e/x", "d/e/y"];
    for (number, name) in names.into_iter().enumerate() {
        let length = [1000, 0, 5_000_001, 7, 9, 1 << 20, (1 << 20) + 1][number];
        fs::write(data.join(name), vec![number as u8; length]).unwrap();
    }
    let output = Command::new("b3sum").args(names).current_dir(&data).output().unwrap();
    assert!(output.status.success());
    fs::write(home.path().join("manifest"), output.stdout).unwrap();
    Some(home)
}

#[test]
fn matching_files_verify() {
    let Some(home) = create_files("matching_files_verify") else { return };
    let (code, lines, errors) = verify(home.path(), &["manifest", "data"]);
    assert_eq!((code, lines.len(), errors.as_str()), (Some(0), 1, ""), "{lines:?}");
    assert!(lines[0].starts_with("7 files match"), "{lines:?}");
    // From the directory of the files, which also has the manifest.
    fs::rename(home.path().join("manifest"), home.path().join("data/manifest")).unwrap();
    let (code, lines, _) = verify(&home.path().join("data"), &["--unlisted", "--output=ndjson", "manifest"]);
    assert_eq!((code, lines.len()), (Some(0), 1), "{lines:?}");
    let sums: Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!((&sums["schema"], &sums["matching"], &sums["unlisted"]), (&"lfn.verify/2".into(), &7.into(), &0.into()));
}

#[test]
fn every_mismatch_is_named() {
    let Some(home) = create_files("every_mismatch_is_named") else { return };
    let data = home.path().join("data");
    // A changed byte in the last block, a longer file, a file that became a directory, a missing file, and an unlisted
    // file.
    let mut large = fs::read(data.join("d/large")).unwrap();
    *large.last_mut().unwrap() ^= 1;
    fs::write(data.join("d/large"), large).unwrap();
    fs::write(data.join("empty"), "not").unwrap();
    fs::remove_file(data.join("d/e/x")).unwrap();
    fs::create_dir(data.join("d/e/x")).unwrap();
    fs::remove_file(data.join("d/é")).unwrap();
    fs::write(data.join("d/e/more"), "").unwrap();
    let bytes = data.join(std::ffi::OsStr::from_bytes(b"d/\xff"));
    fs::write(&bytes, "bytes").unwrap();
    let mut manifest = fs::read(home.path().join("manifest")).unwrap();
    manifest.extend(format!("\\{}  d/\\xff\nnonsense\n", blake3::hash(b"bytes")).into_bytes());
    manifest.extend(vec![b'a'; 100_000]);
    manifest.extend(b"\n");
    fs::write(home.path().join("manifest"), manifest).unwrap();
    let (code, lines, errors) = verify(home.path(), &["--unlisted", "manifest", "data"]);
    let expected = [
        "changed     d/large",
        "changed     empty",
        "missing     d/é",
        "unlisted    d/e/more",
        "unreadable  d/e/x (not a regular file)",
        "4 files match (1 MiB), 2 changed, 1 missing, 1 unreadable, 1 unlisted, 2 invalid lines",
    ];
    assert_eq!(code, Some(1));
    assert_eq!(lines[..5], expected[..5]);
    assert!(lines[5].starts_with("4 files match") && lines[5].ends_with(&expected[5][23..]), "{lines:?}");
    assert!(errors.contains("line 9: 'nonsense'") && errors.contains("line 10: longer than"), "{errors}");
    assert_eq!(errors.lines().count(), 2, "{errors}");
    // b3sum finds the same for the lines that it can read.
    let b3sum = Command::new("b3sum").args(["--check", "../manifest"]).current_dir(&data).output().unwrap();
    assert!(!b3sum.status.success());
    let (_, lines, _) = verify(home.path(), &["--output=ndjson", "manifest", "data"]);
    let first: Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!((&first["name"], &first["status"]), (&"d/e/x".into(), &"unreadable".into()), "{lines:?}");
}

#[test]
fn unreadable_files_are_named() {
    let Some(home) = create_files("unreadable_files_are_named") else { return };
    for (args, what) in [
        (&["none"][..], "cannot read none: No such file"),
        (&["data"], "cannot read data: is a directory"),
        (&["manifest", "nowhere"], "cannot read nowhere: No such file"),
        (&["manifest", "manifest"], "manifest is not a directory"),
        (&["/dev/null"], "/dev/null lists no files"),
    ] {
        let (code, lines, errors) = verify(home.path(), args);
        assert_eq!((code, lines.len()), (Some(1), 0), "{errors}");
        assert!(errors.starts_with("lfn: ") && errors.contains(what), "{errors}");
    }
    if !rustix::process::geteuid().is_root() {
        let small = home.path().join("data/small");
        fs::set_permissions(&small, fs::Permissions::from_mode(0o000)).unwrap();
        let (code, lines, _) = verify(home.path(), &["manifest", "data"]);
        assert_eq!((code, lines[0].starts_with("unreadable  small (Permission denied")), (Some(1), true), "{lines:?}");
    }
}

#[test]
fn invalid_manifest_is_one_error() {
    let Some(home) = create_files("invalid_manifest_is_one_error") else { return };
    fs::write(home.path().join("noise"), "noise\n".repeat(100_000)).unwrap();
    let (code, lines, errors) = verify(home.path(), &["noise", "data"]);
    assert_eq!((code, lines.len()), (Some(1), 0), "{lines:?}");
    assert!(errors.contains("noise is not a manifest file") && errors.lines().count() < 15, "{errors}");
    // A damaged line is quoted in part, and counted.
    let manifest = fs::read(home.path().join("manifest")).unwrap();
    fs::write(home.path().join("noise"), [manifest, "noise\n".repeat(100).into()].concat()).unwrap();
    let (code, lines, errors) = verify(home.path(), &["noise", "data"]);
    assert!(code == Some(1) && lines[0].contains("100 invalid lines"), "{lines:?}");
    assert!(errors.lines().count() < 15, "{errors}");
}
