//! Events of a channel, for the messages of the caller.

use std::net::SocketAddr;
use std::time::Duration;

/// An event of a channel.
#[derive(Debug, Clone, PartialEq)]
pub enum ChannelEvent {
    /// This end listens. The partner dials with the ticket.
    Listening { ticket: String },
    /// The partner is connected, and its coupling file agrees.
    Connected { partner: String, address: SocketAddr, rtt: Duration, streams: u16 },
    /// The connection to the partner is lost. The channel waits for the partner.
    Lost { partner: String, reason: String, patience: Duration },
    /// A get has waited for this time. `partner_step` is the step that the partner computes.
    Waiting {
        partner: String,
        variable: String,
        step: u64,
        waited: Duration,
        partner_step: Option<u64>,
        connected: bool,
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
}
