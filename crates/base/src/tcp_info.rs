//! `TCP_INFO` as figures: the kernel's `struct tcp_info`, read by offset.
//!
//! The structure grows with the kernel (104 bytes long ago, 280 on 6.18). So every later field is an `Option`: it is
//! absent, never guessed, if the kernel did not know it. Offsets are from `include/uapi/linux/tcp.h`. The same type is
//! a message between both ends, so that findings have the same data of both, and part of `--json`, where each name has
//! its unit.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::path::{optional_seconds, seconds};
use crate::units::{BitRate, Bytes};

/// The kernel's figures of one TCP connection at one moment. Windows and buffers are those of the local end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct TcpInfo {
    /// `tcpi_state`; 1 is established.
    pub state: u8,
    /// True if window scaling was negotiated (`TCPI_OPT_WSCALE`).
    pub window_scaling: bool,
    /// True if selective acknowledgements were negotiated (`TCPI_OPT_SACK`).
    pub sack: bool,
    /// True if timestamps were negotiated (`TCPI_OPT_TIMESTAMPS`).
    pub timestamps: bool,
    /// True if explicit congestion notification was negotiated (`TCPI_OPT_ECN`).
    #[serde(default)]
    pub ecn: bool,
    /// True if a packet with an ECN codepoint other than Not-ECT arrived (`TCPI_OPT_ECN_SEEN`; with accurate ECN
    /// `tcpi_received_ce` and the received bytes by codepoint, Linux 6.18).
    #[serde(default)]
    pub ecn_seen: bool,
    /// Shift of the windows that the peer announces.
    pub snd_wscale: u8,
    /// Shift of the windows that this end announces.
    pub rcv_wscale: u8,
    /// True if the application limited the last delivery rate (`tcpi_delivery_rate_app_limited`).
    pub app_limited: bool,
    /// Payload bytes of a full segment sent.
    pub snd_mss_bytes: u32,
    /// Segments sent and not yet acknowledged (`tcpi_unacked`).
    pub unacked_segments: u32,
    /// Segments that are considered lost at this moment.
    pub lost_segments: u32,
    /// Path MTU that TCP uses, in bytes (`tcpi_pmtu`).
    pub pmtu_bytes: u32,
    /// Reordering distance, in segments, that does not count as loss (`tcpi_reordering`).
    #[serde(default)]
    pub reordering_segments: u32,
    /// Smoothed RTT, in seconds (`tcpi_rtt`).
    #[serde(rename = "rtt_seconds", with = "seconds")]
    pub rtt: Duration,
    /// Mean deviation of `rtt`.
    #[serde(rename = "rttvar_seconds", with = "seconds")]
    pub rttvar: Duration,
    /// Slow-start threshold; absent until a loss, or an early end of slow start, has set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssthresh_segments: Option<u32>,
    /// Congestion window in segments (`tcpi_snd_cwnd`).
    pub cwnd_segments: u32,
    /// Maximum bytes that the application read in one round trip. Autotuning sizes the receive buffer from this value
    /// (`tcpi_rcv_space`: `rcvq_space.space` in `tcp_rcv_space_adjust`).
    pub rcv_space_bytes: u32,
    /// Segments retransmitted since the start.
    pub retransmitted_segments: u32,
    /// Pacing rate of the sender; absent without pacing.
    #[serde(rename = "pacing_rate_bits_per_second", default, skip_serializing_if = "Option::is_none")]
    pub pacing_rate: Option<BitRate>,
    /// Bytes that the peer acknowledged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acked_bytes: Option<u64>,
    /// Bytes received in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received_bytes: Option<u64>,
    /// Segments sent, with empty and retransmitted ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_segments: Option<u32>,
    /// Segments received, with empty ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received_segments: Option<u32>,
    /// Segments sent with payload (`tcpi_data_segs_out`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_data_segments: Option<u32>,
    /// Bytes in the send buffer that were never sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notsent_bytes: Option<u32>,
    /// Minimum round-trip time of the last minutes.
    #[serde(rename = "min_rtt_seconds", default, skip_serializing_if = "Option::is_none", with = "optional_seconds")]
    pub min_rtt: Option<Duration>,
    /// Latest estimate of the delivery rate.
    #[serde(rename = "delivery_rate_bits_per_second", default, skip_serializing_if = "Option::is_none")]
    pub delivery_rate: Option<BitRate>,
    /// Time with data to send or in flight.
    #[serde(rename = "busy_seconds", default, skip_serializing_if = "Option::is_none", with = "optional_seconds")]
    pub busy: Option<Duration>,
    /// Part of `busy` in which the peer's receive window limited the sender.
    #[serde(
        rename = "rwnd_limited_seconds",
        default,
        skip_serializing_if = "Option::is_none",
        with = "optional_seconds"
    )]
    pub rwnd_limited: Option<Duration>,
    /// Part of `busy` in which the send buffer limited the sender.
    #[serde(
        rename = "sndbuf_limited_seconds",
        default,
        skip_serializing_if = "Option::is_none",
        with = "optional_seconds"
    )]
    pub sndbuf_limited: Option<Duration>,
    /// Segments delivered, with duplicates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered_segments: Option<u32>,
    /// Delivered segments with a congestion mark (ECN).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered_marked_segments: Option<u32>,
    /// Payload bytes sent, with retransmissions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_bytes: Option<u64>,
    /// Payload bytes that were retransmitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retransmitted_bytes: Option<u64>,
    /// Segments that the peer reported as received twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duplicate_segments: Option<u32>,
    /// Number of reordering events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reorderings: Option<u32>,
    /// Packets received out of order (`tcpi_rcv_ooopack`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out_of_order_packets: Option<u32>,
    /// Receive window that the peer offers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snd_wnd_bytes: Option<u32>,
    /// Receive window that this end offers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rcv_wnd_bytes: Option<u32>,
    /// Number of retransmission timeouts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeouts: Option<u16>,
    /// Time in recovery from timeouts.
    #[serde(
        rename = "timeout_recovery_seconds",
        default,
        skip_serializing_if = "Option::is_none",
        with = "optional_seconds"
    )]
    pub timeout_recovery: Option<Duration>,
}

/// Error: fewer bytes than any kernel returns, so this is not a `struct tcp_info`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("TCP_INFO has {0} bytes: at least 104 are expected")]
pub struct TcpInfoTooShort(pub usize);

/// Value of `TCP_INFINITE_SSTHRESH`: no threshold yet.
const NO_SSTHRESH: u32 = 0x7fff_ffff;

impl TcpInfo {
    /// Reads `struct tcp_info` in the byte order of this machine's kernel.
    pub fn parse(bytes: &[u8]) -> Result<Self, TcpInfoTooShort> {
        let reader = FieldReader(bytes);
        reader.read().ok_or(TcpInfoTooShort(bytes.len()))
    }

    /// Returns the congestion window in bytes.
    pub fn cwnd(&self) -> Bytes {
        Bytes(u64::from(self.cwnd_segments) * u64::from(self.snd_mss_bytes))
    }
}

/// Reads fields at offsets; `None` beyond the end.
struct FieldReader<'a>(&'a [u8]);

impl FieldReader<'_> {
    fn read(&self) -> Option<TcpInfo> {
        let (options, scales) = (self.u8(5)?, self.u8(6)?);
        Some(TcpInfo {
            state: self.u8(0)?,
            timestamps: options & 1 != 0,
            sack: options & 2 != 0,
            window_scaling: options & 4 != 0,
            ecn: options & 8 != 0,
            ecn_seen: options & 16 != 0 || [248, 264, 268, 272].into_iter().any(|at| self.u32(at).unwrap_or(0) > 0),
            // Bit fields of four bits each, the first in the low bits on a little-endian machine.
            snd_wscale: if cfg!(target_endian = "little") { scales & 15 } else { scales >> 4 },
            rcv_wscale: if cfg!(target_endian = "little") { scales >> 4 } else { scales & 15 },
            app_limited: self.u8(7)? & if cfg!(target_endian = "little") { 1 } else { 128 } != 0,
            snd_mss_bytes: self.u32(16)?,
            unacked_segments: self.u32(24)?,
            lost_segments: self.u32(32)?,
            pmtu_bytes: self.u32(60)?,
            rtt: micros(self.u32(68)?),
            rttvar: micros(self.u32(72)?),
            ssthresh_segments: self.u32(76).filter(|&threshold| threshold < NO_SSTHRESH),
            cwnd_segments: self.u32(80)?,
            reordering_segments: self.u32(88)?,
            rcv_space_bytes: self.u32(96)?,
            retransmitted_segments: self.u32(100)?,
            // All ones means no pacing.
            pacing_rate: self.u64(104).filter(|&rate| rate != u64::MAX && rate != u64::from(u32::MAX)).map(rate),
            acked_bytes: self.u64(120),
            received_bytes: self.u64(128),
            sent_segments: self.u32(136),
            received_segments: self.u32(140),
            notsent_bytes: self.u32(144),
            min_rtt: self.u32(148).filter(|&rtt| rtt != u32::MAX).map(micros),
            sent_data_segments: self.u32(156),
            delivery_rate: self.u64(160).map(rate),
            busy: self.u64(168).map(Duration::from_micros),
            rwnd_limited: self.u64(176).map(Duration::from_micros),
            sndbuf_limited: self.u64(184).map(Duration::from_micros),
            delivered_segments: self.u32(192),
            delivered_marked_segments: self.u32(196),
            sent_bytes: self.u64(200),
            retransmitted_bytes: self.u64(208),
            duplicate_segments: self.u32(216),
            reorderings: self.u32(220),
            out_of_order_packets: self.u32(224),
            snd_wnd_bytes: self.u32(228),
            rcv_wnd_bytes: self.u32(232),
            timeouts: self.u16(240),
            timeout_recovery: self.u32(244).map(|millis| Duration::from_millis(millis.into())),
        })
    }

    fn u8(&self, at: usize) -> Option<u8> {
        self.0.get(at).copied()
    }

    fn u16(&self, at: usize) -> Option<u16> {
        self.0.get(at..at + 2)?.try_into().ok().map(u16::from_ne_bytes)
    }

    fn u32(&self, at: usize) -> Option<u32> {
        self.0.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
    }

    fn u64(&self, at: usize) -> Option<u64> {
        self.0.get(at..at + 8)?.try_into().ok().map(u64::from_ne_bytes)
    }
}

/// Converts the kernel's bytes per second.
fn rate(bytes: u64) -> BitRate {
    BitRate(Bytes(bytes).bits())
}

fn micros(value: u32) -> Duration {
    Duration::from_micros(value.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A structure of `length` bytes with a few fields set.
    fn structure(length: usize) -> Vec<u8> {
        let mut bytes = vec![0; 600];
        bytes[0] = 1;
        bytes[5] = 0b0111;
        bytes[6] = 0x87;
        bytes[7] = 1;
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(16, &1448u32.to_ne_bytes());
        put(68, &539_250u32.to_ne_bytes());
        put(76, &NO_SSTHRESH.to_ne_bytes());
        put(80, &6300u32.to_ne_bytes());
        put(100, &3u32.to_ne_bytes());
        put(148, &u32::MAX.to_ne_bytes());
        put(160, &8_437_500u64.to_ne_bytes());
        put(176, &1_500_000u64.to_ne_bytes());
        put(228, &4_547_840u32.to_ne_bytes());
        put(232, &65_536u32.to_ne_bytes());
        put(88, &3u32.to_ne_bytes());
        put(104, &12_500_000u64.to_ne_bytes());
        put(136, &9000u32.to_ne_bytes());
        put(140, &4500u32.to_ne_bytes());
        put(156, &8990u32.to_ne_bytes());
        put(192, &8800u32.to_ne_bytes());
        put(196, &12u32.to_ne_bytes());
        put(240, &2u16.to_ne_bytes());
        put(244, &1600u32.to_ne_bytes());
        bytes.truncate(length);
        bytes
    }

    #[test]
    fn fields_are_read_at_the_kernels_offsets() {
        for length in [280, 600] {
            let info = TcpInfo::parse(&structure(length)).unwrap();
            assert_eq!((info.state, info.snd_wscale, info.rcv_wscale), (1, 7, 8));
            assert!(info.window_scaling && info.sack && info.timestamps && info.app_limited);
            assert_eq!(info.rtt, Duration::from_micros(539_250));
            assert_eq!((info.ssthresh_segments, info.min_rtt), (None, None));
            assert_eq!(info.cwnd(), Bytes(6300 * 1448));
            assert_eq!(info.delivery_rate, Some(BitRate(67_500_000)));
            assert_eq!(info.rwnd_limited, Some(Duration::from_millis(1500)));
            assert_eq!((info.snd_wnd_bytes, info.rcv_wnd_bytes), (Some(4_547_840), Some(65_536)));
            assert_eq!((info.ecn, info.reordering_segments, info.pacing_rate), (false, 3, Some(BitRate(100_000_000))));
            let segments = (info.sent_segments, info.received_segments, info.sent_data_segments);
            assert_eq!(segments, (Some(9000), Some(4500), Some(8990)));
            assert_eq!((info.delivered_segments, info.delivered_marked_segments), (Some(8800), Some(12)));
            assert_eq!((info.timeouts, info.timeout_recovery), (Some(2), Some(Duration::from_millis(1600))));
        }
    }

    #[test]
    fn options_are_single_bits() {
        let read = |options: u8| {
            let mut bytes = structure(280);
            bytes[5] = options;
            let info = TcpInfo::parse(&bytes).unwrap();
            [info.timestamps, info.sack, info.window_scaling, info.ecn, info.ecn_seen].map(u8::from)
        };
        assert_eq!(read(0b0_1000), [0, 0, 0, 1, 0]);
        assert_eq!(read(0b1_0000), [0, 0, 0, 0, 1]);
        assert_eq!(read(0b1_0111), [1, 1, 1, 0, 1]);
    }

    #[test]
    fn fields_of_newer_kernels_are_absent() {
        let info = TcpInfo::parse(&structure(232)).unwrap();
        assert_eq!((info.snd_wnd_bytes, info.rcv_wnd_bytes), (Some(4_547_840), None));
        // A truncated field counts as absent.
        assert_eq!(TcpInfo::parse(&structure(231)).unwrap().snd_wnd_bytes, None);
        let oldest = TcpInfo::parse(&structure(104)).unwrap();
        assert_eq!((oldest.retransmitted_segments, oldest.busy, oldest.acked_bytes), (3, None, None));
        for length in 0..104 {
            assert_eq!(TcpInfo::parse(&structure(length)), Err(TcpInfoTooShort(length)));
        }
    }

    #[test]
    fn figures_survive_json() {
        for length in [104, 200, 280] {
            let info = TcpInfo::parse(&structure(length)).unwrap();
            let text = serde_json::to_string(&info).unwrap();
            assert_eq!(serde_json::from_str::<TcpInfo>(&text).unwrap(), info, "{text}");
        }
    }
}
