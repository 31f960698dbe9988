//! `lfn emulate set` and `lfn emulate show`: change or print the settings of a running emulation.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;

use lfn_api::command_line;
use lfn_api::documents::{EmulateShowDocument, EmulateShowSchema};
use lfn_emulate::control::{self, ControlError, Request, RunStatus};
use lfn_link::settings::{HopSettings, SettingsError, SettingsHint};

use super::link::read_trace;
use crate::cli::output::{OutputArgs, TextOrJson};
use crate::exit::{Exit, Failure};
use crate::print;

/// Commands for a running emulation.
#[derive(clap::Subcommand, Debug)]
pub enum RunningAction {
    /// Change the settings of a running link, for example: lfn emulate set rate=50mbit forward-loss=1e-3
    Set(SetRunningArgs),
    /// Print the settings of a running link
    Show(ShowRunningArgs),
}

/// Selects an emulation, a path and a link.
#[derive(clap::Args, Debug)]
pub struct RunSelection {
    /// Use the lfn emulate with this process id [default: the only running one]
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,
    /// Select the path by number, if there are parallel paths
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub path: u32,
    /// Select the link by number, if there are links in series [default: all links]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub link: Option<u32>,
}

/// Change the settings of a running link
///
/// Settings have the names of lfn emulate's flags, without dashes. All other settings stay unchanged. Packets in flight
/// keep the old settings.
#[derive(clap::Args, Debug)]
#[command(after_help = SET_EXAMPLES)]
pub struct SetRunningArgs {
    #[command(flatten)]
    selection: RunSelection,
    /// Settings to change, in both directions; forward-KEY or return-KEY changes one direction
    #[arg(required = true, value_name = "KEY=VALUE")]
    settings: Vec<String>,
    #[command(flatten)]
    output: OutputArgs<TextOrJson>,
}

/// Print the settings of a running link
#[derive(clap::Args, Debug)]
#[command(after_help = SHOW_EXAMPLES)]
pub struct ShowRunningArgs {
    /// Use the lfn emulate with this process id [default: the only running one]
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    #[command(flatten)]
    output: OutputArgs<TextOrJson>,
}

const SET_EXAMPLES: &str = "\
Inside the emulation, the commands change their own link. Elsewhere --pid is needed if several emulations run, and for \
root if the only one belongs to another user.

Examples, while lfn emulate runs:
  lfn emulate set rate=50mbit
  lfn emulate set rtt=100ms return-loss=1e-3";

const SHOW_EXAMPLES: &str = "\
Examples, while lfn emulate runs:
  lfn emulate show
  lfn emulate show --json";

/// Runs `lfn emulate set` or `lfn emulate show`.
pub fn run(action: RunningAction) -> Result<Exit, Failure> {
    match action {
        RunningAction::Set(args) => {
            let output = args.output.open()?;
            let (change, traces) = args.change()?;
            let settings = change.entries().map(|(key, value)| format!("{key}={value}")).collect();
            let RunSelection { pid, path, link } = args.selection;
            let status = send_request(pid, &Request::Set { path, link, settings, traces })?;
            output.finish(&document(&status), || {
                // Prints all settings as flags, since a change may affect other settings too.
                if let Some(path) = usize::try_from(path - 1).ok().and_then(|index| status.paths.get(index)) {
                    path.links.iter().for_each(|link| print::message(format_args!("{link}\n")));
                    path.warnings.iter().for_each(|warning| print::message(format_args!("lfn: {warning}\n")));
                }
                Ok::<_, Failure>(())
            })?;
        }
        RunningAction::Show(args) => {
            let output = args.output.open()?;
            let status = send_request(args.pid, &Request::Show)?;
            output.finish(&document(&status), || write!(print::out(), "{}", print::emulate::status::text(&status)))?;
        }
    }
    Ok(Exit::Ok)
}

fn send_request(pid: Option<u32>, request: &Request) -> Result<RunStatus, Failure> {
    control::find(pid).and_then(|run| control::send_request(run, request)).map_err(control_error)
}

fn document(status: &RunStatus) -> EmulateShowDocument {
    EmulateShowDocument { schema: EmulateShowSchema::Current, status: status.clone() }
}

/// Describes an error with a hint that selects a run, or starts one.
fn control_error(error: ControlError) -> Failure {
    match &error {
        ControlError::NoneFound => Failure::msg(&error).hint("lfn emulate --rtt 539ms --rate 135mbit"),
        ControlError::NoSuch(_) => Failure::msg(&error).hint("lfn emulate show"),
        ControlError::BadVariable(_) => Failure::msg(&error).hint("unset LFN_CONTROL"),
        ControlError::Several(runs) => match runs.first() {
            Some(first) => Failure::usage(&error).hint(with_pid(std::env::args_os(), first.pid)),
            None => Failure::usage(&error),
        },
        ControlError::OtherUser(run) => Failure::usage(&error).hint(with_pid(std::env::args_os(), run.pid)),
        ControlError::TooLong(_) => Failure::usage(&error).hint("change fewer settings at a time"),
        ControlError::Refused(refusal) => {
            let failure = if refusal.is_usage { Failure::usage(&error) } else { Failure::msg(&error) };
            match &refusal.hint {
                Some(hint) => failure.hint(hint),
                None => failure,
            }
        }
        ControlError::NoAnswer { .. } => Failure::msg(&error),
    }
}

/// Returns the user's command line with --pid after `set` or `show`.
fn with_pid(words: impl Iterator<Item = OsString>, pid: u32) -> String {
    let mut words: Vec<OsString> = words.collect();
    if let Some(program) = words.first_mut() {
        *program = "lfn".into();
    }
    let verb = words.iter().position(|word| word == "set" || word == "show").unwrap_or(0);
    words.insert(verb + 1, format!("--pid={pid}").into());
    command_line::join(words)
}

impl SetRunningArgs {
    /// Parses the changes, and reads the trace files in them.
    fn change(&self) -> Result<(HopSettings, BTreeMap<String, String>), Failure> {
        let mut change = HopSettings::default();
        for pair in &self.settings {
            change.set_pair(pair).map_err(setting_error)?;
        }
        let mut traces = BTreeMap::new();
        let mut read = |name: &str| {
            let text = read_trace(Path::new(name)).map_err(|error| error.to_string())?;
            traces.insert(name.to_owned(), text.clone());
            Ok(text)
        };
        change.read_traces(&mut read).map_err(setting_error)?;
        Ok((change, traces))
    }
}

/// Describes an error in the settings of a change.
fn setting_error(error: SettingsError) -> Failure {
    Failure::usage(&error).hint(match error.hint() {
        hint @ SettingsHint::Set { .. } => format!("lfn emulate set {hint}"),
        SettingsHint::Text(text) => text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hint_repeats_the_command_with_a_process_id() {
        let words = ["/usr/bin/lfn", "emulate", "set", "--path", "2", "loss=gilbert:p=1% r=5"].map(OsString::from);
        let hint = with_pid(words.into_iter(), 42);
        assert_eq!(hint, "lfn emulate set --pid=42 --path 2 'loss=gilbert:p=1% r=5'");
    }
}
