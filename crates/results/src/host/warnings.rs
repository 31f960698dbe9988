//! Warnings of one end about its part of a test: options that were not granted, and data that its own kernel dropped.

use super::{HostReport, Note};
use crate::measure::{SocketReport, StreamReport};

/// Counters of segments that arrived and that the kernel dropped at the socket (`net/ipv4/proc.c`), with their
/// descriptions.
pub(crate) const SEGMENT_DROP_COUNTERS: [(&str, &str); 4] = [
    ("TcpExt.TCPRcvQDrop", "segments dropped: receive queue full"),
    ("TcpExt.TCPBacklogDrop", "segments dropped: socket backlog full"),
    ("TcpExt.RcvPruned", "segments dropped: receive buffer overrun"),
    ("TcpExt.PFMemallocDrop", "segments dropped: no memory"),
];
/// Counters of connections that ended and datagrams that were dropped, with their descriptions.
const OTHER_DROP_COUNTERS: [(&str, &str); 3] = [
    ("TcpExt.TCPAbortOnMemory", "connections ended: no memory for TCP"),
    ("Udp.RcvbufErrors", "datagrams dropped: receive buffer full"),
    ("Udp.SndbufErrors", "datagrams not sent: send buffer full"),
];

/// Returns the warnings for these streams and this host.
pub fn socket_warnings(streams: &[StreamReport], host: Option<&HostReport>) -> Vec<Note> {
    let mut notes: Vec<Note> = Vec::new();
    for socket in streams.iter().filter_map(|stream| stream.socket.as_ref()) {
        for note in unmet_requests(socket) {
            // All streams have the same settings, so a warning for all appears once.
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
    }
    let counter = |name: &str| host.and_then(|host| host.counter(name)).filter(|count| *count > 0);
    let drops = SEGMENT_DROP_COUNTERS.iter().chain(&OTHER_DROP_COUNTERS);
    notes.extend(drops.filter_map(|(name, words)| Some(Note::warning(format!("{} {words}", counter(name)?)))));
    notes
}

fn unmet_requests(socket: &SocketReport) -> Vec<Note> {
    let buffers = [
        ("send", socket.sndbuf_requested_bytes, socket.sndbuf_granted_bytes),
        ("receive", socket.rcvbuf_requested_bytes, socket.rcvbuf_granted_bytes),
    ];
    let short = buffers.iter().filter_map(|(which, requested, granted)| {
        let requested = (*requested)?;
        (*granted < requested)
            .then(|| Note::warning(format!("{which} buffer: {requested} requested, {granted} granted")))
    });
    let other =
        [&socket.congestion_requested, &socket.congestion_planned].into_iter().flatten().filter_map(|requested| {
            let differs = !socket.congestion.is_empty() && *requested != socket.congestion;
            differs.then(|| {
                Note::warning(format!("congestion control: {requested} requested, {} in use", socket.congestion))
            })
        });
    short.chain(other).collect()
}

#[cfg(test)]
mod tests {
    use lfn_base::units::Bytes;

    use super::*;

    fn messages(streams: &[StreamReport], host: Option<&HostReport>) -> Vec<String> {
        socket_warnings(streams, host).into_iter().map(|note| note.message).collect()
    }

    #[test]
    fn ungranted_options_are_reported_once() {
        let socket = SocketReport {
            rcvbuf_requested_bytes: Some(Bytes(62 << 20)),
            rcvbuf_granted_bytes: Bytes(4 << 20),
            congestion_requested: Some("cubic".into()),
            congestion: "reno".into(),
            ..SocketReport::default()
        };
        let stream = StreamReport { socket: Some(socket), ..StreamReport::default() };
        let expected =
            ["receive buffer: 62 MiB requested, 4 MiB granted", "congestion control: cubic requested, reno in use"];
        assert_eq!(messages(&[stream.clone(), stream], None), expected);
    }

    #[test]
    fn kernel_drops_are_reported() {
        let mut host = HostReport { counters: Some([("TcpExt.TCPRcvQDrop".into(), 12)].into()), ..Default::default() };
        assert_eq!(messages(&[], Some(&host)), ["12 segments dropped: receive queue full"]);
        host.counters = None;
        assert_eq!(messages(&[StreamReport::default()], Some(&host)), [] as [&str; 0]);
    }
}
