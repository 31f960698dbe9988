//! `lfn emulate set` and `lfn emulate show`: an emulated path that runs already.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use lfn_core::link::settings::{Hint, HopSettings, SettingsError};
use lfn_net::emulator::control::{self, ControlError, Request, Standing};

use super::link::read_trace;
use crate::exit::{Exit, Failure};
use crate::print;

/// What to do with a path that runs already.
#[derive(clap::Subcommand, Debug)]
pub enum Action {
    /// Change a link while it runs: lfn emulate set rate=50mbit forward-loss=1e-3
    Set(SetArgs),
    /// Say what a running link is set to
    Show(ShowArgs),
}

/// What is meant of what runs.
#[derive(clap::Args, Debug)]
pub struct Which {
    /// Process id of the lfn emulate that is meant [default: the only one there is]
    #[arg(long, value_name = "PID")]
    pub run: Option<u32>,
    /// Number of the path, if there are several side by side
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub path: u32,
    /// Number of the link in the path, if there are several in a row [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub link: Option<u32>,
}

/// Change a link while it runs
///
/// The settings are those of lfn emulate's flags, without the dashes; what is not named stays as it is. Packets in
/// flight go on as they were.
#[derive(clap::Args, Debug)]
pub struct SetArgs {
    #[command(flatten)]
    which: Which,
    /// Settings, each for both directions or with forward- or return- for one
    #[arg(required = true, value_name = "KEY=VALUE", allow_hyphen_values = true)]
    settings: Vec<String>,
}

/// Say what a running link is set to
#[derive(clap::Args, Debug)]
pub struct ShowArgs {
    /// Process id of the lfn emulate that is meant [default: the only one there is]
    #[arg(long, value_name = "PID")]
    run: Option<u32>,
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
}

pub fn run(action: Action) -> Result<Exit, Failure> {
    match action {
        Action::Set(args) => {
            let (change, traces) = args.change()?;
            let settings = change.given().map(|(key, value)| format!("{key}={value}")).collect();
            let Which { run, path, link } = args.which;
            let standing = ask(run, &Request::Set { path, link, settings, traces })?;
            // What it is now, as it would be typed: part of what was not named may have moved with what was.
            if let Some(path) = usize::try_from(path - 1).ok().and_then(|index| standing.paths.get(index)) {
                path.links.iter().for_each(|link| print::talk(format_args!("{link}\n")));
                path.doubts.iter().for_each(|doubt| print::talk(format_args!("lfn: {doubt}\n")));
            }
        }
        Action::Show(args) => show(&ask(args.run, &Request::Show)?, args.json)?,
    }
    Ok(Exit::Ok)
}

fn show(standing: &Standing, json: bool) -> Result<(), Failure> {
    if json {
        return Ok(writeln!(print::json(), "{}", print::emulate::standing::json(standing)?)?);
    }
    Ok(write!(print::out(), "{}", print::emulate::standing::text(standing))?)
}

fn ask(run: Option<u32>, request: &Request) -> Result<Standing, Failure> {
    control::find(run).and_then(|run| control::ask(run, request)).map_err(explain)
}

fn explain(error: ControlError) -> Failure {
    let hint = match &error {
        ControlError::None => "lfn emulate --rtt 539ms --rate 135mbit, in another terminal",
        ControlError::NoSuch(_) | ControlError::Variable(_) => {
            "without --run and LFN_CONTROL, the only one there is is meant"
        }
        ControlError::Several(_) => return Failure::usage(&error).hint("say which with --run PID"),
        ControlError::TooLong(_) => return Failure::usage(&error).hint("fewer settings at a time"),
        ControlError::Refused(refusal) => {
            let failure = if refusal.is_usage { Failure::usage(&error) } else { Failure::msg(&error) };
            return match &refusal.hint {
                Some(hint) => failure.hint(hint),
                None => failure,
            };
        }
        ControlError::Silent { .. } => return Failure::msg(&error),
    };
    Failure::msg(&error).hint(hint)
}

impl SetArgs {
    /// What is to change, and the text of each trace in it that is a file.
    fn change(&self) -> Result<(HopSettings, BTreeMap<String, String>), Failure> {
        let mut change = HopSettings::default();
        for pair in &self.settings {
            change.set_pair(pair).map_err(refused)?;
        }
        let mut traces = BTreeMap::new();
        let mut read = |name: &str| {
            let text = read_trace(Path::new(name)).map_err(|error| error.to_string())?;
            traces.insert(name.to_owned(), text.clone());
            Ok(text)
        };
        change.read_traces(&mut read).map_err(refused)?;
        Ok((change, traces))
    }
}

/// Settings that make no link, in terms of a change.
fn refused(error: SettingsError) -> Failure {
    Failure::usage(&error).hint(match error.hint() {
        hint @ Hint::Set { .. } => format!("lfn emulate set {hint}"),
        Hint::Say(text) => text,
    })
}
