//! Writes to standard output a large capture of made-up TCP connections, for measurements of speed and memory.
//!
//! ```console
//! $ cargo run --release --package lfn-packet --example generate_capture -- SIZE [CONNECTIONS [SNAP-LENGTH]] > FILE
//! ```
//!
//! All connections are open at the same time and take turns, so neighbouring packets belong to different connections. In
//! each round trip (50 ms, or 20 µs per connection) a connection sends a flight of segments, and gets an acknowledgement for every second segment.
//! Some connections lose a segment in some flights, and get selective acknowledgements; some fill a fixed receive window.

use std::io::{BufWriter, StdoutLock, Write};

const PAYLOAD: u32 = 1448;
const HEADERS: usize = 66;
/// Nanoseconds between two packets of a turn, and the maximum length of a turn.
const TICK: u64 = 500;
const MAX_TURN: u64 = 40 * TICK;
const MIN_ROUND_TRIP: u64 = 50_000_000;
const START: u64 = 1_700_000_000_000_000_000;

const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

/// State of a connection between its turns.
#[derive(Clone, Copy, Default)]
struct Connection {
    /// First byte that was not sent.
    next: u32,
    /// Segments of the last flight.
    flight: u32,
    /// Index of the lost segment in the last flight.
    lost: Option<u32>,
    packets: u16,
}

/// Writes a capture in the classic format with nanoseconds.
struct Writer {
    out: BufWriter<StdoutLock<'static>>,
    snap: usize,
    written: u64,
    packets: u64,
    round_trip: u64,
    frame: Vec<u8>,
}

/// A segment in the direction of the data, or of the acknowledgements.
struct Segment {
    connection: u32,
    is_data: bool,
    flags: u8,
    sequence: u32,
    acknowledgement: u32,
    payload: u32,
    /// A range for the SACK option.
    sack: Option<(u32, u32)>,
    ip_id: u16,
}

impl Writer {
    fn new(snap: usize, round_trip: u64) -> std::io::Result<Self> {
        let mut out = BufWriter::with_capacity(1 << 20, std::io::stdout().lock());
        // Magic number of nanoseconds, version 2.4, zone, accuracy, snap length, Ethernet.
        for word in [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, snap as u32, 1] {
            out.write_all(&word.to_le_bytes())?;
        }
        Ok(Writer { out, snap, written: 24, packets: 0, round_trip, frame: Vec::with_capacity(2048) })
    }

    fn write(&mut self, at: u64, segment: &Segment) -> std::io::Result<()> {
        let options: &[u8] = if segment.flags & SYN != 0 {
            &[2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7]
        } else {
            &[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 1]
        };
        let sack_length = if segment.sack.is_some() { 12 } else { 0 };
        let header = 20 + options.len() + sack_length;
        let frame = &mut self.frame;
        frame.clear();
        frame.extend([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
        let length = 20 + header as u32 + segment.payload;
        frame.extend([0x45, 0]);
        frame.extend((length as u16).to_be_bytes());
        frame.extend(segment.ip_id.to_be_bytes());
        frame.extend([0x40, 0, 64, 6, 0, 0]);
        // One sender host per 50,000 connections.
        let (host, port) = (segment.connection / 50_000 + 1, (segment.connection % 50_000 + 10_000) as u16);
        let (near, far) = ((0x0a00_0000 + host).to_be_bytes(), 0x0a01_0001_u32.to_be_bytes());
        let (source, destination) = if segment.is_data { (near, far) } else { (far, near) };
        frame.extend(source);
        frame.extend(destination);
        let (from, to) = if segment.is_data { (port, 5001) } else { (5001, port) };
        frame.extend(from.to_be_bytes());
        frame.extend(to.to_be_bytes());
        frame.extend(segment.sequence.to_be_bytes());
        frame.extend(segment.acknowledgement.to_be_bytes());
        frame.extend([(header as u8 / 4) << 4, segment.flags]);
        // Every seventh receiver has a small window.
        let window: u16 = match segment.connection % 7 {
            _ if segment.flags & SYN != 0 => 64_240,
            0 => 200,
            _ => 8_000,
        };
        frame.extend(window.to_be_bytes());
        frame.extend([0, 0, 0, 0]);
        let options_at = frame.len();
        frame.extend(options);
        // The receiver sent its packets half a round trip ago, and the sender has the answer to these.
        let half = self.round_trip / 2;
        let (value_at, echo_at) = if segment.is_data { (at, at - half) } else { (at - half, at - 2 * half) };
        let clock = |at: u64| ((at / 1_000_000) as u32).to_be_bytes();
        let stamps = options_at + if segment.flags & SYN != 0 { 8 } else { 4 };
        frame[stamps..stamps + 4].copy_from_slice(&clock(value_at));
        if segment.flags & ACK != 0 {
            frame[stamps + 4..stamps + 8].copy_from_slice(&clock(echo_at));
        }
        if let Some((start, end)) = segment.sack {
            frame.extend([1, 1, 5, 10]);
            frame.extend(start.to_be_bytes());
            frame.extend(end.to_be_bytes());
        }
        let wire = frame.len() + segment.payload as usize;
        frame.resize(wire.min(self.snap), 0x5a);
        let kept = frame.len() as u32;
        for word in [(at / 1_000_000_000) as u32, (at % 1_000_000_000) as u32, kept, wire as u32] {
            self.out.write_all(&word.to_le_bytes())?;
        }
        self.out.write_all(frame)?;
        self.written += 16 + u64::from(kept);
        self.packets += 1;
        Ok(())
    }
}

/// Writes a packet of the handshake. Times are those of a capture at the sender.
fn shake(writer: &mut Writer, connection: u32, flags: u8, at: u64) -> std::io::Result<()> {
    let (sequence, acknowledgement) = match flags {
        SYN => (0, 0),
        ACK => (1, 1),
        _ => (0, 1),
    };
    let is_data = flags != SYN | ACK;
    writer
        .write(at, &Segment { connection, is_data, flags, sequence, acknowledgement, payload: 0, sack: None, ip_id: 0 })
}

/// Writes the acknowledgements of the last flight and the next flight.
fn take_turn(writer: &mut Writer, number: u32, turn: u32, connection: &mut Connection, at: u64) -> std::io::Result<()> {
    let mut time = at;
    let mut tick = || {
        time += TICK;
        time
    };
    let ack = |acknowledgement, sack, ip_id| Segment {
        connection: number,
        is_data: false,
        flags: ACK,
        sequence: 1,
        acknowledgement,
        payload: 0,
        sack,
        ip_id,
    };
    if turn == 0 {
        shake(writer, number, SYN | ACK, tick())?;
        shake(writer, number, ACK, tick())?;
    }
    let byte = |index: u32| connection.next.wrapping_sub((connection.flight - index) * PAYLOAD);
    for pair in 1..=connection.flight.div_ceil(2) {
        let end = (pair * 2).min(connection.flight);
        let lost = connection.lost.filter(|lost| end > lost + 1);
        let sack = lost.map(|lost| (byte(lost + 1), byte(end)));
        let acknowledged = connection.lost.map_or(end, |lost| lost.min(end));
        connection.packets = connection.packets.wrapping_add(1);
        writer.write(tick(), &ack(byte(acknowledged), sack, connection.packets))?;
    }
    let resent = connection.lost.take().map(byte);
    let data = |sequence, ip_id| Segment {
        connection: number,
        is_data: true,
        flags: ACK,
        sequence,
        acknowledgement: 1,
        payload: PAYLOAD,
        sack: None,
        ip_id,
    };
    if let Some(lost) = resent {
        connection.packets = connection.packets.wrapping_add(1);
        writer.write(tick(), &data(lost, connection.packets))?;
    }
    connection.flight = (10 + turn).min(if number.is_multiple_of(7) { 17 } else { 24 });
    // Every fifth connection loses a segment in every sixteenth flight.
    if number.is_multiple_of(5) && turn % 16 == 7 {
        connection.lost = Some(4);
    }
    for _ in 0..connection.flight {
        connection.packets = connection.packets.wrapping_add(1);
        writer.write(tick(), &data(connection.next, connection.packets))?;
        connection.next = connection.next.wrapping_add(PAYLOAD);
    }
    Ok(())
}

fn main() -> std::io::Result<()> {
    let arguments: Vec<u64> = std::env::args_os()
        .skip(1)
        .filter_map(|argument| argument.to_str().and_then(|text| text.parse().ok()))
        .collect();
    let Some(&size) = arguments.first() else {
        eprintln!("usage: generate_capture SIZE [CONNECTIONS [SNAP-LENGTH]] > FILE");
        std::process::exit(2);
    };
    let count = arguments.get(1).map_or(10_000, |count| (*count).clamp(1, 1_000_000) as u32);
    let snap = arguments.get(2).map_or(65_535, |snap| (*snap).max(HEADERS as u64) as usize);
    // The turns of all connections share a round trip.
    let step = (MIN_ROUND_TRIP / u64::from(count)).max(MAX_TURN);
    let round_trip = step * u64::from(count);
    let mut writer = Writer::new(snap, round_trip)?;
    for number in 0..count {
        shake(&mut writer, number, SYN, START + u64::from(number) * step)?;
    }
    let mut connections = vec![Connection { next: 1, packets: 1, ..Connection::default() }; count as usize];
    for turn in 0.. {
        if writer.written >= size {
            break;
        }
        for (number, connection) in (0..count).zip(&mut connections) {
            let at = START + u64::from(turn + 1) * round_trip + u64::from(number) * step;
            take_turn(&mut writer, number, turn, connection, at)?;
        }
    }
    writer.out.flush()?;
    eprintln!("{} packets, {} bytes, {count} connections", writer.packets, writer.written);
    Ok(())
}
