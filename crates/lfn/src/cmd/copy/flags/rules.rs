//! `--include`, `--exclude` and their files. The order on the command line matters, since the first match decides.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use clap::{ArgMatches, Command};
use lfn_session::wire::copy::filter::{Decision, FilterRules};

use super::lists::{lines, read};
use crate::exit::Failure;

/// Filter flags in the order typed.
#[derive(Clone, Debug, Default)]
pub struct RuleFlags(Vec<TypedRule>);

/// The flags as clap stores them: in order for each name.
#[derive(clap::Args, Debug)]
struct RuleArgs {
    /// Do not exclude files matching PATTERN, even if a later --exclude matches
    #[arg(long, value_name = "PATTERN", allow_hyphen_values = true)]
    include: Vec<OsString>,
    /// Exclude files matching PATTERN; a directory is excluded with its contents
    #[arg(long, value_name = "PATTERN", allow_hyphen_values = true)]
    exclude: Vec<OsString>,
    /// Read include patterns from FILE, one per line; - reads standard input
    #[arg(long, value_name = "FILE", allow_hyphen_values = true)]
    include_from: Vec<OsString>,
    /// Read exclude patterns from FILE, one per line; - reads standard input
    #[arg(long, value_name = "FILE", allow_hyphen_values = true)]
    exclude_from: Vec<OsString>,
}

#[derive(Clone, Debug)]
struct TypedRule {
    decision: Decision,
    source: PatternSource,
}

/// Place of the patterns of a rule.
#[derive(Clone, Debug)]
enum PatternSource {
    Pattern(OsString),
    /// A file of patterns, and the flag with its name.
    File {
        name: OsString,
        flag: &'static str,
    },
}

impl RuleFlags {
    /// Returns the filter rules. With `nul`, NUL separates the patterns of a file.
    pub fn rules(&self, nul: bool) -> Result<FilterRules, Failure> {
        let mut rules = FilterRules::default();
        let hint = "write patterns as in rsync; rsync's long filter rules are not supported";
        for TypedRule { decision, source } in &self.0 {
            let mut push = |pattern: &[u8], place: &str| {
                rules.push(*decision, pattern).map_err(|e| Failure::usage(format!("{place}{e}")).hint(hint))
            };
            match source {
                PatternSource::Pattern(pattern) => push(pattern.as_bytes(), "")?,
                PatternSource::File { name, flag } => {
                    let content = read(flag, name)?;
                    for (number, line) in lines(&content, nul) {
                        push(line, &format!("{}:{number}: ", name.display()))?;
                    }
                }
            }
        }
        Ok(rules)
    }
}

impl clap::FromArgMatches for RuleFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let RuleArgs { include, exclude, include_from, exclude_from } = RuleArgs::from_arg_matches(matches)?;
        let mut typed = Vec::new();
        let mut add = |id, values: Vec<OsString>, decision, source: fn(OsString) -> PatternSource| {
            let rules = values.into_iter().map(|value| TypedRule { decision, source: source(value) });
            typed.extend(matches.indices_of(id).into_iter().flatten().zip(rules));
        };
        add("include", include, Decision::Include, PatternSource::Pattern);
        add("exclude", exclude, Decision::Exclude, PatternSource::Pattern);
        add("include_from", include_from, Decision::Include, |name| PatternSource::File { name, flag: "include-from" });
        add("exclude_from", exclude_from, Decision::Exclude, |name| PatternSource::File { name, flag: "exclude-from" });
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
        RuleArgs::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        RuleArgs::augment_args_for_update(command)
    }
}
