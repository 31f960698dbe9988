//! Results of path discovery: hops of each trace, and path MTUs with the MTUs of the interfaces.
//!
//! These are the figures that `--json` prints and that a stored report has. Unknown figures are `None`. A hop without
//! an answer has no nodes.

use core::net::IpAddr;

use lfn_base::figure::Figure;
use serde::{Deserialize, Serialize};

use crate::measure::TestDirection;

/// An MPLS label stack entry (RFC 3032 §2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct Label {
    /// Label value, 20 bits.
    pub label: u32,
    /// Traffic class, 3 bits.
    pub traffic_class: u8,
    /// TTL of the label stack entry.
    pub ttl: u8,
}

/// Results of `lfn test --path`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct PathReport {
    /// Forward route, hop by hop, once for each protocol.
    #[serde(default)]
    pub traces: Vec<RouteTrace>,
    /// Path MTUs of both directions.
    #[serde(default)]
    pub mtu: MtuReport,
    /// Parts that failed, with the reason: one line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
}

/// Maximum difference between the largest passed and the smallest lost packet of a black hole, bytes.
const MAX_OPEN_BYTES: u32 = 64;

impl PathReport {
    /// Returns the path MTU of the data's direction, if the probes found it.
    pub fn probed_mtu(&self, direction: TestDirection) -> Option<u32> {
        self.found(direction).map(|found| found.path_mtu_bytes)
    }

    /// Returns the largest packet that passes in the data's direction, if larger ones get lost without a message.
    pub fn black_hole(&self, direction: TestDirection) -> Option<u32> {
        // A search over a long path may end a few bytes before the exact size.
        let is_near = |found: &MtuFound| {
            found.smallest_lost_bytes.is_some_and(|lost| lost.saturating_sub(found.path_mtu_bytes) <= MAX_OPEN_BYTES)
        };
        let found = self.search(direction).filter(|found| found.black_hole && is_near(found));
        found.map(|found| found.path_mtu_bytes)
    }

    fn found(&self, direction: TestDirection) -> Option<MtuFound> {
        self.search(direction).filter(|found| found.search == SearchEnd::Complete)
    }

    fn search(&self, direction: TestDirection) -> Option<MtuFound> {
        match direction {
            TestDirection::Forward => self.mtu.forward,
            TestDirection::Reverse => self.mtu.reverse,
        }
    }
}

/// Protocol of the probes of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TraceProtocol {
    /// SYN packets to the port of the test.
    Tcp,
    /// Datagrams to a port without a listener.
    Udp,
}

/// The route of one flow, hop by hop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct RouteTrace {
    pub protocol: TraceProtocol,
    /// Source address of the flow.
    pub source: IpAddr,
    /// Source port, the same for every probe.
    pub source_port: u16,
    /// Destination address of the flow.
    pub destination: IpAddr,
    /// Destination port of all probes of the trace.
    pub destination_port: u16,
    /// Hops in order, from TTL 1.
    pub hops: Vec<Hop>,
    /// Reason for the end of the trace.
    pub end: TraceEnd,
}

/// Reason for the end of a trace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TraceEnd {
    Reached,
    /// A router reported that the destination is unreachable or prohibited.
    Unreachable,
    /// Several consecutive hops did not answer.
    #[default]
    Silent,
    /// The maximum number of hops was reached.
    TooFar,
    /// The time limit was reached.
    OutOfTime,
}

/// One hop: all addresses that answered probes with one TTL.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct Hop {
    /// TTL or hop limit of the probes.
    pub ttl: u8,
    /// Probes of this hop, in the order of sending.
    pub probes: u8,
    /// Addresses that answered; empty if no router answered.
    pub nodes: Vec<Node>,
}

/// An address that answered for a hop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct Node {
    /// IP address that answered the probe.
    pub address: IpAddr,
    /// DNS name, if names were requested and the address has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Round-trip times of the answered probes, in the order of the probes.
    pub rtt_seconds: Vec<Figure>,
    /// MPLS labels of the probe when its TTL expired (RFC 4950), from the first answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mpls: Vec<Label>,
}

/// Maximum packet sizes of a path. All sizes are of IP packets with their headers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct MtuReport {
    /// MTU of the client's interface towards the server.
    pub near_interface_mtu_bytes: Option<u32>,
    /// MTU of the server's interface towards the client.
    pub far_interface_mtu_bytes: Option<u32>,
    /// Path MTU from the client to the server, found by probes only.
    pub forward: Option<MtuFound>,
    /// Path MTU from the server to the client, found by probes only.
    pub reverse: Option<MtuFound>,
    /// Packet-too-big messages that a sender received.
    #[serde(default)]
    pub icmp_too_big: Vec<PacketTooBig>,
    /// Path MTU in the client's TCP at the end of its last test (`tcpi_pmtu`).
    pub near_tcp_pmtu_bytes: Option<u32>,
    /// Path MTU in the server's TCP.
    pub far_tcp_pmtu_bytes: Option<u32>,
}

/// A path MTU found by probes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct MtuFound {
    /// Largest packet that arrived.
    pub path_mtu_bytes: u32,
    /// Smallest packet that never arrived, in enough tries to exclude random loss.
    pub smallest_lost_bytes: Option<u32>,
    /// Whether the search is complete.
    pub search: SearchEnd,
    /// Probes sent for this direction.
    pub probes_sent: u32,
    /// Probes that the other end acknowledged.
    pub probes_arrived: u32,
    /// True if larger packets vanish without an ICMP message.
    pub black_hole: bool,
}

/// Reason for the end of a path MTU search.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SearchEnd {
    /// No larger packet passes, or the interface sends no larger packet.
    Complete,
    /// The time limit was reached: the path MTU is at least this large.
    #[default]
    OutOfTime,
}

/// A packet-too-big message of ICMP.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct PacketTooBig {
    /// End that received the message.
    pub to: End,
    /// Router that sent the message, if its address is known.
    pub from: Option<IpAddr>,
    /// MTU in the message.
    pub mtu_bytes: u32,
}

/// One end of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The client, which dialled.
    Near,
    Far,
}
