//! Facts of a host that a load does not change: its settings, the interface and the route towards the other end, and the
//! limits of its container.
//!
//! Every fact may be missing: without permission, in a container, or with an older kernel. A missing fact is absent, and
//! [`HostFacts::unreadable`] has the reason.

use std::collections::BTreeMap;

use lfn_base::figure::Figure;
use lfn_base::units::{BitRate, Bytes};
use serde::{Deserialize, Serialize};

use super::{InterfaceCounters, Qdisc};

/// Facts of one host.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct HostFacts {
    /// Release of the kernel (`/proc/sys/kernel/osrelease`).
    pub release: String,
    /// Effective user is root, so that remedies need no further rights.
    pub is_root: bool,
    /// Values of the sysctls that a load depends on, by name (`net.ipv4.tcp_rmem`), and the parameters of kernel modules
    /// (`tcp_cubic.hystart`).
    pub sysctls: BTreeMap<String, String>,
    /// Interface towards the other end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<InterfaceFacts>,
    /// Route to the other end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<RouteFacts>,
    /// Values that the kernel stored of earlier connections to the other end (`ip tcp_metrics`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored_metrics: Option<TcpMetrics>,
    /// Congestion controls that the kernel has loaded.
    pub congestion_available: Vec<String>,
    /// Congestion controls that an ordinary user may select.
    pub congestion_allowed: Vec<String>,
    /// Number of processors that this process may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processors: Option<u32>,
    /// Model of the first processor (`model name` in `/proc/cpuinfo`, or its equivalent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor_model: Option<String>,
    /// Frequency governor of the processors (`performance`, `powersave`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub governor: Option<String>,
    /// Clock source of the kernel (`tsc`, `kvm-clock`, `hpet`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_source: Option<String>,
    /// Physical memory of the host (`MemTotal`).
    #[serde(default, rename = "memory_bytes", skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    /// Memory that programs can still get (`MemAvailable`).
    #[serde(default, rename = "available_memory_bytes", skip_serializing_if = "Option::is_none")]
    pub available_memory: Option<Bytes>,
    /// Limits of the control group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_group: Option<ControlGroup>,
    /// Container in which the process runs (`docker`, `lxc`, `podman`); absent outside of a container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// Facts that could not be read, each with its reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<String>,
}

/// Facts of an interface.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct InterfaceFacts {
    /// Name of the interface, such as eth0.
    pub name: String,
    /// Sent packets return to this host.
    #[serde(default)]
    pub loopback: bool,
    /// Type of an interface without hardware: `veth`, `bridge`, `wireguard`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Driver of the device, as `ethtool -i` shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// MTU, in bytes of the IP packet.
    pub mtu_bytes: u32,
    /// Link rate, if the driver reports it.
    #[serde(default, rename = "rate_bits_per_second", skip_serializing_if = "Option::is_none")]
    pub rate: Option<BitRate>,
    /// Highest rate that both the device and its link partner support.
    #[serde(default, rename = "max_rate_bits_per_second", skip_serializing_if = "Option::is_none")]
    pub max_rate: Option<BitRate>,
    /// Duplex of the link, if the driver reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duplex: Option<Duplex>,
    /// Length of the transmit queue, in packets (`txqueuelen`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transmit_queue_packets: Option<u32>,
    /// Queueing discipline at the root (`fq`, `fq_codel`, `noqueue`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root_qdisc: Option<String>,
    /// Queueing disciplines and their counters since they were created, roots and leaves.
    #[serde(default)]
    pub qdiscs: Vec<Qdisc>,
    /// Offloads by the name that `ethtool -k` uses (`tcp-segmentation-offload`), and whether they are on. An offload that
    /// is off and cannot be turned on is absent.
    #[serde(default)]
    pub offloads: BTreeMap<String, bool>,
    /// Ring of received packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_ring: Option<Ring>,
    /// Ring of packets to send.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transmit_ring: Option<Ring>,
    /// Number of times that the link went down or up since the host started (`carrier_changes`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carrier_changes: Option<u64>,
    /// Counters since the interface was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counters: Option<InterfaceCounters>,
    /// Frames received with a wrong checksum since the interface was created (`rx_crc_errors`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received_crc_errors: Option<u64>,
    /// Collisions of a half-duplex link since the interface was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collisions: Option<u64>,
}

/// Duplex of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Duplex {
    Half,
    Full,
}

/// Length of a ring of an interface.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct Ring {
    /// Current length (`ethtool -g`).
    pub packets: u32,
    /// Maximum length that the device supports.
    pub max_packets: u32,
}

/// Route to the other end.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct RouteFacts {
    /// Router of the next hop; absent for a host of the same link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// Metrics of the route by the names of `ip route` (`mtu`, `window`, `cwnd`, `initcwnd`, `initrwnd`, `ssthresh`,
    /// `advmss`, `rto_min`), in the units of the kernel.
    #[serde(default)]
    pub metrics: BTreeMap<String, u64>,
    /// Congestion control of the route (`congctl`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion: Option<String>,
    /// Time until the kernel forgets a metric that the path taught it, such as the MTU of an ICMP message, seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_seconds: Option<Figure>,
}

/// Values that the kernel stored of earlier connections to a host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct TcpMetrics {
    /// Slow-start threshold with which a new connection starts, segments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssthresh_segments: Option<u32>,
    /// Congestion window of the last connection, segments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwnd_segments: Option<u32>,
    /// Reordering that a new connection tolerates, segments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reordering_segments: Option<u32>,
    /// Smoothed RTT of the last connection, seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_seconds: Option<Figure>,
    /// Age of the values, seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_seconds: Option<Figure>,
}

/// Limits of a control group and their use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ControlGroup {
    /// Processors that the group may use (`cpu.max`); absent without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_processors: Option<Figure>,
    /// Time in which the limit stopped the group since it exists, seconds (`throttled_usec`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttled_seconds: Option<Figure>,
    /// Memory that the group may use (`memory.max`); absent without a limit.
    #[serde(default, rename = "max_memory_bytes", skip_serializing_if = "Option::is_none")]
    pub max_memory: Option<Bytes>,
}
