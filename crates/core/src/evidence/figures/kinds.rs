//! Kinds of evidence that rules need, and the test if the figures have them.

use super::{Figures, StreamFigures};
use crate::evidence::LoadKind;

/// A kind of evidence. An end that does not report a kind is no evidence: rules that need the kind find nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EvidenceKind {
    /// Capacity of the path, or the prediction of a copy.
    Capacity,
    /// Intervals of the receiver, which give the steady part.
    Intervals,
    /// `TCP_INFO` of the sender with its busy times (Linux 4.10).
    TcpInfo,
    /// Receive window as the sender saw it (Linux 5.4).
    SendWindow,
    /// Sent and retransmitted bytes (Linux 4.19).
    SentBytes,
    /// Options of the sockets, requested and granted.
    SocketOptions,
    /// CPU time of the data threads of both ends.
    ThreadTime,
    /// Counters of the interfaces of both hosts.
    HostCounters,
    /// Buffer limits of both kernels.
    KernelLimits,
    /// Counts of datagrams of both ends.
    DatagramCounts,
    /// Counters of the sender's sockets of a copy.
    CopySockets,
}

impl EvidenceKind {
    /// Returns the kind in words.
    pub fn name(self) -> &'static str {
        match self {
            EvidenceKind::Capacity => "capacity of the path (--rate)",
            EvidenceKind::Intervals => "intervals of the receiver",
            EvidenceKind::TcpInfo => "TCP_INFO of the sender",
            EvidenceKind::SendWindow => "receive window at the sender (Linux 5.4)",
            EvidenceKind::SentBytes => "sent and retransmitted bytes (Linux 4.19)",
            EvidenceKind::SocketOptions => "socket options of the streams",
            EvidenceKind::ThreadTime => "CPU time of the data threads",
            EvidenceKind::HostCounters => "interface counters of both hosts",
            EvidenceKind::KernelLimits => "buffer limits of both kernels",
            EvidenceKind::DatagramCounts => "datagram counts of both ends",
            EvidenceKind::CopySockets => "socket counters of the copy's sender",
        }
    }
}

impl Figures {
    /// Returns true if the figures have this kind of evidence, for all streams and for both ends where the kind has them.
    pub fn has(&self, kind: EvidenceKind) -> bool {
        let all = |has: fn(&StreamFigures) -> bool| !self.streams.is_empty() && self.streams.iter().all(has);
        let hosts = [&self.sender, &self.receiver];
        match kind {
            EvidenceKind::Capacity => match self.kind {
                LoadKind::Copy => self.copy.is_some_and(|copy| copy.predicted.is_some()),
                LoadKind::Tcp | LoadKind::Datagrams => self.path.is_some(),
            },
            EvidenceKind::Intervals => self.intervals > 0,
            EvidenceKind::TcpInfo => self.is_tcp(),
            EvidenceKind::SendWindow => all(|flow| flow.snd_wnd.is_some()),
            EvidenceKind::SentBytes => all(|flow| flow.sent.is_some()),
            EvidenceKind::SocketOptions => match self.kind {
                LoadKind::Datagrams => self.datagrams.receiver_socket.is_some(),
                LoadKind::Tcp | LoadKind::Copy => all(|flow| !flow.sender_socket.congestion.is_empty()),
            },
            EvidenceKind::ThreadTime => all(|flow| flow.sender_thread.is_some() && flow.receiver_thread.is_some()),
            EvidenceKind::HostCounters => hosts.iter().all(|host| host.interface.is_some()),
            EvidenceKind::KernelLimits => hosts.iter().all(|host| host.kernel.is_some()),
            EvidenceKind::DatagramCounts => self.datagrams.streams().next().is_some(),
            EvidenceKind::CopySockets => self.copy.is_some_and(|copy| copy.end.sockets.is_some()),
        }
    }
}
