//! What clients may make the server do: quotas, the queue, connections, and who may connect at all.

use std::time::Duration;

use lfn_core::units::{BitRate, Bytes, parse_duration};
use lfn_net::server::Connections;
use lfn_net::server::access::{Access, Prefix};
use lfn_net::server::admission::{Quotas, Share};

/// Flags that bound what is served.
#[derive(clap::Args, Debug)]
pub struct Limits {
    /// Sessions at once, of all clients
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = count(), help_heading = "Limits in all")]
    max_sessions: u32,
    /// Clients with a session at once
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = count(), help_heading = "Limits in all")]
    max_clients: u32,
    /// Data streams at once, of all sessions
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = count(), help_heading = "Limits in all")]
    all_streams: u32,
    /// Rate of all sessions together; each is granted its part at its start [default: no limit]
    #[arg(long, value_name = "RATE", value_parser = rate, help_heading = "Limits in all")]
    max_rate: Option<BitRate>,
    /// Payload bytes of all sessions in any --quota-window [default: no limit]
    #[arg(long, value_name = "BYTES", value_parser = bytes, help_heading = "Limits in all")]
    max_bytes: Option<Bytes>,
    /// Time of all sessions in any --quota-window; two at once count twice [default: no limit]
    #[arg(long, value_name = "DURATION", value_parser = duration, help_heading = "Limits in all")]
    max_time: Option<Duration>,
    /// Sessions at once, of one client: an IPv4 address or an IPv6 /64
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = count(), help_heading = "Limits of one client")]
    client_sessions: u32,
    /// Data streams at once, of one client
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = count(), help_heading = "Limits of one client")]
    client_streams: u32,
    /// Rate of one client's sessions together [default: no limit]
    #[arg(long, value_name = "RATE", value_parser = rate, help_heading = "Limits of one client")]
    client_rate: Option<BitRate>,
    /// Payload bytes of one client in any --quota-window [default: no limit]
    #[arg(long, value_name = "BYTES", value_parser = bytes, help_heading = "Limits of one client")]
    client_bytes: Option<Bytes>,
    /// Time of one client's sessions in any --quota-window [default: no limit]
    #[arg(long, value_name = "DURATION", value_parser = duration, help_heading = "Limits of one client")]
    client_time: Option<Duration>,
    /// Over which bytes and time are counted
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = duration, help_heading = "Limits of one client")]
    quota_window: Duration,
    /// Data streams of one session
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..), help_heading = "Limits of one session")]
    max_streams: u16,
    /// How long one test may load the path
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = duration, help_heading = "Limits of one session")]
    max_test_time: Duration,
    /// Sessions that may wait for their turn; 0 for none
    #[arg(long, value_name = "N", default_value_t = 1024, help_heading = "Queue and connections")]
    queue: u32,
    /// Sessions of one client that may wait
    #[arg(long, value_name = "N", default_value_t = 256, help_heading = "Queue and connections")]
    client_queue: u32,
    /// Connections at once
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = count(), help_heading = "Queue and connections")]
    max_connections: u32,
    /// Of those, such as have not shown the ticket yet; of the client with the most, a silent one makes place for the next
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = count(), help_heading = "Queue and connections")]
    max_unknown: u32,
    /// Take connections from this address or prefix only; may be given again [default: from everywhere]
    #[arg(long, value_name = "PREFIX", help_heading = "Queue and connections")]
    allow: Vec<Prefix>,
    /// Take none from this address or prefix, whatever --allow says; may be given again
    #[arg(long, value_name = "PREFIX", help_heading = "Queue and connections")]
    deny: Vec<Prefix>,
}

impl Limits {
    pub fn quotas(&self) -> Quotas {
        Quotas {
            all: Share {
                sessions: self.max_sessions,
                streams: self.all_streams,
                rate: self.max_rate,
                bytes: self.max_bytes,
                time: self.max_time,
            },
            client: Share {
                sessions: self.client_sessions,
                streams: self.client_streams,
                rate: self.client_rate,
                bytes: self.client_bytes,
                time: self.client_time,
            },
            clients: self.max_clients,
            session_streams: self.max_streams,
            session_time: self.max_test_time,
            window: self.quota_window,
            queue: self.queue,
            client_queue: self.client_queue,
        }
    }

    /// Bounds on connections, as far as the process may have files for them.
    pub fn connections(&self) -> Connections {
        let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
        // Two files each while they are unknown, and two for a data stream; some are for everything else.
        let room = usize::try_from(files.saturating_sub(64) / 3).unwrap_or(usize::MAX).max(8);
        let most = (self.max_connections as usize).min(room);
        let strangers = (self.max_unknown as usize).min(most);
        Connections { most, strangers, ..Connections::default() }
    }

    pub fn access(&self) -> Access {
        Access { allow: self.allow.clone(), deny: self.deny.clone() }
    }
}

fn count() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..)
}

fn rate(text: &str) -> Result<BitRate, String> {
    match text.parse::<BitRate>() {
        Ok(BitRate(0)) => Err(format!("'{text}': a rate of zero lets nothing through")),
        other => other.map_err(|error| error.to_string()),
    }
}

fn bytes(text: &str) -> Result<Bytes, String> {
    match text.parse::<Bytes>() {
        Ok(Bytes(0)) => Err(format!("'{text}': a quota of zero lets nothing through")),
        other => other.map_err(|error| error.to_string()),
    }
}

pub fn duration(text: &str) -> Result<Duration, String> {
    let duration = parse_duration(text).map_err(|e| e.to_string())?;
    if duration.is_zero() { Err(format!("'{text}': a time of zero has no meaning here")) } else { Ok(duration) }
}
