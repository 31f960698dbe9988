//! Explains a command line in which `--` is missing before CMD, or in which another word is in the wrong place.
//!
//! clap reports the first flag of CMD as unknown, or takes it as a flag of `lfn emulate`. The words themselves show the
//! mistake: the first word that is neither a flag nor the value of a flag begins CMD.

use std::ffi::{OsStr, OsString};

use clap::Command;
use lfn_api::command_line::join;
use lfn_link::profile;
use lfn_link::settings::{KEYS, nearest_word};

use crate::exit::Failure;

/// Commands that `lfn emulate` has itself.
const ACTIONS: [&str; 2] = ["set", "show"];

/// Explains the words after `lfn emulate`, if one of them is not in its place. `emulate` describes the flags.
pub fn explain(words: &[OsString], emulate: &Command) -> Option<Failure> {
    if words.iter().any(|word| word == "--list") {
        return None;
    }
    let mut at = 0;
    while let Some(word) = words.get(at) {
        let text = word.to_str().unwrap_or("CMD");
        at += match text.strip_prefix("--") {
            Some("") => return None,
            Some(flag) => match values_of(flag, emulate, &words[at + 1..]) {
                Some(values) => 1 + values,
                None => return unknown_flag(words, at),
            },
            None if text.starts_with('-') => {
                let has = |letter| emulate.get_arguments().any(|argument| argument.get_short() == letter);
                if !has(text.chars().nth(1)) {
                    return None;
                }
                1
            }
            None => return misplaced(words, at),
        };
    }
    None
}

/// Flags that other programs have, and the flags of `lfn emulate` with the same meaning.
const SYNONYMS: [(&str, &str); 8] = [
    ("up", "forward-rate"),
    ("upload", "forward-rate"),
    ("down", "return-rate"),
    ("download", "return-rate"),
    ("bandwidth", "rate"),
    ("bw", "rate"),
    ("latency", "delay"),
    ("limit", "queue"),
];

/// Explains a flag that has another name here.
fn unknown_flag(words: &[OsString], at: usize) -> Option<Failure> {
    let (word, rest) = (words[at].to_str()?, &words[at + 1..]);
    let (flag, value) = word.split_once('=').map_or((word, None), |(flag, value)| (flag, Some(value)));
    let (_, known) = SYNONYMS.iter().find(|(name, _)| flag.strip_prefix("--") == Some(name))?;
    let known = value.map_or(format!("--{known}"), |value| format!("--{known}={value}"));
    let words = words[..at].iter().map(OsString::as_os_str).chain([known.as_ref()]);
    let line = with("lfn emulate", words.chain(rest.iter().map(OsString::as_os_str)));
    Some(Failure::usage(format!("unexpected argument '{flag}'")).hint(line))
}

/// Returns the number of words that are values of a flag without its dashes, or `None` for an unknown flag.
fn values_of(flag: &str, emulate: &Command, rest: &[OsString]) -> Option<usize> {
    let (name, has_value) = flag.split_once('=').map_or((flag, false), |(name, _)| (name, true));
    let argument = emulate.get_arguments().find(|argument| argument.get_long() == Some(name))?;
    let takes_value = argument.get_action().takes_values();
    let range = argument.get_num_args().unwrap_or(usize::from(takes_value).into());
    let is_value = |word: &&OsString| !word.to_string_lossy().starts_with('-');
    Some(match range.min_values() {
        _ if has_value || !takes_value => 0,
        0 => rest.iter().take(range.max_values()).take_while(is_value).count(),
        min => min.min(rest.len()),
    })
}

/// Explains the word that is in the wrong place.
fn misplaced(words: &[OsString], at: usize) -> Option<Failure> {
    let word = words[at].to_str().unwrap_or("CMD");
    let rest = &words[at + 1..];
    let is_setting = |word: &OsStr| word.to_str().and_then(setting).is_some();
    if ACTIONS.contains(&word) {
        if at == 0 {
            return None;
        }
        let line = with("lfn emulate", words[at..].iter().map(OsString::as_os_str));
        return Some(Failure::usage(format!("'{word}' must be the first word after lfn emulate")).hint(line));
    }
    if profile::BUILT_IN.iter().any(|(name, _)| *name == word) {
        let message = format!("the profile '{word}' needs --profile before it");
        return Some(Failure::usage(message).hint(insert(words, at, &["--profile"])));
    }
    if is_setting(&words[at]) {
        let message = format!("the setting '{word}' needs the form of a flag");
        return Some(Failure::usage(message).hint(settings_as_flags(words)));
    }
    // For example `lfn emulate sett rate=50mbit`. A command has no settings as arguments.
    if at == 0
        && rest.iter().all(|word| is_setting(word) || word.to_string_lossy().starts_with("--"))
        && let Some(action) = nearest_word(word, ACTIONS.into_iter())
        && (!rest.is_empty() || word.len() > 2)
    {
        let line = with("lfn emulate", [action.as_ref()].into_iter().chain(rest.iter().map(OsString::as_os_str)));
        return Some(Failure::usage(format!("unexpected argument '{word}'")).hint(line));
    }
    let end = rest.iter().position(|word| word == "--");
    let line = match end {
        // The command line has another `--`, which belongs to CMD or follows a stray word.
        Some(end @ 0) => {
            let flags = words[..at].iter().chain(&rest[end..]).map(OsString::as_os_str);
            return Some(Failure::usage(format!("unexpected argument '{word}'")).hint(with("lfn emulate", flags)));
        }
        _ => insert(words, at, &["--"]),
    };
    Some(Failure::usage(format!("the command '{word}' needs -- before it")).hint(line))
}

/// Returns the key and the value of a setting, `KEY=VALUE`.
fn setting(word: &str) -> Option<(&str, &str)> {
    let (key, value) = word.split_once('=')?;
    let is_known = |known: &&str| *known == key;
    KEYS.iter()
        .flat_map(|key| [key.name].into_iter().chain(key.one_way))
        .any(|name| is_known(&name))
        .then_some((key, value))
}

/// Writes all settings as flags, up to `--`.
fn settings_as_flags(words: &[OsString]) -> String {
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    let mut flags: Vec<OsString> = Vec::new();
    for word in &words[..end] {
        match word.to_str().and_then(setting) {
            Some((key, value)) => flags.extend([format!("--{key}").into(), value.into()]),
            None => flags.push(word.clone()),
        }
    }
    with("lfn emulate", flags.iter().chain(&words[end..]).map(OsString::as_os_str))
}

fn insert(words: &[OsString], at: usize, inserted: &[&str]) -> String {
    let (before, after) = words.split_at(at);
    let inserted = inserted.iter().map(|word| OsStr::new(*word));
    let (before, after) = (before.iter().map(OsString::as_os_str), after.iter().map(OsString::as_os_str));
    with("lfn emulate", before.chain(inserted).chain(after))
}

fn with<'a>(command: &str, words: impl IntoIterator<Item = &'a OsStr>) -> String {
    format!("{command} {}", join(words))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    fn explained(line: &str) -> Option<(String, String)> {
        let mut cli = Cli::command();
        cli.build();
        let words: Vec<OsString> = line.split(' ').filter(|word| !word.is_empty()).map(OsString::from).collect();
        explain(&words, cli.find_subcommand("emulate").unwrap()).map(|failure| {
            let (error, hint) = failure.lines();
            (error, hint.unwrap())
        })
    }

    #[test]
    fn missing_dashes_are_put_before_the_command() {
        let rows = [
            ("--rtt 539ms --rate 135mbit ping -c 3 far", "--rtt 539ms --rate 135mbit -- ping -c 3 far"),
            ("--profile acts iperf3 -c far", "--profile acts -- iperf3 -c far"),
            ("--rtt=20ms lfn test far --rate 100mbit", "--rtt=20ms -- lfn test far --rate 100mbit"),
            ("--live --bridge wa wb ping far", "--live --bridge wa wb -- ping far"),
            ("ping far", "-- ping far"),
            ("--profile acts bash -c x;y", "--profile acts -- bash -c 'x;y'"),
            ("--profile acts ssh far -- ls", "--profile acts -- ssh far -- ls"),
        ];
        for (line, expected) in rows {
            let (error, hint) = explained(line).unwrap();
            assert_eq!(hint, format!("lfn emulate {expected}"));
            assert!(error.starts_with("the command '") && error.ends_with("' needs -- before it"), "{error}");
        }
    }

    #[test]
    fn other_misplaced_words_are_explained() {
        let rows = [
            ("acts -- ping far", "--profile acts -- ping far"),
            ("--loss 1% acts", "--loss 1% --profile acts"),
            ("rate=50mbit rtt=20ms -- ping far", "--rate 50mbit --rtt 20ms -- ping far"),
            ("--rtt 20ms forward-rate=1mbit", "--rtt 20ms --forward-rate 1mbit"),
            ("--rtt 20ms set rate=1mbit", "set rate=1mbit"),
            ("--up 3mbit --rtt 20ms", "--forward-rate 3mbit --rtt 20ms"),
            ("--rtt 20ms --bw=3mbit -- ping far", "--rtt 20ms --rate=3mbit -- ping far"),
            ("sett rate=1mbit", "set rate=1mbit"),
            ("shwo", "show"),
            ("--rtt 20ms stray -- ping far", "--rtt 20ms -- ping far"),
        ];
        for (line, expected) in rows {
            assert_eq!(explained(line).unwrap().1, format!("lfn emulate {expected}"), "{line}");
        }
    }

    #[test]
    fn valid_command_lines_are_not_explained() {
        for line in [
            "",
            "set rate=1mbit",
            "--rtt 20ms --rate 5mbit -- ping far",
            "--list acts",
            "--unknown x",
            "--dry-run",
            "-x far",
        ] {
            assert_eq!(explained(line), None, "{line}");
        }
    }
}
