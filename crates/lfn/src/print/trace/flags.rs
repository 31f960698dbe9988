//! Packets with flags (`--flags`): one line each, as soon as the packet is read.

use std::io::{self, BufWriter, Write};

use lfn_api::documents::{FlaggedPacketLine, TraceEvent, TraceEventSchema};
use lfn_api::trace::{FlaggedPacket, endpoint_text};
use lfn_trace::PacketFlag;

use crate::exit::Failure;
use crate::print::output::OutputFormat;
use crate::print::sanitize::SafeWriter;

/// Prints flagged packets, if requested.
pub struct FlaggedPacketPrinter {
    format: OutputFormat,
    /// Buffered output; none if no packet is printed.
    out: Option<Box<dyn Write>>,
    error: Option<io::Error>,
    printed: u64,
}

impl FlaggedPacketPrinter {
    /// Creates a printer that prints nothing unless `enabled`.
    pub fn new(enabled: bool, format: OutputFormat) -> Self {
        let buffered = BufWriter::new(crate::print::raw_text());
        let out: Box<dyn Write> = match format {
            OutputFormat::Ndjson => Box::new(SafeWriter::json(buffered)),
            _ => Box::new(SafeWriter::text(buffered)),
        };
        FlaggedPacketPrinter { format, out: enabled.then_some(out), error: None, printed: 0 }
    }

    /// Prints a packet. Returns false if standard output cannot be written, and the work can end.
    pub fn print(&mut self, packet: &FlaggedPacket) -> bool {
        let Some(out) = &mut self.out else { return true };
        let line = line(packet);
        let written = match self.format {
            OutputFormat::Ndjson => {
                let event = TraceEvent::Packet { schema: TraceEventSchema::Current, packet: line };
                serde_json::to_vec(&event).map_err(io::Error::from).and_then(|mut bytes| {
                    bytes.push(b'\n');
                    out.write_all(&bytes)
                })
            }
            _ => {
                let file = if packet.file > 1 { format!("{}:", packet.file) } else { String::new() };
                let FlaggedPacketLine { number, time, from, to, flags, .. } = line;
                let time = time.as_secs_f64();
                writeln!(out, "{file}{number} {time:.6} {from} > {to} {}", flags.join(","))
            }
        };
        self.printed += 1;
        match written {
            Ok(()) => true,
            Err(error) => {
                self.error.get_or_insert(error);
                self.out = None;
                false
            }
        }
    }

    /// Writes the rest of the buffer, and reports whether lines were printed.
    pub fn finish(mut self) -> Result<bool, Failure> {
        if let Some(error) = self.error.take() {
            return Err(error.into());
        }
        if let Some(out) = &mut self.out {
            out.flush()?;
        }
        Ok(self.printed > 0)
    }
}

/// Returns the figures of a line.
fn line(packet: &FlaggedPacket) -> FlaggedPacketLine {
    FlaggedPacketLine {
        number: packet.number,
        file: packet.file,
        time: packet.at.saturating_since(packet.first),
        from: endpoint_text(&packet.source),
        to: endpoint_text(&packet.destination),
        flags: packet.flags.iter().map(|(flag, name)| flag_name(flag, name)).collect(),
    }
}

/// Returns the name of a flag with the prefix of Wireshark's fields, if Wireshark has the flag.
fn flag_name(flag: PacketFlag, name: &str) -> String {
    match flag {
        PacketFlag::CapturedTwice => name.to_owned(),
        _ => format!("tcp.analysis.{name}"),
    }
}
