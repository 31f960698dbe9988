//! Datagrams of a UDP test: what opens a stream, the header of each load datagram, and what a receiver counts.
//!
//! Loss, disorder and jitter are counted as iperf3 counts them, so that both ends of a test agree: a gap in the numbers
//! is loss, a datagram that comes late takes one back, and a duplicate is one that comes late. Our own datagrams
//! ([`crate::wire`]) tell more; these cannot.

use std::time::Duration;

use crate::udp::jitter::Smoothed;

/// Largest payload of a UDP datagram over IPv4.
pub const LARGEST: usize = 65_507;

/// Smallest load datagram: room for the wider header.
pub const SMALLEST: usize = 16;

/// Asks a server for a stream. Old versions ask in another word, and some in the order of their processor's bytes.
pub const CONNECT: [u8; 4] = [0x39, 0x38, 0x37, 0x36];

/// Answers [`CONNECT`].
pub const REPLY: [u8; 4] = [0x36, 0x37, 0x38, 0x39];

/// 123456789 and 987654321, least significant byte first.
const OLD_CONNECT: [u8; 4] = [0x15, 0xcd, 0x5b, 0x07];
const OLD_REPLY: [u8; 4] = [0xb1, 0x68, 0xde, 0x3a];

/// Whether a datagram asks for a stream.
pub fn is_connect(bytes: &[u8]) -> bool {
    either_order(bytes, CONNECT) || either_order(bytes, OLD_CONNECT)
}

/// Whether a datagram answers that a stream is there.
pub fn is_reply(bytes: &[u8]) -> bool {
    either_order(bytes, REPLY) || either_order(bytes, OLD_REPLY)
}

fn either_order(bytes: &[u8], word: [u8; 4]) -> bool {
    let [a, b, c, d] = word;
    bytes == word || bytes == [d, c, b, a]
}

/// How wide the numbers of datagrams are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Width {
    /// 32 bits, which wrap after 4.3 billion datagrams.
    #[default]
    Narrow,
    /// 64 bits (`--udp-counters-64bit`).
    Wide,
}

impl Width {
    /// Bytes of a header.
    pub fn header(self) -> usize {
        match self {
            Width::Narrow => 12,
            Width::Wide => 16,
        }
    }
}

/// What a load datagram begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// When it was sent, by the sender's clock.
    pub sent: Duration,
    /// Its number, from 1.
    pub number: u64,
}

impl Header {
    /// The header of a datagram that is long enough to have one.
    pub fn read(bytes: &[u8], width: Width) -> Option<Header> {
        let word = |at: usize| Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?));
        let number = match width {
            Width::Narrow => u64::from(word(8)?),
            Width::Wide => u64::from_be_bytes(*bytes.get(8..)?.first_chunk()?),
        };
        let sent = Duration::from_secs(word(0)?.into()) + Duration::from_micros(word(4)?.into());
        Some(Header { sent, number })
    }

    /// Puts it at the beginning of `bytes`; a buffer that is too short is left alone.
    pub fn write(&self, bytes: &mut [u8], width: Width) {
        if bytes.len() < width.header() {
            return;
        }
        // Seconds since 1970 wrap in 2106, as they do in iperf3.
        bytes[0..4].copy_from_slice(&(self.sent.as_secs() as u32).to_be_bytes());
        bytes[4..8].copy_from_slice(&self.sent.subsec_micros().to_be_bytes());
        match width {
            Width::Narrow => bytes[8..12].copy_from_slice(&(self.number as u32).to_be_bytes()),
            Width::Wide => bytes[8..16].copy_from_slice(&self.number.to_be_bytes()),
        }
    }
}

/// What a receiver has counted of one stream.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Arrivals {
    /// Datagrams that came.
    pub received: u64,
    /// The highest number seen: so many were sent at least.
    pub highest: u64,
    /// Numbers that were skipped and have not come since.
    pub lost: u64,
    /// Datagrams with a number no higher than one before: late, or twice.
    pub out_of_order: u64,
    /// Smoothed change of the transit time (RFC 3550 §6.4.1), seconds.
    pub jitter: f64,
    smoothed: Smoothed,
}

impl Arrivals {
    /// Takes in a datagram that came at `now` by the receiver's clock.
    pub fn take(&mut self, header: &Header, now: Duration) {
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

    /// Forgets the jitter, when the warm-up is over.
    pub fn forget_jitter(&mut self) {
        (self.jitter, self.smoothed) = (0.0, Smoothed::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(numbers: &[u64]) -> Arrivals {
        let mut arrivals = Arrivals::default();
        for &number in numbers {
            arrivals.take(
                &Header { sent: Duration::from_secs(number), number },
                Duration::from_secs(number.saturating_add(100)),
            );
        }
        arrivals
    }

    #[test]
    fn headers_come_back_in_either_width() {
        let header = Header { sent: Duration::from_micros(1_700_000_000_123_456), number: 0xffff_ffff };
        for width in [Width::Narrow, Width::Wide] {
            let mut bytes = vec![7; 20];
            header.write(&mut bytes, width);
            assert_eq!(Header::read(&bytes, width), Some(header));
            assert_eq!(bytes[width.header()..], vec![7; 20 - width.header()]);
            assert_eq!(Header::read(&bytes[..width.header() - 1], width), None);
            let mut short = vec![7; width.header() - 1];
            header.write(&mut short, width);
            assert_eq!(short, vec![7; width.header() - 1]);
        }
    }

    #[test]
    fn loss_is_gaps_less_what_came_late() {
        let arrivals = take(&[1, 2, 5, 3, 6]);
        assert_eq!((arrivals.received, arrivals.highest, arrivals.lost, arrivals.out_of_order), (5, 6, 1, 1));
        assert_eq!(take(&[1, 1, 1]).lost, 0, "a duplicate never makes less than nothing of the loss");
        assert_eq!(take(&[4]).lost, 3, "those before the first count");
        assert_eq!(take(&[1, 2, 3]).jitter, 0.0, "a constant transit time");
    }

    #[test]
    fn jitter_moves_by_a_sixteenth_of_the_change() {
        let mut arrivals = Arrivals::default();
        let header = |number| Header { sent: Duration::ZERO, number };
        arrivals.take(&header(1), Duration::from_millis(5));
        arrivals.take(&header(2), Duration::from_millis(21));
        assert!((arrivals.jitter - 0.001).abs() < 1e-12, "{}", arrivals.jitter);
        arrivals.forget_jitter();
        arrivals.take(&header(3), Duration::from_secs(9));
        assert_eq!(arrivals.jitter, 0.0);
    }

    #[test]
    fn no_numbers_of_a_peer_overflow() {
        let mut arrivals = take(&[u64::MAX, 0, u64::MAX]);
        arrivals.take(&Header { sent: Duration::MAX, number: 1 }, Duration::ZERO);
        arrivals.take(&Header { sent: Duration::ZERO, number: 2 }, Duration::MAX);
        assert!(arrivals.jitter.is_finite());
        assert_eq!(arrivals.highest, u64::MAX);
    }

    #[test]
    fn streams_are_asked_for_in_old_words_too() {
        for word in [CONNECT, [0x36, 0x37, 0x38, 0x39], OLD_CONNECT, [0x07, 0x5b, 0xcd, 0x15]] {
            assert!(is_connect(&word), "{word:x?}");
        }
        assert!(is_reply(&REPLY) && is_reply(&[0xb1, 0x68, 0xde, 0x3a]));
        assert!(!is_reply(&[0; 4]) && !is_connect(&[]) && !is_connect(&[0x39, 0x38, 0x37]));
    }
}
