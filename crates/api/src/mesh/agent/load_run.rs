//! One load: the options of its test, and its entry.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use lfn_base::units::{BitRate, Ratio};
use lfn_mesh::entry::{Entry, EntryKind, Outcome};
use lfn_mesh::schedule::Slot;
use lfn_mesh::sites::{HostKind, Test};
use lfn_results::measure::{TestDirection, TestLoad, TestRequest};
use lfn_session::{join_host_port, split_host_port};
use lfn_sys::clock;

use super::load_entry;
use super::shared::{AgentPlan, Shared};
use crate::resolve::ServerResolver;
use crate::test::{Iperf3Options, TestOptions, test};

/// Half the 95 % confidence interval at which a goodput is known.
const PRECISION: f64 = 0.02;

/// Minimum interval of the reports of a load.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Port of iperf3 servers.
const IPERF3_PORT: u16 = 5201;

/// Runs the load of a slot and returns its entry. A failed load has an entry, too.
pub(super) fn run(shared: &Shared, plan: &AgentPlan, slot: &Slot, stop: &Arc<AtomicBool>) -> Entry {
    let started = clock::since_1970();
    let mut entry = Entry::new(EntryKind::Load, &*slot.from, &*slot.to, started);
    entry.test = slot.test.to_string();
    entry.capacity = plan.sites.capacity_between(&slot.from, &slot.to);
    match options(shared, plan, slot) {
        Ok(options) => measure(&options, stop, &mut entry),
        Err(reason) => fail(&mut entry, reason),
    }
    entry
}

fn fail(entry: &mut Entry, reason: String) {
    entry.outcome = Outcome::Failed;
    entry.error = Some(reason);
}

fn measure(options: &TestOptions, stop: &Arc<AtomicBool>, entry: &mut Entry) {
    // The resolver accepts tickets and addresses only: the server is never started over ssh.
    let resolver = ServerResolver::default();
    match test(options, &resolver, stop, &mut |_| ()) {
        Ok(document) => load_entry::fill(entry, &document),
        Err(failure) => {
            if let Some(document) = &failure.document {
                load_entry::fill(entry, document);
            }
            fail(entry, failure.error.to_string());
        }
    }
}

/// Returns the options of the test of a slot.
fn options(shared: &Shared, plan: &AgentPlan, slot: &Slot) -> Result<TestOptions, String> {
    let test = plan.sites.test(&slot.test).ok_or("the plan has no such test")?;
    let server = plan.sites.host(slot.server()).ok_or("the plan has no such host")?;
    let access = shared.access.lock().clone();
    let target = access.targets.iter().find(|target| target.host == server.name);
    let (name, iperf3) = match server.kind {
        HostKind::Iperf3 => {
            let typed = server.address.as_deref().ok_or("the host has no address")?;
            (iperf3_address(typed)?, Some(Iperf3Options::default()))
        }
        _ => {
            let ticket = target.and_then(|target| target.ticket.clone());
            let missing = match server.kind {
                HostKind::Agent => format!("the agent of {} has not registered with the hub yet", server.name),
                _ => format!(
                    "the hub has no ticket of {}: save it there with `lfn hosts add {} TICKET`",
                    server.name, server.name
                ),
            };
            (ticket.ok_or(missing)?, None)
        }
    };
    let rate = plan.sites.capacity_between(&slot.from, &slot.to);
    let direction = if slot.is_reversed() { TestDirection::Reverse } else { TestDirection::Forward };
    let streams = test.streams.and_then(|streams| u16::try_from(streams).ok());
    let mut request = TestRequest { load: load(test, rate), interval: REPORT_INTERVAL, ..TestRequest::default() };
    if let Some(streams) = streams {
        request.streams = streams;
    }
    let mut options = TestOptions { directions: vec![direction], rate, ..TestOptions::new(name) };
    let congestion =
        test.congestion.as_ref().map(|name| lfn_base::congestion_request::CongestionRequest::Requested(name.clone()));
    if let Some(congestion) = congestion {
        match direction {
            TestDirection::Forward => options.near_socket.congestion = vec![congestion],
            TestDirection::Reverse => request.socket.congestion = vec![congestion],
        }
    }
    // The protocol of iperf3 has no end at a precision.
    if iperf3.is_none() {
        options.target_precision = Ratio::new(PRECISION);
    }
    options.command = vec!["mesh".to_owned(), slot.test.to_string(), slot.from.to_string(), slot.to.to_string()];
    Ok(TestOptions { request, iperf3, ..options })
}

/// Returns the end of a load: its time, or its bytes if they are the tighter limit.
fn load(test: &Test, rate: Option<BitRate>) -> TestLoad {
    match (test.bytes, rate) {
        (Some(bytes), Some(rate)) if rate.times(test.time) <= bytes => TestLoad::TimeSeconds(test.time),
        (Some(bytes), _) => TestLoad::Bytes(bytes),
        (None, _) => TestLoad::TimeSeconds(test.time),
    }
}

/// Returns the address of an iperf3 server with its port.
fn iperf3_address(typed: &str) -> Result<String, String> {
    let (host, port) = split_host_port(typed).map_err(|error| error.to_string())?;
    Ok(join_host_port(&host, port.unwrap_or(IPERF3_PORT)))
}
