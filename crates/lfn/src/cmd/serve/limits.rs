//! Limits for clients. The name of a flag begins with its scope: `max` for all clients together, `client`, `session` or
//! `test`.

use std::time::Duration;

use lfn_base::units::{BitRate, Bytes, parse_unit_duration};
use lfn_session::limits::access::{Access, Prefix};
use lfn_session::limits::connection_table::ConnectionLimits;
use lfn_session::limits::{ResourceLimits, ServerLimits};

/// Flags that limit clients.
#[derive(clap::Args, Debug)]
pub struct LimitArgs {
    /// Limit the number of concurrent sessions
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = count(), help_heading = "Total limits")]
    max_sessions: u32,
    /// Limit the number of clients with a session
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = count(), help_heading = "Total limits")]
    max_clients: u32,
    /// Limit the number of data streams of all sessions
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = count(), help_heading = "Total limits")]
    max_streams: u32,
    /// Limit the total rate; each session gets its share at its start [default: no limit]
    #[arg(long, value_name = "RATE", value_parser = rate, help_heading = "Total limits")]
    max_rate: Option<BitRate>,
    /// Limit the payload of all sessions within --quota-window, in bytes [default: no limit]
    #[arg(long, value_name = "BYTES", value_parser = bytes, help_heading = "Total limits")]
    max_bytes: Option<Bytes>,
    /// Limit the total session time within --quota-window; concurrent sessions add up [default: no limit]
    #[arg(long, value_name = "DURATION", value_parser = duration, help_heading = "Total limits")]
    max_time: Option<Duration>,
    /// Count bytes and time over this period
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = duration, help_heading = "Total limits")]
    quota_window: Duration,
    /// Limit the number of waiting sessions; 0 disables the queue
    #[arg(long, value_name = "N", default_value_t = 1024, help_heading = "Total limits")]
    max_queue: u32,
    /// Limit the concurrent sessions of one client (an IPv4 address or an IPv6 /64)
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = count(), help_heading = "Limits per client")]
    client_sessions: u32,
    /// Limit the data streams of one client
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = count(), help_heading = "Limits per client")]
    client_streams: u32,
    /// Limit the total rate of one client's sessions [default: no limit]
    #[arg(long, value_name = "RATE", value_parser = rate, help_heading = "Limits per client")]
    client_rate: Option<BitRate>,
    /// Limit the payload of one client within --quota-window, in bytes [default: no limit]
    #[arg(long, value_name = "BYTES", value_parser = bytes, help_heading = "Limits per client")]
    client_bytes: Option<Bytes>,
    /// Limit the session time of one client within --quota-window [default: no limit]
    #[arg(long, value_name = "DURATION", value_parser = duration, help_heading = "Limits per client")]
    client_time: Option<Duration>,
    /// Limit the number of waiting sessions of one client
    #[arg(long, value_name = "N", default_value_t = 256, help_heading = "Limits per client")]
    client_queue: u32,
    /// Limit the data streams of one session
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..), help_heading = "Limits per session")]
    session_streams: u16,
    /// Limit the duration of one test
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = duration, help_heading = "Limits per session")]
    test_time: Duration,
    /// Limit the number of connections
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = count(), help_heading = "Connections")]
    max_connections: u32,
    /// Limit the number of unauthenticated connections
    ///
    /// When the limit is reached, the idle connection of the client holding the most is closed.
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = count(), help_heading = "Connections")]
    max_unauthenticated: u32,
    /// Accept connections only from this address or prefix; can be repeated [default: from all]
    #[arg(long, value_name = "PREFIX", help_heading = "Connections")]
    allow: Vec<Prefix>,
    /// Refuse connections from this address or prefix, regardless of --allow; can be repeated
    #[arg(long, value_name = "PREFIX", help_heading = "Connections")]
    deny: Vec<Prefix>,
}

impl LimitArgs {
    /// Allows tests of any duration.
    pub fn allow_long_tests(&mut self) {
        const YEAR: Duration = Duration::from_secs(365 * 86_400);
        self.test_time = YEAR;
    }

    /// Returns the limits of all sessions and of one client.
    pub fn sessions(&self) -> ServerLimits {
        ServerLimits {
            total: ResourceLimits {
                sessions: self.max_sessions,
                streams: self.max_streams,
                rate: self.max_rate,
                bytes: self.max_bytes,
                time: self.max_time,
                queue: self.max_queue,
            },
            client: ResourceLimits {
                sessions: self.client_sessions,
                streams: self.client_streams,
                rate: self.client_rate,
                bytes: self.client_bytes,
                time: self.client_time,
                queue: self.client_queue,
            },
            clients: self.max_clients,
            session_streams: self.session_streams,
            test_time: self.test_time,
            quota_window: self.quota_window,
        }
    }

    /// Returns the limits of connections, reduced to the limit of open files of the process.
    pub fn connections(&self) -> ConnectionLimits {
        let open_files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
        let max_connections = (self.max_connections as usize).min(ConnectionLimits::max_for_open_files(open_files));
        let max_unauthenticated = (self.max_unauthenticated as usize).min(max_connections);
        ConnectionLimits { max_connections, max_unauthenticated, ..ConnectionLimits::default() }
    }

    /// Returns the permitted and denied addresses.
    pub fn access(&self) -> Access {
        Access { allow: self.allow.clone(), deny: self.deny.clone() }
    }
}

fn count() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..)
}

fn rate(text: &str) -> Result<BitRate, String> {
    match text.parse::<BitRate>() {
        Ok(BitRate(0)) => Err(format!("'{text}': the rate must be above zero")),
        other => other.map_err(|error| error.to_string()),
    }
}

fn bytes(text: &str) -> Result<Bytes, String> {
    match text.parse::<Bytes>() {
        Ok(Bytes(0)) => Err(format!("'{text}': the quota must be above zero")),
        other => other.map_err(|error| error.to_string()),
    }
}

/// Parses a duration above zero, with a unit.
pub fn duration(text: &str) -> Result<Duration, String> {
    let duration = parse_unit_duration(text).map_err(|e| e.to_string())?;
    if duration.is_zero() { Err(format!("'{text}': the time must be above zero")) } else { Ok(duration) }
}
