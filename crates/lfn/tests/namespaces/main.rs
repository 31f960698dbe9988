//! Tests with network namespaces, emulated paths or other programs, in one program with one harness.
//!
//! A test may run this program again in a role: as a command on an emulated path, or in namespaces of its own. A role
//! is `module::role` in the environment variable `TEST_LFN_ROLE`.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod copy_emulated;
mod copy_faults;
mod copy_stripes;
mod demo;
mod docs;
mod doctor;
mod doctor_unseen;
mod emulate;
mod emulate_accuracy;
mod emulate_attached;
mod emulate_control;
mod emulate_faults;
mod emulate_impairments;
mod emulate_output;
mod emulate_paths;
mod emulate_settings;
mod findings;
mod iperf3;
mod killed_server;
mod library;
mod load;
mod lockstep;
mod mesh;
mod other_programs;
mod path;
#[path = "../support/mod.rs"]
mod support;
mod sweep;
mod test_emulated;
mod trace_live;
mod trace_mptcp;
mod udp;

use std::env;
use std::process::ExitCode;

use lfn_sys::process::{self, signal};

fn main() -> ExitCode {
    if let Some(status) = copy_faults::as_limited_server() {
        return status;
    }
    // Tests interrupt commands that have just started, before any of these could restore an ignored signal.
    for number in [signal::SIGINT, signal::SIGHUP] {
        process::restore_signal(number).unwrap();
    }
    if let Ok(role) = env::var(support::ROLE) {
        act(&role);
        return ExitCode::SUCCESS;
    }
    // Modules with long tests first, so that no long test runs alone at the end.
    let tests = [
        emulate_accuracy::tests(),
        copy_faults::tests(),
        copy_emulated::tests(),
        copy_stripes::tests(),
        findings::tests(),
        sweep::tests(),
        test_emulated::tests(),
        other_programs::tests(),
        docs::tests(),
        killed_server::tests(),
        iperf3::tests(),
        emulate_faults::tests(),
        load::tests(),
        lockstep::tests(),
        udp::tests(),
        mesh::tests(),
        demo::tests(),
        path::tests(),
        emulate_attached::tests(),
        emulate_control::tests(),
        emulate::tests(),
        emulate_impairments::tests(),
        emulate_output::tests(),
        doctor::tests(),
        doctor_unseen::tests(),
        emulate_paths::tests(),
        emulate_settings::tests(),
        library::tests(),
        trace_live::tests(),
        trace_mptcp::tests(),
    ];
    support::harness::run(tests.into_iter().flatten().collect())
}

/// Runs a role of a module.
fn act(role: &str) {
    let (module, role) = role.split_once("::").unwrap_or_else(|| panic!("no module in role '{role}'"));
    match module {
        "emulate" => emulate::act(role),
        "emulate_accuracy" => emulate_accuracy::act(role),
        "emulate_attached" => emulate_attached::act(role),
        "emulate_control" => emulate_control::act(role),
        "emulate_faults" => emulate_faults::act(role),
        "emulate_impairments" => emulate_impairments::act(role),
        "emulate_output" => emulate_output::act(role),
        "emulate_paths" => emulate_paths::act(role),
        "emulate_settings" => emulate_settings::act(role),
        "load" => load::act(role),
        "other_programs" => other_programs::act(role),
        "mesh" => mesh::act(role),
        "path" => path::act(role),
        "trace_live" => trace_live::act(role),
        "copy_stripes" => copy_stripes::act(role),
        "trace_mptcp" => trace_mptcp::act(role),
        other => panic!("module '{other}' has no roles"),
    }
}
