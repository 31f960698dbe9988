//! Server output for `--get-server-output`: text or a JSON object in iperf3's layout, of limited size.

use std::fmt::Write;
use std::net::SocketAddr;

use lfn_base::units::Bytes;
use lfn_results::iperf3_report::LoadProtocol;
use serde_json::{Value, json};

use super::super::figures::IntervalFigures;
use super::super::stream::OpenStream;
use crate::proto::iperf3::{Cookie, LoadDirection, Parameters, Results, ServerOutput, StreamResult};

/// Maximum rows (streams times intervals), about 2 MiB. Later intervals of a longer test are omitted.
const MAX_ROWS: usize = 20_000;

/// Output of one test, under construction.
#[derive(Debug)]
pub(super) struct OutputRecorder(Option<OutputBuilder>);

#[derive(Debug)]
struct OutputBuilder {
    as_json: bool,
    /// Id of each stream, and whether the server sends on it.
    flows: Vec<(u32, bool)>,
    text: String,
    start: Value,
    intervals: Vec<Value>,
    rows: usize,
}

impl OutputRecorder {
    pub(super) fn new(
        parameters: &Parameters,
        cookie: &Cookie,
        peer: SocketAddr,
        as_json: bool,
        flows: &[OpenStream],
    ) -> Self {
        if !parameters.server_output {
            return OutputRecorder(None);
        }
        let mut text = format!("Accepted connection from {}, port {}\n", peer.ip(), peer.port());
        let mut connected = Vec::new();
        for flow in flows {
            let handle = flow.handle();
            let (Ok(local), Ok(remote)) = (handle.local_address(), handle.peer_address()) else { continue };
            // Writing to a string cannot fail.
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
                "protocol": if parameters.protocol == LoadProtocol::Tcp { "TCP" } else { "UDP" },
                "num_streams": parameters.streams,
                "blksize": parameters.length.0,
                "omit": parameters.omit.as_secs(),
                "reverse": u8::from(parameters.direction == LoadDirection::Reverse),
                "bidir": u8::from(parameters.direction == LoadDirection::Both),
                "title": parameters.title,
            },
        });
        let flows = flows.iter().map(|flow| (flow.id.into(), flow.sends)).collect();
        OutputRecorder(Some(OutputBuilder { as_json, flows, text, start, intervals: Vec::new(), rows: 0 }))
    }

    /// Adds a closed interval.
    pub(super) fn add_interval(&mut self, figures: &IntervalFigures) {
        let Some(builder) = &mut self.0 else { return };
        let (interval, is_omitted) = (&figures.interval, figures.omitted);
        builder.rows += interval.streams.len();
        if builder.rows > MAX_ROWS {
            return;
        }
        let (start, end) = (interval.start.as_secs_f64(), interval.end.as_secs_f64());
        let mut streams = Vec::new();
        for ((id, sends), sample) in builder.flows.iter().zip(&interval.streams) {
            let bytes = sample.bytes;
            let rate = Bytes(bytes).per(interval.end - interval.start);
            let omitted = if is_omitted { "(omitted)" } else { "" };
            let (size, rate_text) = (Bytes(bytes).to_string(), rate.to_string());
            let _ =
                writeln!(builder.text, "[{id:3}] {start:7.2}-{end:<7.2} sec  {size:>10}  {rate_text:>12} {omitted}");
            if builder.as_json {
                streams.push(json!({"id": id, "start": start, "end": end, "seconds": end - start, "bytes": bytes,
                    "bits_per_second": rate.0, "omitted": is_omitted, "sender": sends}));
            }
        }
        if builder.as_json {
            builder.intervals.push(json!({ "streams": streams }));
        }
    }

    /// Adds the results of both ends, and returns the output.
    pub(super) fn finish(self, server_results: &Results, client_results: &Results) -> Option<ServerOutput> {
        let mut builder = self.0?;
        if builder.rows > MAX_ROWS {
            builder.text.push_str("(later intervals omitted)\n");
        }
        builder.text.push_str("- - - - - - - - - - - - - - - - - - - - - - - - -\n");
        let mut streams = Vec::new();
        for (id, sends) in &builder.flows {
            let (Some(own), Some(other)) = (server_results.stream(*id), client_results.stream(*id)) else { continue };
            let (sent, received) = if *sends { (own, other) } else { (other, own) };
            for (stream, role) in [(sent, "sender"), (received, "receiver")] {
                builder.text.push_str(&summary(stream, role));
            }
            streams.push(json!({"sender": stream_end(sent), "receiver": stream_end(received)}));
        }
        if !builder.as_json {
            return Some(ServerOutput::Text(builder.text));
        }
        let cpu = json!({"host_total": server_results.cpu.total, "host_user": server_results.cpu.user, "host_system": server_results.cpu.system});
        Some(ServerOutput::Json(json!({
            "start": builder.start,
            "intervals": builder.intervals,
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

fn stream_end(stream: &StreamResult) -> Value {
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
