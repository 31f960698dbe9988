//! The verb `trace`: reads packet captures, and reports what limited each TCP connection.
//!
//! The captures are read once, in bounded memory: [`input`] opens and decompresses the files, [`Reading`] counts and
//! decodes the frames, and [`lfn_trace::Analysis`] follows the connections. Several files are parts of one capture, for
//! example those of `tcpdump -C`: they are read in the order of their first packets. Two captures of the same packets
//! are compared ([`TraceInput::Pair`]), then the near one is analysed.

mod error;
mod filter;
mod input;
mod live;
mod options;
mod pair;
mod protocols;
mod reading;
mod result;
mod zstd;

use std::sync::atomic::AtomicBool;

pub use error::TraceError;
pub use filter::ConnectionFilter;
pub use options::{LiveOptions, LiveProgress, TraceInput, TraceOptions};
pub use reading::{FlaggedPacket, FrameSource};
pub use result::{Traced, endpoint_text, limit_phrase};

use reading::Reading;

/// Reads the captures and analyses their connections.
///
/// Calls `on_flagged` for each packet with flags. `stop` ends a live capture, or the reading of files, with the result
/// so far. A file that is damaged after its first packets gives a result with `damage` in its file.
pub fn trace(
    options: &TraceOptions,
    stop: &AtomicBool,
    on_flagged: &mut dyn FnMut(&FlaggedPacket),
) -> Result<Traced, TraceError> {
    let mut reading = Reading::new(options, stop, on_flagged);
    match &options.input {
        TraceInput::Files(files) => {
            let files = input::in_time_order(files, stop)?;
            for file in &files {
                reading.read_file(file)?;
            }
            Ok(reading.finish(None))
        }
        TraceInput::Live(live) => {
            let mut source = live::open(live, &options.filter, stop)?;
            reading.read_live(&live.interface, &mut source)?;
            Ok(reading.finish(Some(live.interface.clone())))
        }
        TraceInput::Pair { near, far } => {
            let compared = pair::compare(near, far, &options.filter, stop)?;
            reading.read_file(&input::single(near)?)?;
            let mut traced = reading.finish(None);
            traced.document.files.push(compared.far);
            traced.document.pair = Some(compared.evidence);
            Ok(traced)
        }
    }
}
