//! Tests of `lfn mesh`.

use std::process::Output;

use tempfile::TempDir;

use crate::support::{lfn, stderr, stdout};

mod dial_only;
mod hub;
mod import;
mod log;
mod page;
mod plan;
mod running;
mod targets;
mod units;

/// Records of the vBNS of 1997.
const RECORDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/mesh/vbns-1997.ndjson");

/// Runs a command of `lfn mesh` with an archive in a directory.
fn mesh(home: &TempDir, arguments: &[&str]) -> Output {
    let mut command = lfn();
    command.current_dir(home.path()).arg("mesh").args(arguments).args(["--archive", "archive.sqlite"]);
    command.output().unwrap()
}

fn printed(home: &TempDir, arguments: &[&str]) -> String {
    let output = mesh(home, arguments);
    assert!(output.status.success(), "{}", stderr(&output));
    stdout(&output)
}

/// Returns a directory with an archive that has the records.
fn archive_of_records() -> TempDir {
    let home = tempfile::tempdir().unwrap();
    printed(&home, &["import", RECORDS]);
    home
}
