//! The command that the user typed, with one value corrected: a hint that works when pasted.

use std::env;
use std::ffi::OsString;
use std::ops::Range;
use std::sync::OnceLock;

use lfn_api::command_line::{join, quote};

/// Returns the words of the command line after `lfn`. Bytes that are no UTF-8 become U+FFFD, so the words are for
/// messages and for comparisons with names of lfn.
pub fn words() -> impl Iterator<Item = String> {
    env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned())
}

/// Words of the command line with the defaults of variables and files.
static WITH_DEFAULTS: OnceLock<Vec<String>> = OnceLock::new();

/// Stores the words after `lfn` with the defaults of variables and files. Only the first call has an effect.
pub fn store_with_defaults(words: &[OsString]) {
    let words = words.iter().skip(1).map(|word| word.to_string_lossy().into_owned());
    WITH_DEFAULTS.get_or_init(|| words.collect());
}

/// Returns the words of the command line after `lfn`, with the defaults of variables and files if there are any.
pub fn words_with_defaults() -> Vec<String> {
    WITH_DEFAULTS.get().cloned().unwrap_or_else(|| words().collect())
}

/// Returns the typed command with another value for `flag`; the flag is added if it is absent. Secrets are hidden.
pub fn corrected(flag: &str, value: &str) -> String {
    with_value(without_secrets(words()).into_iter(), flag, None, value)
}

/// Returns the typed command with the value, if the text is only a flag and its value and the user typed the flag:
/// `--rate 5mbit`. `short` returns the one-letter form of a flag.
pub fn completed(text: &str, short: impl Fn(&str) -> Option<char>) -> Option<String> {
    let (flag, value) = text.strip_prefix("--")?.split_once(' ')?;
    let is_value = !value.is_empty() && !value.contains(char::is_whitespace);
    let short = short(flag);
    let before_command: Vec<String> = without_secrets(words()).into_iter().take_while(|word| word != "--").collect();
    let is_typed = before_command.iter().any(|word| is_flag(word, &format!("--{flag}"), short));
    (is_value && is_typed).then(|| with_value(without_secrets(words()).into_iter(), flag, short, value))
}

/// Returns the typed command with one more flag, which has no value.
pub fn with_flag(flag: &str) -> String {
    let mut words = without_secrets(words());
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    words.insert(end, format!("--{flag}"));
    format!("lfn {}", join(words))
}

/// Reports whether the word is the flag, with or without its value.
fn is_flag(word: &str, flag: &str, short: Option<char>) -> bool {
    let has_short = short.is_some_and(|letter| word.strip_prefix('-').is_some_and(|rest| rest.starts_with(letter)));
    word == flag || word.strip_prefix(flag).is_some_and(|rest| rest.starts_with('=')) || has_short
}

/// Replaces the value of the flag, or adds the flag before `--`. Words after `--` are the command of the user.
fn with_value(typed: impl Iterator<Item = String>, flag: &str, short: Option<char>, value: &str) -> String {
    let flag = format!("--{flag}");
    let mut words = vec!["lfn".to_owned()];
    let mut typed = typed.peekable();
    let mut found = false;
    while let Some(word) = typed.next_if(|word| word != "--") {
        if !is_flag(&word, &flag, short) {
            words.push(quote(&word));
            continue;
        }
        let has_value_behind = word == flag || (word.len() == 2 && !word.starts_with("--"));
        if has_value_behind {
            typed.next();
        }
        // A repeated flag appears once.
        if !found {
            words.extend([flag.clone(), quote(value)]);
        }
        found = true;
    }
    if !found {
        words.extend([flag, quote(value)]);
    }
    words.extend(typed.map(quote));
    words.join(" ")
}

/// Returns the range of bytes of an argument that holds the token of a ticket, or the login of the URL of a queue.
pub fn token_range(argument: &[u8]) -> Option<Range<usize>> {
    let after = |scheme: &[u8]| Some(argument.windows(scheme.len()).position(|part| part == scheme)? + scheme.len());
    let start = [&b"lfn://"[..], b"nats://", b"tls://"].into_iter().find_map(after)?;
    let host = argument[start..].split(|byte| *byte == b'/').next().unwrap_or_default();
    let length = host.iter().rposition(|byte| *byte == b'@')?;
    Some(start..start + length)
}

/// Replaces tickets, tokens and passwords in the words of a command line.
pub fn without_secrets(words: impl Iterator<Item = String>) -> Vec<String> {
    let mut hide_next = false;
    words.map(|word| printable(&word, &mut hide_next)).collect()
}

fn printable(word: &str, hide: &mut bool) -> String {
    if std::mem::take(hide) {
        return "SECRET".to_owned();
    }
    let flag = word.split('=').next().unwrap_or_default();
    if flag.starts_with("--") && ["password", "secret", "token"].iter().any(|name| flag.contains(name)) {
        *hide = !word.contains('=');
        return if *hide { word.to_owned() } else { format!("{flag}=SECRET") };
    }
    match word.find("lfn://") {
        Some(at) => format!("{}TICKET", &word[..at]),
        None => without_login(word),
    }
}

/// Replaces the user and the password in the URL of a queue.
fn without_login(word: &str) -> String {
    let Some((before, rest)) = word.split_once("://") else { return word.to_owned() };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    match authority.rsplit_once('@') {
        Some((_, host)) => format!("{before}://SECRET@{host}{path}"),
        None => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn corrected_in(typed: &[&str], flag: &str, value: &str) -> String {
        with_value(typed.iter().map(|word| (*word).to_owned()), flag, Some('r'), value)
    }

    #[test]
    fn short_flags_are_replaced_and_the_inner_command_is_kept() {
        assert_eq!(corrected_in(&["plan", "-r", "5"], "rate", "5mbit"), "lfn plan --rate 5mbit");
        assert_eq!(corrected_in(&["plan", "-r5", "-x"], "rate", "5mbit"), "lfn plan --rate 5mbit -x");
        assert_eq!(
            corrected_in(&["emulate", "--rate", "5", "--", "test", "--rate", "7"], "rate", "5mbit"),
            "lfn emulate --rate 5mbit -- test --rate 7"
        );
        assert_eq!(corrected_in(&["emulate", "--", "a b"], "rate", "5mbit"), "lfn emulate --rate 5mbit -- 'a b'");
    }

    #[test]
    fn the_typed_value_is_replaced() {
        assert_eq!(
            corrected_in(&["plan", "--rate", "10000", "--rtt", "70ms"], "rate", "10gbit"),
            "lfn plan --rate 10gbit --rtt 70ms"
        );
        assert_eq!(corrected_in(&["plan", "--rate=5"], "rate", "5mbit"), "lfn plan --rate 5mbit");
        assert_eq!(corrected_in(&["plan"], "from", "New York"), "lfn plan --from 'New York'");
    }

    #[test]
    fn secrets_of_arguments_are_found() {
        for (argument, secret) in [
            ("lfn://abc@h:1/a@b#x", Some("abc")),
            ("--queue=nats://me:p@ss@h:1/q", Some("me:p@ss")),
            ("tls://h/a@b", None),
            ("a@b:c", None),
        ] {
            let found = token_range(argument.as_bytes()).map(|range| &argument[range]);
            assert_eq!(found, secret, "{argument}");
        }
    }

    #[test]
    fn secrets_are_removed() {
        let typed =
            ["test", "lfn://abc@far#x", "--report=lfn://x", "--iperf3-password", "hunter2", "--token=x", "-t", "1"];
        let queue = ["--queue=nats://me:p@ss@h:1/a@b", "tls://h/q"].map(String::from);
        assert_eq!(without_secrets(queue.into_iter()), ["--queue=nats://SECRET@h:1/a@b", "tls://h/q"]);
        let kept = without_secrets(typed.into_iter().map(String::from));
        assert_eq!(
            kept,
            ["test", "TICKET", "--report=TICKET", "--iperf3-password", "SECRET", "--token=SECRET", "-t", "1"]
        );
    }
}
