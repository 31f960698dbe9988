//! Runs the commands of the pages, of the README and of the help texts that need no second machine.
//!
//! Each page has a directory of its own, which is also the home directory, with sample files. Its commands run in the
//! order of the page. A command must exit with the shown code, which is 0 unless the page shows `echo $?`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use crate::support::examples::{Example, examples, help_examples};
use crate::support::harness::{Needs, Test, Weight};
use crate::support::{lfn, lfn_path, path_with_servers, stderr, stdout};

/// Name of this module in the names of its tests and roles.
const MODULE: &str = "docs";

/// Time after which a command of a page is killed; the pages promise commands of seconds.
const TIMEOUT: &str = "180";

pub fn tests() -> Vec<Test> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages = vec![root.join("README.md")];
    collect(&root.join("doc"), &mut pages);
    pages.sort();
    let mut tests = Vec::new();
    for path in pages {
        let name = path.strip_prefix(&root).unwrap().display().to_string();
        let examples: Vec<_> = examples(&fs::read_to_string(&path).unwrap()).into_iter().filter(runs_here).collect();
        if !examples.is_empty() {
            let needs = Needs::Programs(programs(&examples));
            tests.push(Test::new(MODULE, &name.clone(), needs, Weight::Waiting, move || run_page(&name, &examples)));
        }
    }
    for verb in ["plan", "emulate", "copy"] {
        let name = format!("lfn {verb} --help");
        tests.push(Test::new(MODULE, &name, Needs::Namespaces, Weight::Waiting, move || run_help(verb)));
    }
    tests
}

/// Collects the pages below a directory.
fn collect(directory: &Path, pages: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() && !path.ends_with("commands") {
            collect(&path, pages);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
}

fn runs_here(example: &Example) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    example.prompt == "$" || example.prompt == if is_root { "root:~#" } else { "user:~$" }
}

/// Returns the programs of Debian that the commands need. Skipped tests name them.
fn programs(examples: &[Example]) -> &'static [&'static str] {
    const KNOWN: [&str; 12] =
        ["b3sum", "curl", "iperf3", "ip", "jq", "ping", "python3", "rsync", "ssh", "sshd", "tcpdump", "traceroute"];
    let is_used = |program: &&str| {
        examples.iter().any(|example| example.command.split([' ', '\'', ';', '|']).any(|word| word == *program))
    };
    KNOWN.into_iter().filter(is_used).collect::<Vec<_>>().leak()
}

/// A directory with sample files, in which the commands of a page run.
struct Home {
    directory: TempDir,
}

impl Home {
    fn new() -> Home {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        // More than one block, so that the file moves in several pieces.
        let content: Vec<u8> = (0..3_000_000_u32).map(|n| (n ^ n >> 8 ^ n >> 16) as u8).collect();
        for file in ["field.nc", "results.h5"] {
            fs::write(path.join(file), &content).unwrap();
        }
        fs::create_dir_all(path.join("dataset/run1")).unwrap();
        for file in ["dataset/index.csv", "dataset/run1/a.nc", "dataset/run1/b.nc"] {
            fs::write(path.join(file), &content[..100_000]).unwrap();
        }
        for directory in ["runs", "backup", ".bin"] {
            fs::create_dir(path.join(directory)).unwrap();
        }
        fs::write(path.join("runs/field.nc"), &content[..100_000]).unwrap();
        let records = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/mesh/vbns-1997.ndjson");
        fs::copy(records, path.join("vbns-1997.ndjson")).unwrap();
        symlink(lfn_path(), path.join(".bin/lfn")).unwrap();
        let mesh = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/mesh/vbns.toml");
        fs::copy(mesh, path.join("vbns.toml")).unwrap();
        let couple = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/couple/lag.toml");
        fs::copy(couple, path.join("lag.toml")).unwrap();
        Home { directory }
    }

    fn run(&self, command: &str) -> Output {
        let home = self.directory.path();
        let mut directories = vec![home.join(".bin")];
        directories.extend(std::env::split_paths(&path_with_servers()));
        let mut bash = Command::new("timeout");
        bash.args(["--kill-after=5", TIMEOUT, "bash", "-c", command]);
        bash.current_dir(home).env("HOME", home).env("PATH", std::env::join_paths(directories).unwrap());
        for variable in ["COLUMNS", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "SHELL"] {
            bash.env_remove(variable);
        }
        bash.stdin(Stdio::null()).output().unwrap()
    }
}

fn run_page(page: &str, examples: &[Example]) {
    let home = Home::new();
    let mut faults = Vec::new();
    for (index, example) in examples.iter().enumerate() {
        if example.command == "echo $?" {
            continue;
        }
        let next = examples.get(index + 1).filter(|next| next.command == "echo $?");
        let expected = next.map_or(0, |next| next.output[0].trim().parse().unwrap());
        let output = home.run(&example.command);
        let code = output.status.code();
        let printed = format!("{}{}", stdout(&output), stderr(&output));
        if let Some(label) = missing_label(example, &printed) {
            let (line, command) = (example.line, &example.command);
            faults.push(format!("{page}:{line}: $ {command}\nthe page shows '{label}', which is not in:\n{printed}"));
        }
        // An emulation on a busy machine may be inaccurate. This is about the machine and not about the page.
        if code != Some(expected) && !(code == Some(4) && printed.contains("not accurate")) {
            let (line, command) = (example.line, &example.command);
            faults.push(format!("{page}:{line}: $ {command}\nexit code {code:?}, not {expected}:\n{printed}"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Returns the first word of a shown line that the command did not print. Figures change from run to run, and labels do
/// not. An inaccurate emulation prints other lines.
fn missing_label(example: &Example, printed: &str) -> Option<String> {
    let label = |line: &String| line.split_whitespace().next().map(str::to_owned);
    let is_label = |word: &String| word.len() > 3 && word.chars().all(|c| c.is_ascii_alphabetic() || c == ':');
    let is_missing = |word: &String| !printed.contains(word.as_str()) && !printed.contains("not accurate");
    example.output.iter().filter_map(label).find(|word| is_label(word) && is_missing(word))
}

/// Runs the examples of a help text that need no server.
fn run_help(verb: &str) {
    let help = stdout(&lfn().args([verb, "--help"]).output().unwrap());
    let is_remote = |example: &String| example.contains("far1") || example.contains("there") || example.contains("@");
    let commands: Vec<_> = help_examples(&help).into_iter().filter(|example| !is_remote(example)).collect();
    assert!(!commands.is_empty(), "{help}");
    let example = |command: String| Example { line: 0, prompt: "$".into(), command, output: Vec::new() };
    run_page(&format!("lfn {verb} --help"), &commands.into_iter().map(example).collect::<Vec<_>>());
}
