//! `lfn completions`: prints the completion script of a shell, from the same description as `--help`.

use std::io::Write;

use clap::{Command, ValueEnum};
use clap_complete::{generate, shells};

use crate::exit::{Exit, Failure};
use crate::print;

/// Print a script that completes commands and flags in a shell
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CompletionsArgs {
    /// Shell that reads the script
    shell: Shell,
}

/// Shells with a completion script.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Shell {
    /// Script for GNU Bash
    Bash,
    /// Script for the Z shell
    Zsh,
    /// Script for the fish shell
    Fish,
}

const EXAMPLES: &str = "Examples:
  mkdir -p ~/.local/share/bash-completion/completions
  lfn completions bash > ~/.local/share/bash-completion/completions/lfn
  lfn completions zsh > ~/.zfunc/_lfn
  lfn completions fish > ~/.config/fish/completions/lfn.fish";

/// Runs `lfn completions` and returns its exit code.
pub fn run(args: &CompletionsArgs, program: Command) -> Result<Exit, Failure> {
    print::raw_text().write_all(&script(args.shell, program))?;
    Ok(Exit::Ok)
}

/// Returns the script of a shell.
pub fn script(shell: Shell, mut program: Command) -> Vec<u8> {
    let mut script = Vec::new();
    match shell {
        Shell::Bash => generate(shells::Bash, &mut program, "lfn", &mut script),
        Shell::Zsh => generate(shells::Zsh, &mut program, "lfn", &mut script),
        Shell::Fish => generate(shells::Fish, &mut program, "lfn", &mut script),
    }
    script
}
