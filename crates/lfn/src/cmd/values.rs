//! Parsing of values on the command line.
//!
//! The values are parsed here and not by clap. So all errors have the same form: one line with the flag and the value,
//! a hint, exit code 2.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use lfn_base::units::{BitRate, parse_duration};

use crate::exit::Failure;

/// Parses the value of a flag, if given. `hint` is a valid example.
pub(super) fn read<T: FromStr<Err: Display>>(
    flag: &str,
    text: &Option<String>,
    hint: &str,
) -> Result<Option<T>, Failure> {
    let Some(text) = text else { return Ok(None) };
    text.parse().map(Some).map_err(|error| {
        let as_rate = text.parse::<BitRate>().err().filter(|_| hint.ends_with("bit"));
        let complete = as_rate.and_then(|error| error.suggestion()).map(|value| format!("--{flag} {value}"));
        value_error(flag, error, complete.as_deref().unwrap_or(hint))
    })
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
