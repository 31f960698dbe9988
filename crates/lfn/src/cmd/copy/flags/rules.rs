//! `--include`, `--exclude` and their files. The order on the command line matters, since the first match decides.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use lfn_session::wire::copy::filter::{Decision, FilterRules};

use super::lists::{lines, read};
use crate::exit::Failure;

/// Filter flags in the order typed.
#[derive(Clone, Debug, Default)]
pub struct RuleFlags(Vec<TypedRule>);

#[derive(Clone, Debug)]
struct TypedRule {
    flag: &'static str,
    decision: Decision,
    /// The value names a file of patterns.
    is_file: bool,
    text: OsString,
}

const FLAGS: [(&str, Decision, bool, &str); 4] = [
    ("include", Decision::Include, false, "Do not exclude files matching PATTERN, even if a later --exclude matches"),
    ("exclude", Decision::Exclude, false, "Exclude files matching PATTERN; a directory is excluded with its contents"),
    ("include-from", Decision::Include, true, "Read include patterns from FILE, one per line; - reads standard input"),
    ("exclude-from", Decision::Exclude, true, "Read exclude patterns from FILE, one per line; - reads standard input"),
];

impl RuleFlags {
    /// Returns the filter rules. With `nul`, NUL separates the patterns of a file.
    pub fn rules(&self, nul: bool) -> Result<FilterRules, Failure> {
        let mut rules = FilterRules::default();
        let hint = "write patterns as in rsync; rsync's long filter rules are not supported";
        for TypedRule { flag, decision, is_file, text } in &self.0 {
            let mut push = |pattern: &[u8], place: &str| {
                rules.push(*decision, pattern).map_err(|e| Failure::usage(format!("{place}{e}")).hint(hint))
            };
            if !is_file {
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
            let texts = texts.map(|text| TypedRule { flag, decision, is_file: file, text: text.clone() });
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
