//! The configuration file: flags in TOML, each under its own name, before those of the command line.
//!
//! A key is read exactly as the flag would be: there is no second list of names, defaults or bounds. What the command
//! line says comes after it and so wins; of flags that may be given again both count.

use std::ffi::OsString;
use std::path::Path;

use clap::{ArgAction, CommandFactory, Parser};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::cli::{Cli, Command};
use crate::exit::Failure;

use super::Args;

/// The arguments of `lfn serve` with those of `path` among them.
pub fn read(path: &Path) -> Result<Args, Failure> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).map_err(|e| {
        Failure::msg(format!("--config {shown}: {e}")).hint("give a TOML file of flags, as in doc/serve.md")
    })?;
    let mut flags = Vec::new();
    let wrong = |line: usize, what: String| {
        Failure::usage(format!("{shown}, line {line}: {what}")).hint("keys are the flags of `lfn serve --help`")
    };
    let table = DeTable::parse(&text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        wrong(line(&text, at), error.message().to_owned())
    })?;
    for (key, value) in table.get_ref() {
        let at = line(&text, key.span().start);
        let added = arguments(key.get_ref(), value, &text).map_err(|what| wrong(at, what))?;
        alone(&added).map_err(|what| wrong(at, format!("{}: {what}", key.get_ref())))?;
        flags.extend(added);
    }
    let mut typed = std::env::args_os();
    // The program and the verb come first.
    let head: Vec<OsString> = typed.by_ref().take(2).collect();
    let all = head.into_iter().chain(flags.into_iter().map(OsString::from)).chain(typed);
    let cli = Cli::try_parse_from(all).map_err(|error| match crate::cli::explain(&error) {
        Err(failure) => failure,
        Ok(_) => Failure::usage(format!("{shown} and the flags cannot be meant together")),
    })?;
    match cli.command {
        Command::Serve(args) => Ok(*args),
        _ => Err(Failure::usage(format!("{shown} is for lfn serve"))),
    }
}

/// A key and its value as the command line has them; `text` is where they stand.
fn arguments(key: &str, value: &Spanned<DeValue<'_>>, text: &str) -> Result<Vec<String>, String> {
    let known = Cli::command();
    let serve = known.find_subcommand("serve").ok_or("no such command")?;
    let flag = serve.get_arguments().find(|flag| flag.get_long() == Some(key));
    let flag = flag.filter(|_| !matches!(key, "config" | "help")).ok_or_else(|| format!("unknown key '{key}'"))?;
    let values = flag.get_num_args();
    let takes = values.is_none_or(|values| values.takes_values()) && flag.get_action().takes_values();
    // It may stand without a value, as --iperf3 may.
    let bare = !takes || values.is_some_and(|values| values.min_values() == 0);
    let scalar = |value: &Spanned<DeValue<'_>>| match value.get_ref() {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Integer(number) => Ok(number.to_string()),
        DeValue::Float(number) => Ok(number.to_string()),
        other => {
            let written = text.get(value.span()).unwrap_or_default();
            Err(format!("{key}: {written} is a {}, which no flag takes", other.type_str()))
        }
    };
    match (value.get_ref(), takes) {
        (DeValue::Boolean(true), _) if bare => Ok(vec![format!("--{key}")]),
        (DeValue::Boolean(false), _) if bare => Ok(Vec::new()),
        (_, false) => Err(format!("{key}: {} is neither true nor false", text.get(value.span()).unwrap_or_default())),
        (DeValue::Array(_), true) if !matches!(flag.get_action(), ArgAction::Append) => {
            Err(format!("{key}: {} is a list, one value is taken", text.get(value.span()).unwrap_or_default()))
        }
        (DeValue::Array(values), true) => {
            values.iter().map(|value| Ok(format!("--{key}={}", scalar(value)?))).collect()
        }
        (_, true) => Ok(vec![format!("--{key}={}", scalar(value)?)]),
    }
}

/// Whether the flags of one key can be read; what is wrong with them, if not.
fn alone(flags: &[String]) -> Result<(), String> {
    let words = ["lfn", "serve"].into_iter().map(str::to_owned).chain(flags.iter().cloned());
    match Cli::try_parse_from(words) {
        Ok(_) => Ok(()),
        // That it needs another is judged when all are there.
        Err(error) if error.kind() == clap::error::ErrorKind::MissingRequiredArgument => Ok(()),
        Err(error) => {
            let text = error.to_string();
            let what = text.split("\n\n").next().unwrap_or(&text).trim_start_matches("error: ");
            Err(what.split_whitespace().collect::<Vec<_>>().join(" "))
        }
    }
}

/// The number of the line that holds this byte, from 1.
fn line(text: &str, at: usize) -> usize {
    text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count() + 1
}
