//! `lfn emulate set` and `lfn emulate show`: change or print the settings of a running emulation.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use lfn_core::link::settings::{HopSettings, SettingsError, SettingsHint};
use lfn_net::emulator::control::{self, ControlError, Request, RunStatus};

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
pub struct SetRunningArgs {
    #[command(flatten)]
    selection: RunSelection,
    /// Settings to change, in both directions; forward-KEY or return-KEY changes one direction
    #[arg(required = true, value_name = "KEY=VALUE", allow_hyphen_values = true)]
    settings: Vec<String>,
    #[command(flatten)]
    output: OutputArgs<TextOrJson>,
}

/// Print the settings of a running link
#[derive(clap::Args, Debug)]
pub struct ShowRunningArgs {
    /// Use the lfn emulate with this process id [default: the only running one]
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    #[command(flatten)]
    output: OutputArgs<TextOrJson>,
}

/// Runs `lfn emulate set` or `lfn emulate show`.
pub fn run(action: RunningAction) -> Result<Exit, Failure> {
    match action {
        RunningAction::Set(args) => {
            let output = args.output.open()?;
            let (change, traces) = args.change()?;
            let settings = change.entries().map(|(key, value)| format!("{key}={value}")).collect();
            let RunSelection { pid, path, link } = args.selection;
            let status = send_request(pid, &Request::Set { path, link, settings, traces })?;
            output.finish(&print::emulate::status::document(&status)?, || {
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
            output.finish(&print::emulate::status::document(&status)?, || {
                write!(print::out(), "{}", print::emulate::status::text(&status))
            })?;
        }
    }
    Ok(Exit::Ok)
}

fn send_request(pid: Option<u32>, request: &Request) -> Result<RunStatus, Failure> {
    control::find(pid).and_then(|run| control::send_request(run, request)).map_err(control_error)
}

fn control_error(error: ControlError) -> Failure {
    let hint = match &error {
        ControlError::NoneFound => "start one in another terminal: lfn emulate --rtt 539ms --rate 135mbit",
        ControlError::NoSuch(_) | ControlError::BadVariable(_) => {
            "without --pid and LFN_CONTROL, the only running emulation is used"
        }
        ControlError::Several(_) => return Failure::usage(&error).hint("select one with --pid PID"),
        ControlError::TooLong(_) => return Failure::usage(&error).hint("change fewer settings at a time"),
        ControlError::Refused(refusal) => {
            let failure = if refusal.is_usage { Failure::usage(&error) } else { Failure::msg(&error) };
            return match &refusal.hint {
                Some(hint) => failure.hint(hint),
                None => failure,
            };
        }
        ControlError::NoAnswer { .. } => return Failure::msg(&error),
    };
    Failure::msg(&error).hint(hint)
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
