//! The flags of a link, one for each setting in core's table: `--KEY`, `--forward-KEY`, `--return-KEY`.
//!
//! They are made from the table instead of being written down, so that a setting is described in one place. Values are
//! taken as text and read by core, so that a flag, a profile and a change to a running link fail with the same words.

use std::path::Path;

use clap::{Arg, ArgMatches, Command};
use lfn_core::link::settings::{Hint, HopSettings, KEYS, Key, SettingsError};

use super::link::read_traces;
use crate::exit::Failure;

/// The settings that were typed as flags, unread.
#[derive(Debug, Default)]
pub struct SettingFlags(Vec<(&'static str, String)>);

impl SettingFlags {
    /// Reads them.
    pub fn read(&self) -> Result<HopSettings, Failure> {
        let mut settings = HopSettings::default();
        for (key, value) in &self.0 {
            settings.set(key, value).map_err(refused)?;
        }
        read_traces(&mut settings, Path::new("")).map_err(refused)?;
        Ok(settings)
    }

    /// The first of them, for an error that they are out of place.
    pub fn first(&self) -> Option<&'static str> {
        self.0.first().map(|(key, _)| *key)
    }
}

/// Settings that make no link, in terms of flags.
pub fn refused(error: SettingsError) -> Failure {
    let hint = match error.hint() {
        Hint::Set { key, value } if matches!(error, SettingsError::Missing { .. }) => {
            format!("--{key} {value}, or --profile acts for all there is to set: see lfn emulate --list")
        }
        Hint::Set { key, value } => format!("--{key} {value}"),
        Hint::Say(text) => text,
    };
    use SettingsError::{Missing, Trace, Value};
    let is_flag = matches!(error, Value { .. } | Trace { .. } | Missing { .. });
    let dashes = if is_flag { "--" } else { "" };
    Failure::usage(format!("{dashes}{error}")).hint(hint)
}

/// Every name under which a setting can be typed.
fn names(key: &'static Key) -> impl Iterator<Item = &'static str> {
    let one_way = if key.has_direction { key.one_way.as_slice() } else { &[] };
    [key.name].into_iter().chain(one_way.iter().copied())
}

impl clap::Args for SettingFlags {
    fn augment_args(mut command: Command) -> Command {
        for key in KEYS {
            for name in names(key) {
                // One line says that there are two more of each: all of them would hide the rest of the help.
                let flag = Arg::new(name).long(name).value_name(key.value).help(key.help).allow_hyphen_values(true);
                command = command.arg(flag.help_heading(key.group.title()).hide(name != key.name));
            }
        }
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for SettingFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let value = |name: &'static str| Some((name, matches.get_one::<String>(name)?.clone()));
        Ok(SettingFlags(KEYS.iter().flat_map(names).filter_map(value).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
