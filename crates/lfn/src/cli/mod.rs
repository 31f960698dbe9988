//! Command-line parsing. The arguments of each command are defined in the module of the command.

pub mod defaults;
mod explain;
#[cfg(test)]
mod flag_check;
pub mod global;
pub mod output;
mod requested;

use std::ffi::OsString;

use clap::builder::Styles;
use clap::builder::styling::AnsiColor;
use clap::{ColorChoice, CommandFactory, FromArgMatches, Parser, Subcommand};

use defaults::FlagDefault;
pub use explain::explain;
pub use global::ColorWhen;
pub use requested::RequestedOutput;

use crate::cmd;
use crate::exit::{Exit, Failure};
use crate::print::settings::{PrintSettings, configure, configure_from_flags};
use crate::typed;

/// Measures, tunes, emulates and fills long fat networks.
#[derive(Parser, Debug)]
#[command(version = cmd::version::VERSION, propagate_version = true, about)]
#[command(max_term_width = 100, after_help = EXIT_CODES, styles = STYLES)]
pub struct Cli {
    #[command(flatten)]
    global: global::GlobalArgs,
    #[command(subcommand)]
    pub command: Command,
}

/// The commands, in the order in which a new user needs them.
#[derive(Subcommand, Debug)]
pub enum Command {
    Plan(Box<cmd::plan::PlanArgs>),
    Emulate(Box<cmd::emulate::EmulateArgs>),
    Serve(Box<cmd::serve::ServeArgs>),
    Test(Box<cmd::test::TestArgs>),
    Sweep(Box<cmd::sweep::SweepArgs>),
    Doctor(Box<cmd::doctor::DoctorArgs>),
    Trace(Box<cmd::trace::TraceArgs>),
    Show(cmd::show::ShowArgs),
    Copy(Box<cmd::copy::CopyArgs>),
    Couple(cmd::couple::CoupleArgs),
    Mesh(cmd::mesh::MeshArgs),
    Verify(cmd::verify::VerifyArgs),
    Hosts(cmd::hosts::HostsArgs),
    Token(cmd::token::TokenArgs),
    Demo(cmd::demo::DemoArgs),
    Completions(cmd::completions::CompletionsArgs),
    Defaults(cmd::defaults::DefaultsArgs),
    Man(cmd::man::ManArgs),
    Version(cmd::version::VersionArgs),
    #[command(hide = true)]
    Reference(cmd::reference::ReferenceArgs),
}

/// Styles of the help on a terminal.
const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

const EXIT_CODES: &str = "Exit codes: 0 ok, 1 failed, 2 usage, 3 incomplete but resumable, \
4 finished but the result is not reliable (an inaccurate emulation, wrong bytes with `lfn test --check-data`, or a late \
sender with `lfn test --ramp`), 130 interrupted.";

/// Parses the command line with the defaults of `lfn.toml` and of variables. Sets the amount and the colours of all
/// output. Help and version are printed here, and end the command.
///
/// `ignored` has defaults that do not fit to the command line.
pub fn parse(words: &[OsString], ignored: &[FlagDefault]) -> Result<(Command, RequestedOutput), Result<Exit, Failure>> {
    let program = Cli::command().color(help_colours(words));
    configure(early_settings(words));
    let mut matches = program.clone().try_get_matches_from(words).map_err(|error| explain(&error, &program))?;
    let mut used = Vec::new();
    if !matches.get_flag("no_defaults") {
        let mut all = match defaults::read(&program) {
            // These commands help to correct the defaults.
            Err(failure)
                if matches!(matches.subcommand_name(), Some("completions" | "defaults" | "man" | "version")) =>
            {
                failure.print();
                Vec::new()
            }
            read => read.map_err(Err)?,
        };
        all.retain(|default| !ignored.contains(default));
        let (words, applied) = defaults::apply(&program, words, &matches, all).map_err(Err)?;
        typed::store_with_defaults(&words);
        matches = program.clone().try_get_matches_from(words).map_err(|error| explain(&error, &program))?;
        used = applied;
    }
    let cli = Cli::from_arg_matches(&matches).map_err(|error| explain(&error, &program))?;
    configure_from_flags(&cli.global);
    Ok((cli.command, RequestedOutput::of_matches(program, &matches, used)))
}

/// Returns the settings for the errors of an invalid command line, as far as its words show them.
fn early_settings(words: &[OsString]) -> PrintSettings {
    let is_quiet = words.iter().take_while(|word| *word != "--").any(|word| word == "-q" || word == "--quiet");
    let color = match help_colours(words) {
        ColorChoice::Always => ColorWhen::Always,
        ColorChoice::Never => ColorWhen::Never,
        ColorChoice::Auto => ColorWhen::Auto,
    };
    PrintSettings { quiet: is_quiet, verbose: 0, color }
}

/// Returns the colours of the help, which is printed while the command line is parsed.
fn help_colours(words: &[OsString]) -> ColorChoice {
    let words = || words.iter().map(|word| word.to_string_lossy()).take_while(|word| word != "--");
    let after = words().skip(1).map(Some).chain([None]);
    let color = words().zip(after).find_map(|(word, next)| match word.strip_prefix("--color=") {
        Some(value) => Some(value.to_owned()),
        None if word == "--color" => next.map(String::from),
        None => None,
    });
    match color.as_deref() {
        Some("always") => ColorChoice::Always,
        Some("never") => ColorChoice::Never,
        _ => ColorChoice::Auto,
    }
}
