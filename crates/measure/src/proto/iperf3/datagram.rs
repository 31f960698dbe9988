//! Datagrams of a UDP test: the messages that open a stream, the header of load datagrams, and a receiver's counters.
//!
//! Loss, reordering and jitter are counted as iperf3 counts them, so that both ends of a test agree: a gap in the
//! numbers is loss, a late datagram reduces the loss by one, and a duplicate counts as late. lfn's own datagrams
//! ([`lfn_session::wire`]) give more detail.

use std::time::Duration;

use crate::proto::udp::jitter::SmoothedJitter;

/// Maximum payload of a UDP datagram over IPv4.
pub const MAX_LENGTH: usize = 65_507;

/// Minimum length of a load datagram: room for the wider header.
pub const MIN_LENGTH: usize = 16;

/// Message that requests a stream from a server. Old versions send another value, and some send it in host byte order.
pub const CONNECT: [u8; 4] = [0x39, 0x38, 0x37, 0x36];

/// The server's answer to [`CONNECT`].
pub const REPLY: [u8; 4] = [0x36, 0x37, 0x38, 0x39];

/// 123456789 and 987654321, least significant byte first.
const OLD_CONNECT: [u8; 4] = [0x15, 0xcd, 0x5b, 0x07];
const OLD_REPLY: [u8; 4] = [0xb1, 0x68, 0xde, 0x3a];

/// Returns whether a datagram requests a stream.
pub fn is_connect(bytes: &[u8]) -> bool {
    matches_either_byte_order(bytes, CONNECT) || matches_either_byte_order(bytes, OLD_CONNECT)
}

/// Returns whether a datagram confirms a stream.
pub fn is_reply(bytes: &[u8]) -> bool {
    matches_either_byte_order(bytes, REPLY) || matches_either_byte_order(bytes, OLD_REPLY)
}

fn matches_either_byte_order(bytes: &[u8], word: [u8; 4]) -> bool {
    let [a, b, c, d] = word;
    bytes == word || bytes == [d, c, b, a]
}

/// Width of datagram numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CounterWidth {
    /// 32 bits; the number wraps after 4.3 billion datagrams.
    #[default]
    Narrow,
    /// 64 bits, with `--udp-counters-64bit`.
    Wide,
}

impl CounterWidth {
    /// Returns the bytes of a header.
    pub fn header(self) -> usize {
        match self {
            CounterWidth::Narrow => 12,
            CounterWidth::Wide => 16,
        }
    }
}

/// Header of a load datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadHeader {
    /// Send time on the sender's clock.
    pub sent: Duration,
    /// Number of the datagram, from 1.
    pub number: u64,
}

impl LoadHeader {
    /// Reads the header of a datagram; `None` if the datagram is too short.
    pub fn read(bytes: &[u8], width: CounterWidth) -> Option<LoadHeader> {
        let word = |at: usize| Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?));
        let number = match width {
            CounterWidth::Narrow => u64::from(word(8)?),
            CounterWidth::Wide => u64::from_be_bytes(*bytes.get(8..)?.first_chunk()?),
        };
        let sent = Duration::from_secs(word(0)?.into()) + Duration::from_micros(word(4)?.into());
        Some(LoadHeader { sent, number })
    }

    /// Writes the header to the start of `bytes`; leaves a buffer unchanged that is too short.
    pub fn write(&self, bytes: &mut [u8], width: CounterWidth) {
        if bytes.len() < width.header() {
            return;
        }
        // Seconds since 1970 wrap in 2106, as in iperf3.
        bytes[0..4].copy_from_slice(&(self.sent.as_secs() as u32).to_be_bytes());
        bytes[4..8].copy_from_slice(&self.sent.subsec_micros().to_be_bytes());
        match width {
            CounterWidth::Narrow => bytes[8..12].copy_from_slice(&(self.number as u32).to_be_bytes()),
            CounterWidth::Wide => bytes[8..16].copy_from_slice(&self.number.to_be_bytes()),
        }
    }
}

/// Counters of a receiver for one stream.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct DatagramCounts {
    pub received: u64,
    /// Highest number: at least this many datagrams were sent.
    pub highest: u64,
    /// Numbers that were skipped and have not arrived since.
    pub lost: u64,
    /// Datagrams with a number that is not above all previous ones: late or duplicate.
    pub out_of_order: u64,
    /// Smoothed variation of the transit time (RFC 3550 §6.4.1), seconds.
    pub jitter: f64,
    smoothed: SmoothedJitter,
}

impl DatagramCounts {
    /// Counts a datagram that arrived at `now` on the receiver's clock.
    pub fn record(&mut self, header: &LoadHeader, now: Duration) {
        self.received = self.received.saturating_add(1);
        if header.number > self.highest {
            self.lost = self.lost.saturating_add(header.number - self.highest - 1);
            self.highest = header.number;
        } else {
            self.out_of_order = self.out_of_order.saturating_add(1);
            self.lost = self.lost.saturating_sub(1);
        }
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.smoothed.arrived(nanos(header.sent), nanos(now));
        self.jitter = self.smoothed.seconds();
    }

    /// Resets the jitter at the end of the warm-up.
    pub fn reset_jitter(&mut self) {
        self.jitter = 0.0;
        self.smoothed = SmoothedJitter::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(numbers: &[u64]) -> DatagramCounts {
        let mut arrivals = DatagramCounts::default();
        for &number in numbers {
            arrivals.record(
                &LoadHeader { sent: Duration::from_secs(number), number },
                Duration::from_secs(number.saturating_add(100)),
            );
        }
        arrivals
    }

    #[test]
    fn headers_are_read_back_in_both_widths() {
        let header = LoadHeader { sent: Duration::from_micros(1_700_000_000_123_456), number: 0xffff_ffff };
        for width in [CounterWidth::Narrow, CounterWidth::Wide] {
            let mut bytes = vec![7; 20];
            header.write(&mut bytes, width);
            assert_eq!(LoadHeader::read(&bytes, width), Some(header));
            assert_eq!(bytes[width.header()..], vec![7; 20 - width.header()]);
            assert_eq!(LoadHeader::read(&bytes[..width.header() - 1], width), None);
            let mut short = vec![7; width.header() - 1];
            header.write(&mut short, width);
            assert_eq!(short, vec![7; width.header() - 1]);
        }
    }

    #[test]
    fn loss_is_gaps_minus_late_datagrams() {
        let arrivals = take(&[1, 2, 5, 3, 6]);
        assert_eq!((arrivals.received, arrivals.highest, arrivals.lost, arrivals.out_of_order), (5, 6, 1, 1));
        assert_eq!(take(&[1, 1, 1]).lost, 0, "a duplicate never makes the loss negative");
        assert_eq!(take(&[4]).lost, 3, "numbers before the first datagram count");
        assert_eq!(take(&[1, 2, 3]).jitter, 0.0, "a constant transit time");
    }

    #[test]
    fn jitter_changes_by_a_sixteenth() {
        let mut arrivals = DatagramCounts::default();
        let header = |number| LoadHeader { sent: Duration::ZERO, number };
        arrivals.record(&header(1), Duration::from_millis(5));
        arrivals.record(&header(2), Duration::from_millis(21));
        assert!((arrivals.jitter - 0.001).abs() < 1e-12, "{}", arrivals.jitter);
        arrivals.reset_jitter();
        arrivals.record(&header(3), Duration::from_secs(9));
        assert_eq!(arrivals.jitter, 0.0);
    }

    #[test]
    fn numbers_from_a_peer_do_not_overflow() {
        let mut arrivals = take(&[u64::MAX, 0, u64::MAX]);
        arrivals.record(&LoadHeader { sent: Duration::MAX, number: 1 }, Duration::ZERO);
        arrivals.record(&LoadHeader { sent: Duration::ZERO, number: 2 }, Duration::MAX);
        assert!(arrivals.jitter.is_finite());
        assert_eq!(arrivals.highest, u64::MAX);
    }

    #[test]
    fn old_connect_messages_are_accepted() {
        for word in [CONNECT, [0x36, 0x37, 0x38, 0x39], OLD_CONNECT, [0x07, 0x5b, 0xcd, 0x15]] {
            assert!(is_connect(&word), "{word:x?}");
        }
        assert!(is_reply(&REPLY) && is_reply(&[0xb1, 0x68, 0xde, 0x3a]));
        assert!(!is_reply(&[0; 4]) && !is_connect(&[]) && !is_connect(&[0x39, 0x38, 0x37]));
    }
}
