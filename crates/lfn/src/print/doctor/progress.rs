//! Progress of `lfn doctor`: one line on stderr for each part.

use lfn_api::doctor::DoctorEvent;
use lfn_base::units::{Bytes, show_duration};
use lfn_copy::disk::MAX_SHARE_OF_FREE;
use lfn_measure::tester::TestProgress;
use lfn_results::measure::Interval;
use lfn_results::report::PlannedLoad;

use crate::print;
use crate::print::terminal;

/// Printer of the progress.
pub struct DoctorProgress {
    /// The line of the running part is redrawn, because stderr is a terminal.
    redraws: bool,
    /// Name of the running part.
    part: &'static str,
    /// A line without its end is on the terminal.
    is_drawn: bool,
}

impl DoctorProgress {
    /// Creates a printer for stderr.
    pub fn new() -> Self {
        DoctorProgress { redraws: terminal::can_redraw_stderr(), part: "", is_drawn: false }
    }

    /// Prints the progress of an event.
    pub fn event(&mut self, event: &DoctorEvent<'_>) {
        match event {
            DoctorEvent::Started(_) => {}
            DoctorEvent::Planned { far, rtt, load } => {
                self.line(&format!("{far}: RTT {}; {}", show_duration(*rtt), planned(load)));
            }
            DoctorEvent::Begin(part) => {
                self.end_drawn();
                self.part = part.name();
                if self.redraws {
                    self.draw("");
                } else {
                    print::message(format_args!("lfn: {}\n", self.part));
                }
            }
            DoctorEvent::Progress(TestProgress::Near(interval) | TestProgress::Far(interval)) => {
                self.draw(&rate(interval));
            }
            DoctorEvent::Progress(TestProgress::Step(ramp)) => {
                let rate = ramp.unfinished_step.map(|rate| rate.to_string()).unwrap_or_default();
                self.draw(&rate);
            }
            DoctorEvent::Progress(TestProgress::Connected(..)) => {}
            DoctorEvent::Unseen(unseen) => self.line(&format!("{}: {}", unseen.part, unseen.reason)),
        }
    }

    /// Ends the progress before the result.
    pub fn finish(&mut self) {
        self.end_drawn();
    }

    fn line(&mut self, text: &str) {
        self.end_drawn();
        print::message(format_args!("lfn: {text}\n"));
    }

    fn draw(&mut self, figure: &str) {
        if self.redraws {
            let gap = if figure.is_empty() { "" } else { ": " };
            print::draw_stderr(format_args!("\r{}{gap}{figure}\x1b[K", self.part));
            self.is_drawn = true;
        }
    }

    fn end_drawn(&mut self) {
        if std::mem::take(&mut self.is_drawn) {
            print::draw_stderr("\r\x1b[K");
        }
    }
}

/// Returns the load that follows, in words.
fn planned(load: &PlannedLoad) -> String {
    let (tcp, total) = (show_duration(rounded(load.tcp)), show_duration(rounded(load.total)));
    let bound = match (load.max_rate, load.max_bytes()) {
        (Some(rate), Some(bytes)) => format!("at most {rate} and {}", bytes.decimal()),
        _ => "at the rate that the path carries (limit: --max-load)".to_owned(),
    };
    let disks = if load.disks.is_zero() {
        String::new()
    } else {
        format!(
            "; disks: {} more, with a file of at most {} % of the free space",
            show_duration(rounded(load.disks)),
            100 / MAX_SHARE_OF_FREE
        )
    };
    format!("load: {bound}; TCP for {tcp} in each direction, then datagrams; total time about {total}{disks}")
}

fn rounded(time: std::time::Duration) -> std::time::Duration {
    std::time::Duration::from_millis((time.as_secs_f64() * 10.0).round() as u64 * 100)
}

fn rate(interval: &Interval) -> String {
    Bytes(interval.bytes).per(interval.end.saturating_sub(interval.start)).to_string()
}
