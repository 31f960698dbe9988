//! Counts the packets of a capture on standard input, by kind. With `--list` it prints the number, sequence number and
//! payload of each TCP segment.

use std::io::{self, BufWriter, Write};

use lfn_packet::capture::CaptureReader;
use lfn_packet::decode::{Decoded, OtherPacket, decode};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let is_list = std::env::args_os().nth(1).is_some_and(|argument| argument == "--list");
    let mut out = BufWriter::new(io::stdout().lock());
    let mut reader = CaptureReader::new(io::stdin().lock())?;
    let mut counts = [0_u64; 8];
    let (mut fragments, mut truncated, mut bytes, mut payload) = (0_u64, 0_u64, 0_u64, 0_u64);
    while let Some(frame) = reader.next()? {
        let decoded = decode(frame.link, frame.bytes, frame.original_length);
        bytes += frame.bytes.len() as u64;
        fragments += u64::from(decoded.is_fragment);
        let kind = match decoded.packet {
            Decoded::Tcp(segment) => {
                payload += u64::from(segment.payload);
                truncated += u64::from(segment.options.is_truncated);
                if is_list {
                    writeln!(out, "{}\t{}\t{}", frame.number, segment.sequence, segment.payload)?;
                }
                0
            }
            Decoded::Other(OtherPacket::Udp) => 1,
            Decoded::Other(OtherPacket::Quic) => 2,
            Decoded::Other(OtherPacket::Icmp { .. }) => 3,
            Decoded::Other(OtherPacket::OtherIp { .. }) => 4,
            Decoded::Other(OtherPacket::Fragment) => 5,
            Decoded::Other(OtherPacket::NotIp) => 6,
            Decoded::Other(OtherPacket::Malformed) => 7,
        };
        counts[kind] += 1;
    }
    if !is_list {
        let names = ["tcp", "udp", "quic", "icmp", "other IP", "later fragments", "not IP", "malformed"];
        for (name, count) in names.iter().zip(counts) {
            writeln!(out, "{count:10} {name}")?;
        }
        writeln!(out, "{fragments:10} fragments, {truncated} segments with truncated options")?;
        writeln!(out, "{payload:10} payload bytes of TCP, {bytes} captured bytes")?;
        writeln!(out, "{:10} drops", reader.dropped().map_or("no".into(), |drops| drops.to_string()))?;
    }
    Ok(out.flush()?)
}
