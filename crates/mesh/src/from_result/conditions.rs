//! Conditions of a test: everything that a repeated test must have in common.
//!
//! A value that changes from run to run, such as a port, a time or a congestion window, is no condition.

use std::collections::BTreeMap;

use lfn_base::units::Bytes;
use lfn_results::evidence::{LoadKind, Side};
use lfn_results::measure::{EndReport, Kernel};
use lfn_results::prediction::in_flight;
use lfn_results::report::Run;

use crate::compare::{SIDES, names};

/// Maximum sysctls of each host.
const MAX_SYSCTLS: usize = 30;

/// Flags whose values are secrets or file names.
const SKIPPED_FLAGS: [&str; 6] = ["token", "ticket", "report", "plot", "output", "json"];

/// Returns the conditions of a test by name. [`crate::compare::names`] has the names.
pub fn conditions_of(run: &Run) -> BTreeMap<String, String> {
    let mut conditions = Conditions::default();
    let evidence = &run.evidence;
    let is_tcp = evidence.kind() == LoadKind::Tcp;
    conditions.add(names::TOOL, Some(if evidence.iperf3.is_some() { "iperf3" } else { "lfn" }));
    conditions.add(names::PROTOCOL, Some(if is_tcp { "tcp" } else { "udp" }));
    conditions.add(names::STREAMS, Some(evidence.request.streams));
    conditions.add(names::RECORD, Some(evidence.request.record.0));
    let arguments: Vec<&str> = evidence
        .arguments
        .iter()
        .filter(|argument| argument.flag.as_deref().is_some_and(|flag| !SKIPPED_FLAGS.contains(&flag)))
        .map(|argument| argument.text.as_str())
        .collect();
    conditions.add(names::ARGUMENTS, (!arguments.is_empty()).then(|| arguments.join(" ")));
    let (sender, receiver) = (evidence.end(run.sender), evidence.end(run.receiver));
    if is_tcp {
        conditions.add_tcp(run, sender, receiver);
    }
    let limits = [sender, receiver].into_iter().filter_map(|end| end.rate_limit);
    conditions.add(names::RATE_LIMIT, limits.min().map(|rate| rate.0));
    for (name, side) in SIDES.into_iter().zip([run.sender, run.receiver]) {
        conditions.add_host(name, run, side);
    }
    conditions.0
}

/// Conditions that are collected.
#[derive(Default)]
struct Conditions(BTreeMap<String, String>);

impl Conditions {
    fn add(&mut self, name: &str, value: Option<impl ToString>) {
        if let Some(value) = value {
            self.0.insert(name.to_owned(), value.to_string());
        }
    }

    fn add_tcp(&mut self, run: &Run, sender: &EndReport, receiver: &EndReport) {
        let info = sender.streams.first().and_then(|stream| stream.tcp_info.as_ref());
        let socket = |end: &EndReport| end.streams.first().and_then(|stream| stream.socket.clone());
        let (sending, receiving) = (socket(sender), socket(receiver));
        let scale = run.window_scale.map_or_else(|| "none".to_owned(), |scale| scale.to_string());
        self.add(names::WINDOW_SCALE, info.map(|_| scale));
        self.add(names::MSS, info.map(|info| info.snd_mss_bytes).filter(|&mss| mss > 0));
        self.add(names::MTU, info.map(|info| info.pmtu_bytes).filter(|&mtu| mtu > 0));
        if let Some(socket) = &sending {
            self.add(names::CONGESTION, Some(&socket.congestion).filter(|name| !name.is_empty()));
            self.add(names::PACING, socket.pacing_requested.map(|rate| rate.0));
        }
        let requested = sending.as_ref().and_then(|socket| socket.sndbuf_requested_bytes.map(|_| socket));
        let limit = |kernel: &Kernel| Bytes(kernel.tcp_wmem_bytes[2] / 2);
        let send = requested.map(|socket| socket.sndbuf_granted_bytes).or(sender.kernel.as_ref().map(limit));
        self.add(names::SEND_BUFFER, send.map(|granted| in_flight(granted).0).filter(|&bytes| bytes > 0));
        let requested = receiving.as_ref().and_then(|socket| socket.rcvbuf_requested_bytes.map(|_| socket));
        // The kernel offers about half of the memory of a receive buffer as window.
        let limit = |kernel: &Kernel| Bytes(kernel.tcp_rmem_bytes[2] / 2);
        let receive = requested.map(|socket| socket.rcvbuf_granted_bytes).or(receiver.kernel.as_ref().map(limit));
        self.add(names::RECEIVE_BUFFER, receive.map(|bytes| bytes.0).filter(|&bytes| bytes > 0));
        self.add(names::WINDOW, receiving.and_then(|socket| socket.window_requested_bytes).map(|bytes| bytes.0));
    }

    /// Adds the conditions of the host of one side.
    fn add_host(&mut self, name: &str, run: &Run, side: Side) {
        let end = run.evidence.end(side);
        let kernel = end.kernel.as_ref();
        self.add(&format!("{}.{name}", names::KERNEL), kernel.map(|kernel| &kernel.release));
        self.add(&format!("{}.{name}", names::VERSION), end.lfn_version.as_ref());
        let facts = run.evidence.facts.as_deref().and_then(|facts| facts.get(side).as_ref());
        let rate = facts.and_then(|facts| facts.interface.as_ref()?.rate);
        self.add(&format!("{}.{name}", names::INTERFACE_RATE), rate.map(|rate| rate.0));
        let mut sysctls: BTreeMap<String, String> = kernel.map(sysctls_of).unwrap_or_default();
        if let Some(facts) = facts {
            let others = facts.sysctls.iter().map(|(key, value)| (key.clone(), value.clone()));
            sysctls.extend(others.take(MAX_SYSCTLS));
        }
        for (key, value) in sysctls.into_iter().take(MAX_SYSCTLS) {
            let value = value.split_whitespace().collect::<Vec<_>>().join(" ");
            self.add(&format!("{}.{name}.{key}", names::SYSCTL), Some(value));
        }
    }
}

/// Returns the sysctls that every report of an end has.
fn sysctls_of(kernel: &Kernel) -> BTreeMap<String, String> {
    let three = |values: [u64; 3]| values.map(|value| value.to_string()).join(" ");
    let all = [
        ("net.core.rmem_max", kernel.rmem_max_bytes.to_string()),
        ("net.core.wmem_max", kernel.wmem_max_bytes.to_string()),
        ("net.ipv4.tcp_rmem", three(kernel.tcp_rmem_bytes)),
        ("net.ipv4.tcp_wmem", three(kernel.tcp_wmem_bytes)),
        ("net.ipv4.tcp_moderate_rcvbuf", u8::from(kernel.moderate_rcvbuf).to_string()),
        ("net.ipv4.tcp_window_scaling", u8::from(kernel.window_scaling).to_string()),
    ];
    all.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}
