//! What was typed: the command line, one `Args` per command beside its code.

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
    Plan(Box<cmd::plan::Args>),
    Emulate(Box<cmd::emulate::Args>),
    Serve(Box<cmd::serve::Args>),
    Test(Box<cmd::test::Args>),
    Show(cmd::show::Args),
    Copy(Box<cmd::copy::Args>),
    Verify(cmd::verify::Args),
    Hosts(cmd::hosts::Args),
    Token(cmd::token::Args),
    Demo(cmd::demo::Args),
}

const EXIT_CODES: &str = "Exit codes: 0 ok, 1 failed, 2 usage, 3 incomplete but resumable, \
4 done but not to be trusted (an emulation that was not faithful), 130 interrupted.";

/// Help and version go to stdout and are no error; anything else becomes one line and a hint, as every failure here.
pub fn explain(error: &clap::Error) -> Result<Exit, Failure> {
    use ErrorKind::{DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion};
    if matches!(error.kind(), DisplayHelp | DisplayVersion) {
        // A reader that closed the pipe has read enough.
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
    if let (Some(typed), "lfn test") = (error.get(ContextKind::InvalidArg), command_typed().as_str())
        && let Some(instead) = cmd::test::spelling::instead_of(&typed.to_string())
    {
        return Err(failure.hint(instead));
    }
    if command_typed() == "lfn test" && std::env::args().len() == 2 {
        let emulated = "lfn emulate --rtt 539ms --rate 135mbit -- lfn test far";
        return Err(
            failure.hint(format!("lfn test TICKET, of an `lfn serve` there; without a second host: {emulated}"))
        );
    }
    if command_typed() == "lfn copy"
        && let Some(place) = std::env::args().find_map(|word| word.strip_prefix("-:").map(str::to_owned))
    {
        return Err(failure.hint(format!("@-:{place}, where the ticket is on standard input")));
    }
    Err(match suggested {
        Some(other) => failure.hint(format!("did you mean {other}?")),
        None => failure.hint(format!("see `{} --help`", command_typed())),
    })
}

/// `lfn VERB`, and the verb below it, as far as such were typed.
fn command_typed() -> String {
    let mut command = Cli::command();
    std::env::args()
        .skip(1)
        .map_while(|verb| {
            command = command.find_subcommand(&verb)?.clone();
            Some(verb)
        })
        .fold("lfn".to_owned(), |typed, verb| format!("{typed} {verb}"))
}
