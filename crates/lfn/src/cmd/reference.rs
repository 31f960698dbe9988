//! `lfn reference DIR`: writes the pages of the commands for the site, one Markdown file per command, from the same
//! description as `--help`.
//!
//! The command is hidden, because only the build of the site uses it.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use clap::builder::StyledStr;
use clap::{Arg, Command};
use lfn_link::settings::KEYS;

use crate::exit::{Exit, Failure};

/// Write the reference pages of all commands as Markdown.
#[derive(clap::Args, Debug)]
pub struct ReferenceArgs {
    /// Directory for the pages; it is created if needed
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Writes the pages into the directory.
pub fn run(args: &ReferenceArgs, program: Command) -> Result<Exit, Failure> {
    let directory = &args.directory;
    fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    for (name, page) in pages(program) {
        let file = directory.join(name);
        fs::write(&file, page).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(Exit::Ok)
}

/// Returns the file name and the text of each page: `lfn.md` for the program, `lfn-plan.md` for `lfn plan`.
fn pages(mut program: Command) -> Vec<(String, String)> {
    program.build();
    let mut pages = vec![("lfn.md".to_owned(), front_page(&program))];
    for command in shown_commands(&program) {
        let mut page = String::new();
        describe(command, &format!("lfn {}", command.get_name()), 1, &mut page);
        if command.get_name() == "emulate" {
            page += &settings();
        }
        pages.push((format!("lfn-{}.md", command.get_name()), page));
    }
    pages
}

/// Returns the page of the program itself: the list of its commands and its global options.
fn front_page(program: &Command) -> String {
    let mut page = "# lfn\n\n".to_owned();
    paragraph(program.get_long_about().or(program.get_about()), &mut page);
    page += "| command | purpose |\n| --- | --- |\n";
    for command in shown_commands(program) {
        let (name, about) = (command.get_name(), command.get_about().map(escaped).unwrap_or_default());
        let _ = writeln!(page, "| [`lfn {name}`](lfn-{name}.md) | {about} |");
    }
    page += "\n";
    options(program.get_arguments(), 2, &mut page);
    after(program, &mut page);
    page
}

/// Returns the table of the settings of an emulated link.
fn settings() -> String {
    let mut table = "## Settings\n\n| key | example | meaning |\n| --- | --- | --- |\n".to_owned();
    for key in KEYS.iter() {
        let _ = writeln!(table, "| `{}` | `{}` | {} |", key.name, key.example, key.meaning);
    }
    table
}

/// Appends one command, and its subcommands one level deeper.
fn describe(command: &Command, name: &str, level: usize, page: &mut String) {
    let _ = writeln!(page, "{} {name}\n", "#".repeat(level));
    paragraph(command.get_long_about().or(command.get_about()), page);
    let usage = command.clone().render_usage().to_string();
    let lines: Vec<_> = usage.trim_start_matches("Usage:").trim().lines().map(str::trim).collect();
    let _ = writeln!(page, "```text\n{}\n```\n", lines.join("\n"));
    arguments(command, level + 1, page);
    // The page of the program has the options of all commands.
    options(command.get_arguments().filter(|option| !option.is_global_set()), level + 1, page);
    after(command, page);
    for subcommand in shown_commands(command) {
        describe(subcommand, &format!("{name} {}", subcommand.get_name()), level + 1, page);
    }
}

fn shown_commands(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|command| !command.is_hide_set() && command.get_name() != "help")
}

fn arguments(command: &Command, level: usize, page: &mut String) {
    let shown: Vec<_> = command.get_positionals().filter(|argument| !argument.is_hide_set()).collect();
    list("Arguments", &shown, level, page);
}

/// Appends the options under their headings, in the order of the first option of each heading.
fn options<'a>(options: impl Iterator<Item = &'a Arg>, level: usize, page: &mut String) {
    let mut groups: Vec<(&str, Vec<&Arg>)> = Vec::new();
    let is_shown = |option: &&Arg| !option.is_positional() && !option.is_hide_set() && option.get_id() != "help";
    for option in options.filter(is_shown) {
        let heading = option.get_help_heading().unwrap_or("Options");
        match groups.iter_mut().find(|(name, _)| *name == heading) {
            Some((_, options)) => options.push(option),
            None => groups.push((heading, vec![option])),
        }
    }
    for (heading, options) in groups {
        list(heading, &options, level, page);
    }
}

/// Appends a heading and a definition list.
fn list(heading: &str, arguments: &[&Arg], level: usize, page: &mut String) {
    if arguments.is_empty() {
        return;
    }
    let _ = writeln!(page, "{} {heading}\n", "#".repeat(level));
    for argument in arguments {
        let _ = writeln!(page, "`{}`", spelling(argument));
        let help = argument.get_long_help().or(argument.get_help()).map(escaped).unwrap_or_default();
        let mut lines: Vec<String> = help.split("\n\n").map(|part| part.replace('\n', "\n    ")).collect();
        lines.extend(notes(argument));
        let _ = writeln!(page, ":   {}\n", lines.join("\n\n    "));
    }
}

/// Returns the option as `--help` spells it: `-t, --time <TIME>`.
fn spelling(argument: &Arg) -> String {
    if argument.is_positional() {
        return argument.to_string();
    }
    let short = argument.get_short().map(|short| format!("-{short}, ")).unwrap_or_default();
    format!("{short}{argument}")
}

/// Returns the possible values and the default, which clap adds to its own help.
fn notes(argument: &Arg) -> Vec<String> {
    let code = |words: Vec<String>| words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
    let mut notes = Vec::new();
    let values = argument.get_possible_values();
    if argument.get_action().takes_values() && !argument.is_hide_possible_values_set() && !values.is_empty() {
        let names = values.iter().filter(|value| !value.is_hide_set()).map(|value| value.get_name().to_owned());
        notes.push(format!("Values: {}.", code(names.collect())));
    }
    let defaults = argument.get_default_values();
    if argument.get_action().takes_values() && !argument.is_hide_default_value_set() && !defaults.is_empty() {
        let names = defaults.iter().map(|value| value.to_string_lossy().into_owned());
        notes.push(format!("Default: {}.", code(names.collect())));
    }
    notes
}

fn paragraph(text: Option<&StyledStr>, page: &mut String) {
    if let Some(text) = text {
        let _ = writeln!(page, "{}\n", escaped(text));
    }
}

/// Appends the text after the options. Indented lines, such as examples, become a block of code.
fn after(command: &Command, page: &mut String) {
    let Some(text) = command.get_after_long_help().or(command.get_after_help()) else { return };
    let text = text.to_string();
    let mut in_code = false;
    for line in text.lines() {
        let is_code = line.starts_with("  ");
        if is_code != in_code && !(in_code && line.is_empty()) {
            page.push_str(if is_code { "\n```text\n" } else { "```\n\n" });
            in_code = is_code;
        }
        page.push_str(&if in_code { line.strip_prefix("  ").unwrap_or(line).to_owned() } else { escaped_line(line) });
        page.push('\n');
    }
    page.push_str(if in_code { "```\n\n" } else { "\n" });
}

fn escaped(text: &StyledStr) -> String {
    escaped_line(&text.to_string())
}

/// Escapes the characters that Markdown would interpret outside of code spans.
fn escaped_line(text: &str) -> String {
    let mut is_code = false;
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if character == '`' {
            is_code = !is_code;
        } else if !is_code && matches!(character, '*' | '_' | '<' | '>' | '[' | ']' | '|' | '#' | '\\') {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn each_command_has_a_page_with_its_flags() {
        let pages = pages(Cli::command());
        let page = |name: &str| &pages.iter().find(|(file, _)| file == name).expect("the page exists").1;
        assert!(page("lfn.md").contains("[`lfn plan`](lfn-plan.md)"), "{}", page("lfn.md"));
        assert!(page("lfn-plan.md").contains("`--rtt <TIME>`\n:   "), "{}", page("lfn-plan.md"));
        assert!(page("lfn-token.md").contains("## lfn token add"), "{}", page("lfn-token.md"));
        assert!(!page("lfn.md").contains("lfn reference"));
    }

    #[test]
    fn every_setting_is_in_the_table() {
        let table = settings();
        for key in KEYS.iter() {
            assert!(table.contains(&format!("\n| `{}` | `{}` |", key.name, key.example)), "{}", key.name);
            assert!(key.meaning.ends_with('.') && !key.meaning.contains('\n'), "{}", key.name);
        }
    }

    #[test]
    fn markdown_characters_are_escaped_outside_code() {
        assert_eq!(escaped_line("a *b* <c> `*d*`"), "a \\*b\\* \\<c\\> `*d*`");
    }
}
