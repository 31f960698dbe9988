//! Defaults of flags: `lfn.toml` files, then `LFN_` variables. The command line overrides both.
//!
//! A key is the long name of a flag. A table of the file has the name of a command, and applies to this command. A key
//! outside of the tables applies to every command with this flag. `LFN_COPY_STREAMS` sets `streams` of `lfn copy`, and
//! `LFN_SSH` sets `ssh` of every command. Each value is parsed as the flag, so that names and ranges are defined only
//! once. A default that conflicts with a flag of the command line, or that needs a flag which is not given, is not
//! used.

use std::ffi::OsString;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::{env, fs};

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use etcetera::BaseStrategy;
use lfn_base::units::Bytes;
use lfn_link::settings::nearest_word;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::exit::Failure;
use crate::suggest::key_hint;
use crate::{print, typed};

/// File for all users of the host.
const SYSTEM_FILE: &str = "/etc/lfn/lfn.toml";

/// Maximum length of a file with defaults, bytes.
const MAX_FILE: u64 = 1 << 20;

/// Flags without a default: they only make sense for one command line, remove data, or weaken a server.
const WITHOUT_DEFAULT: [&str; 13] = [
    "help",
    "version",
    "config",
    "no-defaults",
    "insecure",
    "insecure-anywhere",
    "stdio",
    "delete",
    "clean",
    "force",
    "inside",
    "list",
    "list-findings",
];

/// Variables that `lfn emulate` and `lfn couple run` set for their commands.
const INTERNAL: [&str; 15] = [
    "LFN_PATH",
    "LFN_RETURN_PATH",
    "LFN_EMULATED",
    "LFN_CONTROL",
    "LFN_FAR_TICKET",
    "LFN_SIDE",
    "LFN_PROMPT",
    "LFN_STARTUP",
    "LFN_ZDOTDIR",
    "LFN_COUPLE_DIR",
    "LFN_COUPLE_COMPONENT",
    "LFN_COUPLE_STEPS",
    "LFN_COUPLE_FIRST_STEP",
    "LFN_COUPLE_STEP",
    "LFN_COUPLE_NEXT_STEP",
];

/// Default of one flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlagDefault {
    /// Names of the command and subcommand; empty for every command.
    pub scope: Vec<String>,
    /// Long name of the flag.
    pub key: String,
    /// The flag as words of the command line; none if a boolean flag is false.
    words: Vec<String>,
    /// File and line, or the variable.
    pub origin: String,
}

/// Returns the files that can have defaults. A later file overrides an earlier file.
pub fn files() -> Vec<PathBuf> {
    let user = etcetera::choose_base_strategy().ok().map(|home| home.config_dir().join("lfn/lfn.toml"));
    [Some(PathBuf::from(SYSTEM_FILE)), user].into_iter().flatten().collect()
}

/// Reads all defaults, later ones override earlier ones. Unknown keys, tables and variables are errors of usage.
pub fn read(program: &Command) -> Result<Vec<FlagDefault>, Failure> {
    let mut all = Vec::new();
    for file in files() {
        match read_file(&file) {
            Ok(text) => all.extend(of_file(program, &file, &text)?),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                // The directory of another user, after `sudo` or `su`, is not searched.
                if fs::metadata(&file).is_ok() {
                    let file = file.display();
                    print::message(format_args!(
                        "lfn: cannot read {file}: permission denied; its defaults are not used\n"
                    ));
                }
            }
            Err(error) => {
                return Err(Failure::usage(format!("cannot read {}: {error}", file.display()))
                    .hint(typed::with_flag("no-defaults")));
            }
        }
    }
    let mut variables: Vec<_> =
        env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value))).collect();
    variables.sort();
    for (name, value) in variables {
        all.extend(of_variable(program, &name, value)?);
    }
    Ok(all)
}

/// Reads a file of at most [`MAX_FILE`] bytes.
fn read_file(path: &Path) -> io::Result<String> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("is not a regular file"));
    }
    let mut text = String::new();
    fs::File::open(path)?.take(MAX_FILE + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE {
        return Err(io::Error::other(format!("is larger than {}", Bytes(MAX_FILE))));
    }
    Ok(text)
}

/// Adds the defaults to a valid command line: those of its command that are not given and fit to the given flags.
/// Returns the words, and the defaults that are used.
pub fn apply(
    program: &Command,
    words: &[OsString],
    matches: &ArgMatches,
    all: Vec<FlagDefault>,
) -> Result<(Vec<OsString>, Vec<FlagDefault>), Failure> {
    let (path, leaf) = leaf(matches);
    let mut built = program.clone();
    built.build();
    let command = path.iter().try_fold(&built, |command, name| command.find_subcommand(name)).unwrap_or(&built);
    // The last default of a flag counts.
    let mut pending: Vec<FlagDefault> = Vec::new();
    for default in all {
        let Some(flag) = find_flag(command, &default.key) else { continue };
        let is_given = leaf.value_source(flag.get_id().as_str()) == Some(ValueSource::CommandLine);
        if (default.scope.is_empty() || default.scope == path) && !is_given {
            pending.retain(|earlier| earlier.key != default.key);
            pending.push(default);
        }
    }
    // Of two defaults that conflict with each other, the later one is used.
    pending.reverse();
    pending.retain(|default| !default.words.is_empty());
    let at = position_behind_command(&built, words, &path);
    let with = |defaults: &[FlagDefault]| -> Vec<OsString> {
        let added = defaults.iter().flat_map(|default| default.words.iter().map(OsString::from));
        words[..at].iter().cloned().chain(added).chain(words[at..].iter().cloned()).collect()
    };
    let mut used: Vec<FlagDefault> = Vec::new();
    loop {
        let before = used.len();
        let mut rest = Vec::new();
        for default in pending {
            used.push(default);
            match program.clone().try_get_matches_from(with(&used)) {
                Ok(_) => {}
                Err(error) => {
                    let Some(default) = used.pop() else { continue };
                    if !matches!(error.kind(), ErrorKind::ArgumentConflict | ErrorKind::MissingRequiredArgument) {
                        let what = crate::suggest::error_line(&error);
                        return Err(Failure::usage(format!("{}: {what}", default.origin)).hint(format!(
                            "correct the default, or ignore all defaults: {}",
                            typed::with_flag("no-defaults")
                        )));
                    }
                    rest.push(default);
                }
            }
        }
        pending = rest;
        if used.len() == before || pending.is_empty() {
            return Ok((with(&used), used));
        }
    }
}

/// Returns the names of the command and subcommand, and their arguments.
fn leaf(matches: &ArgMatches) -> (Vec<String>, &ArgMatches) {
    let (mut names, mut leaf) = (Vec::new(), matches);
    while let Some((name, deeper)) = leaf.subcommand() {
        names.push(name.to_owned());
        leaf = deeper;
    }
    (names, leaf)
}

/// Returns the position in the words behind the name of the last subcommand.
fn position_behind_command(program: &Command, words: &[OsString], path: &[String]) -> usize {
    let (mut at, mut command) = (1, program);
    for name in path {
        while at < words.len() {
            let word = words[at].to_string_lossy();
            at += 1;
            if word == *name {
                break;
            }
            let has_separate_value = command.get_arguments().any(|flag| {
                let long = flag.get_long().is_some_and(|long| word.strip_prefix("--") == Some(long));
                let short = flag.get_short().is_some_and(|short| word == format!("-{short}"));
                flag.get_action().takes_values() && (long || short)
            });
            at += usize::from(has_separate_value);
        }
        command = command.find_subcommand(name).unwrap_or(command);
    }
    at.min(words.len())
}

fn find_flag<'a>(command: &'a Command, key: &str) -> Option<&'a Arg> {
    command.get_arguments().find(|flag| flag.get_long() == Some(key))
}

/// Returns all flags with a default below this command, as scope and flag. Global flags have no scope.
pub fn all_flags(program: &Command) -> Vec<(Vec<String>, Arg)> {
    fn add(command: &Command, scope: &[String], all: &mut Vec<(Vec<String>, Arg)>) {
        for flag in command.get_arguments() {
            let has_default = flag.get_long().is_some_and(|long| !WITHOUT_DEFAULT.contains(&long));
            if has_default && (scope.is_empty() || !flag.is_global_set()) {
                all.push((scope.to_vec(), flag.clone()));
            }
        }
        for subcommand in command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help") {
            add(subcommand, &[scope, &[subcommand.get_name().to_owned()]].concat(), all);
        }
    }
    let mut all = Vec::new();
    add(program, &[], &mut all);
    all
}

/// Returns the variable of a key.
pub fn variable(scope: &[String], key: &str) -> String {
    let name = scope.iter().map(String::as_str).chain([key]).collect::<Vec<_>>().join("_");
    format!("LFN_{}", name.replace('-', "_").to_uppercase())
}

/// Returns the flag of a key, or an error that names a similar key.
fn known_flag(program: &Command, scope: &[String], key: &str) -> Result<Arg, String> {
    if WITHOUT_DEFAULT.contains(&key) {
        return Err(format!("--{key} can be given only on the command line"));
    }
    let fits = |known: &[String], flag: &Arg| scope.is_empty() || known == scope || flag.is_global_set();
    let all = all_flags(program);
    let candidates = || all.iter().filter(|(known, flag)| fits(known, flag));
    let found = candidates().find(|(_, flag)| flag.get_long() == Some(key)).map(|(_, flag)| flag.clone());
    found.ok_or_else(|| {
        let near = nearest_word(key, candidates().filter_map(|(_, flag)| flag.get_long()));
        let of = if scope.is_empty() { String::new() } else { format!(" of lfn {}", scope.join(" ")) };
        let verb = scope.join(" ");
        let command = scope.iter().try_fold(program, |command, name| command.find_subcommand(name));
        let near = near.map(|near| format!("did you mean {near}?"));
        let hint = near.or_else(|| key_hint(&verb, command?, key));
        format!("unknown key '{key}'{of}{}", hint.map(|hint| format!("; {hint}")).unwrap_or_default())
    })
}

fn of_file(program: &Command, file: &Path, text: &str) -> Result<Vec<FlagDefault>, Failure> {
    let hint = "list the keys: lfn defaults";
    let at = |byte: usize| format!("{}:{}", file.display(), line_number(text, byte));
    let table = DeTable::parse(text).map_err(|error| {
        let place = at(error.span().map_or(0, |span| span.start));
        Failure::usage(format!("{place}: {}", error.message())).hint("correct the file: its format is TOML")
    })?;
    let mut all = Vec::new();
    let mut tables = vec![(Vec::new(), table.get_ref())];
    while let Some((scope, table)) = tables.pop() {
        for (key, value) in table {
            let (name, place) = (key.get_ref().to_string(), at(key.span().start));
            let fail = |what: String| Failure::usage(format!("{place}: {what}")).hint(hint);
            if let DeValue::Table(inner) = value.get_ref() {
                let scope = [scope.as_slice(), std::slice::from_ref(&name)].concat();
                let command = scope.iter().try_fold(program, |command, name| command.find_subcommand(name));
                if command.is_none_or(|command| command.is_hide_set()) {
                    let names =
                        program.get_subcommands().filter(|command| !command.is_hide_set()).map(Command::get_name);
                    let near = nearest_word(&name, names).map(|near| format!("; did you mean [{near}]?"));
                    return Err(fail(format!("unknown table [{}]{}", scope.join("."), near.unwrap_or_default())));
                }
                tables.push((scope, inner));
                continue;
            }
            let flag = known_flag(program, &scope, &name).map_err(&fail)?;
            let words = words_of_value(&flag, &name, value, text).map_err(&fail)?;
            all.push(FlagDefault { scope: scope.clone(), key: name, words, origin: place });
        }
    }
    // Keys of all commands first, since those of a table override them.
    all.sort_by_key(|default| !default.scope.is_empty());
    Ok(all)
}

/// Converts the value of a key to words of the command line. `text` is the whole file, for errors.
pub fn words_of_value(flag: &Arg, key: &str, value: &Spanned<DeValue<'_>>, text: &str) -> Result<Vec<String>, String> {
    let values = flag.get_num_args();
    let takes = values.is_none_or(|values| values.takes_values()) && flag.get_action().takes_values();
    // The flag may have no value, as --iperf3.
    let bare = !takes || values.is_some_and(|values| values.min_values() == 0);
    let written = |value: &Spanned<DeValue<'_>>| text.get(value.span()).unwrap_or_default().to_owned();
    let scalar = |value: &Spanned<DeValue<'_>>| match value.get_ref() {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Integer(number) => Ok(number.to_string()),
        DeValue::Float(number) => Ok(number.to_string()),
        other => Err(format!("{key}: {} is of type {}, which no flag accepts", written(value), other.type_str())),
    };
    match (value.get_ref(), takes) {
        (DeValue::Boolean(true), _) if bare => Ok(vec![format!("--{key}")]),
        (DeValue::Boolean(false), _) if bare => Ok(Vec::new()),
        (_, false) => Err(format!("{key}: {} is not true or false", written(value))),
        (DeValue::Array(_), true) if !matches!(flag.get_action(), ArgAction::Append) => {
            Err(format!("{key}: {} is a list, but only one value is allowed", written(value)))
        }
        (DeValue::Array(values), true) => {
            values.iter().map(|value| Ok(format!("--{key}={}", scalar(value)?))).collect()
        }
        (_, true) => Ok(vec![format!("--{key}={}", scalar(value)?)]),
    }
}

/// Returns the number of the line that contains the byte, from 1.
pub fn line_number(text: &str, at: usize) -> usize {
    text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count() + 1
}

/// Returns the default of a variable. Other variables and those of [`INTERNAL`] have none.
fn of_variable(program: &Command, name: &str, value: OsString) -> Result<Option<FlagDefault>, Failure> {
    let Some(rest) = name.strip_prefix("LFN_") else { return Ok(None) };
    let is_address = ["NEAR", "FAR"].iter().any(|side| {
        rest.strip_suffix("_IPV6")
            .unwrap_or(rest)
            .strip_prefix(side)
            .is_some_and(|number| number.chars().all(|c| c.is_ascii_digit() || c == '_'))
    });
    if is_address || INTERNAL.contains(&name) || value.is_empty() {
        return Ok(None);
    }
    let fail = |what: String| Failure::usage(format!("variable {name}: {what}")).hint(format!("unset {name}"));
    let Some(value) = value.to_str() else { return Err(fail("not UTF-8".into())) };
    let known: Vec<_> = all_flags(program);
    // A variable of a command first, then one of every command.
    let scoped = known.iter().find(|(scope, flag)| variable(scope, flag.get_long().unwrap_or_default()) == name);
    let (scope, flag) = match scoped {
        Some((scope, flag)) => (scope.clone(), flag),
        None => {
            let every = known.iter().find(|(_, flag)| variable(&[], flag.get_long().unwrap_or_default()) == name);
            let Some((_, flag)) = every else {
                let names = known.iter().map(|(scope, flag)| variable(scope, flag.get_long().unwrap_or_default()));
                let names: Vec<_> = names.map(|name| name.to_lowercase()).collect();
                let near = nearest_word(name, names.iter().map(String::as_str));
                return Err(fail(match near {
                    Some(near) => format!("no flag has this variable; did you mean {}?", near.to_uppercase()),
                    None => "no flag has this variable".to_owned(),
                }));
            };
            (Vec::new(), flag)
        }
    };
    let key = flag.get_long().unwrap_or_default().to_owned();
    let takes = flag.get_action().takes_values();
    let may_be_bare = !takes || flag.get_num_args().is_some_and(|values| values.min_values() == 0);
    let words = match value.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" if !takes => vec![format!("--{key}")],
        "0" | "false" | "no" if !takes => Vec::new(),
        "true" if may_be_bare => vec![format!("--{key}")],
        "false" if may_be_bare => Vec::new(),
        _ if takes => vec![format!("--{key}={value}")],
        _ => return Err(fail(format!("'{value}' is not true or false"))),
    };
    Ok(Some(FlagDefault { scope, key, words, origin: format!("variable {name}") }))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::super::Cli;
    use super::*;

    fn program() -> Command {
        Cli::command()
    }

    fn applied(file: &str, line: &str) -> Result<String, String> {
        let program = program();
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let matches = program.clone().try_get_matches_from(&words).unwrap();
        let all = of_file(&program, Path::new("lfn.toml"), file).map_err(|failure| failure.lines().0)?;
        let (words, _) = apply(&program, &words, &matches, all).map_err(|failure| failure.lines().0)?;
        Ok(words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn excluded_flags_exist() {
        fn has(command: &Command, long: &str) -> bool {
            find_flag(command, long).is_some() || command.get_subcommands().any(|command| has(command, long))
        }
        let mut program = program();
        program.build();
        for flag in WITHOUT_DEFAULT {
            assert!(has(&program, flag), "--{flag}");
        }
    }

    #[test]
    fn command_line_overrides_the_file() {
        let file = "ssh = 'ssh -p 2'\n[copy]\nstreams = 4\n[emulate.set]\npid = 7\n";
        assert_eq!(
            applied(file, "lfn --color never copy a b"),
            Ok("lfn --color never copy --streams=4 --ssh=ssh -p 2 a b".into())
        );
        assert_eq!(applied(file, "lfn copy --streams 2 a b"), Ok("lfn copy --ssh=ssh -p 2 --streams 2 a b".into()));
        assert_eq!(applied(file, "lfn emulate set rate=1mbit"), Ok("lfn emulate set --pid=7 rate=1mbit".into()));
        assert_eq!(applied(file, "lfn hosts list"), Ok("lfn hosts list".into()));
    }

    #[test]
    fn default_yields_to_a_conflicting_flag() {
        assert_eq!(applied("[plan]\noutput = 'json'", "lfn plan --json"), Ok("lfn plan --json".into()));
        // A default whose other flag is not given is not used.
        assert_eq!(applied("[copy]\nolder-than = '2d'", "lfn copy a b"), Ok("lfn copy a b".into()));
        assert_eq!(
            applied("[copy]\nolder-than = '2d'", "lfn copy --clean"),
            Ok("lfn copy --older-than=2d --clean".into())
        );
    }

    #[test]
    fn errors_name_file_and_line() {
        for (file, says) in [
            ("[copy]\nstream = 4", "lfn.toml:2: unknown key 'stream' of lfn copy; did you mean streams?"),
            ("[cpoy]\nstreams = 4", "lfn.toml:1: unknown table [cpoy]; did you mean [copy]?"),
            ("[copy]\n\nstreams = 'many'", "lfn.toml:3: "),
            ("[copy]\nlinks = 3", "lfn.toml:2: links: 3 is not true or false"),
            ("[copy]\nstreams = [1, 2]", "lfn.toml:2: streams: [1, 2] is a list"),
            ("[serve]\ninsecure = true", "lfn.toml:2: --insecure can be given only on the command line"),
            ("[copy\n", "lfn.toml:1: "),
        ] {
            let error = applied(file, "lfn copy a b").unwrap_err();
            assert!(error.starts_with(says), "{error}");
        }
    }

    #[test]
    fn variables_name_a_command_or_every_command() {
        let of = |name: &str, value: &str| {
            let default = of_variable(&program(), name, value.into()).map_err(|failure| failure.lines().0)?;
            Ok::<_, String>(default.map(|default| (default.scope.join(" "), default.words.join(" "))))
        };
        assert_eq!(of("LFN_COPY_REMOTE_LFN", "/opt/lfn"), Ok(Some(("copy".into(), "--remote-lfn=/opt/lfn".into()))));
        assert_eq!(of("LFN_SSH", "ssh -p 2"), Ok(Some((String::new(), "--ssh=ssh -p 2".into()))));
        assert_eq!(of("LFN_QUIET", "1"), Ok(Some((String::new(), "--quiet".into()))));
        for internal in ["LFN_PATH", "LFN_FAR", "LFN_FAR1", "LFN_NEAR", "LFN_CONTROL", "HOME"] {
            assert_eq!(of(internal, "x"), Ok(None), "{internal}");
        }
        assert!(of("LFN_COPY_STREAM", "4").unwrap_err().contains("did you mean LFN_COPY_STREAMS?"));
        assert!(of("LFN_QUIET", "maybe").unwrap_err().starts_with("variable LFN_QUIET: 'maybe'"));
    }
}
