//! `lfn test --stamp`: delay and loss to a reflector, without load and without a session.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lfn_core::session::split_host_port;
use lfn_core::stamp::{self, packet};
use lfn_core::units::Bytes;
use lfn_net::stamp::{Key, Probing, SendError, probe};

use super::typed::{count, duration, read, unreadable};
use crate::emulated;
use crate::exit::{Exit, Failure};
use crate::print::stamp::print;
use crate::print::test::Format;
use crate::remote::SavedHosts;

#[derive(clap::Args, Debug)]
#[command(next_help_heading = "STAMP (RFC 8762), instead of a load")]
pub(super) struct StampArgs {
    /// Measure delay and loss of each direction to a reflector: `lfn serve --stamp`, or any of STAMP or TWAMP Light
    /// [default port: 862]
    #[arg(long, value_name = "HOST[:PORT]", conflicts_with_all = OF_A_LOAD)]
    pub(super) stamp: Option<String>,
    /// Packets to send [default: 100]
    #[arg(long, value_name = "N", requires = "stamp", allow_hyphen_values = true)]
    stamp_count: Option<String>,
    /// Time between two packets [default: 100ms]
    #[arg(long, value_name = "DURATION", requires = "stamp", allow_hyphen_values = true)]
    stamp_interval: Option<String>,
    /// Bytes of a packet, without IP and UDP headers [default: the least, 44, or 112 with a key]
    #[arg(long, value_name = "BYTES", requires = "stamp", allow_hyphen_values = true)]
    stamp_size: Option<String>,
    /// Authenticate packets by the key in this file, which the reflector has too
    #[arg(long, value_name = "FILE", requires = "stamp")]
    stamp_key: Option<PathBuf>,
}

/// What is of a load, flag by flag: of a group of them clap would name them all, typed or not.
const OF_A_LOAD: [&str; 54] = [
    "host",
    "reverse",
    "both",
    "bidir",
    "time",
    "count",
    "bytes",
    "until",
    "record",
    "read",
    "streams",
    "congestion",
    "data",
    "check",
    "blocks",
    "sndbuf",
    "rcvbuf",
    "window",
    "near_sndbuf",
    "near_rcvbuf",
    "near_window",
    "far_sndbuf",
    "far_rcvbuf",
    "far_window",
    "pacing",
    "mss",
    "dscp",
    "bind",
    "mptcp",
    "no_copy",
    "near_no_copy",
    "far_no_copy",
    "udp",
    "ramp",
    "loss_allowed",
    "ramp_step",
    "no_gso",
    "no_gro",
    "fragment",
    "latency",
    "path",
    "path_names",
    "iperf3",
    "iperf3_user",
    "iperf3_rsa_public_key",
    "iperf3_pkcs1",
    "iperf3_server_output",
    "rate",
    "interval",
    "omit",
    "ndjson",
    "csv",
    "nettest",
    "save",
];

const COUNT: u32 = 100;
/// Each is remembered to the end.
const MOST: u64 = 10_000_000;
const INTERVAL: Duration = Duration::from_millis(100);
/// What a UDP datagram can carry.
const LARGEST: u64 = 65_507;
/// How long the last answers are waited for: five times the longest path there is.
const WAIT: Duration = Duration::from_secs(3);

impl StampArgs {
    pub(super) fn run(&self, host: &str, format: Format) -> Result<Exit, Failure> {
        let probing = self.probing(host)?;
        let stop = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(signal_hook::consts::SIGINT, stop.clone())?;
        let report = probe(&probing, &stop, &mut |_, _| {}).map_err(failed)?;
        print(report, format)?;
        Ok(if stop.load(Ordering::Relaxed) { Exit::Interrupted } else { Exit::Ok })
    }

    fn probing(&self, host: &str) -> Result<Probing, Failure> {
        let hint = "--stamp-count 100";
        let packets = match count("stamp-count", &self.stamp_count, hint)? {
            None => COUNT,
            Some(count) if count <= MOST => u32::try_from(count)?,
            Some(count) => {
                return Err(unreadable("stamp-count", format!("{count}: at most {MOST} are possible"), hint));
            }
        };
        let key = self.stamp_key.as_deref().map(Key::read).transpose().map_err(|error| {
            Failure::usage(error).hint("head -c 32 /dev/urandom | base64 > FILE makes one, for both ends")
        })?;
        Ok(Probing {
            to: address(host)?,
            from: None,
            count: packets,
            interval: duration("stamp-interval", &self.stamp_interval)?.unwrap_or(INTERVAL),
            size: self.size(key.is_some())?,
            wait: WAIT,
            // Both sides of an emulated path are this host.
            one_clock: emulated::is_inside(),
            key,
        })
    }

    fn size(&self, is_authenticated: bool) -> Result<usize, Failure> {
        let least = packet::base_length(is_authenticated);
        let hint = "--stamp-size 200";
        match read::<Bytes>("stamp-size", &self.stamp_size, hint)? {
            None => Ok(least),
            Some(Bytes(size)) if (least as u64..=LARGEST).contains(&size) => Ok(usize::try_from(size)?),
            Some(size) => {
                let text = format!("{} B: from {least} to {LARGEST} are possible", size.0);
                Err(unreadable("stamp-size", text, hint))
            }
        }
    }
}

/// A saved name stands for its ticket's host, whose reflector has a port of its own.
fn address(typed: &str) -> Result<SocketAddr, Failure> {
    let hint = "give a name or an address: --stamp 192.0.2.1:862";
    let (name, _) = split_host_port(typed).map_err(|error| Failure::usage(error).hint(hint))?;
    let port = match typed.rsplit_once(':').and_then(|(_, port)| port.parse().ok()) {
        Some(port) if typed != name => port,
        _ => stamp::PORT,
    };
    let host = SavedHosts::load()?.get(&name)?.map_or(name, |ticket| ticket.host);
    let unknown = |why: String| Failure::msg(format!("unknown host '{host}': {why}")).hint(hint);
    let mut addresses = (host.as_str(), port).to_socket_addrs().map_err(|error| unknown(error.to_string()))?;
    addresses.next().ok_or_else(|| unknown("no address".into()))
}

fn failed(error: SendError) -> Failure {
    let hint = match &error {
        SendError::Closed { to } => format!("start a reflector there: lfn serve --stamp={}", to.port()),
        SendError::Silent { .. } => {
            "is a reflector there, does a firewall let UDP through both ways, have both ends the same key?".into()
        }
        SendError::Io { .. } => return Failure::new(error),
    };
    Failure::new(error).hint(hint)
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, Command};

    use super::super::Args;
    use super::*;

    fn command() -> Command {
        Args::augment_args(Command::new("test"))
    }

    #[test]
    fn no_flag_of_a_load_is_forgotten() {
        let both = ["stamp", "json", "no_live", "help"];
        // How a server is reached and trusted.
        let session: Vec<String> = ["Trust", "Waiting"]
            .into_iter()
            .flat_map(|group| {
                command().get_groups().find(|g| g.get_id() == group).unwrap().get_args().cloned().collect::<Vec<_>>()
            })
            .map(|id| id.to_string())
            .collect();
        for argument in command().get_arguments() {
            let id = argument.get_id().as_str();
            let fits = both.contains(&id) || id.starts_with("stamp_") || session.iter().any(|name| name == id);
            assert_eq!(OF_A_LOAD.contains(&id), !fits, "{id}");
        }
    }

    #[test]
    fn a_conflict_names_what_was_typed_and_nothing_else() {
        let typed = ["test", "--stamp", "192.0.2.1", "--time", "5s", "--no-gso"];
        let said = command().try_get_matches_from(typed).unwrap_err().to_string();
        assert!(said.contains("--stamp") && said.contains("--time") && said.contains("--no-gso"), "{said}");
        let others = ["--bytes", "--count", "--streams", "--udp", "--iperf3", "--window"];
        assert!(others.iter().all(|flag| !said.contains(flag)), "{said}");
    }
}
