//! Output that the command line requests, for the error document of a failed command.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::ArgMatches;

use super::defaults::FlagDefault;
use super::explain::command_name;
use crate::exit::{Exit, Failure};
use crate::print::output::{OutputFormat, error_document, print_error_document};
use crate::print::report_file::{ReportFile, is_report_written};
use crate::typed;

/// Format and report file that a command line requests.
pub struct RequestedOutput {
    /// Command and subcommand, such as `emulate set`.
    command: String,
    format: OutputFormat,
    report: Option<PathBuf>,
    /// Description of all commands and flags.
    program: clap::Command,
    /// Defaults that are part of the command line.
    defaults: Vec<FlagDefault>,
}

impl RequestedOutput {
    /// Returns the requested output of a valid command line.
    pub fn of_matches(program: clap::Command, matches: &ArgMatches, defaults: Vec<FlagDefault>) -> Self {
        let mut leaf = matches;
        let mut names = Vec::new();
        while let Some((name, deeper)) = leaf.subcommand() {
            names.push(name);
            leaf = deeper;
        }
        let is_json = leaf.try_get_one::<bool>("json").ok().flatten() == Some(&true);
        let format = leaf.try_get_one::<OutputFormat>("output").ok().flatten().copied();
        let report = leaf.try_get_one::<PathBuf>("report").ok().flatten().cloned();
        let format = if is_json { OutputFormat::Json } else { format.unwrap_or(OutputFormat::Text) };
        RequestedOutput { command: names.join(" "), format, report, program, defaults }
    }

    /// Returns the requested output of an invalid command line, as far as its words show it.
    pub fn of_words(program: clap::Command, words: &[OsString]) -> Self {
        let words = || words.iter().filter_map(|word| word.to_str()).take_while(|word| *word != "--");
        let after = words().skip(1).chain([""]);
        let format = words().zip(after).find_map(|(word, next)| match word.strip_prefix("--output=").or(Some(next)) {
            _ if matches!(word, "--json" | "-J") => Some(OutputFormat::Json),
            Some("json") if word.starts_with("--output") => Some(OutputFormat::Json),
            Some("ndjson") if word.starts_with("--output") => Some(OutputFormat::Ndjson),
            _ => None,
        });
        let by_default = env::var_os("LFN_OUTPUT").filter(|format| format == "json").map(|_| OutputFormat::Json);
        let format = format.or(by_default);
        RequestedOutput {
            command: command_name(&program),
            format: format.unwrap_or(OutputFormat::Text),
            report: None,
            program,
            defaults: Vec::new(),
        }
    }

    /// Prints a failure, with an error document if one is requested. Returns the exit code. A closed pipe on standard
    /// output counts as success.
    pub fn report(&self, mut failure: Failure) -> Exit {
        if failure.is_closed_stdout() && failure.exit() == Exit::Failed {
            return Exit::Ok;
        }
        if failure.exit() == Exit::Usage {
            self.name_origin(&mut failure);
        }
        failure.complete_hint(|hint| typed::completed(hint, |flag| self.short_form(flag)));
        failure.print();
        print_error_document(&self.command, &failure, self.format);
        if let Some(path) = &self.report {
            self.write_report(path, &failure);
        }
        failure.exit()
    }

    /// Returns the one-letter form of a flag of the command.
    fn short_form(&self, flag: &str) -> Option<char> {
        let mut command = self.program.clone();
        for name in self.command.split_whitespace() {
            command = command.find_subcommand(name)?.clone();
        }
        command.get_arguments().find(|argument| argument.get_long() == Some(flag))?.get_short()
    }

    /// Returns the default that conflicts with a flag of the command line, if this is the failure.
    pub fn conflicting_default(&self, failure: &Failure) -> Option<FlagDefault> {
        let is_conflict = failure.exit() == Exit::Usage && failure.lines().0.contains("cannot be combined");
        if is_conflict { self.named_default(failure).cloned() } else { None }
    }

    /// Adds the file and line, or the variable, of a default that the error names.
    fn name_origin(&self, failure: &mut Failure) {
        if let Some(default) = self.named_default(failure) {
            failure.add_detail(format!("--{} is set by {}", default.key, default.origin));
        }
    }

    /// Returns the default whose flag the error names.
    fn named_default(&self, failure: &Failure) -> Option<&FlagDefault> {
        let text = failure.lines().0;
        let names = |key: &str| {
            text.split(|c: char| !c.is_alphanumeric() && c != '-').any(|word| word.strip_prefix("--") == Some(key))
        };
        self.defaults.iter().find(|default| names(&default.key))
    }

    /// Replaces an earlier report by the error, so that it is not taken for the result of this command. A command that
    /// has written its report keeps it.
    fn write_report(&self, path: &Path, failure: &Failure) {
        // A mistyped command line does not destroy an earlier report.
        if is_report_written() || failure.exit() == Exit::Usage {
            return;
        }
        // If the file cannot be written, the failure is often this one.
        if let Ok(file) = ReportFile::create(path) {
            let _ = file.write(&error_document(&self.command, failure));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_an_invalid_line_request_json() {
        let format = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            RequestedOutput::of_words(clap::Command::new("lfn"), &words).format
        };
        for line in ["lfn plan --nosuch --json", "lfn plan --output json x", "lfn test -J", "lfn plan --output=json"] {
            assert_eq!(format(line), OutputFormat::Json, "{line}");
        }
        assert_eq!(format("lfn copy --output ndjson"), OutputFormat::Ndjson);
        for line in ["lfn plan", "lfn plan --output csv", "lfn emulate --rtt -- lfn test --json"] {
            assert_eq!(format(line), OutputFormat::Text, "{line}");
        }
    }
}
