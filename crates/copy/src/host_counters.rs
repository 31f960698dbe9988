//! Settings and counters of this host that explain the figures of its streams.

use std::fs;

use lfn_results::evidence::CopyHost;
use lfn_results::host::parse_counter;
use lfn_sys::sysctl;

/// Counters of the network namespace of the calling thread.
const COUNTERS: &str = "/proc/thread-self/net/netstat";

/// Settings of this host, and its counters at the start of a copy.
#[derive(Debug)]
pub(crate) struct HostCounters {
    settings: CopyHost,
    start: Counters,
}

#[derive(Debug, Clone, Copy)]
struct Counters {
    recoveries: Option<u64>,
    hystart_exits: Option<u64>,
}

impl HostCounters {
    /// Reads the settings and the counters. Values that cannot be read are zero or absent.
    pub(crate) fn start() -> Self {
        let is_on = |name: &str| sysctl::read(name).is_ok_and(|text| text.trim() == "1");
        let three = |name: &str| {
            let text = sysctl::read(name).unwrap_or_default();
            let numbers: Option<Vec<u64>> = text.split_whitespace().map(|number| number.parse().ok()).collect();
            numbers.and_then(|numbers| numbers.try_into().ok()).unwrap_or_default()
        };
        let settings = CopyHost {
            tcp_rmem_bytes: three("net.ipv4.tcp_rmem"),
            tcp_wmem_bytes: three("net.ipv4.tcp_wmem"),
            moderate_rcvbuf: is_on("net.ipv4.tcp_moderate_rcvbuf"),
            window_scaling: is_on("net.ipv4.tcp_window_scaling"),
            ..CopyHost::default()
        };
        HostCounters { settings, start: Counters::read() }
    }

    /// Returns the settings with the changes of the counters since the start.
    pub(crate) fn read(&self) -> CopyHost {
        let now = Counters::read();
        let grown = |now: Option<u64>, start: Option<u64>| Some(now?.saturating_sub(start?));
        CopyHost {
            recoveries: grown(now.recoveries, self.start.recoveries),
            hystart_exits: grown(now.hystart_exits, self.start.hystart_exits),
            ..self.settings
        }
    }
}

impl Counters {
    fn read() -> Self {
        let text = fs::read_to_string(COUNTERS).unwrap_or_default();
        let counter = |name: &str| u64::try_from(parse_counter(&text, "TcpExt", name)?).ok();
        let exits = ["TCPHystartTrainDetect", "TCPHystartDelayDetect"].map(counter);
        Counters { recoveries: counter("TCPSackRecovery"), hystart_exits: exits.into_iter().sum() }
    }
}
