//! The lines of probes beside a load.

use std::time::Duration;

use lfn_core::latency::{Latency, RoundTrips, Transport};
use lfn_core::units::show_duration;

use super::layout::wrapped;

/// Idle, loaded, and what the difference is.
pub(super) fn lines(latency: &Latency) -> String {
    let way = match latency.transport {
        Transport::Udp => "",
        Transport::Tcp => {
            "; over TCP, because no datagram got through: no loss is seen, and a resent segment is one long RTT"
        }
    };
    let mut page = wrapped("RTT idle", &format!("{}{way}", trips(&latency.idle)));
    page += &wrapped("RTT loaded", &trips(&latency.loaded));
    let delay = buffer_delay(latency);
    let minute = match (latency.idle_round_trips_per_minute, latency.loaded_round_trips_per_minute) {
        (Some(idle), Some(loaded)) => {
            Some(format!("{:.0} round trips a minute, {:.0} without load", loaded.get(), idle.get()))
        }
        _ => None,
    };
    let known: Vec<String> = [delay, minute].into_iter().flatten().collect();
    if !known.is_empty() {
        page += &wrapped("under load", &known.join("; "));
    }
    page
}

/// Round trips shorter than this are as much the hosts' own time as the path's: of a stack, of threads that wake up.
const SHORT: Duration = Duration::from_millis(1);

/// With the two figures it is made of: a share of almost nothing looks large.
fn buffer_delay(latency: &Latency) -> Option<String> {
    let (percent, idle, loaded) = (latency.buffer_delay_percent?, latency.idle.rtt?, latency.loaded.rtt?);
    let own = if idle.least < SHORT { "; of round trips this short much is the hosts' own time" } else { "" };
    Some(format!(
        "buffer delay {:.0} % (RFC 6349: mean {} against least {} without load){own}",
        percent.get(),
        show_duration(loaded.mean),
        show_duration(idle.least)
    ))
}

fn trips(trips: &RoundTrips) -> String {
    let lost = if trips.lost > 0 { format!("; {} of {} probes lost", trips.lost, trips.sent) } else { String::new() };
    match trips.rtt {
        Some(rtt) => format!(
            "{} least, {} median, {} p90, {} p99, {} most{lost}",
            show_duration(rtt.least),
            show_duration(rtt.p50),
            show_duration(rtt.p90),
            show_duration(rtt.p99),
            show_duration(rtt.most)
        ),
        None => format!("not known: none of {} probes came back", trips.sent),
    }
}

#[cfg(test)]
mod tests {
    use lfn_core::latency::Probe;

    use super::*;

    /// What is told of probes that took so long before the load and under it.
    fn told(idle: Duration, loaded: Duration) -> String {
        let probe = |sent: i64, rtt| Probe { sent: sent * 20_000_000, rtt: Some(rtt) };
        let probes: Vec<Probe> = (-10..0).map(|n| probe(n, idle)).chain((0..50).map(|n| probe(n, loaded))).collect();
        let second = Duration::from_secs(1);
        let latency = Latency::new(Transport::Udp, Duration::from_millis(20), &probes, second, second);
        lines(&latency).split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_share_of_almost_nothing_is_told_with_what_it_is_made_of() {
        let micros = Duration::from_micros;
        let short = told(micros(50), micros(550));
        assert!(
            short.contains("buffer delay 1000 % (RFC 6349: mean 550 µs against least 50 µs without load)"),
            "{short}"
        );
        assert!(
            short.contains("much is the hosts' own time; 109091 round trips a minute, 1200000 without load"),
            "{short}"
        );
        let long = told(micros(40_000), micros(60_000));
        assert!(
            long.contains("buffer delay 50 % (RFC 6349: mean 60 ms against least 40 ms without load); 1000"),
            "{long}"
        );
    }
}
