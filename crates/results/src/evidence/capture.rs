//! Evidence of one TCP connection of a packet capture, in the direction with the most payload.
//!
//! Times of periods count from the first packet of the connection. Figures that the capture cannot show are absent.

use std::time::Duration;

use lfn_base::figure::{Figure, finite};
use lfn_base::path::{optional_seconds, seconds};
use lfn_base::units::{BitRate, Bytes};
use serde::{Deserialize, Serialize};

/// Evidence of one TCP connection.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct CaptureEvidence {
    /// Sender of most of the data, address and port.
    pub sender: String,
    /// Receiver of this data, address and port.
    pub receiver: String,
    /// Place of the capture on the path.
    pub point: CapturePoint,
    /// From the first to the last packet of the connection.
    #[serde(rename = "duration_seconds", with = "seconds")]
    pub duration: Duration,
    /// Time with data in flight or in recovery: the duration without the pauses of the applications.
    #[serde(rename = "active_seconds", with = "seconds")]
    pub active: Duration,
    /// Payload, each byte counted once.
    #[serde(rename = "payload_bytes")]
    pub payload: Bytes,
    /// Payload of the other direction.
    #[serde(rename = "reverse_payload_bytes")]
    pub reverse_payload: Bytes,
    /// Packets of both directions.
    pub packets: u64,
    /// Packets with payload from the sender. A super-packet (GSO, GRO) counts as the packets that the path carries.
    pub data_packets: u64,
    /// Largest payload of a packet on the wire, as far as it is known.
    pub mss_bytes: u32,
    pub rtt: CaptureRtt,
    pub handshake: Handshake,
    pub faults: CaptureFaults,
    pub loss: LossEvidence,
    pub window: WindowEvidence,
    pub queue: QueueEvidence,
    pub application: ApplicationEvidence,
    pub startup: StartupEvidence,
    pub delivery: DeliveryEvidence,
    pub path: CapturePathEvidence,
    /// Fit of a token bucket to the losses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policer: Option<PolicerFit>,
    /// Limits of the connection over time, in order and without gaps.
    pub periods: Vec<Period>,
}

/// Place of the capture on the path of the data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CapturePoint {
    /// At the sender: the RTT of the data is the RTT of the path.
    Sender,
    /// At the receiver: acknowledgements follow the data at once.
    Receiver,
    /// Between sender and receiver.
    Middle,
    /// The capture has no RTT.
    #[default]
    Unknown,
}

/// A period with one limit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct Period {
    pub limit: PeriodLimit,
    /// Start of the period.
    #[serde(rename = "start_seconds", with = "seconds")]
    pub start: Duration,
    /// End of the period.
    #[serde(rename = "end_seconds", with = "seconds")]
    pub end: Duration,
    /// Payload that was acknowledged in the period.
    #[serde(rename = "payload_bytes")]
    pub payload: Bytes,
}

/// Limit of a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PeriodLimit {
    /// Handshake and slow start.
    StartUp,
    /// The sending application had no data, or waited for the other end.
    Application,
    /// The receive window was full or closed.
    Receiver,
    /// The path: its capacity, its queue, or the congestion window.
    Path,
    /// Lost data was sent again.
    Recovery,
}

impl PeriodLimit {
    /// Returns the name that texts and pictures print.
    pub fn name(self) -> &'static str {
        match self {
            PeriodLimit::StartUp => "start-up",
            PeriodLimit::Application => "application",
            PeriodLimit::Receiver => "receiver",
            PeriodLimit::Path => "path",
            PeriodLimit::Recovery => "recovery",
        }
    }
}

/// Round-trip times of a connection. Zero is unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct CaptureRtt {
    /// Minimum RTT between both ends.
    #[serde(rename = "base_seconds", with = "seconds")]
    pub base: Duration,
    /// Minimum time from the capture point to the receiver and back.
    #[serde(rename = "receiver_side_seconds", with = "seconds")]
    pub receiver_side: Duration,
    /// Minimum time from the capture point to the sender and back.
    #[serde(rename = "sender_side_seconds", with = "seconds")]
    pub sender_side: Duration,
    /// Median of all samples.
    #[serde(rename = "median_seconds", with = "seconds")]
    pub median: Duration,
    /// Value that 80 % of the samples do not exceed.
    #[serde(rename = "p80_seconds", with = "seconds")]
    pub p80: Duration,
    /// Value that 95 % of the samples do not exceed.
    #[serde(rename = "p95_seconds", with = "seconds")]
    pub p95: Duration,
    /// Maximum of all samples.
    #[serde(rename = "max_seconds", with = "seconds")]
    pub max: Duration,
}

/// Options that both ends offered in the handshake.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct Handshake {
    /// SYN and SYN-ACK are in the capture.
    pub is_complete: bool,
    /// From the SYN to the acknowledgement of the SYN-ACK.
    #[serde(rename = "rtt_seconds", default, with = "optional_seconds")]
    pub rtt: Option<Duration>,
    /// Time that lost SYNs took.
    #[serde(rename = "lost_syn_seconds", with = "seconds")]
    pub lost_syn: Duration,
    /// Window scale of the receiver: offered, or inferred where the handshake is missing.
    pub window_scale: Option<u8>,
    /// The window scale was inferred from the bytes in flight.
    pub is_scale_inferred: bool,
    /// The sender offered window scaling.
    pub sender_offers_scaling: bool,
    /// The receiver offered window scaling.
    pub receiver_offers_scaling: bool,
    /// Both ends permitted SACK (RFC 2018).
    pub sack: bool,
    /// Both ends use timestamps (RFC 7323).
    pub timestamps: bool,
    /// MSS that the receiver offered.
    pub receiver_mss: Option<u16>,
    /// MSS that the sender offered.
    pub sender_mss: Option<u16>,
    /// Both ends agreed on ECN.
    pub ecn: bool,
}

/// Faults of the capture itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct CaptureFaults {
    /// Packets that stand in the capture twice.
    pub captured_twice: u64,
    /// Payload that was acknowledged but is not in the capture.
    #[serde(rename = "missed_bytes")]
    pub missed: Bytes,
    /// Packets of the receiver without payload.
    pub pure_acknowledgements: u64,
    /// The capture has packets of one direction only.
    pub is_one_way: bool,
    /// Packets whose TCP options are cut off.
    pub truncated_options: u64,
    /// Packets with an earlier time than the packet before.
    pub time_steps_back: u64,
}

/// Lost and retransmitted packets.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct LossEvidence {
    /// Packets that were lost before the capture point.
    pub before_capture: u64,
    /// Packets that were lost after the capture point.
    pub after_capture: u64,
    /// Retransmissions of data that had arrived.
    pub spurious: u64,
    /// Packets that were sent again, with those whose first copy the capture lacks.
    pub retransmissions: u64,
    /// Groups of losses within one RTT.
    pub events: u64,
    /// Losses in the largest group.
    pub largest_event: u64,
    /// Groups of one loss.
    pub single_events: u64,
    /// Losses at the end of slow start behind a growing queue.
    pub startup_losses: u64,
    /// Other losses that were sent while the RTT was near its minimum.
    pub flat_losses: u64,
    /// Groups of these losses.
    pub flat_events: u64,
    /// Retransmissions after a timeout.
    pub timeouts: u64,
    /// Time waited for retransmission timeouts.
    #[serde(rename = "timeout_seconds", with = "seconds")]
    pub timeout: Duration,
    /// Lost packets as a share of the data packets.
    #[serde(with = "finite")]
    pub share: f64,
    /// Share of the losses after slow start that were sent while the RTT was near its minimum.
    #[serde(with = "finite")]
    pub at_flat_rtt_share: f64,
}

/// Receive window and bytes in flight.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct WindowEvidence {
    /// Median of the window when it was full; else of all windows.
    #[serde(rename = "typical_bytes")]
    pub typical: Bytes,
    #[serde(rename = "max_bytes")]
    pub max: Bytes,
    #[serde(rename = "max_in_flight_bytes")]
    pub max_in_flight: Bytes,
    /// Share of the active time in which the bytes in flight filled the window.
    #[serde(with = "finite")]
    pub full_share: f64,
    /// Share of the active time in which the window was full and the RTT near its minimum.
    #[serde(with = "finite")]
    pub binding_share: f64,
    /// Time with a closed window.
    #[serde(rename = "zero_seconds", with = "seconds")]
    pub zero: Duration,
    /// Times that the window closed.
    pub zero_windows: u64,
    /// Bytes by which the window shrank, relative to the acknowledged bytes: data that waited for the reader.
    #[serde(with = "finite")]
    pub unread_share: f64,
    /// Share of the active time in which the receiver's unread data had shrunk the window.
    #[serde(with = "finite")]
    pub shrunk_share: f64,
}

/// Queue and capacity of the bottleneck.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct QueueEvidence {
    /// Share of the active time with an RTT above its minimum.
    #[serde(with = "finite")]
    pub standing_share: f64,
    /// Rate of the payload that the path delivers when full; none if there was no plateau.
    #[serde(rename = "plateau_bits_per_second")]
    pub plateau: Option<BitRate>,
    /// Share of the active time in which the payload arrived at the plateau.
    #[serde(with = "finite")]
    pub plateau_share: f64,
    /// Share of the plateau that the connection did not use on average, while the path was its limit.
    #[serde(with = "finite")]
    pub unused_share: f64,
    /// Payload that passed faster than the later steady rate, at the start: a token bucket with a queue.
    #[serde(rename = "burst_bytes")]
    pub burst: Option<Bytes>,
    /// Queueing delay when the losses began, median.
    #[serde(rename = "delay_at_loss_seconds", default, with = "optional_seconds")]
    pub delay_at_loss: Option<Duration>,
    /// Maximum delay in the queue.
    #[serde(rename = "max_delay_seconds", with = "seconds")]
    pub max_delay: Duration,
    /// Rate of the other connections of this capture in the same direction and time.
    #[serde(rename = "competing_bits_per_second")]
    pub competing: Option<BitRate>,
}

/// Pauses of the applications, and exchanges in lock-step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ApplicationEvidence {
    /// Time in which the receiver waited before it sent the next request.
    #[serde(rename = "receiver_waits_seconds", with = "seconds")]
    pub receiver_waits: Duration,
    /// Time in which the sender had a request and no answer, without the RTT.
    #[serde(rename = "sender_waits_seconds", with = "seconds")]
    pub sender_waits: Duration,
    /// Time in which the sender waited without a request.
    #[serde(rename = "idle_seconds", with = "seconds")]
    pub idle: Duration,
    /// Pauses of the applications.
    pub pauses: u64,
    /// Blocks that were followed by a wait of one RTT for their acknowledgement or answer.
    pub lockstep_blocks: u64,
    /// Time of these blocks and waits.
    #[serde(rename = "lockstep_seconds", with = "seconds")]
    pub lockstep: Duration,
    /// Median size of these blocks.
    #[serde(rename = "lockstep_block_bytes")]
    pub lockstep_block: Bytes,
    /// Waits for a delayed acknowledgement.
    pub delayed_ack_stalls: u64,
    /// Time of these waits.
    #[serde(rename = "delayed_ack_seconds", with = "seconds")]
    pub delayed_ack: Duration,
    /// Data packets with the largest payload of one packet, or with a multiple of it.
    pub full_packets: u64,
    /// Share of the full packets that each end a write of the application: they have the flag PSH.
    #[serde(with = "finite")]
    pub pushed_share: f64,
    /// Share of the data packets that are smaller than the MSS.
    #[serde(with = "finite")]
    pub short_packet_share: f64,
}

impl ApplicationEvidence {
    /// Returns the time of all pauses between the data.
    pub fn pause_time(&self) -> Duration {
        self.receiver_waits + self.sender_waits + self.idle
    }
}

/// Slow start of a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct StartupEvidence {
    /// Time until the end of slow start, with the handshake.
    #[serde(rename = "time_seconds", with = "seconds")]
    pub time: Duration,
    /// Payload that was sent in slow start.
    #[serde(rename = "payload_bytes")]
    pub payload: Bytes,
    /// The connection ended in slow start.
    pub is_unfinished: bool,
    /// Maximum bytes in flight in slow start.
    #[serde(rename = "peak_in_flight_bytes")]
    pub peak_in_flight: Bytes,
    /// Bytes in flight that the path carried later.
    #[serde(rename = "later_in_flight_bytes")]
    pub later_in_flight: Bytes,
    /// Slow start ended without a loss and far below the later bytes in flight.
    pub is_early_exit: bool,
}

/// Order and number of delivered packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct DeliveryEvidence {
    /// Packets that arrived after later packets, without a retransmission.
    pub reordered: u64,
    /// Maximum time by which a packet was late.
    #[serde(rename = "max_lateness_seconds", with = "seconds")]
    pub max_lateness: Duration,
    /// Packets that the network delivered twice.
    pub duplicated: u64,
    /// Acknowledgements of data that had arrived before (D-SACK, RFC 2883).
    pub duplicate_reports: u64,
    /// Lost acknowledgements: the receiver acknowledges more data at once than its other acknowledgements.
    pub lost_acknowledgements: u64,
    /// Acknowledgements of the receiver without payload.
    pub acknowledgements: u64,
    /// Share of the acknowledgements that waited in a queue on their way back; absent without timestamps.
    pub acknowledgement_delay_share: Option<Figure>,
}

/// Other signs of the path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct CapturePathEvidence {
    /// Longest time without packets of the receiver while data was in flight.
    #[serde(rename = "outage_seconds", with = "seconds")]
    pub outage: Duration,
    /// Start of this time.
    #[serde(rename = "outage_start_seconds", with = "seconds")]
    pub outage_start: Duration,
    /// The receiver never answered again.
    pub is_silent_peer: bool,
    /// Packets of this size and above were never acknowledged, and smaller ones were.
    #[serde(rename = "black_hole_bytes")]
    pub black_hole: Option<Bytes>,
    /// Largest payload of a packet that passed at once.
    pub largest_passed_bytes: u32,
    /// Messages of ICMP that a packet was too big.
    pub too_big_messages: u64,
    /// Smallest MTU of these messages.
    pub reported_mtu: Option<u32>,
    /// Data packets with the mark "congestion experienced".
    pub ecn_marked: u64,
    /// Acknowledgements that echo a mark.
    pub ecn_echoes: u64,
    /// Data packets with an ECN codepoint.
    pub ecn_capable: u64,
    /// Both ends agreed on ECN, and data arrives without a codepoint.
    pub is_ecn_bleached: bool,
    /// Signs that another host answers for the receiver.
    pub is_proxied: bool,
}

/// Fit of a token bucket to the losses of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct PolicerFit {
    /// Rate of the payload that the bucket lets pass.
    #[serde(rename = "rate_bits_per_second")]
    pub rate: BitRate,
    /// Size of the bucket, payload.
    #[serde(rename = "bucket_bytes")]
    pub bucket: Bytes,
    /// Share of the passed and lost packets that the bucket explains.
    #[serde(with = "finite")]
    pub explained_share: f64,
    /// Losses that the fit used.
    pub losses: u64,
    /// Connections that shared the bucket.
    pub connections: u32,
    /// Median delay of the packets before the losses, above the minimum, as far as RTTs or timestamps show it.
    #[serde(rename = "delay_seconds", default, with = "optional_seconds")]
    pub delay: Option<Duration>,
    /// Delay that 90 % of the losses exceed.
    #[serde(rename = "low_delay_seconds", default, with = "optional_seconds")]
    pub low_delay: Option<Duration>,
}
