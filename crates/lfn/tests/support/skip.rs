//! The decision about a skipped test.
//!
//! A skipped test prints one line, `SKIPPED: <test>: <reason>`. Under `CI=true` it fails, unless `.ci/permitted-skips`
//! has an entry for this test and for the missing feature of the kernel.

use std::ffi::OsStr;
use std::fmt;
use std::io::{self, Write};

/// List of permitted skips, one per line: `test | missing feature of the kernel | reason`. A line with `#` is a
/// comment.
pub const PERMITTED: &str = include_str!("../../../../.ci/permitted-skips");

/// Requirement of a test that this machine does not meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// A feature of the kernel, as in the second column of the list.
    Feature(&'static str),
    /// A program or library, with the command that installs it. No skip for this reason is permitted.
    Program(String),
    /// A user with other rights. No skip for this reason is permitted: `.ci/as-user` omits tests that need root.
    User(&'static str),
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Missing::Feature(feature) => write!(f, "this system has no {feature}"),
            Missing::Program(program) => f.write_str(program),
            Missing::User(user) => write!(f, "needs {user}"),
        }
    }
}

/// Reports that a test, or a part of it, is skipped. The caller returns afterwards. Panics if the skip is not
/// permitted.
#[track_caller]
pub fn skip(test: &str, missing: &Missing) {
    if let Err(fault) = decide(PERMITTED, is_strict(std::env::var_os("CI").as_deref()), test, missing) {
        panic!("{fault}");
    }
    // The harness of Rust captures `eprintln!` and drops the text of tests that pass.
    #[allow(clippy::disallowed_methods, reason = "a test reports to the standard error itself")]
    let mut stderr = io::stderr();
    let _ = writeln!(stderr, "SKIPPED: {test}: {missing}");
}

/// Returns whether a skip needs a permission, for this value of `CI`.
pub fn is_strict(ci: Option<&OsStr>) -> bool {
    ci.is_some_and(|ci| ci == "true")
}

/// Returns an error if a skip needs a permission and the list has none.
pub fn decide(list: &str, is_strict: bool, test: &str, missing: &Missing) -> Result<(), String> {
    let is_listed = match missing {
        Missing::Feature(feature) => entries(list).any(|entry| (entry.test, entry.feature) == (test, feature)),
        Missing::Program(_) | Missing::User(_) => false,
    };
    if is_listed || !is_strict {
        return Ok(());
    }
    Err(format!("{test} is skipped, and .ci/permitted-skips does not permit this: {missing}"))
}

/// An entry of the list of permitted skips.
pub struct PermittedSkip<'a> {
    pub test: &'a str,
    pub feature: &'a str,
    pub reason: &'a str,
}

/// Returns the entries of a list. Panics if a line has other than three columns.
pub fn entries(list: &str) -> impl Iterator<Item = PermittedSkip<'_>> {
    list.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(|line| {
        let columns: Vec<_> = line.split('|').map(str::trim).collect();
        let [test, feature, reason] = columns[..] else { panic!(".ci/permitted-skips: not three columns: {line}") };
        PermittedSkip { test, feature, reason }
    })
}
