//! The lines of probes beside a load.

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
    let delay = latency.buffer_delay_percent.map(|delay| format!("buffer delay {:.0} % (RFC 6349)", delay.get()));
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
