//! Quantities as they were typed.
//!
//! They are taken as text and read here rather than by clap, so that all that can be wrong with them fails in one
//! shape: a line that names the flag and the value, a hint, exit code 2.

use std::ffi::OsString;
use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use lfn_core::units::parse_duration;

use crate::exit::Failure;

/// What follows `--FLAG`, if it was given; `hint` shows how it is written.
pub(super) fn read<T: FromStr<Err: Display>>(
    flag: &str,
    text: &Option<String>,
    hint: &str,
) -> Result<Option<T>, Failure> {
    text.as_deref().map(str::parse).transpose().map_err(|error| unreadable(flag, error, hint))
}

/// A whole number above zero.
pub(super) fn count(flag: &str, text: &Option<String>, hint: &str) -> Result<Option<u64>, Failure> {
    let Some(text) = text else { return Ok(None) };
    match text.trim().parse() {
        Ok(0) | Err(_) => Err(unreadable(flag, format!("'{text}' is not a whole number above zero"), hint)),
        Ok(count) => Ok(Some(count)),
    }
}

/// A time above zero.
pub(super) fn duration(flag: &str, text: &Option<String>) -> Result<Option<Duration>, Failure> {
    let hint = format!("--{flag} 10s");
    let Some(text) = text else { return Ok(None) };
    let duration = parse_duration(text).map_err(|error| unreadable(flag, error, &hint))?;
    if duration.is_zero() {
        return Err(unreadable(flag, format!("'{text}': a time of zero has no meaning here"), &hint));
    }
    Ok(Some(duration))
}

/// The failure of a flag whose value makes no sense.
pub(super) fn unreadable(flag: &str, error: impl Display, hint: &str) -> Failure {
    Failure::usage(format!("--{flag}: {error}")).hint(hint)
}

/// The words of the command, without what must not be kept: a ticket, and what follows a flag that names a secret.
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
    fn no_secret_is_kept() {
        let typed =
            ["test", "lfn://abc@far#x", "--save=lfn://x", "--iperf3-password", "hunter2", "--token=x", "-t", "1"];
        let kept = without_secrets(typed.into_iter().map(OsString::from));
        assert_eq!(
            kept,
            ["test", "TICKET", "--save=TICKET", "--iperf3-password", "SECRET", "--token=SECRET", "-t", "1"]
        );
    }
}
