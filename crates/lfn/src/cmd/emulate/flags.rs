//! Flags of a link, one for each setting in the table of `lfn-link`: `--KEY`, `--forward-KEY`, `--return-KEY`.
//!
//! The flags are generated from the table, so that each setting is described in one place. `lfn-link` parses the
//! values, so that a flag, a profile and a change of a running link report the same errors.

use std::path::Path;

use clap::{Arg, ArgMatches, Command};
use lfn_link::settings::{HopSettings, KEYS, Key, SettingsError, SettingsHint};

use super::link::read_traces;
use crate::exit::Failure;

/// Settings given as flags, not parsed yet.
#[derive(Debug, Default)]
pub struct SettingFlags(Vec<(&'static str, String)>);

impl SettingFlags {
    /// Parses the settings and reads the trace files.
    pub fn read(&self) -> Result<HopSettings, Failure> {
        let mut settings = HopSettings::default();
        for (key, value) in &self.0 {
            settings.set(key, value).map_err(settings_error)?;
        }
        read_traces(&mut settings, Path::new("")).map_err(settings_error)?;
        Ok(settings)
    }

    /// Returns the first setting, for error messages.
    pub fn first(&self) -> Option<&'static str> {
        self.0.first().map(|(key, _)| *key)
    }
}

/// Describes an error in settings that were given as flags.
pub fn settings_error(error: SettingsError) -> Failure {
    let hint = match error.hint() {
        SettingsHint::Set { key, value } if matches!(error, SettingsError::Missing { .. }) => {
            format!("--{key} {value}, or use a profile: --profile acts (lfn emulate --list shows all)")
        }
        SettingsHint::Set { key, value } => format!("--{key} {value}"),
        SettingsHint::Text(text) => text,
    };
    use SettingsError::{Missing, Trace, Value};
    let is_flag = matches!(error, Value { .. } | Trace { .. } | Missing { .. });
    let dashes = if is_flag { "--" } else { "" };
    Failure::usage(format!("{dashes}{error}")).hint(hint)
}

/// Returns all names of the flags of one setting.
fn names(key: &'static Key) -> impl Iterator<Item = &'static str> {
    let one_way = if key.has_direction { key.one_way.as_slice() } else { &[] };
    [key.name].into_iter().chain(one_way.iter().copied())
}

impl clap::Args for SettingFlags {
    fn augment_args(mut command: Command) -> Command {
        for key in KEYS.iter() {
            for name in names(key) {
                // The help shows one line for each setting. The two flags for one direction are hidden, since they
                // would triple the help.
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
        Ok(SettingFlags(KEYS.iter().copied().flat_map(names).filter_map(value).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
