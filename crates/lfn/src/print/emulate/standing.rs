//! How a running link stands, for people and for programs.

use std::fmt::Write;

use lfn_core::units::show_duration;
use lfn_net::emulator::control::{PathStanding, Standing};

/// What every path is set to, and what it has done so far; at most 80 columns but for the settings.
pub fn text(standing: &Standing) -> String {
    let mut out = format!("process {}\n", standing.pid);
    for (number, path) in (1..).zip(&standing.paths) {
        describe(&mut out, number, path);
    }
    out
}

/// One object.
pub fn json(standing: &Standing) -> serde_json::Result<String> {
    let mut object = serde_json::to_value(standing)?;
    object["schema"] = "lfn.emulate.show/1".into();
    serde_json::to_string(&object)
}

fn describe(out: &mut String, number: u32, standing: &PathStanding) {
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
        let so_far = &direction.so_far;
        let dropped: u64 = so_far.dropped.values().sum();
        let _ = writeln!(
            out,
            "  {name:<12}{:>12}{:>12}{dropped:>12}{:>12}{:>12}",
            so_far.offered,
            so_far.forwarded,
            so_far.in_flight,
            direction.queued.to_string()
        );
    }
}
