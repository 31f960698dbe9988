//! Check that every flag has a help, and is in the manual page, the completions and the reference page of its command.
//!
//! All of these are generated from clap's description. The check reads the generated texts, so that a flag that a
//! generator omits is found too.

use std::collections::{BTreeMap, BTreeSet};

use clap::{Arg, Command};

use crate::cmd::completions::{Shell, script};
use crate::cmd::man::with_flags_of_all;
use crate::cmd::{man, reference};

/// Flags that a text lists, such as `--rate` and `-P`, by command, such as `lfn token add`.
type ListedFlags = BTreeMap<String, BTreeSet<String>>;

/// Flags of each text, by the name of the text.
type Texts = Vec<(&'static str, ListedFlags)>;

/// Returns one line for each flag without a help, and for each flag that a text lacks.
fn check(program: &Command, texts: &Texts) -> Vec<String> {
    let mut problems = Vec::new();
    check_command(&with_flags_of_all(program.clone()), "lfn", texts, &mut problems);
    problems
}

fn check_command(command: &Command, path: &str, texts: &Texts, problems: &mut Vec<String>) {
    // clap adds --help and --version itself.
    let is_own = |flag: &&Arg| !flag.is_hide_set() && flag.get_id() != "help" && flag.get_id() != "version";
    for flag in command.get_arguments().filter(is_own) {
        if flag.get_help().is_none_or(|help| help.to_string().trim().is_empty()) {
            problems.push(format!("{path}: {flag} has no help"));
        }
        for name in names(flag) {
            for (text, listed) in texts {
                if !listed.get(path).is_some_and(|flags| flags.contains(&name)) {
                    problems.push(format!("{path}: {name} is missing in the {text}"));
                }
            }
        }
    }
    for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
        check_command(subcommand, &format!("{path} {}", subcommand.get_name()), texts, problems);
    }
}

/// Returns the shown names of a flag with their dashes; none for a positional argument.
fn names(flag: &Arg) -> Vec<String> {
    let long = flag.get_long_and_visible_aliases().unwrap_or_default().into_iter().map(|name| format!("--{name}"));
    let short = flag.get_short_and_visible_aliases().unwrap_or_default().into_iter().map(|name| format!("-{name}"));
    long.chain(short).collect()
}

/// Generates all texts of a program.
fn texts(program: &Command) -> Texts {
    let script = |shell| String::from_utf8(script(shell, program.clone())).unwrap();
    vec![
        ("manual page", in_manual(program)),
        ("bash completions", in_bash(&script(Shell::Bash))),
        ("zsh completions", in_zsh(&script(Shell::Zsh))),
        ("fish completions", in_fish(&script(Shell::Fish))),
        ("reference page", in_reference(program)),
    ]
}

/// Returns the words of a text that have the form of a flag.
fn flag_words(text: &str) -> impl Iterator<Item = String> + '_ {
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '-');
    words.filter(|word| word.starts_with('-')).map(str::to_owned)
}

/// Reads the tags of the paragraphs, and the list of aliases after a help.
fn in_manual(program: &Command) -> ListedFlags {
    let pages = man::pages(&with_flags_of_all(program.clone()), "lfn").unwrap();
    let listed = pages.into_iter().map(|(name, page)| {
        let page = String::from_utf8(page).unwrap().replace("\\-", "-").replace("\\fB", "").replace("\\fR", "");
        let tags = page.lines().zip(page.lines().skip(1)).filter(|(before, _)| *before == ".TP").map(|(_, tag)| tag);
        let aliases = page.lines().filter_map(|line| Some(line.rsplit_once("[aliases: ")?.1));
        (name.replace('-', " "), tags.chain(aliases).flat_map(flag_words).collect())
    });
    listed.collect()
}

/// Reads the words of each command: `opts="-q --quiet …"`.
fn in_bash(script: &str) -> ListedFlags {
    let (mut listed, mut path) = (ListedFlags::new(), String::new());
    for line in script.lines().map(str::trim) {
        if let Some(name) = line.strip_suffix(')') {
            path = name.replace("__subcmd__", " ");
        } else if let Some(words) = line.strip_prefix("opts=\"") {
            listed.entry(path.clone()).or_default().extend(flag_words(words));
        }
    }
    listed
}

/// Reads lines such as `'(--json)--output=[Select the format]:…'`. The cases around the lines name the command.
fn in_zsh(script: &str) -> ListedFlags {
    let (mut listed, mut path, mut cases) = (ListedFlags::new(), vec!["lfn"], Vec::new());
    let lines: Vec<_> = script.lines().map(str::trim).collect();
    for (number, line) in lines.iter().enumerate() {
        let calls_arguments = lines.get(number + 1).is_some_and(|next| next.starts_with("_arguments"));
        if let Some(value) = line.strip_prefix("case ") {
            cases.push(value);
        } else if *line == "esac" {
            cases.pop();
        } else if let Some(name) = line.strip_prefix('(').and_then(|line| line.strip_suffix(')'))
            && calls_arguments
        {
            path.truncate(cases.iter().filter(|value| value.starts_with("$line[")).count());
            path.push(name);
        } else if let Some(text) = line.strip_prefix('\'') {
            let text = text.strip_prefix('(').and_then(|text| text.split_once(')')).map_or(text, |(_, flag)| flag);
            let flag = text.trim_start_matches('*').split(['[', '=', '+']).next().filter(|flag| flag.starts_with('-'));
            listed.entry(path.join(" ")).or_default().extend(flag.map(str::to_owned));
        }
    }
    listed
}

/// Reads lines such as `complete -c lfn -n "__fish_lfn_using_subcommand plan" -s q -l quiet -d '…'`.
fn in_fish(script: &str) -> ListedFlags {
    let mut listed = ListedFlags::new();
    for line in script.lines() {
        let Some((_, rest)) = line.split_once(" -n \"") else { continue };
        let Some((condition, flags)) = rest.split_once('"') else { continue };
        let of = |function: &str| Some(condition.split_once(function)?.1.split(';').next()?.trim().to_owned());
        let mut path = vec!["lfn".to_owned()];
        path.extend(of("__fish_lfn_using_subcommand "));
        if !condition.contains("; and not ") {
            path.extend(of("__fish_seen_subcommand_from "));
        }
        let flags = flags.split(" -d ").next().unwrap_or_default();
        let words: Vec<_> = flags.split_whitespace().collect();
        let named = words.windows(2).filter_map(|pair| match pair[0] {
            "-s" => Some(format!("-{}", pair[1])),
            "-l" => Some(format!("--{}", pair[1])),
            _ => None,
        });
        listed.entry(path.join(" ")).or_default().extend(named);
    }
    listed
}

/// Reads the headings and the terms. The page of `lfn` has the flags of all commands.
fn in_reference(program: &Command) -> ListedFlags {
    let mut listed = ListedFlags::new();
    for (_, page) in reference::pages(program.clone()) {
        let mut path = String::new();
        for line in page.lines() {
            let heading = line.trim_start_matches('#').trim_start();
            if line.starts_with('#') && heading.split(' ').next() == Some("lfn") {
                path = heading.to_owned();
                listed.entry(path.clone()).or_default();
            } else if line.starts_with("`-") || line.trim_start().starts_with("Alias: ") {
                listed.entry(path.clone()).or_default().extend(flag_words(line));
            }
        }
    }
    let global = listed.get("lfn").cloned().unwrap_or_default();
    for flags in listed.values_mut() {
        flags.extend(global.iter().cloned());
    }
    listed
}

mod tests {
    use clap::{ArgAction, CommandFactory};

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn every_flag_has_a_help_and_is_in_every_text() {
        let program = Cli::command();
        let problems = check(&program, &texts(&program));
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    }

    /// Program with one flag of every command, and one flag of a nested command.
    fn small_program() -> Command {
        let flag = |name: &'static str| Arg::new(name).long(name).help("Set a value");
        let add = Command::new("add").arg(flag("rate").short('r').visible_alias("speed"));
        let add = add.arg(flag("paste").action(ArgAction::SetTrue));
        Command::new("lfn").arg(flag("color").global(true)).subcommand(Command::new("token").subcommand(add))
    }

    #[test]
    fn complete_description_has_no_problem() {
        let program = small_program();
        assert_eq!(check(&program, &texts(&program)), [""; 0]);
    }

    #[test]
    fn missing_help_is_reported_with_the_flag() {
        let broken = small_program().arg(Arg::new("force").long("force").help(" "));
        assert_eq!(check(&broken, &texts(&broken)), ["lfn: --force <force> has no help"]);
    }

    #[test]
    fn each_text_without_a_flag_is_reported() {
        let complete = small_program();
        let add = |command: Command| command.arg(Arg::new("new").long("new").help("Set a value"));
        let extended = complete.clone().mut_subcommand("token", |token| token.mut_subcommand("add", add));
        // The texts of a program without the flag.
        let problems = check(&extended, &texts(&complete));
        let expected = ["manual page", "bash completions", "zsh completions", "fish completions", "reference page"];
        assert_eq!(problems, expected.map(|text| format!("lfn token add: --new is missing in the {text}")));
    }

    #[test]
    fn flag_of_another_command_does_not_count() {
        let complete = small_program().subcommand(Command::new("copy"));
        let add = |command: Command| command.arg(Arg::new("rate").long("rate").help("Set a value"));
        let extended = complete.clone().mut_subcommand("copy", add);
        let problems = check(&extended, &texts(&complete));
        assert_eq!(problems.len(), 5, "{problems:?}");
        assert!(problems.iter().all(|problem| problem.starts_with("lfn copy: --rate is missing in the ")));
    }
}
