//! Examples in Markdown pages and help texts: reads the commands of code blocks and splits them into words.
//!
//! A block of the language `console` has commands and their output. A line that begins with `$ ` is a command that the
//! tests run, in the directory of the page; `user:~$ ` runs only if the tests run as an ordinary user, and `root:~# `
//! only as root. After `# ` (root; changes the host), `near:~$ `, `far:~$ ` and other prompts, a command is only
//! parsed. A line without a prompt is output. The output of `echo $?` is the exit code of the command before it;
//! without it the exit code is 0.

#![allow(dead_code, reason = "every test program compiles this and none uses all of it")]

/// One command of a `console` block.
#[derive(Debug, Clone)]
pub struct Example {
    /// Line in the page, from 1.
    pub line: usize,
    /// Text before the command: `$`, `#`, `far:~$`.
    pub prompt: String,
    pub command: String,
    pub output: Vec<String>,
}

/// One fenced block of a page.
#[derive(Debug)]
pub struct Block {
    /// Line of the opening fence, from 1.
    pub line: usize,
    pub language: String,
    pub lines: Vec<String>,
}

/// Languages of blocks that the pages may have.
pub const LANGUAGES: [&str; 11] =
    ["console", "text", "sh", "python", "json", "toml", "ini", "csv", "yaml", "cron", "sql"];

/// Returns the fenced blocks of a page.
pub fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (index, text) in page.lines().enumerate() {
        match (&mut open, text.trim_start().strip_prefix("```")) {
            (None, Some(language)) => {
                open = Some(Block { line: index + 1, language: language.trim().to_owned(), lines: Vec::new() });
            }
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(block), None) => block.lines.push(text.to_owned()),
            (None, None) => {}
        }
    }
    blocks
}

/// Returns the commands of all `console` blocks of a page.
pub fn examples(page: &str) -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    for block in blocks(page).into_iter().filter(|block| block.language == "console") {
        let first = examples.len();
        let mut continues = false;
        for (offset, text) in block.lines.iter().enumerate() {
            if continues {
                let last = examples.last_mut().expect("a command continues");
                last.command = format!("{} {}", last.command.trim_end_matches('\\').trim_end(), text.trim_start());
                continues = text.ends_with('\\');
            } else if let Some((prompt, command)) = split_prompt(text) {
                continues = command.ends_with('\\');
                let (prompt, command) = (prompt.to_owned(), command.to_owned());
                examples.push(Example { line: block.line + 1 + offset, prompt, command, output: Vec::new() });
            } else if examples.len() > first {
                let last = examples.last_mut().expect("this block has a command");
                last.output.push(text.clone());
            }
        }
    }
    examples
}

/// Splits a line into prompt and command; `None` for a line of output.
fn split_prompt(line: &str) -> Option<(&str, &str)> {
    let end = line.find("$ ").or_else(|| line.find("# ").filter(|at| ["", "root:~"].contains(&&line[..*at])))?;
    let (name, rest) = line.split_at(end);
    let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '@' | ':' | '~'));
    is_name.then(|| (&line[..=end], rest[2..].trim_end()))
}

/// Returns the code spans of a page, outside of code blocks, with their lines.
pub fn code_spans(page: &str) -> Vec<(usize, String)> {
    let mut spans = Vec::new();
    let mut is_fenced = false;
    let mut text = String::new();
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
        } else if !is_fenced {
            text += line;
        }
        text.push('\n');
    }
    // A span may continue on the next line, but not in the next paragraph.
    let mut line = 1;
    for paragraph in text.split("\n\n") {
        for (index, part) in paragraph.split('`').enumerate() {
            if index % 2 == 1 {
                spans.push((line, part.split_whitespace().collect::<Vec<_>>().join(" ")));
            }
            line += part.matches('\n').count();
        }
        line += 2;
    }
    spans
}

/// Returns the indented examples of a help text: lines that begin with two spaces and a command of `lfn`.
pub fn help_examples(help: &str) -> Vec<String> {
    let examples = help.lines().filter_map(|line| line.strip_prefix("  ").filter(|line| line.starts_with("lfn ")));
    // Two spaces begin a remark.
    examples.map(|line| line.split("  ").next().unwrap_or(line).trim_end().to_owned()).collect()
}

/// Returns the commands of `lfn` in a shell command line, each as its words. Follows pipes, lists, `sh -c`, `ssh` and
/// the command of `lfn emulate`.
pub fn lfn_commands(line: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for words in simple_commands(line) {
        let mut rest: &[String] = &words;
        while let Some(first) = rest.first() {
            let is_before = first.contains('=') && !first.starts_with('-');
            if !is_before && !["sudo", "time", "exec"].contains(&first.as_str()) {
                break;
            }
            rest = &rest[1..];
        }
        match rest.first().map(String::as_str) {
            Some("lfn") => {
                found.push(rest.to_vec());
                let inner = rest.iter().position(|word| word == "--").map(|at| &rest[at + 1..]).unwrap_or_default();
                found.extend(lfn_commands(&quoted(inner)));
            }
            Some("sh" | "bash") => {
                let script = rest.iter().position(|word| word.starts_with('-') && word.ends_with('c'));
                found
                    .extend(script.and_then(|at| rest.get(at + 1)).into_iter().flat_map(|script| lfn_commands(script)));
            }
            Some("ssh" | "timeout" | "nsenter" | "docker" | "podman" | "systemd-run") => {
                if let Some(at) = rest.iter().position(|word| word == "lfn") {
                    found.extend(lfn_commands(&quoted(&rest[at..])));
                }
            }
            _ => {}
        }
    }
    found
}

fn quoted(words: &[String]) -> String {
    words.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''"))).collect::<Vec<_>>().join(" ")
}

/// Splits a shell line at `|`, `;`, `&` and redirections, and splits each command into words. Knows quotes and
/// backslashes, and no expansion.
fn simple_commands(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut skip_next = false;
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                while let Some(inner) = characters.next_if(|c| *c != character) {
                    word.push(inner);
                }
                characters.next();
            }
            '\\' => word.get_or_insert_default().extend(characters.next()),
            ' ' | '|' | ';' | '&' | '>' | '<' | '#' if character != '#' || word.is_none() => {
                let is_descriptor = character == '>' && word.as_deref().is_some_and(|word| word.parse::<u8>().is_ok());
                if let Some(done) = word.take().filter(|_| !is_descriptor)
                    && !std::mem::take(&mut skip_next)
                {
                    commands.last_mut().expect("there is one").push(done);
                }
                match character {
                    '|' | ';' | '&' => commands.push(Vec::new()),
                    '>' | '<' => skip_next = true,
                    '#' => break,
                    _ => {}
                }
            }
            other => word.get_or_insert_default().push(other),
        }
    }
    if let Some(done) = word.filter(|_| !skip_next) {
        commands.last_mut().expect("there is one").push(done);
    }
    commands.retain(|words| !words.is_empty());
    commands
}
