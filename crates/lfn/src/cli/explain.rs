//! Errors of the command line as failures with one line and a hint.

use std::io::Write;

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use lfn_core::units::{BitRate, parse_unit_duration};

use super::Cli;
use crate::cmd;
use crate::exit::{Exit, Failure};
use crate::print;
use crate::suggest;
use crate::typed::{self, corrected};

/// Prints help or the version on standard output and returns success. Converts any other parse error into a [`Failure`]
/// with one line and a hint.
pub fn explain(error: &clap::Error) -> Result<Exit, Failure> {
    use ErrorKind::{DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion};
    if error.kind() == DisplayVersion {
        // clap would name the command, as in `lfn-test 0.1.0`.
        let _ = writeln!(print::out(), "lfn {}", cmd::version::VERSION);
        return Ok(Exit::Ok);
    }
    if error.kind() == DisplayHelp {
        // The reader may close the pipe early. This is no error.
        let _ = error.print();
        return Ok(Exit::Ok);
    }
    if error.kind() == DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return Ok(Exit::Usage);
    }
    if typed_command().starts_with("lfn emulate")
        && let Some(failure) = cmd::emulate::explain_usage()
    {
        return Err(failure);
    }
    let missing_unit = missing_unit(error, &error.to_string());
    let failure = Failure::usage(suggest::error_line(error));
    // The times of a server are in seconds and hours, so milliseconds are no good guess.
    let is_server = ["lfn serve", "lfn token"].iter().any(|verb| typed_command().starts_with(verb));
    if let Some(hint) = missing_unit.filter(|_| !is_server) {
        return Err(failure.hint(hint));
    }
    if let (Some(typed), "lfn test") = (error.get(ContextKind::InvalidArg), typed_command().as_str())
        && let Some(instead) = cmd::measure::iperf3_flags::equivalent_of(&typed.to_string())
    {
        return Err(failure.hint(instead));
    }
    if let Some(typed) = error.get(ContextKind::InvalidArg)
        && let Some(instead) = renamed_output_flag(&typed.to_string())
    {
        return Err(failure.hint(instead));
    }
    if let (Some(typed), "lfn copy") = (error.get(ContextKind::InvalidArg), typed_command().as_str())
        && error.kind() == ErrorKind::UnknownArgument
        && let Some(instead) = cmd::copy::rsync_flags::equivalent_of(&typed.to_string())
    {
        return Err(failure.hint(instead));
    }
    if typed_command() == "lfn test" && typed::words().count() == 1 {
        let emulated = "lfn emulate --rtt 539ms --rate 135mbit -- lfn test far";
        return Err(failure.hint(format!(
            "run `lfn serve` on the other host: it prints the command for this host. Without a second host: {emulated}"
        )));
    }
    if typed_command() == "lfn copy"
        && let Some(place) = typed::words().find_map(|word| word.strip_prefix("-:").map(str::to_owned))
    {
        return Err(failure.hint(format!("to read the ticket from standard input, write @-:{place}")));
    }
    Err(match suggest::error_hint(error, &typed_command()) {
        Some(hint) => failure.hint(hint),
        None => failure.hint(format!("see `{} --help`", typed_command())),
    })
}

/// Returns the flag to use instead of a flag that many other programs have.
fn renamed_output_flag(typed: &str) -> Option<String> {
    match typed {
        "--ndjson" | "--csv" | "--nettest" => Some(format!("use --output {}", typed.trim_start_matches('-'))),
        "--save" => Some("use --report FILE.json".to_owned()),
        _ => None,
    }
}

/// Returns the command and the subcommand, as far as the user typed them.
pub fn command_name() -> String {
    typed_command().split_off("lfn".len()).trim_start().to_owned()
}

/// Returns the typed command with the probable unit, if a rate or a time has none.
fn missing_unit(error: &clap::Error, text: &str) -> Option<String> {
    let (Some(ContextValue::String(flag)), Some(ContextValue::String(value))) =
        (error.get(ContextKind::InvalidArg), error.get(ContextKind::InvalidValue))
    else {
        return None;
    };
    let flag = flag.split_whitespace().next()?.strip_prefix("--")?;
    let as_rate = value.parse::<BitRate>().err();
    let as_time = parse_unit_duration(value).err();
    let named = [as_rate, as_time].into_iter().flatten().find(|error| text.contains(&error.to_string()))?;
    Some(corrected(flag, &named.suggestion()?))
}

/// Returns `lfn`, the command and the subcommand, as far as the user typed them.
fn typed_command() -> String {
    let mut command = Cli::command();
    typed::words()
        .map_while(|verb| {
            command = command.find_subcommand(&verb)?.clone();
            Some(verb)
        })
        .fold("lfn".to_owned(), |typed, verb| format!("{typed} {verb}"))
}
