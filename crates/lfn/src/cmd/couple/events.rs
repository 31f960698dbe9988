//! Messages of a running component on standard error.

use std::io::{self, Write as _};
use std::path::Path;

use lfn_api::couple::run::CoupleRunEvent;
use lfn_base::units::show_duration;
use lfn_couple::channel::ChannelEvent;
use lfn_session::atomic_file::AtomicFile;
use parking_lot::Mutex;

use crate::exit::{Exit, Failure};
use crate::print;

/// File of `--ticket-file`. It is written when the ticket is known.
pub(super) struct TicketFile(Mutex<Option<AtomicFile>>);

impl TicketFile {
    /// Creates the file under a hidden name, so that an error is found before the run.
    pub(super) fn create(path: &Path) -> Result<Self, Failure> {
        let failed =
            |error| Failure::msg(format_args!("cannot write {}: {error}", path.display())).with_exit(Exit::Usage);
        Ok(TicketFile(Mutex::new(Some(AtomicFile::create_private(path).map_err(failed)?))))
    }

    fn write(&self, ticket: &str) -> io::Result<()> {
        let Some(mut file) = self.0.lock().take() else { return Ok(()) };
        writeln!(file, "{ticket}")?;
        file.commit()
    }
}

/// Prints an event of the run of `component`.
pub(super) fn print_event(component: &str, event: &CoupleRunEvent<'_>, ticket_file: Option<&TicketFile>) {
    let line = match event {
        CoupleRunEvent::Channel(event) => {
            if let (ChannelEvent::Listening { ticket }, Some(file)) = (event, ticket_file)
                && let Err(error) = file.write(ticket)
            {
                print::message(format_args!("{component}: cannot write the ticket to the file: {error}\n"));
            }
            event.to_string()
        }
        CoupleRunEvent::Started { directory, first_step } => {
            format!("step {first_step} begins; files in {}", directory.display())
        }
        CoupleRunEvent::WaitingForModel { step, file, waited } => {
            format!("step {step}: the model has not written {} for {}", file.display(), show_duration(*waited))
        }
        CoupleRunEvent::Checkpoint { step } => format!("checkpoint of step {step}"),
    };
    print::message(format_args!("{component}: {line}\n"));
}
