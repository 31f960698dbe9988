//! Hints for mistakes on the command line: words of other programs, misspelt names, and values with a wrong unit.

use std::error::Error as _;

use clap::error::{ContextKind, ErrorKind};
use clap::{Arg, Command};
use lfn_link::settings::nearest_word;

use crate::foreign_flags;

/// Returns the error as one line. The error of a value follows its flag: `--rate: '10MB': unknown unit …`.
pub fn error_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let what = text.split("\n\n").next().unwrap_or(&text).trim_start_matches("error: ");
    let what = what.split_whitespace().collect::<Vec<_>>().join(" ");
    let (Some(argument), Some(value)) = (error.get(ContextKind::InvalidArg), error.get(ContextKind::InvalidValue))
    else {
        return what;
    };
    let (argument, value) = (argument.to_string(), value.to_string());
    let name = argument.split(' ').next().unwrap_or(&argument);
    match error.source() {
        // Most parsers quote the value.
        Some(source) if error.kind() == ErrorKind::ValueValidation => {
            let reason = plain_reason(&source.to_string());
            if reason.contains(&value) { format!("{name}: {reason}") } else { format!("{name} {value}: {reason}") }
        }
        _ if error.kind() == ErrorKind::InvalidValue && value.is_empty() => format!("{name} needs a value"),
        _ if error.kind() == ErrorKind::InvalidValue => format!("{name} {value}: not a valid value"),
        _ => what,
    }
}

/// Replaces the texts of Rust's own parsers.
fn plain_reason(reason: &str) -> String {
    match reason {
        "invalid digit found in string" => "not an integer",
        "cannot parse integer from empty string" => "not an integer",
        "number too large to fit in target type" => "too large",
        "invalid IP address syntax" => "not an IP address",
        "invalid socket address syntax" => "not an address with a port",
        other => other,
    }
    .replace(" is not in ", " is outside the range ")
}

/// Returns one action that probably corrects the error. `typed` is the command as typed, such as `lfn token add`.
pub fn error_hint(program: &Command, error: &clap::Error, typed: &str) -> Option<String> {
    let command = typed_subcommand(program);
    let verb = typed.strip_prefix("lfn").unwrap_or(typed).trim();
    let text = |kind| error.get(kind).map(ToString::to_string);
    match error.kind() {
        ErrorKind::InvalidSubcommand => subcommand(verb, &command, &text(ContextKind::InvalidSubcommand)?),
        ErrorKind::ValueValidation | ErrorKind::InvalidValue => {
            let argument = text(ContextKind::InvalidArg)?;
            let name = argument.split([' ', '=']).next()?.strip_prefix("--")?;
            let flag = command.get_arguments().find(|flag| flag.get_long() == Some(name))?;
            let reason = error.source().map(ToString::to_string).unwrap_or_default();
            value(flag, &text(ContextKind::InvalidValue)?, &reason)
        }
        ErrorKind::ArgumentConflict => Some("remove one of the two".to_owned()),
        ErrorKind::UnknownArgument => {
            let typed = text(ContextKind::InvalidArg)?;
            if typed.starts_with('-') { flag(verb, &command, &typed) } else { usage(&command, verb) }
        }
        ErrorKind::MissingRequiredArgument => usage(&command, verb),
        _ => None,
    }
}

/// Returns the usage line of a command with few arguments.
fn usage(command: &Command, verb: &str) -> Option<String> {
    let usage = command.clone().bin_name(format!("lfn {verb}")).render_usage().to_string();
    let usage = usage.strip_prefix("Usage: ")?;
    (!usage.contains('\n')).then(|| format!("usage: {usage}"))
}

/// Returns the command that the user typed, or `lfn` itself.
fn typed_subcommand(program: &Command) -> Command {
    let mut command = program.clone();
    for verb in crate::typed::words() {
        let Some(found) = command.find_subcommand(&verb) else { break };
        command = found.clone();
    }
    command
}

/// Returns the flag that was probably meant instead of `typed`, or a hint about the other way that `lfn` has.
fn flag(verb: &str, command: &Command, typed: &str) -> Option<String> {
    if let Some(hint) = foreign_flags::hint(verb, typed) {
        return Some(hint.to_owned());
    }
    let word = typed.strip_prefix("--")?;
    let names: Vec<&str> = command.get_arguments().filter_map(Arg::get_long).collect();
    nearest(word, &names).map(|name| format!("did you mean --{name}?"))
}

/// Returns a hint for a key that is no flag of the command `verb`, in a file whose keys are flags.
pub fn key_hint(verb: &str, command: &Command, key: &str) -> Option<String> {
    flag(verb, command, &format!("--{key}"))
}

/// Returns the subcommand that was probably meant instead of `typed`.
fn subcommand(verb: &str, command: &Command, typed: &str) -> Option<String> {
    let word = typed.to_lowercase();
    if verb.is_empty()
        && let Some((_, instead)) = COMMANDS.iter().find(|(words, _)| words.contains(&word.as_str()))
    {
        return Some((*instead).to_owned());
    }
    if let Some((.., instead)) = ACTIONS.iter().find(|(of, words, _)| *of == verb && words.contains(&word.as_str())) {
        return Some(format!("use lfn {verb} {instead}"));
    }
    let names: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
    let path = if verb.is_empty() { "lfn".to_owned() } else { format!("lfn {verb}") };
    nearest(&word, &names).map(|name| format!("did you mean {path} {name}?"))
}

/// Returns the word that is spelt almost like `typed`, or the only one that begins with it.
fn nearest<'a>(typed: &str, words: &[&'a str]) -> Option<&'a str> {
    const MIN_PREFIX: usize = 3;
    let near = nearest_word(typed, words.iter().copied().filter(|word| word.len() > 2 && typed.len() > 2));
    near.or_else(|| {
        let mut longer = words.iter().filter(|word| typed.len() >= MIN_PREFIX && word.starts_with(typed));
        longer.next().copied().filter(|_| longer.next().is_none())
    })
}

/// Returns a hint with a valid value for the flag.
fn value(flag: &Arg, typed: &str, error: &str) -> Option<String> {
    let name = flag.get_long()?;
    if let Some((_, unit)) = error.split_once("has no unit: write ") {
        return unit.split(" or ").last().map(|value| format!("--{name} {}", value.trim()));
    }
    if name == "port" || name == "ticket-port" {
        return Some(format!("use a port from 1 to 65535, such as --{name} 7323"));
    }
    let allowed: Vec<_> = flag.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    if !allowed.is_empty() {
        let words: Vec<&str> = allowed.iter().map(String::as_str).collect();
        return Some(match nearest(typed, &words) {
            Some(near) => format!("did you mean --{name} {near}?"),
            None => format!("use one of {}", allowed.join(", ")),
        });
    }
    let default = flag.get_default_values().first().and_then(|value| value.to_str());
    let value_name = flag.get_value_names().and_then(|names| names.first()).map(|name| name.as_str());
    let example = default.or_else(|| {
        let known = VALUES.iter().find(|(name, _)| Some(*name) == value_name);
        known.map(|(_, example)| *example)
    });
    example.map(|example| format!("for example: --{name} {example}"))
}

/// Example values for the names of values that the help shows.
const VALUES: &[(&str, &str)] = &[
    ("RATE", "50mbit"),
    ("BYTES", "10GB"),
    ("DURATION", "30s"),
    ("TIME", "30s"),
    ("DURATION|DATE", "12h"),
    ("PREFIX", "192.0.2.0/24"),
    ("ADDRESS", "127.0.0.1"),
    ("ADDRESS:PORT", "127.0.0.1:9733"),
    ("FIRST-LAST", "7400-7409"),
    ("RIGHTS", "read,test"),
    ("N", "4"),
    ("BIND", "127.0.0.1"),
];

/// Commands of other programs and words for a task, with a hint.
const COMMANDS: &[(&[&str], &str)] = &[
    (&["server", "daemon", "listen", "server-mode"], "use lfn serve"),
    (&["client", "measure", "run", "iperf3", "iperf", "bench", "benchmark", "speedtest", "speed"], "use lfn test HOST"),
    (&["ping", "latency", "delay", "owamp", "twping"], "use lfn test --stamp HOST"),
    (&["traceroute", "tracepath", "path", "mtr"], "use lfn test HOST --path"),
    (
        &["cp", "scp", "rsync", "sync", "get", "put", "send", "recv", "upload", "download", "push", "pull", "transfer"],
        "use lfn copy SOURCE DESTINATION",
    ),
    (&["netem", "tc", "simulate", "simulator", "emulator", "shape", "link"], "use lfn emulate"),
    (&["tune", "tuning", "bdp", "calc", "calculate", "predict", "sysctl"], "use lfn plan"),
    (&["compare", "diff", "report", "view", "print", "results"], "use lfn show FILE"),
    (&["check", "checksum", "hash", "b3sum"], "use lfn verify MANIFEST"),
    (&["list", "ls"], "use lfn hosts list, or lfn token list"),
    (&["add", "ticket", "login"], "use lfn hosts add NAME TICKET"),
    (&["tokens", "users", "user"], "use lfn token list"),
    (&["profiles", "profile"], "use lfn emulate --list"),
];

/// Other words for the subcommands of a command.
const ACTIONS: &[(&str, &[&str], &str)] = &[
    ("hosts", &["rm", "delete", "del", "forget"], "remove NAME"),
    ("hosts", &["ls", "show"], "list"),
    ("hosts", &["save", "set", "new", "create"], "add NAME TICKET"),
    ("token", &["rm", "remove", "delete", "del", "disable"], "revoke NAME"),
    ("token", &["ls", "show"], "list"),
    ("token", &["create", "new", "issue", "generate"], "add NAME"),
];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    fn command(verb: &str) -> Command {
        let mut command = Cli::command();
        for word in verb.split(' ').filter(|word| !word.is_empty()) {
            command = command.find_subcommand(word).unwrap_or_else(|| panic!("{verb}")).clone();
        }
        command
    }

    #[test]
    fn hints_for_unknown_commands_name_existing_ones() {
        let known = command("");
        for (words, hint) in COMMANDS {
            assert!(words.iter().all(|word| known.find_subcommand(word).is_none()), "{words:?}");
            let verb = hint.strip_prefix("use lfn ").unwrap().split([' ', ',']).next().unwrap();
            assert!(verb.starts_with("--") || known.find_subcommand(verb).is_some(), "{hint}");
        }
    }

    #[test]
    fn only_similar_names_are_suggested() {
        let hint = |verb: &str, typed: &str| flag(verb, &command(verb), typed);
        assert_eq!(hint("serve", "--foo"), None);
        assert_eq!(hint("serve", "--rooot").as_deref(), Some("did you mean --root?"));
        assert_eq!(hint("serve", "--ephem").as_deref(), Some("did you mean --ephemeral?"));
        assert_eq!(hint("test", "--revers").as_deref(), Some("did you mean --reverse?"));
        assert!(hint("emulate", "--up").unwrap().contains("--forward-rate"));
        let hint = |typed: &str| subcommand("", &command(""), typed);
        assert_eq!(hint("cpoy").as_deref(), Some("did you mean lfn copy?"));
        assert_eq!(hint("rsync").as_deref(), Some("use lfn copy SOURCE DESTINATION"));
        assert_eq!(hint("xyz"), None);
    }

    #[test]
    fn bad_values_get_a_valid_value() {
        let hint = |verb: &str, name: &str, typed: &str, error: &str| {
            let command = command(verb);
            let flag = command.get_arguments().find(|flag| flag.get_long() == Some(name)).unwrap();
            value(flag, typed, error).unwrap()
        };
        assert_eq!(hint("serve", "max-rate", "x", "is not a bit rate"), "for example: --max-rate 50mbit");
        assert_eq!(hint("serve", "drain", "12", "'12' has no unit: write 12ms or 12s"), "--drain 12s");
        assert_eq!(hint("serve", "drain", "x", "is not a duration"), "for example: --drain 30s");
        assert_eq!(hint("serve", "log-format", "jsn", ""), "did you mean --log-format json?");
    }
}
