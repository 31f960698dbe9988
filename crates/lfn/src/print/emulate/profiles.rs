//! List of `lfn emulate --list`: some lines for each profile.

use std::fmt::Write;

use lfn_api::documents::{
    BuiltInProfile, BuiltInTraceEntry, DirectionCapacity, EmulateListDocument, EmulateListSchema,
};
use lfn_base::units::show_duration;
use lfn_link::EmulatedPath;
use lfn_link::profile::Profile;
use lfn_link::trace::BuiltInTrace;

/// Width of the text in columns.
const WIDTH: usize = 79;
const INDENT: usize = 14;

/// Returns every profile with its figures, and the traces.
pub fn list(profiles: &[(Profile, EmulatedPath)], traces: &[&BuiltInTrace]) -> String {
    let mut text = String::from("Profiles, for --profile NAME; --list NAME prints one to copy and change:\n\n");
    for (profile, path) in profiles {
        entry(&mut text, &profile.name, &figures(path), &[&profile.title, &format!("Source: {}", profile.source)]);
    }
    text += "Traces, for --trace NAME or --return-trace NAME; --list NAME prints one as CSV:\n\n";
    for trace in traces {
        entry(&mut text, trace.name, "", &[trace.title, &format!("Source: {}", trace.source)]);
    }
    text.truncate(text.trim_end().len());
    text + "\n"
}

/// Returns the document of the same list, with all properties of each profile.
pub fn document(profiles: &[(Profile, EmulatedPath)], traces: &[&BuiltInTrace]) -> EmulateListDocument {
    let profiles = profiles.iter().map(|(profile, path)| {
        let [forward, back] = path.capacities().map(|capacity| DirectionCapacity { capacity });
        BuiltInProfile {
            name: profile.name.clone(),
            title: profile.title.clone(),
            source: profile.source.clone(),
            notes: profile.notes.clone(),
            settings: profile.settings.to_string(),
            path: path.profile,
            near_to_far: forward,
            far_to_near: back,
        }
    });
    let traces = traces.iter().map(|trace| BuiltInTraceEntry {
        name: trace.name.to_owned(),
        title: trace.title.to_owned(),
        source: trace.source.to_owned(),
    });
    EmulateListDocument { schema: EmulateListSchema::Current, profiles: profiles.collect(), traces: traces.collect() }
}

/// Returns the RTT and the rate of each direction.
fn figures(path: &EmulatedPath) -> String {
    let [forward, back] = path.capacities();
    let rate = if forward == back { forward.to_string() } else { format!("{forward} up, {back} down") };
    format!("{}, {rate}", show_duration(path.profile.base_rtt))
}

fn entry(text: &mut String, name: &str, figures: &str, paragraphs: &[&str]) {
    // A name longer than its column is followed by a space.
    let mut head = format!("{name:<width$} ", width = INDENT - 1);
    let paragraphs = [figures].into_iter().chain(paragraphs.iter().copied()).filter(|text| !text.is_empty());
    for line in paragraphs.flat_map(wrapped) {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{head}{line}");
        head = " ".repeat(INDENT);
    }
    text.push('\n');
}

/// Returns the paragraph in lines that fit after the indentation.
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
