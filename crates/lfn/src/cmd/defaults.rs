//! `lfn defaults`: lists the files, keys and variables that set defaults of flags, and the defaults that are set.

use std::io::Write;

use clap::{Arg, Command};
use lfn_api::documents::{DefaultKey, DefaultsDocument, DefaultsFile, DefaultsSchema, SetDefault};

use crate::cli::defaults::{self, FlagDefault};
use crate::cli::output::{OutputArgs, TextOrJson};
use crate::exit::{Exit, Failure};
use crate::print;

/// List the files, keys and variables that set defaults of flags
///
/// The command line overrides the variables, and the variables override the files. A key belongs in the table of its
/// command, such as `copy`. A key outside of the tables, and a variable without a command such as LFN_SSH, apply to
/// every command with this flag.
#[derive(clap::Args, Debug)]
pub struct DefaultsArgs {
    /// List only the keys of this command
    #[arg(value_name = "COMMAND")]
    command: Option<String>,
    #[command(flatten)]
    output: OutputArgs<TextOrJson>,
}

/// Runs `lfn defaults` and returns its exit code.
pub fn run(args: &DefaultsArgs, mut program: Command) -> Result<Exit, Failure> {
    let output = args.output.open()?;
    program.build();
    let is_wanted = |scope: &[String]| args.command.as_ref().is_none_or(|command| scope.first() == Some(command));
    let keys: Vec<_> = defaults::all_flags(&program).into_iter().filter(|(scope, _)| is_wanted(scope)).collect();
    if let Some(command) = args.command.as_ref().filter(|_| keys.is_empty()) {
        return Err(Failure::usage(format!("unknown command '{command}'")).hint("list the commands: lfn --help"));
    }
    let files = defaults::files().into_iter();
    let document = DefaultsDocument {
        schema: DefaultsSchema::Current,
        files: files.map(|file| DefaultsFile { exists: file.exists(), path: file.display().to_string() }).collect(),
        keys: keys.iter().map(|(scope, flag)| key_entry(scope, flag)).collect(),
        // An error in a default has been printed, and the list helps to correct the default.
        set: defaults::read(&program).unwrap_or_default().into_iter().map(set_entry).collect(),
    };
    output.finish(&document, || print::out().write_all(text(&document).as_bytes()))?;
    Ok(Exit::Ok)
}

fn key_entry(scope: &[String], flag: &Arg) -> DefaultKey {
    let key = flag.get_long().unwrap_or_default();
    let names = flag.get_value_names().map(|names| names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "));
    DefaultKey {
        command: scope.join(" "),
        key: key.to_owned(),
        variable: defaults::variable(scope, key),
        value: names.filter(|_| flag.get_action().takes_values()),
        help: flag.get_help().map(ToString::to_string).unwrap_or_default(),
    }
}

fn set_entry(default: FlagDefault) -> SetDefault {
    SetDefault { command: default.scope.join(" "), key: default.key, origin: default.origin }
}

fn text(document: &DefaultsDocument) -> String {
    let mut text = "files, the later one overrides the earlier one\n".to_owned();
    for file in &document.files {
        let state = if file.exists { "" } else { " (does not exist)" };
        text += &format!("  {}{state}\n", file.path);
    }
    if !document.set.is_empty() {
        text += "\nset\n";
    }
    for SetDefault { command, key, origin } in &document.set {
        let command = if command.is_empty() { "every command" } else { command };
        text += &format!("  {key} of {command}: {origin}\n");
    }
    let mut table = None;
    for DefaultKey { command, key, variable, value, .. } in &document.keys {
        if table != Some(command) {
            let name = command.replace(' ', ".");
            text += &if command.is_empty() { "\nevery command\n".to_owned() } else { format!("\n[{name}]\n") };
            table = Some(command);
        }
        let setting = format!("{key} = {}", value.as_deref().unwrap_or("true"));
        text += &format!("  {setting:<32} {variable}\n");
    }
    text
}
