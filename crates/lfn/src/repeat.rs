//! The flags of the user in the hints of findings: a hint repeats the command with one more flag.

use clap::{Arg, Command};
use lfn_api::command_line::quote;
use lfn_results::evidence::TypedArgument;

use crate::typed;

/// Flags that change the output or the direction. The direction of a finding replaces that of the user.
const SKIPPED: &[&str] = &[
    "json", "output", "report", "no-live", "quiet", "verbose", "color", "progress", "reverse", "both", "bidir",
    "compare",
];

/// Returns the flags of the command line of `command`, without its places, its output and its direction.
pub fn typed_flags(command: &Command) -> Vec<TypedArgument> {
    let words = typed::without_secrets(typed::words().skip_while(|word| word != command.get_name()).skip(1));
    flags(command, words)
}

fn flags(command: &Command, words: Vec<String>) -> Vec<TypedArgument> {
    let mut words = words.into_iter();
    let mut flags = Vec::new();
    while let Some(word) = words.next() {
        if word == "--" {
            break;
        }
        let long = |name: &str| command.get_arguments().find(|argument| argument.get_long() == Some(name));
        if let Some(rest) = word.strip_prefix("--") {
            let (name, has_value) = rest.split_once('=').map_or((rest, false), |(name, _)| (name, true));
            let Some(argument) = long(name) else { continue };
            let value = if !has_value && takes_value(argument) { words.next() } else { None };
            push(&mut flags, argument, &word, value);
        } else if let Some(cluster) = word.strip_prefix('-').filter(|cluster| !cluster.is_empty()) {
            for (at, letter) in cluster.char_indices() {
                let known = command.get_arguments().find(|argument| argument.get_short() == Some(letter));
                let Some(argument) = known else { break };
                if !takes_value(argument) {
                    push(&mut flags, argument, &format!("-{letter}"), None);
                    continue;
                }
                let rest = &cluster[at + letter.len_utf8()..];
                let value = if rest.is_empty() { words.next() } else { Some(rest.to_owned()) };
                push(&mut flags, argument, &format!("-{letter}"), value);
                break;
            }
        }
    }
    flags
}

fn takes_value(argument: &Arg) -> bool {
    argument.get_action().takes_values() && !argument.is_require_equals_set()
}

fn push(flags: &mut Vec<TypedArgument>, argument: &Arg, word: &str, value: Option<String>) {
    let name = argument.get_long().unwrap_or_default();
    if SKIPPED.contains(&name) || argument.get_id() == "iperf3" {
        return;
    }
    let text = match value {
        Some(value) => format!("{} {}", quote(word), quote(&value)),
        None => quote(word),
    };
    flags.push(TypedArgument { flag: Some(name.to_owned()), text });
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, CommandFactory};

    use super::*;
    use crate::cli::Cli;
    use crate::cmd::man::with_flags_of_all;
    use crate::cmd::test::TestArgs;

    fn parsed(words: &[&str]) -> Vec<(String, String)> {
        let command = TestArgs::augment_args(Command::new("test"));
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        flags(&command, words).into_iter().map(|flag| (flag.flag.unwrap_or_default(), flag.text)).collect()
    }

    #[test]
    fn skipped_flags_exist() {
        let program = with_flags_of_all(Cli::command());
        for name in SKIPPED {
            let has = |command: &str| {
                let command = program.find_subcommand(command).unwrap();
                command.get_arguments().any(|argument| argument.get_long() == Some(name))
            };
            assert!(has("test") || has("copy"), "--{name}");
        }
    }

    #[test]
    fn flags_stay_as_typed_without_output_and_direction() {
        let typed =
            ["far1", "-t", "15", "--rate=200mbit", "-RP4", "--json", "--report", "a b.json", "--sndbuf", "64KiB"];
        let kept = parsed(&typed);
        let expected =
            [("time", "-t 15"), ("rate", "--rate=200mbit"), ("streams", "-P 4"), ("sndbuf", "--sndbuf 64KiB")];
        assert_eq!(kept, expected.map(|(name, text)| (name.to_owned(), text.to_owned())));
    }

    #[test]
    fn values_are_quoted_for_a_shell() {
        assert_eq!(parsed(&["--bind", "10.0.0.1 $x"])[0].1, "--bind '10.0.0.1 $x'");
        assert_eq!(parsed(&["--latency", "far1"])[0].1, "--latency");
        assert_eq!(parsed(&["--latency=20ms", "far1"])[0].1, "--latency=20ms");
    }
}
