//! Kinds of evidence that rules need, and the test if the figures have them.

use super::{Figures, StreamFigures};
use crate::evidence::LoadKind;
use crate::measure::SocketReport;

/// A kind of evidence. An end that does not report a kind is no evidence: rules that need the kind find nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EvidenceKind {
    /// Capacity of the path, or the prediction of a copy.
    Capacity,
    /// Intervals of the receiver, which give the steady part.
    Intervals,
    /// `TCP_INFO` of the sender, in its intervals.
    TcpInfo,
    /// Times in `TCP_INFO` of the sender: busy, and limited by a window or a buffer (Linux 4.10).
    BusyTime,
    /// Receive window as the sender saw it (Linux 5.4).
    SendWindow,
    /// Sent and retransmitted bytes (Linux 4.19).
    SentBytes,
    /// Socket options of the sender, requested and granted.
    SenderSocket,
    /// Socket options of the receiver, requested and granted.
    ReceiverSocket,
    /// CPU time of the sender's threads.
    SenderThread,
    /// CPU time of the receiver's threads.
    ReceiverThread,
    /// Counters of the sender's host and of its interface.
    SenderCounters,
    /// Counters of the receiver's host and of its interface.
    ReceiverCounters,
    /// Path MTU from probes (`--path`).
    PathProbes,
    /// Buffer limits of both kernels.
    KernelLimits,
    /// Counts of datagrams of both ends.
    DatagramCounts,
    /// Counters of the sender's sockets of a copy.
    CopySockets,
    /// Facts of a host that a load does not change.
    HostFacts,
    /// Trains of datagrams in the direction of the load.
    Trains,
    /// Rates of the disks, which only the user can ask for (`lfn doctor --disk`).
    Disks,
}

impl EvidenceKind {
    /// Returns the kind in words.
    pub fn name(self) -> &'static str {
        match self {
            EvidenceKind::Capacity => "capacity of the path (--rate)",
            EvidenceKind::Intervals => "intervals of the receiver",
            EvidenceKind::TcpInfo => "TCP_INFO of the sender",
            EvidenceKind::BusyTime => "busy times of the sender (Linux 4.10)",
            EvidenceKind::SendWindow => "receive window at the sender (Linux 5.4)",
            EvidenceKind::SentBytes => "sent and retransmitted bytes (Linux 4.19)",
            EvidenceKind::SenderSocket => "socket options of the sender",
            EvidenceKind::ReceiverSocket => "socket options of the receiver",
            EvidenceKind::SenderThread => "CPU time of the sender's threads",
            EvidenceKind::ReceiverThread => "CPU time of the receiver's threads",
            EvidenceKind::SenderCounters => "interface counters of the sender",
            EvidenceKind::ReceiverCounters => "interface counters of the receiver",
            EvidenceKind::PathProbes => "path MTU from probes (--path)",
            EvidenceKind::KernelLimits => "buffer limits of both kernels",
            EvidenceKind::DatagramCounts => "datagram counts of both ends",
            EvidenceKind::CopySockets => "socket counters of the copy's sender",
            EvidenceKind::HostFacts => "facts of the hosts",
            EvidenceKind::Trains => "trains of datagrams",
            EvidenceKind::Disks => "rates of the disks (lfn doctor --disk)",
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
                LoadKind::Tcp | LoadKind::Datagrams | LoadKind::Capture | LoadKind::Couple => self.path.is_some(),
            },
            EvidenceKind::Intervals => self.intervals > 0,
            EvidenceKind::TcpInfo => self.streams.iter().any(|flow| !flow.rtt.is_zero()),
            EvidenceKind::BusyTime => self.is_tcp(),
            EvidenceKind::SendWindow => all(|flow| flow.snd_wnd.is_some()),
            EvidenceKind::SentBytes => all(|flow| flow.sent.is_some()),
            EvidenceKind::SenderSocket => all(|flow| !flow.sender_socket.congestion.is_empty()),
            EvidenceKind::ReceiverSocket => match self.kind {
                LoadKind::Datagrams => self.datagrams.receiver_socket.is_some(),
                LoadKind::Tcp | LoadKind::Copy | LoadKind::Capture | LoadKind::Couple => {
                    all(|flow| flow.receiver_socket != SocketReport::default())
                }
            },
            EvidenceKind::SenderThread => all(|flow| flow.sender_thread.is_some()),
            EvidenceKind::ReceiverThread => all(|flow| flow.receiver_thread.is_some()),
            EvidenceKind::SenderCounters => self.sender.interface.is_some(),
            EvidenceKind::ReceiverCounters => self.receiver.interface.is_some(),
            EvidenceKind::PathProbes => self.probed_mtu.is_some(),
            EvidenceKind::KernelLimits => hosts.iter().all(|host| host.kernel.is_some()),
            EvidenceKind::DatagramCounts => self.datagrams.streams().next().is_some(),
            EvidenceKind::HostFacts => hosts.iter().any(|host| host.facts.is_some()),
            EvidenceKind::Trains => self.trains.is_some(),
            EvidenceKind::Disks => hosts.iter().any(|host| host.disk.is_some()),
            EvidenceKind::CopySockets => self.copy.is_some_and(|copy| copy.end.sockets.is_some()),
        }
    }
}
