//! Errors of the command line as failures with one line and a hint.

use std::io::Write;
use std::path::Path;

use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use lfn_api::command_line::join;
use lfn_base::units::{BitRate, QuantityError, parse_unit_duration};

use crate::exit::{Exit, Failure};
use crate::typed::{self, corrected};
use crate::{cmd, print, suggest};

/// Prints help or the version on standard output and returns success. Converts any other parse error into a [`Failure`]
/// with one line and a hint. `program` describes all commands and flags.
pub fn explain(error: &clap::Error, program: &Command) -> Result<Exit, Failure> {
    use ErrorKind::{DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion};
    if matches!(error.kind(), DisplayHelp | DisplayVersion)
        && typed_command(program) == "lfn emulate"
        && let Some(failure) = cmd::emulate::explain_usage(program)
    {
        // The flag belongs to the command of the user.
        return Err(failure);
    }
    if error.kind() == DisplayVersion {
        // clap would name the command, as in `lfn-test 0.1.0`.
        writeln!(print::out(), "lfn {}", cmd::version::VERSION)?;
        return Ok(Exit::Ok);
    }
    if error.kind() == DisplayHelp {
        error.print()?;
        return Ok(Exit::Ok);
    }
    if error.kind() == DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return Ok(Exit::Usage);
    }
    if typed_command(program).starts_with("lfn emulate")
        && let Some(failure) = cmd::emulate::explain_usage(program)
    {
        return Err(failure);
    }
    let failure = Failure::usage(suggest::error_line(error));
    if let Some(hint) = missing_unit(error, program).or_else(|| supported_extension(error)) {
        return Err(failure.hint(hint));
    }
    if let (Some(typed), "lfn test") = (error.get(ContextKind::InvalidArg), typed_command(program).as_str())
        && let Some(instead) = cmd::measure::iperf3_flags::equivalent_of(&typed.to_string())
    {
        return Err(failure.hint(instead));
    }
    if let Some(typed) = error.get(ContextKind::InvalidArg)
        && let Some(instead) = renamed_output_flag(&typed.to_string())
    {
        return Err(failure.hint(instead));
    }
    if let (Some(typed), "lfn copy") = (error.get(ContextKind::InvalidArg), typed_command(program).as_str())
        && error.kind() == ErrorKind::UnknownArgument
        && let Some(instead) = cmd::copy::rsync_flags::equivalent_of(&typed.to_string())
    {
        return Err(failure.hint(instead));
    }
    if typed_command(program) == "lfn test" && error.kind() == ErrorKind::MissingRequiredArgument {
        let emulated = "lfn emulate --rtt 539ms --rate 135mbit -- lfn test far";
        return Err(failure.hint(format!(
            "run `lfn serve` on the other host: it prints the command for this host. Without a second host: {emulated}"
        )));
    }
    if typed_command(program) == "lfn emulate set" && error.kind() == ErrorKind::UnknownArgument {
        let setting = |word: String| {
            word.strip_prefix("--").filter(|pair| pair.contains('=')).map_or(word.clone(), str::to_owned)
        };
        return Err(failure.hint(format!("write settings without dashes: lfn {}", join(typed::words().map(setting)))));
    }
    if typed_command(program) == "lfn copy"
        && let Some(place) = typed::words().find_map(|word| word.strip_prefix("-:").map(str::to_owned))
    {
        return Err(failure.hint(format!("to read the ticket from standard input, write @-:{place}")));
    }
    Err(match suggest::error_hint(program, error, &typed_command(program)) {
        Some(hint) => failure.hint(hint),
        None => failure.hint(format!("see `{} --help`", typed_command(program))),
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
pub fn command_name(program: &Command) -> String {
    typed_command(program).split_off("lfn".len()).trim_start().to_owned()
}

/// Returns the typed command with the probable unit, if a rate or a time has none.
fn missing_unit(error: &clap::Error, program: &Command) -> Option<String> {
    let (flag, value) = invalid_value(error)?;
    let text = error.to_string();
    let is_reported = |error: &QuantityError| text.contains(&error.to_string());
    // The times of a server are in seconds and hours, so milliseconds are no good guess.
    let is_server = ["lfn serve", "lfn token"].iter().any(|verb| typed_command(program).starts_with(verb));
    let as_rate = value.parse::<BitRate>().err().filter(is_reported);
    let as_time = parse_unit_duration(value).err().filter(is_reported).filter(|_| !is_server);
    let suggestion = as_rate.or(as_time)?.suggestion()?;
    // Only the times of a path are shorter than a second.
    let is_of_path = ["rtt", "delay", "jitter", "latency"].iter().any(|name| flag.contains(name));
    let value = suggestion.strip_suffix("ms").filter(|_| !is_of_path).map(|number| format!("{number}s"));
    Some(corrected(flag, value.as_deref().unwrap_or(&suggestion)))
}

/// Returns the typed command with a supported extension of the report or the picture.
fn supported_extension(error: &clap::Error) -> Option<String> {
    let (flag, value) = invalid_value(error)?;
    let extension = match flag {
        "report" => "json",
        "plot" => "svg",
        _ => return None,
    };
    let path = Path::new(value).with_extension(extension);
    path.file_stem().filter(|stem| *stem != "-")?;
    Some(corrected(flag, path.to_str()?))
}

/// Returns the long name of a flag and its value, if the value is invalid.
fn invalid_value(error: &clap::Error) -> Option<(&str, &str)> {
    let (Some(ContextValue::String(flag)), Some(ContextValue::String(value))) =
        (error.get(ContextKind::InvalidArg), error.get(ContextKind::InvalidValue))
    else {
        return None;
    };
    Some((flag.split_whitespace().next()?.strip_prefix("--")?, value))
}

/// Returns `lfn`, the command and the subcommand, as far as the user typed them.
fn typed_command(program: &Command) -> String {
    let mut command = program.clone();
    let mut words = typed::words();
    let mut typed = "lfn".to_owned();
    while let Some(word) = words.next() {
        if word == "--color" {
            words.next();
        } else if let Some(deeper) = command.find_subcommand(&word).cloned() {
            command = deeper;
            typed = format!("{typed} {word}");
        } else if !word.starts_with('-') || word == "--" {
            break;
        }
    }
    typed
}
