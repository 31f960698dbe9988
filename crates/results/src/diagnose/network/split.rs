//! Split connection: a host on the path acknowledges data that the receiver does not have, or answers sooner than the
//! receiver can.

use std::time::Duration;

use lfn_base::units::show_duration;
use serde_json::json;

use super::delivery::path_finding;
use super::return_path::{self, MIN_MESSAGE_DIFFERENCE, MIN_MESSAGE_FACTOR};
use crate::diagnose::{Cause, Confidence, Finding, Remedy, figures_map};
use crate::evidence::figures::Figures;

/// Minimum time by which acknowledgements precede the data, beyond the uncertainty of the clocks: the ends are sampled by
/// threads that may pause for several ticks of 4 ms.
pub(in crate::diagnose) const MIN_EARLY: Duration = Duration::from_millis(20);

/// Finds a host that splits the connection, from the bytes of both ends and from datagrams that pass this host.
pub(in crate::diagnose) fn split_connection(figures: &Figures) -> Option<Finding> {
    // The messages of the control connection may show the same host.
    if return_path::proxy(figures).is_some() {
        return None;
    }
    let early = early_acknowledgements(figures);
    let late = late_datagrams(figures);
    if early.is_none() && late.is_none() {
        return None;
    }
    let early_text = early.map(|early| {
        format!("data is acknowledged {} before it arrives at {}", show_duration(early), figures.receiver.name)
    });
    let late_text = late.map(|probe| {
        let segment = show_duration(figures.base_rtt);
        format!("RTT of TCP {segment}, RTT of datagrams at least {}", show_duration(probe))
    });
    let signs: Vec<String> = early_text.into_iter().chain(late_text).collect();
    let summary = format!("another host answers for the receiver: {}", signs.join("; "));
    let remedy = Remedy {
        command: format!(
            "sudo traceroute -T -p 7323 {0}; traceroute -U {0}   # a proxy: the path of TCP has fewer hops",
            figures.far_network_name()
        ),
        host: None,
    };
    let mut finding = path_finding(figures, Cause::Proxy, summary, remedy);
    finding.confidence = Some(if signs.len() == 2 { Confidence::High } else { Confidence::Medium });
    finding.evidence = figures_map([
        ("early_acknowledgement_seconds", json!(early.map(|early| early.as_secs_f64()))),
        ("datagram_rtt_seconds", json!(late.map(|probe| probe.as_secs_f64()))),
        ("base_rtt_seconds", json!(figures.base_rtt.as_secs_f64())),
    ]);
    Some(finding)
}

/// Returns the time for which acknowledged data is not yet at the receiver. The clocks of both ends are compared with
/// messages, so their offset may be wrong by half of the time of a message and its answer.
fn early_acknowledgements(figures: &Figures) -> Option<Duration> {
    let half = figures.base_rtt.as_secs_f64() / 2.0;
    let early = -(figures.course.waits()?.acknowledgements + half);
    let uncertainty = figures.message_rtt.unwrap_or(figures.base_rtt) / 2;
    let early = Duration::try_from_secs_f64(early).ok()?;
    (early >= uncertainty + MIN_EARLY).then_some(early)
}

/// Returns the shortest RTT of datagrams, if the RTT of TCP is much shorter.
fn late_datagrams(figures: &Figures) -> Option<Duration> {
    let (probe, segment) = (figures.probe_rtt?, figures.base_rtt);
    let is_late = !segment.is_zero()
        && probe.as_secs_f64() >= MIN_MESSAGE_FACTOR * segment.as_secs_f64()
        && probe >= segment + MIN_MESSAGE_DIFFERENCE;
    is_late.then_some(probe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::half_bdp_window;
    use crate::evidence::figures::{Course, IntervalFigures, Waits};

    const RTT: Duration = Duration::from_millis(100);

    /// A test over 100 ms in which the acknowledgements wait for this time, milliseconds.
    fn waiting(acknowledgements: f64) -> Figures {
        let waits = Waits { data: 0.0, acknowledgements: acknowledgements / 1e3 };
        let interval = |second: u32| IntervalFigures {
            start: Duration::from_secs(second.into()),
            end: Duration::from_secs(u64::from(second) + 1),
            waits: Some(waits),
            ..IntervalFigures::default()
        };
        let mut figures = half_bdp_window();
        (figures.base_rtt, figures.message_rtt) = (RTT, Some(RTT));
        figures.streams[0].rtt = RTT;
        figures.course = Course { intervals: (0..8).map(interval).collect(), start_up: 1 };
        figures
    }

    #[test]
    fn data_acknowledged_before_it_arrives_shows_a_proxy() {
        let found = split_connection(&waiting(-121.0)).unwrap();
        assert_eq!((found.cause(), found.confidence), (Some(Cause::Proxy), Some(Confidence::Medium)));
        assert!(found.summary.contains("acknowledged 71 ms before it arrives at far.example"), "{}", found.summary);
        // The clocks may be wrong by half of the RTT, and the receiver may collect acknowledgements.
        for healthy in [-119.0, -50.0, 0.0, 40.0] {
            assert_eq!(split_connection(&waiting(healthy)), None, "{healthy}");
        }
    }

    #[test]
    fn datagrams_that_take_longer_than_tcp_show_a_proxy() {
        let with = |probe: Option<u64>| {
            let mut figures = waiting(0.0);
            figures.probe_rtt = probe.map(Duration::from_millis);
            split_connection(&figures)
        };
        assert!(with(Some(200)).unwrap().summary.contains("RTT of datagrams at least 200 ms"));
        for healthy in [None, Some(100), Some(199)] {
            assert_eq!(with(healthy), None, "{healthy:?}");
        }
    }
}
