//! Checks that every command of the pages, of the README and of the help texts can be parsed. The test program `docs`
//! runs those that need no second machine.

#[path = "../tests/support/examples.rs"]
mod examples;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::{Command, CommandFactory, Parser};
use examples::{LANGUAGES, blocks, code_spans, examples, help_examples, lfn_commands};

use crate::cli::Cli;

/// Returns the README and the pages of the site, without the generated pages.
fn pages() -> Vec<(PathBuf, String)> {
    fn collect(directory: &Path, pages: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(directory).expect("doc can be read").flatten() {
            let path = entry.path();
            if path.is_dir() && !["commands", "decisions", "schema"].iter().any(|name| path.ends_with(name)) {
                collect(&path, pages);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut paths = vec![root.join("README.md")];
    collect(&root.join("doc"), &mut paths);
    paths.sort();
    assert!(paths.len() > 10, "{paths:?}");
    let page = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a page can be read");
        (path.strip_prefix(&root).map(Path::to_path_buf).unwrap_or(path), text)
    };
    paths.into_iter().map(page).collect()
}

/// Returns the reasons why the commands of `lfn` in a shell line cannot be parsed.
fn faults(line: &str) -> Vec<clap::Error> {
    let parse = |words: Vec<String>| Cli::try_parse_from(words).err();
    let is_fault = |error: &clap::Error| !matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    lfn_commands(line).into_iter().filter_map(parse).filter(is_fault).collect()
}

fn first_line(error: &clap::Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

#[test]
fn every_command_of_the_pages_can_be_parsed() {
    let mut bad = Vec::new();
    let mut count = 0;
    for (path, text) in pages() {
        let all = examples(&text);
        for (index, example) in all.iter().enumerate() {
            count += lfn_commands(&example.command).len();
            let next = all.get(index + 1).filter(|next| next.command == "echo $?");
            let fails = next.is_some_and(|next| next.output.first().is_some_and(|code| code == "2"));
            let faults = faults(&example.command);
            if faults.is_empty() || fails {
                continue;
            }
            for fault in faults {
                bad.push(format!("{}:{}: {}: {}", path.display(), example.line, example.command, first_line(&fault)));
            }
        }
        for block in blocks(&text).iter().filter(|block| ["sh", "cron"].contains(&block.language.as_str())) {
            for line in &block.lines {
                let at = line.find("lfn ").unwrap_or(line.len());
                for fault in faults(if block.language == "cron" { &line[at..] } else { line }) {
                    bad.push(format!("{}:{}: {line}: {}", path.display(), block.line, first_line(&fault)));
                }
            }
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
    assert!(count > 30, "{count} commands");
}

#[test]
fn every_command_within_a_sentence_can_be_parsed() {
    let mut bad = Vec::new();
    for (path, text) in pages() {
        for (line, span) in code_spans(&text) {
            if !span.starts_with("lfn ") || span.contains(['…', '[']) || span.contains("...") {
                continue;
            }
            // A sentence may omit arguments, and use a placeholder for a value.
            let faults = faults(&span).into_iter().filter(|fault| {
                !matches!(
                    fault.kind(),
                    ErrorKind::MissingRequiredArgument
                        | ErrorKind::MissingSubcommand
                        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
                        | ErrorKind::InvalidValue
                        | ErrorKind::ValueValidation
                        | ErrorKind::TooFewValues
                )
            });
            bad.extend(faults.map(|fault| format!("{}:{line}: {span}: {}", path.display(), first_line(&fault))));
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

/// Flags of other programs that the pages name.
const FOREIGN_FLAGS: [&str; 16] = [
    "authorized-users-path",
    "bwlimit",
    "cap-add",
    "delete-after",
    "dont-fragment",
    "fq-rate",
    "get-server-output",
    "json-stream",
    "repeating-payload",
    "rsa-private-key-path",
    "rsync-path",
    "server-bitrate-limit",
    "server-max-duration",
    "skip-rx-copy",
    "udp-counters-64bit",
    "username",
];

#[test]
fn every_flag_of_the_pages_exists() {
    fn collect(command: &Command, flags: &mut BTreeSet<String>) {
        flags.extend(command.get_arguments().filter_map(|flag| flag.get_long()).map(str::to_owned));
        command.get_subcommands().for_each(|command| collect(command, flags));
    }
    let mut flags: BTreeSet<String> = ["help", "version"].into_iter().chain(FOREIGN_FLAGS).map(str::to_owned).collect();
    collect(&Cli::command(), &mut flags);
    let mut bad = Vec::new();
    for (path, text) in pages() {
        for (line, span) in code_spans(&text) {
            let Some(rest) = span.strip_prefix("--").filter(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()))
            else {
                continue;
            };
            let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            let name = rest.split(|c| !is_name(c)).next().unwrap_or(rest);
            // `--near-…` stands for several flags.
            if !name.ends_with('-') && !flags.contains(name) {
                bad.push(format!("{}:{line}: --{name} is no flag of lfn", path.display()));
            }
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

#[test]
fn every_block_has_a_language_and_no_hidden_command() {
    let mut bad = Vec::new();
    for (path, text) in pages() {
        for block in blocks(&text) {
            let at = format!("{}:{}", path.display(), block.line);
            if !LANGUAGES.contains(&block.language.as_str()) {
                bad.push(format!("{at}: a block of the language '{}'", block.language));
            }
            // A command outside of a console block is not tested.
            if let Some(line) = block.lines.iter().find(|line| block.language == "text" && line.starts_with("lfn ")) {
                bad.push(format!("{at}: a command outside of a console block: {line}"));
            }
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

#[test]
fn every_example_of_the_help_can_be_parsed() {
    fn check(command: &Command, count: &mut usize, bad: &mut Vec<String>) {
        let help = command.get_after_long_help().or(command.get_after_help()).map(ToString::to_string);
        for example in help_examples(&help.unwrap_or_default()) {
            *count += 1;
            bad.extend(faults(&example).iter().map(|fault| format!("{example}: {}", first_line(fault))));
        }
        command.get_subcommands().for_each(|command| check(command, count, bad));
    }
    let (mut count, mut bad) = (0, Vec::new());
    check(&Cli::command(), &mut count, &mut bad);
    assert!(bad.is_empty(), "{}", bad.join("\n"));
    assert!(count > 10, "{count} examples");
}

#[test]
fn commands_are_found_in_shell_lines() {
    let found = |line: &str| lfn_commands(line).iter().map(|words| words.join(" ")).collect::<Vec<_>>();
    assert_eq!(found("lfn emulate --rtt 1s -- lfn test far"), ["lfn emulate --rtt 1s -- lfn test far", "lfn test far"]);
    assert_eq!(found("A=1 lfn show a.json | jq . > lfn; sudo lfn plan"), ["lfn show a.json", "lfn plan"]);
    assert_eq!(found("lfn emulate -- sh -c 'lfn test far; ls'").last().map(String::as_str), Some("lfn test far"));
    assert!(found("echo lfn test").is_empty());
    let page = "```console\n$ lfn plan --rtt 1s \\\n    --rate 1mbit\nout\n$ echo $?\n4\nfar:~$ lfn serve\n```\n";
    let all = examples(page);
    assert_eq!(
        all.iter().map(|e| e.command.as_str()).collect::<Vec<_>>(),
        ["lfn plan --rtt 1s --rate 1mbit", "echo $?", "lfn serve"]
    );
    assert_eq!(
        (all[0].output.as_slice(), all[1].output[0].as_str(), all[2].prompt.as_str()),
        (["out".to_owned()].as_slice(), "4", "far:~$")
    );
}
