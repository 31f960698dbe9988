//! Events of a channel, for the messages of the caller.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use lfn_base::units::{Bytes, show_duration};

/// An event of a channel.
#[derive(Debug, Clone, PartialEq)]
pub enum ChannelEvent {
    /// This end listens. The partner dials with the ticket.
    Listening { ticket: String },
    /// The partner is connected, and its coupling file agrees.
    Connected { partner: String, address: SocketAddr, rtt: Duration, streams: u16 },
    /// The connection to the partner is lost. The channel waits for the partner.
    Lost { partner: String, reason: String, patience: Duration },
    /// A get or a put has waited for this time; without a variable, the end of the run. `partner_step` is the step that the
    /// partner computes.
    Waiting {
        partner: String,
        variable: Option<String>,
        step: u64,
        waited: Duration,
        partner_step: Option<u64>,
        connected: bool,
        /// A variable of this component that was not put in the step; its partner may wait for it.
        not_put: Option<String>,
    },
    /// The partner was started again, and resumes from this step.
    PartnerResumed { partner: String, step: u64 },
    /// A client with a valid ticket was refused: another file, another version, or the wrong component.
    Refused { address: SocketAddr, reason: String },
    /// The clocks of the two hosts differ by this much, more than the RTT explains.
    ClockDiffers { partner: String, offset: Duration, partner_is_ahead: bool },
    /// A field has elements that are not a number. Reported for the first such field of a variable.
    NotANumber { variable: String, step: u64, count: u64 },
    /// The fields since the partner's last checkpoint need more memory than permitted; the partner can no longer resume.
    HistoryFull { partner: String, limit: u64 },
    /// The partner has finished its last step.
    PartnerFinished { partner: String },
    /// This component can resume from this checkpoint; the model no longer needs earlier ones.
    CheckpointConfirmed { step: u64 },
    /// There is no connection to the partner yet, for this reason. Reported for each new reason.
    NotConnected { partner: String, reason: String },
}

/// One line for a person.
impl fmt::Display for ChannelEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChannelEvent::Listening { ticket } => write!(f, "listening; the partner dials this ticket: {ticket}"),
            ChannelEvent::Connected { partner, address, rtt, streams } => {
                let plural = if *streams == 1 { "" } else { "s" };
                write!(f, "connected to {partner} at {address}, RTT {}, {streams} stream{plural}", show_duration(*rtt))
            }
            ChannelEvent::Lost { partner, reason, patience } => {
                write!(f, "lost {partner}, waiting up to {} for {partner}: {reason}", show_duration(*patience))
            }
            ChannelEvent::Waiting { partner, variable, step, waited, partner_step, connected, not_put } => {
                let waited = show_duration(*waited);
                match variable {
                    Some(variable) => write!(f, "step {step} has waited {waited} for {variable}: {partner} ")?,
                    None => write!(f, "waited {waited} after the last step for {partner} to finish: {partner} ")?,
                }
                match partner_step {
                    _ if !connected => f.write_str("is not connected")?,
                    Some(at) => write!(f, "is at step {at}")?,
                    None => f.write_str("has begun no step")?,
                }
                not_put.as_ref().map_or(Ok(()), |variable| write!(f, ", and {variable} is not put in this step"))
            }
            ChannelEvent::PartnerResumed { partner, step } => {
                write!(f, "{partner} was started again, and resumes from step {step}")
            }
            ChannelEvent::Refused { address, reason } => write!(f, "refused a client at {address}: {reason}"),
            ChannelEvent::ClockDiffers { partner, offset, partner_is_ahead } => {
                let direction = if *partner_is_ahead { "ahead of" } else { "behind" };
                let offset = show_duration(*offset);
                write!(f, "the clock of {partner} is {offset} {direction} the clock of this host")
            }
            ChannelEvent::NotANumber { variable, step, count } => {
                let elements = if *count == 1 { "element that is" } else { "elements that are" };
                write!(f, "{variable} of step {step} has {count} {elements} not a number; the run continues")
            }
            ChannelEvent::HistoryFull { partner, limit } => {
                let limit = Bytes(*limit);
                write!(
                    f,
                    "the fields since the last checkpoint of {partner} need more than {limit}: {partner} can no longer resume"
                )
            }
            ChannelEvent::PartnerFinished { partner } => write!(f, "{partner} has finished its last step"),
            ChannelEvent::CheckpointConfirmed { step } => write!(f, "checkpoint of step {step} is confirmed"),
            ChannelEvent::NotConnected { partner, reason } => write!(f, "not connected to {partner}: {reason}"),
        }
    }
}
