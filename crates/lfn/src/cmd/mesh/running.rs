//! A hub or an agent that runs until a signal: its log, and its end.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use lfn_api::mesh::agent::{AgentCounts, AgentEvent, RunningAgent};
use lfn_api::mesh::hub::{HubEvent, HubLogEvent};
use lfn_base::date;
use lfn_base::units::show_duration;

use crate::cmd::interrupt::Interrupt;
use crate::exit::{Exit, Failure};
use crate::print;

/// Interval at which the signal is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Handles signals from now on: they end [`wait_for_signal`].
pub(super) fn listen_for_signals() -> Result<Interrupt, Failure> {
    let interrupt = Interrupt::listen()?;
    interrupt.begin_load();
    Ok(interrupt)
}

/// Waits for a signal, and returns the exit code: a stopped daemon has not failed.
pub(super) fn wait_for_signal() -> Result<Exit, Failure> {
    wait_for(&listen_for_signals()?)
}

/// Waits for a signal that may have come already.
pub(super) fn wait_for(interrupt: &Interrupt) -> Result<Exit, Failure> {
    while !interrupt.stop.load(Ordering::Relaxed) {
        thread::sleep(POLL_INTERVAL);
    }
    Ok(Exit::Ok)
}

/// Prints the last counts of an agent, stops it, and returns the counts.
pub(super) fn stop_agent(agent: RunningAgent) -> AgentCounts {
    let counts = agent.counts();
    print::message(format_args!(
        "agent: {} entries made, {} stored by the hub, {} in the spool\n",
        counts.made,
        counts.acknowledged,
        counts.made - counts.acknowledged
    ));
    counts
}

/// Prints an event of the hub.
pub(super) fn log_hub(event: &HubLogEvent<'_>) {
    let line = match event {
        HubLogEvent::PlanChanged { hosts, valid_from } => {
            format!(
                "the sites file changed: {hosts} hosts; the agents follow it from {} on",
                date::rfc3339(*valid_from)
            )
        }
        HubLogEvent::PlanRefused(error) => format!("the changed sites file is not used: {error}"),
        HubLogEvent::AgentsNotSaved(error) => format!("the list of agents is not saved: {error}"),
        HubLogEvent::Mesh(HubEvent::SecondInstance { host, address }) => {
            format!("a second agent with the ticket of {host} at {address} is refused")
        }
        HubLogEvent::Mesh(HubEvent::AnnouncedAgain { was, valid_from }) => {
            let (was, valid_from) = (date::rfc3339(*was), date::rfc3339(*valid_from));
            format!("the clock was wrong: the plan is valid from {valid_from} on instead of {was}")
        }
        HubLogEvent::Mesh(HubEvent::HostsRemoved { hosts }) => {
            format!("removed from the sites file, without access from now on: {}", hosts.join(", "))
        }
        HubLogEvent::Mesh(HubEvent::AgentChanged { host, address, version }) => {
            format!("agent {host} at {address}, lfn {version}")
        }
        HubLogEvent::Mesh(HubEvent::Stored { host, count }) => match count.known {
            // The ordinary case: the page shows the entries.
            0 => return,
            known => format!("stored {} entries of {host}; {known} were stored before", count.stored),
        },
        HubLogEvent::Mesh(HubEvent::Refused { host, count, first }) => {
            format!("refused {count} entries of {host}: {first}")
        }
        HubLogEvent::Mesh(HubEvent::NotStored { host, problem }) => {
            format!("entries of {host} are not stored, and stay in its spool: {problem}")
        }
    };
    print::message(format_args!("hub: {line}\n"));
}

/// Prints an event of an agent.
pub(super) fn log_agent(event: &AgentEvent) {
    let line = match event {
        AgentEvent::Serving { port } => format!("serving tests of other agents on port {port}"),
        AgentEvent::NotServing { reason } => format!("not serving tests: {reason}"),
        AgentEvent::PlanReceived { host, tests, later: None } => format!("plan for {host} received: {tests} tests"),
        AgentEvent::PlanReceived { host, tests, later: Some(later) } => {
            format!("plan for {host} received: {tests} tests; valid from {} on", date::rfc3339(*later))
        }
        AgentEvent::PlanRefused { reason } => format!("the plan of the hub is not used: {reason}"),
        AgentEvent::Connected { pending } => format!("connected to the hub; {pending} entries in the spool"),
        AgentEvent::Disconnected { reason } => {
            format!("no exchange with the hub, results stay in the spool: {reason}")
        }
        AgentEvent::Refused { reason } => {
            format!("the hub refuses this agent, no measurements run, results stay in the spool: {reason}")
        }
        AgentEvent::NotAcknowledged { reason } => format!("cannot record what the hub has stored: {reason}"),
        AgentEvent::SpoolDamaged { lost, path } => {
            format!("the spool is damaged, at least {lost} entries are lost: the file is kept as {}", path.display())
        }
        AgentEvent::NotStored { reason } => format!("the hub did not store the entries: {reason}"),
        AgentEvent::EntryRefused { number, reason } => format!("the hub refused entry {number}: {reason}"),
        AgentEvent::LoadStarted { test, from, to } => format!("{test} {from} to {to} starts"),
        AgentEvent::Measured { test, from, to, figures } => format!("{test} {from} to {to}: {figures}"),
        AgentEvent::MeasurementFailed { test, from, to, reason } => format!("{test} {from} to {to} failed: {reason}"),
        AgentEvent::Recovered { test, from, to } => format!("{test} {from} to {to} works again"),
        AgentEvent::Skipped { reason } => format!("no measurement: {reason}"),
        AgentEvent::NotKept { reason } => format!("an entry was not kept: {reason}"),
        AgentEvent::ClockOff { by } => {
            format!("the clock of this host differs from that of the hub by {}: no loads run", show_duration(*by))
        }
        AgentEvent::ClockRight => "the clock of this host is right again".to_owned(),
    };
    print::message(format_args!("agent: {line}\n"));
}
