//! The command that the user typed, with one value corrected: a hint that works when pasted.

use std::env;

use crate::command_line::quote;

/// Returns the words of the command line after `lfn`. Bytes that are no UTF-8 become U+FFFD, so the words are for
/// messages and for comparisons with names of lfn.
pub fn words() -> impl Iterator<Item = String> {
    env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned())
}

/// Returns the typed command with another value for `flag`; the flag is added if it is absent.
pub fn corrected(flag: &str, value: &str) -> String {
    with_value(words(), flag, value)
}

fn with_value(typed: impl Iterator<Item = String>, flag: &str, value: &str) -> String {
    let flag = format!("--{flag}");
    let equals = format!("{flag}=");
    let mut words = vec!["lfn".to_owned()];
    let mut typed = typed.peekable();
    let mut found = false;
    while let Some(word) = typed.next() {
        if word == flag {
            typed.next();
        } else if !word.starts_with(&equals) {
            words.push(quote(&word));
            continue;
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
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn corrected_in(typed: &[&str], flag: &str, value: &str) -> String {
        with_value(typed.iter().map(|word| (*word).to_owned()), flag, value)
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
}
