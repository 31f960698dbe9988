//! What a client sees that asks for the server's output: lines or an object in iperf3's layout, of a bounded size.

use std::fmt::Write;
use std::net::SocketAddr;

use lfn_core::iperf3::{Cookie, Output, Parameters, Protocol, Results, StreamResult, Way};
use lfn_core::units::Bytes;
use serde_json::{Value, json};

use super::super::figures::Slice;
use super::super::flow::{Flow, Socket};

/// Streams times intervals that are kept: some 2 MiB. A longer test is told without the rest of its intervals.
const MOST_ROWS: usize = 20_000;

/// The output of one test, as it grows.
#[derive(Debug)]
pub(super) struct ServerOutput(Option<Growing>);

#[derive(Debug)]
struct Growing {
    as_json: bool,
    /// Identifier of each stream, and whether the server sends on it.
    flows: Vec<(u32, bool)>,
    text: String,
    start: Value,
    intervals: Vec<Value>,
    rows: usize,
}

impl ServerOutput {
    pub(super) fn new(
        parameters: &Parameters,
        cookie: &Cookie,
        peer: SocketAddr,
        as_json: bool,
        flows: &[Flow],
    ) -> Self {
        if !parameters.server_output {
            return ServerOutput(None);
        }
        let mut text = format!("Accepted connection from {}, port {}\n", peer.ip(), peer.port());
        let mut connected = Vec::new();
        for flow in flows {
            let Some((local, remote)) = flow.socket.addresses() else { continue };
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "[{:3}] local {} port {} connected to {} port {}",
                flow.id,
                local.ip(),
                local.port(),
                remote.ip(),
                remote.port()
            );
            connected.push(json!({"id": flow.id, "local_host": local.ip(), "local_port": local.port(),
                "remote_host": remote.ip(), "remote_port": remote.port()}));
        }
        text.push_str("[ ID] Interval              Transfer     Bitrate\n");
        let start = json!({
            "connected": connected,
            "version": concat!("lfn ", env!("CARGO_PKG_VERSION")),
            "accepted_connection": {"host": peer.ip(), "port": peer.port()},
            "cookie": cookie.to_string(),
            "test_start": {
                "protocol": if parameters.protocol == Protocol::Tcp { "TCP" } else { "UDP" },
                "num_streams": parameters.streams,
                "blksize": parameters.length.0,
                "omit": parameters.omit.as_secs(),
                "reverse": u8::from(parameters.way == Way::Reverse),
                "bidir": u8::from(parameters.way == Way::Both),
                "title": parameters.title,
            },
        });
        let flows = flows.iter().map(|flow| (flow.id, flow.sends)).collect();
        ServerOutput(Some(Growing { as_json, flows, text, start, intervals: Vec::new(), rows: 0 }))
    }

    /// An interval is over.
    pub(super) fn slice(&mut self, slice: &Slice) {
        let Some(growing) = &mut self.0 else { return };
        growing.rows += slice.streams.len();
        if growing.rows > MOST_ROWS {
            return;
        }
        let (start, end) = (slice.start.as_secs_f64(), slice.end.as_secs_f64());
        let mut streams = Vec::new();
        for ((id, sends), (bytes, _)) in growing.flows.iter().zip(&slice.streams) {
            let rate = Bytes(*bytes).per(slice.end - slice.start);
            let omitted = if slice.omitted { "(omitted)" } else { "" };
            let (size, rate_text) = (Bytes(*bytes).to_string(), rate.to_string());
            let _ =
                writeln!(growing.text, "[{id:3}] {start:7.2}-{end:<7.2} sec  {size:>10}  {rate_text:>12} {omitted}");
            if growing.as_json {
                streams.push(json!({"id": id, "start": start, "end": end, "seconds": end - start, "bytes": bytes,
                    "bits_per_second": rate.0, "omitted": slice.omitted, "sender": sends}));
            }
        }
        if growing.as_json {
            growing.intervals.push(json!({ "streams": streams }));
        }
    }

    /// The test is over: these are the figures of both ends.
    pub(super) fn finish(self, ours: &Results, theirs: &Results) -> Option<Output> {
        let mut growing = self.0?;
        if growing.rows > MOST_ROWS {
            growing.text.push_str("(more intervals than are told)\n");
        }
        growing.text.push_str("- - - - - - - - - - - - - - - - - - - - - - - - -\n");
        let mut streams = Vec::new();
        for (id, sends) in &growing.flows {
            let (Some(own), Some(other)) = (ours.stream(*id), theirs.stream(*id)) else { continue };
            let (sent, received) = if *sends { (own, other) } else { (other, own) };
            for (stream, role) in [(sent, "sender"), (received, "receiver")] {
                growing.text.push_str(&summary(stream, role));
            }
            streams.push(json!({"sender": end_of(sent), "receiver": end_of(received)}));
        }
        if !growing.as_json {
            return Some(Output::Text(growing.text));
        }
        let cpu = json!({"host_total": ours.cpu.total, "host_user": ours.cpu.user, "host_system": ours.cpu.system});
        Some(Output::Json(json!({
            "start": growing.start,
            "intervals": growing.intervals,
            "end": {"streams": streams, "cpu_utilization_percent": cpu},
        })))
    }
}

fn summary(stream: &StreamResult, role: &str) -> String {
    let time = stream.time.unwrap_or_default();
    let (size, rate) = (Bytes(stream.bytes).to_string(), Bytes(stream.bytes).per(time).to_string());
    let lost = match stream.packets {
        0 => String::new(),
        packets => format!("  {}/{packets} lost", stream.errors),
    };
    let seconds = time.as_secs_f64();
    format!("[{:3}] {:7.2}-{seconds:<7.2} sec  {size:>10}  {rate:>12}{lost}  {role}\n", stream.id, 0.0)
}

fn end_of(stream: &StreamResult) -> Value {
    json!({
        "id": stream.id,
        "seconds": stream.time.map(|time| time.as_secs_f64()),
        "bytes": stream.bytes,
        "bits_per_second": stream.time.map(|time| Bytes(stream.bytes).per(time).0),
        "retransmits": stream.retransmits,
        "jitter_ms": stream.jitter * 1e3,
        "lost_packets": stream.errors,
        "packets": stream.packets,
    })
}

impl Socket {
    /// Both ends' addresses.
    fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        match self {
            Socket::Tcp(socket) => Some((socket.local_addr().ok()?, socket.peer_addr().ok()?)),
            Socket::Udp(socket) => Some((socket.local_addr().ok()?, socket.peer_addr().ok()?)),
        }
    }
}
