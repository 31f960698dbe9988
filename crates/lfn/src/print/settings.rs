//! Settings of all output of the process: amount and colours. They are set after the command line
//! is parsed, and once more by the configuration file of `lfn serve`.

use std::env;

use parking_lot::RwLock;

use crate::cli::ColorWhen;
use crate::cli::global::GlobalArgs;

/// Amount and colours of the output.
#[derive(Clone, Copy, Debug, Default)]
pub struct PrintSettings {
    /// Only errors and requested results are printed.
    pub quiet: bool,
    /// More details are printed; 2 or more adds the files that are up to date.
    pub verbose: u8,
    /// Condition under which output has colours.
    pub color: ColorWhen,
}

static SETTINGS: RwLock<PrintSettings> =
    RwLock::new(PrintSettings { quiet: false, verbose: 0, color: ColorWhen::Auto });

/// Sets the amount and the colours of all output as the flags of every command require.
pub fn configure_from_flags(flags: &GlobalArgs) {
    configure(PrintSettings { quiet: flags.quiet, verbose: flags.verbose, color: flags.color });
}

/// Sets the settings of this process.
pub fn configure(settings: PrintSettings) {
    *SETTINGS.write() = settings;
}

fn settings() -> PrintSettings {
    *SETTINGS.read()
}

/// Reports whether only errors and requested results are printed (`--quiet`).
pub fn is_quiet() -> bool {
    settings().quiet
}

/// Reports whether more details are printed (`--verbose`).
pub fn is_verbose() -> bool {
    settings().verbose >= 1
}

/// Reports whether all details are printed (`--verbose` twice).
pub fn is_very_verbose() -> bool {
    settings().verbose >= 2
}

/// Reports whether a stream has colours: as `--color` says, or else NO_COLOR (no-color.org), CLICOLOR_FORCE
/// (bixense.com/clicolors) and whether the stream is a terminal with colours.
pub fn has_colours(is_terminal: bool) -> bool {
    let is_set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
    match settings().color {
        ColorWhen::Always => true,
        ColorWhen::Never => false,
        ColorWhen::Auto if is_set("NO_COLOR") => false,
        ColorWhen::Auto if env::var_os("CLICOLOR_FORCE").is_some_and(|value| !value.is_empty() && value != "0") => true,
        ColorWhen::Auto => is_terminal && env::var_os("TERM").is_some_and(|term| term != "dumb"),
    }
}
