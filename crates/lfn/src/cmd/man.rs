//! `lfn man`: prints or writes the manual pages, from the same description as `--help`.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Arg, Command};
use clap_mangen::Man;

use crate::exit::{Exit, Failure};
use crate::print;

/// Print a manual page, or write all of them to a directory
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ManArgs {
    /// Command and subcommand of the page [default: the page of lfn itself]
    #[arg(value_name = "COMMAND")]
    words: Vec<String>,
    /// Write the pages of all commands to DIR, which is created if needed
    #[arg(long, value_name = "DIR", conflicts_with = "words")]
    dir: Option<PathBuf>,
}

const EXAMPLES: &str = "Examples:
  lfn man test | man -l -
  lfn man --dir ~/.local/share/man/man1";

/// Runs `lfn man` and returns its exit code.
pub fn run(args: &ManArgs, program: Command) -> Result<Exit, Failure> {
    let program = with_flags_of_all(program);
    if let Some(directory) = &args.dir {
        let failed = |path: &Path, error| {
            Failure::msg(format!("cannot write {}: {error}", path.display()))
                .hint("lfn man --dir ~/.local/share/man/man1")
        };
        fs::create_dir_all(directory).map_err(|error| failed(directory, error))?;
        for (name, page) in pages(&program, "lfn")? {
            let file = directory.join(format!("{name}.1"));
            fs::write(&file, page).map_err(|error| failed(&file, error))?;
        }
        return Ok(Exit::Ok);
    }
    let mut command = &program;
    let mut name = "lfn".to_owned();
    for word in &args.words {
        command = command
            .find_subcommand(word)
            .ok_or_else(|| Failure::usage(format!("unknown command '{word}'")).hint("list the commands: lfn --help"))?;
        name = format!("{name}-{word}");
    }
    print::raw_text().write_all(&page(command, &name)?)?;
    Ok(Exit::Ok)
}

/// Returns the program without the command `help`, and with the flags of all commands in each command.
pub fn with_flags_of_all(program: Command) -> Command {
    let mut program = program.disable_help_subcommand(true);
    program.build();
    program
}

/// Returns the names and the pages of a command and of its subcommands.
pub fn pages(command: &Command, name: &str) -> Result<Vec<(String, Vec<u8>)>, Failure> {
    let mut all = vec![(name.to_owned(), page(command, name)?)];
    for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
        all.extend(pages(subcommand, &format!("{name}-{}", subcommand.get_name()))?);
    }
    Ok(all)
}

/// Returns the page in roff. The name is `lfn-test` for `lfn test`.
fn page(command: &Command, name: &str) -> Result<Vec<u8>, Failure> {
    let command = command.clone().mut_args(with_aliases);
    // clap takes names only as static text. A process renders each page once.
    let command = command.name(&*name.to_owned().leak()).version(super::version::VERSION);
    let man = Man::new(command).title(name.to_uppercase()).manual("lfn manual");
    let mut page = Vec::new();
    man.render(&mut page)?;
    Ok(page)
}

/// Adds the aliases of a flag to its help, as `--help` shows them. The generator of the pages omits them.
fn with_aliases(flag: Arg) -> Arg {
    let aliases: Vec<String> =
        flag.get_visible_aliases().unwrap_or_default().iter().map(|alias| format!("--{alias}")).collect();
    if aliases.is_empty() {
        return flag;
    }
    let help = flag.get_long_help().or(flag.get_help()).map(ToString::to_string).unwrap_or_default();
    flag.long_help(format!("{help} [aliases: {}]", aliases.join(", ")))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn every_shown_command_has_a_page() {
        let program = with_flags_of_all(Cli::command());
        let all = pages(&program, "lfn").unwrap();
        for name in ["lfn", "lfn-test", "lfn-emulate-set", "lfn-token-add", "lfn-man"] {
            let page = &all.iter().find(|(known, _)| known == name).unwrap_or_else(|| panic!("{name}")).1;
            assert!(String::from_utf8_lossy(page).contains(".SH NAME"), "{name}");
        }
        assert!(all.iter().all(|(name, _)| name != "lfn-reference"));
    }
}
