//! Any file as a capture: its segments are analysed, and each connection is diagnosed.

#![no_main]

mod soundness;

use lfn_base::time::Instant;
use lfn_packet::capture::CaptureReader;
use lfn_packet::decode::{Decoded, OtherPacket, decode};
use lfn_trace::{Analysis, AnalysisOptions};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(mut reader) = CaptureReader::new(bytes) else { return };
    let options = AnalysisOptions { series_points: soundness::MAX_POINTS, ..AnalysisOptions::default() };
    let mut analysis = Analysis::new(options);
    let mut segments = 0;
    while let Ok(Some(frame)) = reader.next() {
        match decode(frame.link, frame.bytes, frame.original_length).packet {
            Decoded::Tcp(segment) => {
                segments += 1;
                let _ = analysis.add(Instant::from_nanos(frame.at), &segment).iter().count();
            }
            Decoded::Other(OtherPacket::Icmp { too_big: Some(message) }) => {
                if let Some(segment) = message.segment {
                    analysis.add_too_big(segment.source, segment.destination, message.mtu);
                }
            }
            Decoded::Other(_) => (),
        }
    }
    soundness::assert_sound(&analysis.finish(), segments);
});
