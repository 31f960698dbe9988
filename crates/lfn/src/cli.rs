//! Command-line parsing. The arguments of each command are defined in the module of the command.

use clap::error::{ContextKind, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};

use crate::cmd;
use crate::exit::{Exit, Failure};

/// Measures, tunes, emulates and fills long fat networks.
#[derive(Parser, Debug)]
#[command(version, about, max_term_width = 100, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

/// The commands, in the order a newcomer needs them.
#[derive(Subcommand, Debug)]
pub enum Command {
    Plan(Box<cmd::plan::PlanArgs>),
    Emulate(Box<cmd::emulate::EmulateArgs>),
    Serve(Box<cmd::serve::ServeArgs>),
    Test(Box<cmd::measure::TestArgs>),
    Show(cmd::show::ShowArgs),
    Copy(Box<cmd::copy::CopyArgs>),
    Verify(cmd::verify::VerifyArgs),
    Hosts(cmd::hosts::HostsArgs),
    Token(cmd::token::TokenArgs),
    Demo(cmd::demo::DemoArgs),
    #[command(hide = true)]
    Reference(cmd::reference::ReferenceArgs),
}

const EXIT_CODES: &str = "Exit codes: 0 ok, 1 failed, 2 usage, 3 incomplete but resumable, \
4 finished but the result is not reliable (an inaccurate emulation, or wrong bytes with `lfn test --check-data`), 130 interrupted.";

/// Prints help or the version on standard output and returns success. Converts any other parse error into a [`Failure`]
/// with one line and a hint.
pub fn explain(error: &clap::Error) -> Result<Exit, Failure> {
    use ErrorKind::{DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion};
    if matches!(error.kind(), DisplayHelp | DisplayVersion) {
        // The reader may close the pipe early. This is no error.
        let _ = error.print();
        return Ok(Exit::Ok);
    }
    if error.kind() == DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return Ok(Exit::Usage);
    }
    let text = error.to_string();
    let what = text.split("\n\n").next().unwrap_or(&text).trim_start_matches("error: ");
    let what = what.split_whitespace().collect::<Vec<_>>().join(" ");
    let suggested = [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand, ContextKind::SuggestedValue]
        .into_iter()
        .find_map(|kind| error.get(kind));
    let failure = Failure::usage(what);
    if let (Some(typed), "lfn test") = (error.get(ContextKind::InvalidArg), typed_command().as_str())
        && let Some(instead) = cmd::measure::iperf3_flags::equivalent_of(&typed.to_string())
    {
        return Err(failure.hint(instead));
    }
    if typed_command() == "lfn test" && std::env::args().len() == 2 {
        let emulated = "lfn emulate --rtt 539ms --rate 135mbit -- lfn test far";
        return Err(failure.hint(format!(
            "run `lfn serve` on the other host, then here: lfn test TICKET. Without a second host: {emulated}"
        )));
    }
    if typed_command() == "lfn copy"
        && let Some(place) = std::env::args().find_map(|word| word.strip_prefix("-:").map(str::to_owned))
    {
        return Err(failure.hint(format!("to read the ticket from standard input, write @-:{place}")));
    }
    Err(match suggested {
        Some(other) => failure.hint(format!("did you mean {other}?")),
        None => failure.hint(format!("see `{} --help`", typed_command())),
    })
}

/// Returns `lfn`, the command and the subcommand, as far as the user typed them.
fn typed_command() -> String {
    let mut command = Cli::command();
    std::env::args()
        .skip(1)
        .map_while(|verb| {
            command = command.find_subcommand(&verb)?.clone();
            Some(verb)
        })
        .fold("lfn".to_owned(), |typed, verb| format!("{typed} {verb}"))
}
