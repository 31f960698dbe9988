//! Virtual environments with Python packages from PyPI.

use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use super::{stderr, stdout};

/// A Python program in a virtual environment, which is removed when dropped.
pub struct Python {
    pub program: PathBuf,
    _directory: TempDir,
}

/// Creates an environment with these packages. Each name has the version, for example `numpy==2.4.6`.
pub fn python_with(packages: &[&str]) -> Python {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("bin/python3");
    let mut create = Command::new("python3");
    create.args(["-m", "venv"]).arg(directory.path());
    let mut install = Command::new(&program);
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-cache-dir"]);
    install.args(["--only-binary", ":all:"]).args(packages);
    for mut command in [create, install] {
        let output = command.output().unwrap();
        assert!(output.status.success(), "{command:?}: {}{}", stdout(&output), stderr(&output));
    }
    Python { program, _directory: directory }
}
