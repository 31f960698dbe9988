//! What is found of a path: hops of each trace, and path MTUs beside those of the interfaces.
//!
//! These are the figures as `--json` prints them and as they are stored. What is not known is `None`, a hop that nobody
//! answered for has no nodes.

use core::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::extension::Label;
use crate::figure::Figure;

/// All that `lfn test --path` found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PathReport {
    /// Way there, hop by hop, once for each protocol.
    #[serde(default)]
    pub traces: Vec<Trace>,
    /// Path MTUs.
    #[serde(default)]
    pub mtu: MtuReport,
    /// What could not be done, and why: a line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub troubles: Vec<String>,
}

/// With what a trace asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// SYNs to the port that the test uses.
    Tcp,
    /// Datagrams to a port where nobody is expected to listen.
    Udp,
}

/// One trace of one flow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Trace {
    /// With what it asked.
    pub protocol: Protocol,
    /// Source of the flow.
    pub source: IpAddr,
    /// Its port: the same for every probe.
    pub source_port: u16,
    /// Destination of the flow.
    pub destination: IpAddr,
    /// Its port.
    pub destination_port: u16,
    /// The hops in their order, from TTL 1.
    pub hops: Vec<Hop>,
    /// How it ended.
    pub end: TraceEnd,
}

/// How a trace ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TraceEnd {
    /// The destination answered.
    Reached,
    /// A router said that there is no way on, or that it is forbidden.
    Unreachable,
    /// Nobody answered for several hops in a row.
    #[default]
    Silent,
    /// As many hops were tried as a path may have.
    TooFar,
    /// The time for it was over.
    OutOfTime,
}

/// One hop: what answered probes of one TTL.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Hop {
    /// TTL or hop limit of the probes.
    pub ttl: u8,
    /// Probes sent.
    pub probes: u8,
    /// Who answered; nobody, if the hop is unknown.
    pub nodes: Vec<Node>,
}

/// An address that answered for a hop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Node {
    /// The address.
    pub address: IpAddr,
    /// Its name, if names were asked for and it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Round trips of the probes it answered, in the order of the probes.
    pub rtt_seconds: Vec<Figure>,
    /// MPLS labels the probe carried when it expired (RFC 4950), as the first answer tells them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mpls: Vec<Label>,
}

/// The largest packets. All sizes are of IP packets, headers included.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MtuReport {
    /// MTU of the client's interface towards the server.
    pub near_interface_mtu_bytes: Option<u32>,
    /// MTU of the server's interface towards the client.
    pub far_interface_mtu_bytes: Option<u32>,
    /// Path MTU from the client to the server, by probes alone.
    pub forward: Option<MtuFound>,
    /// Path MTU from the server to the client, by probes alone.
    pub reverse: Option<MtuFound>,
    /// What ICMP told each sender.
    #[serde(default)]
    pub told: Vec<MtuTold>,
    /// What the client's TCP took the path MTU for when its last test was over (`tcpi_pmtu`).
    pub near_tcp_pmtu_bytes: Option<u32>,
    /// The same of the server's TCP.
    pub far_tcp_pmtu_bytes: Option<u32>,
}

/// A path MTU found by probes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MtuFound {
    /// The largest packet that arrived.
    pub path_mtu_bytes: u32,
    /// The smallest that never did, in as many tries as make loss unlikely.
    pub smallest_lost_bytes: Option<u32>,
    /// How sure it is.
    pub search: Searched,
    /// Probes sent.
    pub probes_sent: u32,
    /// Probes that arrived.
    pub probes_arrived: u32,
    /// Packets larger than this vanish, and no ICMP message says so.
    pub black_hole: bool,
}

/// How a search ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Searched {
    /// Nothing larger gets through, or the interface takes nothing larger.
    Complete,
    /// The time was over first: at least this much gets through.
    #[default]
    OutOfTime,
}

/// A packet-too-big message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MtuTold {
    /// Which end it was told to.
    pub to: End,
    /// The router that sent it, if its address is known.
    pub from: Option<IpAddr>,
    /// The MTU it gave.
    pub mtu_bytes: u32,
}

/// One end of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The client, who dialled.
    Near,
    /// The server.
    Far,
}
