//! What `lfn emulate --list` prints: a few lines a profile, whose names come first.

use std::fmt::Write;

use lfn_core::link::EmulatedPath;
use lfn_core::link::profile::Profile;
use lfn_core::link::trace::BUILT_IN;
use lfn_core::units::show_duration;

/// Columns of text; more are hard to read, and fewer terminals have.
const WIDTH: usize = 79;
const INDENT: usize = 14;

/// Every profile with its figures, and the traces.
pub fn list(profiles: &[(Profile, EmulatedPath)]) -> String {
    let mut text = String::from("Profiles, for --profile NAME; --list NAME prints one to copy and change:\n\n");
    for (profile, path) in profiles {
        entry(&mut text, &profile.name, &figures(path), &[&profile.title, &format!("Source: {}", profile.source)]);
    }
    text += "Traces, for --trace NAME or --return-trace NAME; --list NAME prints one as CSV:\n\n";
    for trace in BUILT_IN {
        entry(&mut text, trace.name, "", &[trace.title, &format!("Source: {}", trace.source)]);
    }
    text.truncate(text.trim_end().len());
    text + "\n"
}

/// RTT, and the rate of each way.
fn figures(path: &EmulatedPath) -> String {
    let [forward, back] = path.capacities();
    let rate = if forward == back { forward.to_string() } else { format!("{forward} forth, {back} back") };
    format!("{}, {rate}", show_duration(path.profile.base_rtt))
}

fn entry(text: &mut String, name: &str, figures: &str, paragraphs: &[&str]) {
    let mut head = format!("{name:<INDENT$}");
    let paragraphs = [figures].into_iter().chain(paragraphs.iter().copied()).filter(|text| !text.is_empty());
    for line in paragraphs.flat_map(wrapped) {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{head}{line}");
        head = " ".repeat(INDENT);
    }
    text.push('\n');
}

/// Words in lines that fit beside the indentation.
fn wrapped(paragraph: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in paragraph.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= WIDTH - INDENT => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
