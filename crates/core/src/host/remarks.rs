//! What an end has to say beyond figures: an option that was not granted, data that its own kernel dropped.

use super::{HostReport, Note};
use crate::wire::test::{SocketReport, StreamReport};

/// Counters of segments that had come and that the kernel's sockets let go (`net/ipv4/proc.c`), and in what words.
pub(crate) const SEGMENTS_LET_GO: [(&str, &str); 4] = [
    ("TcpExt.TCPRcvQDrop", "segments dropped: receive queue full"),
    ("TcpExt.TCPBacklogDrop", "segments dropped: socket backlog full"),
    ("TcpExt.RcvPruned", "segments dropped: receive buffer overrun"),
    ("TcpExt.PFMemallocDrop", "segments dropped: no memory"),
];
/// The same of connections and datagrams.
const OTHERS_LET_GO: [(&str, &str); 3] = [
    ("TcpExt.TCPAbortOnMemory", "connections ended: no memory for TCP"),
    ("Udp.RcvbufErrors", "datagrams dropped: receive buffer full"),
    ("Udp.SndbufErrors", "datagrams not sent: send buffer full"),
];

/// What is to be said of these streams and this host.
pub fn remarks(streams: &[StreamReport], host: Option<&HostReport>) -> Vec<Note> {
    let mut notes: Vec<Note> = Vec::new();
    for socket in streams.iter().filter_map(|stream| stream.socket.as_ref()) {
        for note in not_granted(socket) {
            // Streams are treated alike: what is true of all is said once.
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
    }
    let counter = |name: &str| host.and_then(|host| host.counter(name)).filter(|count| *count > 0);
    let let_go = SEGMENTS_LET_GO.iter().chain(&OTHERS_LET_GO);
    notes.extend(let_go.filter_map(|(name, words)| Some(Note::warning(format!("{} {words}", counter(name)?)))));
    notes
}

fn not_granted(socket: &SocketReport) -> Vec<Note> {
    let buffers = [
        ("send", socket.sndbuf_asked_bytes, socket.sndbuf_granted_bytes),
        ("receive", socket.rcvbuf_asked_bytes, socket.rcvbuf_granted_bytes),
    ];
    let short = buffers.iter().filter_map(|(which, asked, granted)| {
        let asked = (*asked)?;
        (*granted < asked).then(|| Note::warning(format!("{which} buffer: {asked} asked, {granted} granted")))
    });
    let other = [&socket.congestion_asked, &socket.congestion_planned].into_iter().flatten().filter_map(|asked| {
        let differs = !socket.congestion.is_empty() && *asked != socket.congestion;
        differs.then(|| Note::warning(format!("congestion control: {asked} asked, {} in use", socket.congestion)))
    });
    short.chain(other).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Bytes;

    fn messages(streams: &[StreamReport], host: Option<&HostReport>) -> Vec<String> {
        remarks(streams, host).into_iter().map(|note| note.message).collect()
    }

    #[test]
    fn what_was_not_granted_is_said_once() {
        let socket = SocketReport {
            rcvbuf_asked_bytes: Some(Bytes(62 << 20)),
            rcvbuf_granted_bytes: Bytes(4 << 20),
            congestion_asked: Some("cubic".into()),
            congestion: "reno".into(),
            ..SocketReport::default()
        };
        let stream = StreamReport { socket: Some(socket), ..StreamReport::default() };
        let expected = ["receive buffer: 62 MiB asked, 4 MiB granted", "congestion control: cubic asked, reno in use"];
        assert_eq!(messages(&[stream.clone(), stream], None), expected);
    }

    #[test]
    fn what_the_kernel_let_go_is_counted() {
        let mut host = HostReport { counters: Some([("TcpExt.TCPRcvQDrop".into(), 12)].into()), ..Default::default() };
        assert_eq!(messages(&[], Some(&host)), ["12 segments dropped: receive queue full"]);
        host.counters = None;
        assert_eq!(messages(&[StreamReport::default()], Some(&host)), [] as [&str; 0]);
    }
}
