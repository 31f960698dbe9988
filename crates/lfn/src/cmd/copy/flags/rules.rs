//! `--include` and its like: patterns in the order in which they were typed, since the first that matches decides.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use lfn_core::transfer::filter::{Decision, Rules};

use super::lists::{lines, read};
use crate::exit::Failure;

/// What was typed.
#[derive(Clone, Debug, Default)]
pub struct RuleFlags(Vec<Typed>);

#[derive(Clone, Debug)]
struct Typed {
    flag: &'static str,
    decision: Decision,
    /// A file of patterns.
    file: bool,
    text: OsString,
}

const FLAGS: [(&str, Decision, bool, &str); 4] = [
    ("include", Decision::Include, false, "Copy what matches, though a later --exclude matches it too"),
    ("exclude", Decision::Exclude, false, "Leave out what matches; a directory with all it holds"),
    ("include-from", Decision::Include, true, "Patterns to include, one a line; - is standard input"),
    ("exclude-from", Decision::Exclude, true, "Patterns to exclude, one a line; - is standard input"),
];

impl RuleFlags {
    /// The rules; `nul` ends the lines of files.
    pub fn rules(&self, nul: bool) -> Result<Rules, Failure> {
        let mut rules = Rules::default();
        let hint = "patterns mean what they mean to rsync; its rules in long form are not read";
        for Typed { flag, decision, file, text } in &self.0 {
            let mut push = |pattern: &[u8], place: &str| {
                rules.push(*decision, pattern).map_err(|e| Failure::usage(format!("{place}{e}")).hint(hint))
            };
            if !file {
                push(text.as_bytes(), "")?;
                continue;
            }
            let content = read(flag, text)?;
            for (number, line) in lines(&content, nul) {
                push(line, &format!("{}:{number}: ", text.display()))?;
            }
        }
        Ok(rules)
    }
}

impl clap::FromArgMatches for RuleFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut typed = Vec::new();
        for (flag, decision, file, _) in FLAGS {
            let (Some(indices), Some(texts)) = (matches.indices_of(flag), matches.get_many::<OsString>(flag)) else {
                continue;
            };
            let texts = texts.map(|text| Typed { flag, decision, file, text: text.clone() });
            typed.extend(indices.zip(texts));
        }
        typed.sort_by_key(|(index, _)| *index);
        Ok(RuleFlags(typed.into_iter().map(|(_, typed)| typed).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = RuleFlags::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for RuleFlags {
    fn augment_args(command: Command) -> Command {
        FLAGS.iter().fold(command, |command, (flag, _, file, help)| {
            let arg = Arg::new(*flag).long(*flag).action(ArgAction::Append).value_parser(value_parser!(OsString));
            command.arg(arg.value_name(if *file { "FILE" } else { "PATTERN" }).allow_hyphen_values(true).help(*help))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        RuleFlags::augment_args(command)
    }
}
