//! The fidelity ledger for people: what the link was, what it did, and whether the run may be believed.

use std::fmt::Write;
use std::time::Duration;

use lfn_core::link::DropCause;
use lfn_core::units::show_duration;
use lfn_net::emulator::{DirectionLedger, Ledger, PathLedger};

/// A few lines of at most 80 columns.
pub fn text(ledger: &Ledger) -> String {
    let mut out = String::new();
    for path in &ledger.paths {
        describe(&mut out, path, ledger.seed);
    }
    for fault in ledger.faults() {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "not faithful: {fault}");
    }
    if ledger.is_faithful() {
        let limit = ledger.paths.iter().map(PathLedger::lateness_limit).min().map(show_duration).unwrap_or_default();
        let _ = writeln!(out, "faithful: no drop but the link's own, p99 lateness within {limit}");
    }
    out
}

fn describe(out: &mut String, ledger: &PathLedger, seed: u64) {
    let path = &ledger.path;
    let queue = path.queue.map(|queue| format!(", queue {queue}")).unwrap_or_default();
    let loss = if path.loss.get() > 0.0 { format!(", loss {}", path.loss) } else { String::new() };
    let _ = writeln!(
        out,
        "link: {}, {}{queue}{loss}, MTU {}, seed {}",
        show_duration(path.base_rtt),
        path.capacity,
        path.mtu,
        seed
    );
    let _ = writeln!(
        out,
        "{:<12}{:>10}{:>10}{:>8}{:>9}{:>10}{:>10}{:>10}",
        "packets", "offered", "forwarded", "lost", "overflow", "late: p50", "p99", "max"
    );
    for (name, direction) in [("near to far", &ledger.near_to_far), ("far to near", &ledger.far_to_near)] {
        let _ = writeln!(out, "{name:<12}{}", row(direction));
    }
}

fn row(direction: &DirectionLedger) -> String {
    let late = |seconds: f64| show_duration(Duration::from_nanos((seconds * 1e9) as u64));
    format!(
        "{:>10}{:>10}{:>8}{:>9}{:>10}{:>10}{:>10}",
        direction.offered,
        direction.forwarded,
        direction.dropped.get(&DropCause::Loss).unwrap_or(&0),
        direction.dropped.get(&DropCause::Queue).unwrap_or(&0),
        late(direction.lateness.p50),
        late(direction.lateness.p99),
        late(direction.lateness.max)
    )
}
