//! One load: the options of its test, and its entry.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lfn_base::units::Ratio;
use lfn_mesh::entry::{Entry, EntryKind, Outcome};
use lfn_mesh::schedule::Slot;
use lfn_mesh::sites::{HostKind, Test};
use lfn_results::measure::{TestDirection, TestLoad, TestRequest};
use lfn_session::{join_host_port, split_host_port};
use lfn_sys::clock;

use super::load_entry;
use super::shared::{AgentPlan, Shared};
use crate::resolve::ServerResolver;
use crate::test::{Iperf3Options, TestEvent, TestOptions, test};

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
        Ok((options, time)) => measure(&options, time, stop, &mut entry),
        Err(reason) => fail(&mut entry, reason),
    }
    entry
}

fn fail(entry: &mut Entry, reason: String) {
    entry.outcome = Outcome::Failed;
    entry.error = Some(reason);
}

/// Runs a load. Its time ends it also if its bytes are the limit.
fn measure(options: &TestOptions, time: Duration, stop: &Arc<AtomicBool>, entry: &mut Entry) {
    // The resolver accepts tickets and addresses only: the server is never started over ssh.
    let resolver = ServerResolver::default();
    let mut end = None;
    let mut watch = |_: &TestEvent<'_>| {
        let now = Instant::now();
        if now >= *end.get_or_insert(now + time) {
            stop.store(true, Ordering::Relaxed);
        }
    };
    match test(options, &resolver, stop, &mut watch) {
        Ok(document) => load_entry::fill(entry, &document),
        Err(failure) => {
            if let Some(document) = &failure.document {
                load_entry::fill(entry, document);
            }
            fail(entry, failure.error.to_string());
        }
    }
}

/// Returns the options of the test of a slot, and the time after which it ends.
fn options(shared: &Shared, plan: &AgentPlan, slot: &Slot) -> Result<(TestOptions, Duration), String> {
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
    let mut request = TestRequest { load: load(test, slot), interval: REPORT_INTERVAL, ..TestRequest::default() };
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
    Ok((TestOptions { request, iperf3, ..options }, test.time))
}

/// Returns the end of a load: the maximum bytes of its slot, or its time if the bytes have no limit.
fn load(test: &Test, slot: &Slot) -> TestLoad {
    slot.bytes.map_or(TestLoad::TimeSeconds(test.time), TestLoad::Bytes)
}

/// Returns the address of an iperf3 server with its port.
fn iperf3_address(typed: &str) -> Result<String, String> {
    let (host, port) = split_host_port(typed).map_err(|error| error.to_string())?;
    Ok(join_host_port(&host, port.unwrap_or(IPERF3_PORT)))
}
