//! Packets as the sender sent them, and their delay on the path: the input of the token bucket fit.

use std::collections::VecDeque;

use crate::half::Arrival;

/// Consecutive packets, of which the receiver acknowledges at least one without delay.
const PROMPT_AMONG: usize = 3;
/// Ticks of the timestamps of common kernels, nanoseconds.
const LIKELY_TICKS: [u64; 3] = [1_000_000, 4_000_000, 10_000_000];
/// Minimum ticks from the first to the last timestamp for a guess of the tick.
const MIN_TICKS: u32 = 20;

/// A packet that passed or was lost, or neighbours that passed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SentPacket {
    /// Time of sending, nanoseconds since 1970. Differs from the true time by a constant in a capture at the receiver.
    pub(crate) at: u64,
    /// Payload without headers, bytes.
    pub(crate) length: u32,
    /// Delay above the minimum of the connection, microseconds.
    pub(crate) delay: Option<u32>,
    pub(crate) is_lost: bool,
}

/// Clock of a connection for the times of sending.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SendClock {
    /// The capture point is near the sender: its times are the times of sending, and the RTTs show the delay.
    Capture { base_rtt: u64 },
    /// Timestamps with a tick in nanoseconds show the time of sending, so the capture shows the delay before it.
    Timestamps { tick: u64 },
    /// The delay is unknown.
    Unknown,
}

/// Returns the tick of common kernels that fits the first and the last timestamp, for a connection that is too short for
/// the measurement of its tick.
pub(crate) fn likely_tick(arrivals: &[Arrival]) -> Option<u64> {
    let mut known = arrivals.iter().filter(|arrival| arrival.timestamp != 0);
    let (first, last) = (known.next()?, known.next_back()?);
    let ticks = last.timestamp.wrapping_sub(first.timestamp);
    if ticks < MIN_TICKS {
        return None;
    }
    let measured = last.at.saturating_sub(first.at) / u64::from(ticks);
    // A growing queue makes the time longer. The next larger tick is far away.
    LIKELY_TICKS.into_iter().find(|tick| measured * 10 >= tick * 9 && measured < tick * 2)
}

/// Returns the packets of a connection in the order of their sending.
pub(crate) fn sent_packets(arrivals: &[Arrival], clock: SendClock) -> Vec<SentPacket> {
    let mut packets: Vec<SentPacket> = match clock {
        SendClock::Capture { base_rtt } => by_round_trip(arrivals, base_rtt),
        SendClock::Timestamps { tick } => by_timestamp(arrivals, tick),
        SendClock::Unknown => arrivals.iter().map(|arrival| packet(arrival, None)).collect(),
    };
    packets.sort_by_key(|packet| packet.at);
    packets
}

fn packet(arrival: &Arrival, delay: Option<u32>) -> SentPacket {
    SentPacket { at: arrival.at, length: arrival.length, delay, is_lost: arrival.is_lost }
}

/// Returns packets with the minimum delay of the last few: a receiver can delay an acknowledgement, above all that of the
/// packet before a lost one.
fn by_round_trip(arrivals: &[Arrival], base_rtt: u64) -> Vec<SentPacket> {
    let base = u32::try_from(base_rtt / 1000).unwrap_or(u32::MAX);
    // The time of a packet among merged ones may be that of a later one.
    let min = (base - base / 32).saturating_sub(1000).max(1);
    let mut sorted: Vec<&Arrival> = arrivals.iter().collect();
    sorted.sort_by_key(|arrival| arrival.at);
    let mut last: VecDeque<(u64, u32)> = VecDeque::with_capacity(PROMPT_AMONG);
    let mut packets = Vec::with_capacity(sorted.len());
    for arrival in sorted {
        if arrival.is_lost || arrival.rtt < min {
            packets.push(packet(arrival, None));
            continue;
        }
        if last.len() >= PROMPT_AMONG {
            last.pop_front();
        }
        last.push_back((arrival.at, arrival.rtt.saturating_sub(base)));
        let near = last.iter().filter(|(at, _)| arrival.at - at < base_rtt);
        packets.push(packet(arrival, near.map(|(_, delay)| *delay).min()));
    }
    packets
}

fn by_timestamp(arrivals: &[Arrival], tick: u64) -> Vec<SentPacket> {
    let Some(first) = arrivals.iter().find(|arrival| arrival.timestamp != 0) else {
        return sent_packets(arrivals, SendClock::Unknown);
    };
    let relative = |arrival: &Arrival| {
        let ticks = i64::from(arrival.timestamp.wrapping_sub(first.timestamp) as i32);
        arrival.at as i64 - first.at as i64 - ticks.saturating_mul(tick as i64)
    };
    let has_timestamp = |arrival: &&Arrival| arrival.timestamp != 0;
    let min = arrivals.iter().filter(has_timestamp).map(relative).min().unwrap_or(0);
    let sent = |arrival: &Arrival| {
        if arrival.timestamp == 0 {
            return packet(arrival, None);
        }
        let delay = relative(arrival).saturating_sub(min).max(0) as u64;
        let micros = u32::try_from(delay / 1000).unwrap_or(u32::MAX);
        let at = arrival.at.saturating_sub(delay);
        SentPacket { at, ..packet(arrival, (!arrival.is_lost).then_some(micros)) }
    };
    arrivals.iter().map(sent).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_show_the_time_of_sending() {
        // Each packet is sent after 10 ms, and the second half waits 30 ms more.
        let arrival = |number: u64| {
            let wait = if number < 50 { 5 } else { 35 };
            Arrival::passed((1000 + number * 10 + wait) * 1_000_000, 1448, 0, (7 + number * 10) as u32)
        };
        let arrivals: Vec<Arrival> = (0..100).map(arrival).collect();
        let packets = sent_packets(&arrivals, SendClock::Timestamps { tick: 1_000_000 });
        assert!(packets.windows(2).all(|pair| pair[1].at - pair[0].at == 10_000_000));
        assert_eq!([packets[10].delay, packets[90].delay], [Some(0), Some(30_000)]);
    }

    #[test]
    fn tick_of_a_short_connection_is_guessed() {
        let tick = |ticks: u32, time: u64| {
            let arrivals = [(0, 5), (time, 5 + ticks)];
            likely_tick(&arrivals.map(|(at, timestamp)| Arrival::passed(at * 1_000_000, 1448, 0, timestamp)))
        };
        assert_eq!(
            [tick(400, 430), tick(100, 400), tick(5, 5), tick(400, 40)],
            [Some(1_000_000), Some(4_000_000), None, None]
        );
    }

    #[test]
    fn round_trips_at_the_sender_show_the_delay() {
        let arrival = |(number, rtt): (u64, u32)| Arrival::passed(number * 1_000_000, 1448, rtt, 0);
        let arrivals = [(0, 20_000), (1, 60_000), (30, 50_000), (31, 50_000), (32, 0)].map(arrival);
        let packets = sent_packets(&arrivals, SendClock::Capture { base_rtt: 20_000_000 });
        let delays: Vec<Option<u32>> = packets.iter().map(|packet| packet.delay).collect();
        assert_eq!(delays, [Some(0), Some(0), Some(30_000), Some(30_000), None]);
    }
}
