//! Status of a running emulation as text.

use std::fmt::Write;

use lfn_base::units::show_duration;
use lfn_emulate::control::{PathStatus, RunStatus};

/// Returns the settings of each path and its counters so far, in at most 80 columns without the settings.
pub fn text(standing: &RunStatus) -> String {
    let mut out = format!("process {}\n", standing.pid);
    for (number, path) in (1..).zip(&standing.paths) {
        describe(&mut out, number, path);
    }
    out
}

fn describe(out: &mut String, number: u32, standing: &PathStatus) {
    let path = &standing.path;
    // Writing to a String cannot fail.
    let _ = writeln!(out, "path {number}: {}, {}, MTU {}", show_duration(path.base_rtt), path.capacity, path.mtu);
    for (number, link) in (1..).zip(&standing.links) {
        let _ = writeln!(out, "  link {number}: {link}");
    }
    let _ = writeln!(
        out,
        "  {:<12}{:>12}{:>12}{:>12}{:>12}{:>12}",
        "packets", "offered", "forwarded", "dropped", "in flight", "queued"
    );
    for (name, direction) in [("near to far", &standing.near_to_far), ("far to near", &standing.far_to_near)] {
        let report = &direction.report;
        let dropped: u64 = report.dropped.values().sum();
        let _ = writeln!(
            out,
            "  {name:<12}{:>12}{:>12}{dropped:>12}{:>12}{:>12}",
            report.offered,
            report.forwarded,
            report.in_flight,
            direction.queued.to_string()
        );
    }
}
