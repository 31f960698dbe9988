//! Flags that every command has, with the same meaning.

use clap::{ArgAction, ValueEnum};

/// Flags of every command.
#[derive(clap::Args, Debug)]
pub struct GlobalArgs {
    /// Print only errors and the requested result: no summary, no hints, no progress
    #[arg(short, long, global = true, overrides_with = "verbose", help_heading = HEADING)]
    pub quiet: bool,
    /// Print more details, such as the name of each copied file; -vv adds the files that are up to date
    #[arg(short, long, global = true, overrides_with = "quiet", action = ArgAction::Count, help_heading = HEADING)]
    pub verbose: u8,
    /// Use colours [default: auto, on a terminal unless NO_COLOR is set]
    #[arg(long, global = true, value_name = "WHEN", value_enum, default_value_t, hide_default_value = true)]
    #[arg(help_heading = HEADING)]
    pub color: ColorWhen,
    /// Ignore the defaults of lfn.toml and of LFN_ variables (see `lfn defaults`)
    #[arg(long, global = true, help_heading = HEADING)]
    pub no_defaults: bool,
}

const HEADING: &str = "Global options";

/// Condition under which output has colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ColorWhen {
    /// On a terminal, unless NO_COLOR is set; with CLICOLOR_FORCE everywhere
    #[default]
    Auto,
    /// Everywhere, also in files and pipes
    Always,
    /// Never, regardless of the environment
    Never,
}
