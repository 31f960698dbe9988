//! Lines of the packet log of `lfn emulate --log NAME.jsonl`.

use lfn_base::figure::Figure;
use serde::{Deserialize, Serialize};

use super::schema_name::schema_name;

/// Line of a packet log, schema `lfn.emulate.log/2`: the start, then one line for each range of packets, then the end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum PacketLogLine {
    Start(PacketLogStart),
    Packet(Box<PacketRecord>),
    End(PacketLogEnd),
}

/// First line of a packet log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PacketLogStart {
    /// Name and version of the schema.
    pub schema: PacketLogSchema,
    /// Start of the link, since 1970, to which all other times are relative.
    pub start_unix_seconds: Figure,
    /// Seed of the random draws.
    pub seed: u64,
}

/// Last line of a packet log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PacketLogEnd {
    /// True on the last line.
    pub end: bool,
    /// Number of lines between the first and the last one.
    pub written: u64,
    /// Records that are missing, because the writer was too slow.
    pub missed: u64,
}

/// Range of virtual packets with the same outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PacketRecord {
    /// Outcome of the packets.
    pub outcome: LoggedOutcome,
    /// Number of the path, from 1.
    pub path: u32,
    /// Direction of the packets.
    pub direction: LoggedDirection,
    /// Number of the received frame in its direction, from 0.
    pub id: u64,
    /// Number of virtual packets before this frame.
    pub packets_before: u64,
    /// Arrival time of the first packet of the range.
    pub arrived_seconds: Figure,
    /// Time of arrival since 1970.
    pub arrived_unix_seconds: Figure,
    /// Transport protocol, if the frame has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Address and port of the sender.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Address and port of the receiver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// First virtual packet of the frame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<u32>,
    /// Number of virtual packets.
    pub count: u64,
    /// Bytes of these packets, with Ethernet headers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Time at which the model lets the packets leave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_seconds: Option<Figure>,
    /// Time at which the packets left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_seconds: Option<Figure>,
    /// Time by which the packets left too late.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lateness_seconds: Option<Figure>,
    /// Cause of a drop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// Time of a drop, of a copy or of a reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_seconds: Option<Figure>,
    /// MTU in the ICMP reply, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_mtu_bytes: Option<u32>,
    /// Time in queues, without the packets' own transmission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_delay_seconds: Option<Figure>,
    /// True if the link marked the packets (ECN).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub marked: Option<bool>,
    /// Kind of corruption: `visible` or `hidden` from checksums.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corrupted: Option<String>,
    /// True for copies that the link made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy: Option<bool>,
}

/// Outcome of a logged packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LoggedOutcome {
    Forward,
    Drop,
    Duplicate,
    /// Lost outside the model.
    Lost,
    IcmpReply,
    /// Still in the link at the end of the run.
    InFlight,
}

/// Direction of a logged packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LoggedDirection {
    NearToFar,
    FarToNear,
}

schema_name! {
    /// Name and version of the schema of a packet log.
    PacketLogSchema = "lfn.emulate.log/2"
}
