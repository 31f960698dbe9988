//! Messages of a running component on standard error.

use std::io::{self, Write as _};
use std::path::Path;

use lfn_api::couple::run::CoupleRunEvent;
use lfn_base::units::{Bytes, show_duration};
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
            channel_event(event)
        }
        CoupleRunEvent::Started { directory, first_step } => {
            format!("step {first_step} begins; files in {}", directory.display())
        }
        CoupleRunEvent::Checkpoint { step } => format!("checkpoint of step {step}"),
    };
    print::message(format_args!("{component}: {line}\n"));
}

fn channel_event(event: &ChannelEvent) -> String {
    match event {
        ChannelEvent::Listening { ticket } => format!("listening; the partner dials this ticket: {ticket}"),
        ChannelEvent::Connected { partner, address, rtt, streams } => {
            let streams = print::counted(u64::from(*streams), "stream");
            format!("connected to {partner} at {address}, RTT {}, {streams}", show_duration(*rtt))
        }
        ChannelEvent::Lost { partner, reason, patience } => {
            format!("lost {partner}, waiting up to {} for {partner}: {reason}", show_duration(*patience))
        }
        ChannelEvent::Waiting { partner, variable, step, waited, partner_step, connected } => {
            let place = match partner_step {
                _ if !connected => format!("{partner} is not connected"),
                Some(at) => format!("{partner} is at step {at}"),
                None => format!("{partner} has not begun"),
            };
            format!("step {step} has waited {} for {variable}: {place}", show_duration(*waited))
        }
        ChannelEvent::PartnerResumed { partner, step } => {
            format!("{partner} was started again, and resumes from step {step}")
        }
        ChannelEvent::Refused { address, reason } => format!("refused a client at {address}: {reason}"),
        ChannelEvent::ClockDiffers { partner, offset, partner_is_ahead } => {
            let direction = if *partner_is_ahead { "ahead of" } else { "behind" };
            format!("the clock of {partner} is {} {direction} the clock of this host", show_duration(*offset))
        }
        ChannelEvent::NotANumber { variable, step, count } => {
            let elements = print::counted(*count, "element");
            format!("{variable} of step {step} has {elements} that are not a number; the run continues")
        }
        ChannelEvent::HistoryFull { partner, limit } => format!(
            "the fields since the last checkpoint of {partner} need more than {}: {partner} can no longer resume",
            Bytes(*limit)
        ),
        ChannelEvent::PartnerFinished { partner } => format!("{partner} has finished its last step"),
    }
}
