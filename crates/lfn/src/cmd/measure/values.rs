//! Parsing of values on the command line.
//!
//! The values are parsed here and not by clap. So all errors have the same form: one line with the flag and the value,
//! a hint, exit code 2.

use std::ffi::OsString;
use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use lfn_core::units::parse_duration;

use crate::exit::Failure;

/// Parses the value of a flag, if given. `hint` is a valid example.
pub(super) fn read<T: FromStr<Err: Display>>(
    flag: &str,
    text: &Option<String>,
    hint: &str,
) -> Result<Option<T>, Failure> {
    text.as_deref().map(str::parse).transpose().map_err(|error| value_error(flag, error, hint))
}

/// Parses an integer above zero.
pub(super) fn count(flag: &str, text: &Option<String>, hint: &str) -> Result<Option<u64>, Failure> {
    let Some(text) = text else { return Ok(None) };
    match text.trim().parse() {
        Ok(0) | Err(_) => Err(value_error(flag, format!("'{text}' is not an integer above zero"), hint)),
        Ok(count) => Ok(Some(count)),
    }
}

/// Parses a duration above zero.
pub(super) fn duration(flag: &str, text: &Option<String>) -> Result<Option<Duration>, Failure> {
    let hint = format!("--{flag} 10s");
    let Some(text) = text else { return Ok(None) };
    let duration = parse_duration(text).map_err(|error| value_error(flag, error, &hint))?;
    if duration.is_zero() {
        return Err(value_error(flag, format!("'{text}': the time must be above zero"), &hint));
    }
    Ok(Some(duration))
}

/// Returns the error of an invalid value.
pub(super) fn value_error(flag: &str, error: impl Display, hint: &str) -> Failure {
    Failure::usage(format!("--{flag}: {error}")).hint(hint)
}

/// Returns the command line without secrets: without tickets, and without the values of flags that name a secret.
pub(super) fn without_secrets(words: impl Iterator<Item = OsString>) -> Vec<String> {
    let mut hide_next = false;
    words.map(|word| printable(&word.to_string_lossy(), &mut hide_next)).collect()
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
        None => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_removed() {
        let typed =
            ["test", "lfn://abc@far#x", "--report=lfn://x", "--iperf3-password", "hunter2", "--token=x", "-t", "1"];
        let kept = without_secrets(typed.into_iter().map(OsString::from));
        assert_eq!(
            kept,
            ["test", "TICKET", "--report=TICKET", "--iperf3-password", "SECRET", "--token=SECRET", "-t", "1"]
        );
    }
}
