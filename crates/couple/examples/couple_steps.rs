//! Runs one of two models that exchange fields in each step, for `bench/couple`.
//!
//! `couple_steps listen|dial TICKET COUPLING COMPONENT RESULT` runs one end. The model sleeps instead of computing, for the compute
//! time of the coupling file. The file RESULT has the time to open the channel, the start of each step, the end of the last step, and the
//! report.

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on fails")]
#![allow(clippy::print_stderr, reason = "the messages of a benchmark")]

mod support;

use std::path::Path;
use std::time::Instant;

use serde_json::json;

use support::Opened;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [role, ticket, file, component, result] = &words[..] else { panic!("see the head of this file") };
    let coupling = support::coupling(file);
    let compute = coupling.components[component].compute.unwrap();
    let Opened { mut channel, connecting } = support::open(role, Path::new(ticket), coupling.clone(), component);
    let open = support::unix_time() - connecting;

    let start = Instant::now();
    let mut starts = Vec::new();
    for _ in 0..channel.steps() {
        starts.push(start.elapsed().as_secs_f64());
        channel.begin_step().unwrap();
        for (name, variable) in coupling.sent_by(component) {
            let size = coupling.field_bytes(variable).0 as usize;
            channel.put(name, &vec![1; size]).unwrap();
        }
        for (name, _) in coupling.variables.iter().filter(|(_, variable)| variable.to == *component) {
            channel.get(name).unwrap();
        }
        std::thread::sleep(compute);
    }
    starts.push(start.elapsed().as_secs_f64());
    let document = json!({ "open": open, "starts": starts, "report": channel.finish().unwrap() });
    support::write(Path::new(result), &document.to_string());
}
