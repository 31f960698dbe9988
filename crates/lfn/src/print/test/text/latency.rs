//! Lines of the probes during a load.

use std::time::Duration;

use lfn_base::units::show_duration;
use lfn_results::latency::{Latency, ProbeTransport, RoundTrips};

use super::layout::wrapped;

/// Returns the round trips without load and under load, and their difference.
pub(super) fn lines(latency: &Latency) -> String {
    let note = match latency.transport {
        ProbeTransport::Udp => "",
        ProbeTransport::Tcp => {
            "; over TCP, because no datagram arrived: losses are not visible, and a retransmission is one long RTT"
        }
    };
    let mut page = wrapped("RTT idle", &format!("{}{note}", trips(&latency.idle)));
    page += &wrapped("RTT loaded", &trips(&latency.loaded));
    let delay = buffer_delay(latency);
    let minute = match (latency.idle_round_trips_per_minute, latency.loaded_round_trips_per_minute) {
        (Some(idle), Some(loaded)) => {
            Some(format!("RPM {:.0} (round trips per minute), {:.0} without load", loaded.get(), idle.get()))
        }
        _ => None,
    };
    let known: Vec<String> = [delay, minute].into_iter().flatten().collect();
    if !known.is_empty() {
        page += &wrapped("under load", &known.join("; "));
    }
    page
}

/// Round trips shorter than this include much time of the hosts' own stacks and threads.
const SHORT: Duration = Duration::from_millis(1);

/// Returns the buffer delay with its two figures, because the share of a very short RTT looks large.
fn buffer_delay(latency: &Latency) -> Option<String> {
    let (percent, idle, loaded) = (latency.buffer_delay_percent?, latency.idle.rtt?, latency.loaded.rtt?);
    let own = if idle.min < SHORT { "; much of so short a round trip is the hosts' own time" } else { "" };
    Some(format!(
        "buffer delay {:.0} % (RFC 6349: mean {} under load, minimum {} without load){own}",
        percent.get(),
        show_duration(loaded.mean),
        show_duration(idle.min)
    ))
}

fn trips(trips: &RoundTrips) -> String {
    let lost = if trips.lost > 0 { format!("; {} of {} probes lost", trips.lost, trips.sent) } else { String::new() };
    match trips.rtt {
        Some(rtt) => format!(
            "{} min, {} median, {} p90, {} p99, {} max{lost}",
            show_duration(rtt.min),
            show_duration(rtt.p50),
            show_duration(rtt.p90),
            show_duration(rtt.p99),
            show_duration(rtt.max)
        ),
        None => format!("unknown: none of {} probes was answered", trips.sent),
    }
}

#[cfg(test)]
mod tests {
    use lfn_results::latency::Probe;

    use super::*;

    /// Returns the lines of probes with these round trips before and under the load.
    fn printed(idle: Duration, loaded: Duration) -> String {
        let probe = |sent: i64, rtt| Probe { sent: sent * 20_000_000, rtt: Some(rtt) };
        let probes: Vec<Probe> = (-10..0).map(|n| probe(n, idle)).chain((0..50).map(|n| probe(n, loaded))).collect();
        let second = Duration::from_secs(1);
        let latency = Latency::new(ProbeTransport::Udp, Duration::from_millis(20), &probes, second, second);
        lines(&latency).split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_large_share_is_printed_with_its_figures() {
        let micros = Duration::from_micros;
        let short = printed(micros(50), micros(550));
        assert!(
            short.contains("buffer delay 1000 % (RFC 6349: mean 550 µs under load, minimum 50 µs without load)"),
            "{short}"
        );
        assert!(
            short.contains("is the hosts' own time; RPM 109091 (round trips per minute), 1200000 without load"),
            "{short}"
        );
        let long = printed(micros(40_000), micros(60_000));
        assert!(
            long.contains("buffer delay 50 % (RFC 6349: mean 60 ms under load, minimum 40 ms without load); RPM 1000"),
            "{long}"
        );
    }
}
