//! Streams fields one way, for `bench/couple`.
//!
//! `couple_stream listen|dial TICKET COUPLING COMPONENT RESULT [PAUSE]` runs one end. The component that puts variables writes the
//! start of its connection and the duration of each put to the file RESULT, and waits PAUSE seconds before each step. The other one
//! writes the arrival time of each field. Times are in seconds since 1970.

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on fails")]
#![allow(clippy::print_stderr, reason = "the messages of a benchmark")]

mod support;

use std::path::Path;
use std::time::{Duration, Instant};

use lfn_couple::{Channel, Coupling};
use serde_json::json;

use support::Opened;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [role, ticket, file, component, result, pause @ ..] = &words[..] else { panic!("see the head of this file") };
    let pause = Duration::from_secs_f64(pause.first().map_or(0.0, |pause| pause.parse().unwrap()));
    let coupling = support::coupling(file);
    let opened = support::open(role, Path::new(ticket), coupling.clone(), component);
    let puts = coupling.sent_by(component).next().is_some();
    let document = if puts { send(opened, &coupling, component, pause) } else { receive(opened.channel, &coupling) };
    support::write(Path::new(result), &document.to_string());
}

/// Puts the fields of a component in each step, and returns the duration of each step with the report.
fn send(opened: Opened, coupling: &Coupling, component: &str, pause: Duration) -> serde_json::Value {
    let Opened { mut channel, connecting } = opened;
    let fields: Vec<(&String, Vec<u8>)> = coupling
        .sent_by(component)
        .map(|(name, variable)| (name, vec![1; coupling.field_bytes(variable).0 as usize]))
        .collect();
    let mut puts = Vec::new();
    for _ in 0..channel.steps() {
        std::thread::sleep(pause);
        channel.begin_step().unwrap();
        let start = Instant::now();
        for (name, data) in &fields {
            channel.put(name, data).unwrap();
        }
        puts.push(start.elapsed().as_secs_f64());
    }
    json!({ "connecting": connecting, "puts": puts, "bytes": coupling.step_bytes(component).0, "report": channel.finish().unwrap() })
}

/// Gets the fields of each step, and returns their arrival times with the report.
fn receive(mut channel: Channel, coupling: &Coupling) -> serde_json::Value {
    let (start, start_time) = (Instant::now(), support::unix_time());
    let mut arrivals = Vec::new();
    for _ in 0..channel.steps() {
        channel.begin_step().unwrap();
        for name in coupling.variables.keys() {
            let field = channel.get(name).unwrap().unwrap();
            channel.recycle(name, field);
        }
        arrivals.push(start_time + start.elapsed().as_secs_f64());
    }
    json!({ "arrivals": arrivals, "report": channel.finish().unwrap() })
}
