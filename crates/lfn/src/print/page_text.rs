//! Text of the result for the page of `--report FILE.html`: a copy of what the command prints for a person on standard
//! output. If standard output has another format, the text is made for the page only.

use std::io::{self, StdoutLock, Write};

use parking_lot::Mutex;

/// Maximum length of the text, bytes. A longer text ends there: the document of the page has the complete result.
const MAX_TEXT: usize = 4 << 20;

static RECORDING: Mutex<Recording> = Mutex::new(Recording { text: None, is_muted: false });

/// Recorded text of this command.
struct Recording {
    /// `None` if the command writes no page.
    text: Option<Vec<u8>>,
    /// The text goes to the page only.
    is_muted: bool,
}

/// Records the text that follows.
pub fn start() {
    RECORDING.lock().text = Some(Vec::new());
}

/// Returns the recorded text.
pub fn take() -> String {
    String::from_utf8_lossy(&RECORDING.lock().text.take().unwrap_or_default()).into_owned()
}

/// Makes a text for the page only: nothing of the text is printed.
pub fn make(text: impl FnOnce()) {
    RECORDING.lock().is_muted = true;
    text();
    RECORDING.lock().is_muted = false;
}

/// Reports whether texts go to the page only.
pub fn is_muted() -> bool {
    RECORDING.lock().is_muted
}

/// Records a text that is printed in another way.
pub fn record(bytes: &[u8]) {
    if let Some(text) = &mut RECORDING.lock().text {
        text.extend(&bytes[..bytes.len().min(MAX_TEXT - text.len())]);
    }
}

/// Standard output whose text is recorded.
pub struct RecordedStdout(pub StdoutLock<'static>);

impl Write for RecordedStdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = if is_muted() { bytes.len() } else { self.0.write(bytes)? };
        record(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
