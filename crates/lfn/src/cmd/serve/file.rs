//! Configuration file of `lfn serve`: TOML with the names of flags as keys.
//!
//! Each key is parsed as a flag, so that names, defaults and ranges are defined only once. Flags on the command line
//! follow the flags of the file and override them. Both count for flags that can be repeated.

use std::ffi::OsString;
use std::path::Path;

use clap::{Arg, Command, FromArgMatches};
use toml::de::DeTable;

use crate::cli::defaults::{line_number, words_of_value};
use crate::cli::explain;
use crate::cli::global::GlobalArgs;
use crate::exit::Failure;
use crate::print::settings::configure_from_flags;
use crate::suggest::key_hint;

use super::ServeArgs;

/// Returns the arguments of `lfn serve`, with the flags of the file before those of the command line.
pub fn read(path: &Path, program: &Command) -> Result<ServeArgs, Failure> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).map_err(|e| {
        Failure::usage(format!("--config {shown}: {e}"))
            .hint("check the path; the keys of the file are the flags of `lfn serve --help`")
    })?;
    let mut flags = Vec::new();
    let error_at = |line: usize, what: String| {
        Failure::usage(format!("{shown}, line {line}: {what}")).hint("use the flags of `lfn serve --help` as keys")
    };
    let table = DeTable::parse(&text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        error_at(line_number(&text, at), error.message().to_owned())
    })?;
    for (key, value) in table.get_ref() {
        let at = line_number(&text, key.span().start);
        let key_name = key.get_ref();
        let flag = serve_flag(program, key_name).map_err(|hint| {
            let failure = error_at(at, format!("unknown key '{key_name}'"));
            hint.into_iter().fold(failure, Failure::hint)
        })?;
        let added = words_of_value(&flag, key_name, value, &text).map_err(|what| error_at(at, what))?;
        check_separately(program, &added).map_err(|what| error_at(at, format!("{}: {what}", key.get_ref())))?;
        flags.extend(added);
    }
    let mut all: Vec<OsString> = std::env::args_os().collect();
    let command = all.iter().position(|word| word == "serve").map_or(all.len(), |at| at + 1);
    all.splice(command..command, flags.into_iter().map(OsString::from));
    let refused = |error: clap::Error| match explain(&error, program) {
        Err(failure) => failure,
        Ok(_) => Failure::usage(format!("{shown} conflicts with the flags on the command line")),
    };
    let matches = program.clone().try_get_matches_from(all).map_err(refused)?;
    configure_from_flags(&GlobalArgs::from_arg_matches(&matches).map_err(refused)?);
    match matches.subcommand_matches("serve") {
        Some(matches) => ServeArgs::from_arg_matches(matches).map_err(refused),
        None => Err(Failure::usage(format!("{shown} is only valid for lfn serve"))),
    }
}

/// Returns the flag of a key, or a hint if there is none.
fn serve_flag(program: &Command, key: &str) -> Result<Arg, Option<String>> {
    let mut known = program.clone();
    // Gives the command the flags of all commands too.
    known.build();
    let serve = known.find_subcommand("serve").ok_or(None)?;
    let flag = serve.get_arguments().find(|flag| flag.get_long() == Some(key));
    let flag = flag.filter(|_| !matches!(key, "config" | "help" | "version" | "no-defaults"));
    flag.cloned().ok_or_else(|| key_hint("serve", serve, key))
}

/// Checks the flags of one key separately. Returns the parse error.
fn check_separately(program: &Command, flags: &[String]) -> Result<(), String> {
    let words = ["lfn", "serve"].into_iter().map(str::to_owned).chain(flags.iter().cloned());
    match program.clone().try_get_matches_from(words) {
        Ok(_) => Ok(()),
        // Required flags may be elsewhere in the file.
        Err(error) if error.kind() == clap::error::ErrorKind::MissingRequiredArgument => Ok(()),
        Err(error) => {
            let text = error.to_string();
            let what = text.split("\n\n").next().unwrap_or(&text).trim_start_matches("error: ");
            Err(what.split_whitespace().collect::<Vec<_>>().join(" "))
        }
    }
}
