//! Socket buffers: a send buffer below the need of the path, and kernels that grant less than the need.

use std::time::Duration;

use lfn_base::units::{Bytes, show_duration};
use serde_json::json;

use super::window::{autotuning_command, window_limited};
use super::{Cause, Finding, Remedy, figures_map, finding};
use crate::evidence::figures::Figures;

/// Minimum share of the busy time limited by the send buffer (`bench/findings`).
pub(super) const MIN_SNDBUF_LIMITED_SHARE: f64 = 0.2;
/// Minimum bytes of a requested buffer that the kernel did not grant.
pub(super) const MIN_CUT: u64 = 1;
/// Minimum RTT: below it, the kernel never waits for the send buffer long enough to count it.
pub(super) const MIN_RTT: Duration = Duration::from_millis(1);
/// Minimum bytes in flight for each granted byte. The kernel allows twice the granted size, with its own bookkeeping,
/// so a limiting buffer has 1.3 to 1.9 times the granted size in flight (measured).
pub(super) const MIN_IN_FLIGHT_PER_BUFFER: f64 = 1.1;
/// Minimum cwnd and receive window for each byte in flight. A loss-based cwnd grows only while it is full.
pub(super) const MIN_ALLOWED_PER_IN_FLIGHT: f64 = 1.5;
/// Minimum window as a share of the autotuning limit, for autotuning that reached its limit.
pub(super) const AUTOTUNING_LIMIT_SHARE: f64 = 0.7;

/// Finds a sender that waited because its buffer was full of unacknowledged data.
pub(super) fn send_buffer(figures: &Figures) -> Option<Finding> {
    let stopped = send_buffer_limit(figures)?;
    let flow = figures.streams.first()?;
    let granted = flow.sender_socket.sndbuf_granted_bytes;
    let rtt = show_duration(figures.base_rtt);
    let how = match stopped {
        SendBufferLimit::Counted(share) => {
            format!("was full for {:.0} % of the time with data to send, at {rtt} RTT", share * 100.0)
        }
        SendBufferLimit::Inferred { in_flight, allowed } => {
            let [in_flight, allowed] = Bytes::in_common_unit([in_flight, allowed]);
            format!("allowed {in_flight} in flight per {rtt} RTT; cwnd and receive window allowed {allowed}")
        }
    };
    let summary = format!("the send buffer of {granted} on {} {how}", figures.sender.name);
    let needed = figures.needed_in_flight().unwrap_or(Bytes(granted.0.saturating_mul(2)));
    let remedy = match flow.sender_socket.sndbuf_requested_bytes {
        Some(requested) if requested > granted => {
            remedy_on(&figures.sender.name, format!("sysctl -w net.core.wmem_max={}", needed.0))
        }
        Some(_) => figures.repeat_command(&format!("--sndbuf {}", needed.0)),
        None => {
            let limits = figures.sender.kernel.as_ref().map(|kernel| kernel.tcp_wmem_bytes).unwrap_or_default();
            remedy_on(&figures.sender.name, autotuning_command("net.ipv4.tcp_wmem", limits, needed))
        }
    };
    let mut finding = finding(figures, Cause::SendBuffer, summary, remedy, figures.possible_goodput());
    finding.evidence = figures_map([
        ("sndbuf_granted_bytes", json!(granted.0)),
        ("base_rtt_seconds", json!(figures.base_rtt.as_secs_f64())),
    ]);
    finding.evidence.extend(figures_map(match stopped {
        SendBufferLimit::Counted(share) => vec![("sndbuf_limited_share", json!(share))],
        SendBufferLimit::Inferred { in_flight, allowed } => {
            vec![("in_flight_bytes", json!(in_flight.0)), ("allowed_bytes", json!(allowed.0))]
        }
    }));
    Some(finding)
}

/// Finds a requested buffer that a sysctl reduced without an error.
pub(super) fn kernel_cap_on_request(figures: &Figures) -> Option<Finding> {
    let flow = figures.streams.first()?;
    let (sent, got) = (&flow.sender_socket, &flow.receiver_socket);
    let receiving = (got.rcvbuf_requested_bytes, got.rcvbuf_granted_bytes, &figures.receiver, "receive", "rmem_max");
    let sending = (sent.sndbuf_requested_bytes, sent.sndbuf_granted_bytes, &figures.sender, "send", "wmem_max");
    let cut = |side: &(Option<Bytes>, Bytes, _, _, _)| {
        side.0.is_some_and(|requested| requested.0.saturating_sub(side.1.0) >= MIN_CUT)
    };
    // The side that also limits comes first.
    let sides = if send_buffer_limit(figures).is_some() { [sending, receiving] } else { [receiving, sending] };
    let (requested, granted, host, which, sysctl) = sides.into_iter().find(cut)?;
    let requested = requested?;
    let binds = !figures.is_full() && (send_buffer_limit(figures).is_some() || window_limited(figures).is_some());
    let [shown, requested_text] = Bytes::in_common_unit([granted, requested]);
    let summary = format!(
        "the {which} buffer on {} is limited to {shown}, {requested_text} were requested: net.core.{sysctl} is {}",
        host.name, granted.0
    );
    let remedy = remedy_on(&host.name, format!("sysctl -w net.core.{sysctl}={}", requested.0));
    // A reduced buffer that does not limit the test has no gain.
    let predicted = if binds { figures.possible_goodput() } else { Some(figures.steady_goodput()) };
    let mut finding = finding(figures, Cause::KernelCap, summary, remedy, predicted);
    finding.evidence = figures_map([("requested_bytes", json!(requested.0)), ("granted_bytes", json!(granted.0))]);
    Some(finding)
}

/// Finds autotuning that reached its limit below the need of the path.
pub(super) fn kernel_cap_on_autotuning(figures: &Figures) -> Option<Finding> {
    let flow = figures.streams.first()?;
    let (sender, receiver) = (&figures.sender, &figures.receiver);
    let (sending, receiving) = (sender.kernel.as_ref()?, receiver.kernel.as_ref()?);
    let max_window = receiving.tcp_rmem_bytes[2] / 2;
    let window = window_limited(figures).and(flow.snd_wnd).map_or(0, |window| window.median);
    let autotuned =
        flow.receiver_socket.rcvbuf_requested_bytes.is_none() && flow.receiver_socket.window_requested_bytes.is_none();
    let (host, key, limits, cap) =
        if autotuned && receiving.moderate_rcvbuf && window as f64 > AUTOTUNING_LIMIT_SHARE * max_window as f64 {
            (receiver, "net.ipv4.tcp_rmem", receiving.tcp_rmem_bytes, Bytes(window))
        } else if flow.sender_socket.sndbuf_requested_bytes.is_none() && send_buffer_limit(figures).is_some() {
            (sender, "net.ipv4.tcp_wmem", sending.tcp_wmem_bytes, flow.sender_socket.sndbuf_granted_bytes)
        } else {
            return None;
        };
    let needed = figures.needed_in_flight().unwrap_or(Bytes(cap.0.saturating_mul(2)));
    let summary = format!("{key} on {} allows {}: autotuning stops at {cap} in flight", host.name, limits[2]);
    let remedy = remedy_on(&host.name, autotuning_command(key, limits, needed));
    let mut finding = finding(figures, Cause::KernelCap, summary, remedy, figures.possible_goodput());
    finding.evidence = figures_map([("max_bytes", json!(limits[2])), ("in_flight_bytes", json!(cap.0))]);
    Some(finding)
}

/// Figures that the send buffer is the limit.
#[derive(Clone, Copy)]
enum SendBufferLimit {
    /// Share of the busy time in which the kernel counted the send buffer as the limit.
    Counted(f64),
    /// Buffer's worth of bytes in flight, while cwnd and receive window allow more.
    Inferred { in_flight: Bytes, allowed: Bytes },
}

/// Returns the evidence if the send buffer limits the sender.
///
/// The kernel's own count is not sufficient. The count starts only if the write queue is empty at the moment of an
/// acknowledgement, and a buffer of a few super-packets can stay at zero for a whole test.
fn send_buffer_limit(figures: &Figures) -> Option<SendBufferLimit> {
    if figures.base_rtt < MIN_RTT || figures.is_full() {
        return None;
    }
    let busy: f64 = figures.streams.iter().map(|flow| flow.busy.as_secs_f64()).sum();
    let stopped: f64 = figures.streams.iter().map(|flow| flow.sndbuf_limited.as_secs_f64()).sum();
    let share = if busy > 0.0 { stopped / busy } else { 0.0 };
    if share > MIN_SNDBUF_LIMITED_SHARE {
        Some(SendBufferLimit::Counted(share.min(1.0)))
    } else {
        inferred_limit(figures)
    }
}

/// Adds up all streams: the bytes in flight, and the bytes that cwnd and receive window allow.
fn inferred_limit(figures: &Figures) -> Option<SendBufferLimit> {
    let (mut in_flight, mut total_allowed) = (0, 0);
    for flow in &figures.streams {
        let (flying, granted) = (flow.goodput.times(figures.base_rtt).0, flow.sender_socket.sndbuf_granted_bytes.0);
        let allowed = flow.snd_wnd?.min.min(flow.cwnd.0);
        // BBR paces itself below a cwnd of twice the BDP.
        let loss_based = !flow.sender_socket.congestion.starts_with("bbr");
        let is_limit = granted > 0
            && flying as f64 > MIN_IN_FLIGHT_PER_BUFFER * granted as f64
            && allowed as f64 > MIN_ALLOWED_PER_IN_FLIGHT * flying as f64;
        if !(is_limit && loss_based) {
            return None;
        }
        in_flight += flying;
        total_allowed += allowed;
    }
    (in_flight > 0).then_some(SendBufferLimit::Inferred { in_flight: Bytes(in_flight), allowed: Bytes(total_allowed) })
}

fn remedy_on(host: &str, command: String) -> Remedy {
    Remedy { command, host: Some(host.to_owned()) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{Cause, rule_findings};
    use super::*;
    use crate::diagnose::window::tests::half_bdp_window;

    fn causes(figures: &Figures) -> Vec<Cause> {
        rule_findings(figures).iter().filter_map(Finding::cause).collect()
    }

    /// The same path with a large receive window and a small send buffer.
    fn small_send_buffer() -> Figures {
        let mut figures = half_bdp_window();
        let flow = &mut figures.streams[0];
        flow.snd_wnd =
            flow.snd_wnd.map(|_| crate::evidence::figures::Spread { min: 9 << 20, median: 9 << 20, max: 9 << 20 });
        flow.receiver_socket.window_requested_bytes = None;
        flow.sndbuf_limited = Duration::from_secs(20);
        flow.sender_socket.sndbuf_requested_bytes = Some(Bytes(4 << 20));
        flow.sender_socket.sndbuf_granted_bytes = Bytes(4 << 20);
        figures
    }

    #[test]
    fn a_full_send_buffer_is_found() {
        let figures = small_send_buffer();
        let findings = rule_findings(&figures);
        assert_eq!(causes(&figures), [Cause::SendBuffer]);
        assert_eq!(findings[0].remedy.to_string(), "lfn test far.example --sndbuf 9095625");
        assert!(
            findings[0].summary.starts_with("the send buffer of 4 MiB on near.example was full for 67 %"),
            "{}",
            findings[0].summary
        );
    }

    /// A measurement of 128 KiB over 50 ms and 200 Mb/s: the kernel counted nothing.
    fn uncounted_send_buffer() -> Figures {
        let mut figures = small_send_buffer();
        figures.base_rtt = Duration::from_millis(50);
        let flow = &mut figures.streams[0];
        flow.sndbuf_limited = Duration::ZERO;
        flow.sender_socket.sndbuf_requested_bytes = Some(Bytes(128 << 10));
        flow.sender_socket.sndbuf_granted_bytes = Bytes(128 << 10);
        flow.goodput.0 = 38_860_000;
        flow.cwnd = Bytes(867_400);
        flow.rtt = Duration::from_millis(51);
        flow.snd_wnd = Some(crate::evidence::figures::Spread { min: 1_876_000, median: 1_876_000, max: 1_876_000 });
        figures.steady =
            figures.steady.map(|steady| crate::evidence::figures::SteadyPart { goodput: flow.goodput, ..steady });
        figures
    }

    #[test]
    fn a_send_buffer_is_found_without_the_kernels_count() {
        let findings = rule_findings(&uncounted_send_buffer());
        assert_eq!(findings.iter().filter_map(Finding::cause).collect::<Vec<_>>(), [Cause::SendBuffer]);
        let expected = "the send buffer of 128 KiB on near.example allowed 242.9 kB in flight per 50 ms RTT; \
                        cwnd and receive window allowed 867.4 kB";
        assert_eq!(findings[0].summary, expected);
    }

    #[test]
    fn other_limits_are_not_taken_for_the_send_buffer() {
        let cases: [fn(&mut Figures); 4] = [
            |e| e.streams[0].cwnd = Bytes(300_000),
            |e| e.streams[0].sender_socket.sndbuf_granted_bytes = Bytes(1 << 20),
            |e| e.streams[0].sender_socket.congestion = "bbr".into(),
            |e| (e.base_rtt, e.streams[0].rtt) = (Duration::from_micros(20), Duration::from_micros(20)),
        ];
        for (number, change) in cases.iter().enumerate() {
            let mut figures = uncounted_send_buffer();
            change(&mut figures);
            assert_eq!(causes(&figures), [], "case {number}");
        }
    }

    #[test]
    fn near_misses_are_no_send_buffer_limit() {
        let cases: [fn(&mut Figures); 3] = [
            |e| e.streams[0].sndbuf_limited = Duration::from_secs(5),
            |e| (e.base_rtt, e.streams[0].rtt) = (Duration::from_micros(20), Duration::from_micros(20)),
            |e| e.path.as_mut().unwrap().capacity.0 = 70_000_000,
        ];
        for (number, change) in cases.iter().enumerate() {
            let mut figures = small_send_buffer();
            change(&mut figures);
            assert_eq!(causes(&figures), [], "case {number}");
        }
    }

    #[test]
    fn a_reduced_buffer_names_the_sysctl_and_the_host() {
        let mut figures = half_bdp_window();
        let socket = &mut figures.streams[0].receiver_socket;
        socket.window_requested_bytes = None;
        socket.rcvbuf_requested_bytes = Some(Bytes(62 << 20));
        socket.rcvbuf_granted_bytes = Bytes(4 << 20);
        let findings = rule_findings(&figures);
        assert_eq!(causes(&figures), [Cause::KernelCap, Cause::ReceiveWindow]);
        let expected = "the receive buffer on far.example is limited to 4 MiB, 62 MiB were requested: net.core.rmem_max is 4194304";
        assert_eq!(findings[0].summary, expected);
        assert_eq!(findings[0].remedy.to_string(), "sysctl -w net.core.rmem_max=65011712   # on far.example");
        // A buffer that was granted in full is no finding.
        figures.streams[0].receiver_socket.rcvbuf_requested_bytes = Some(Bytes(4 << 20));
        assert_eq!(causes(&figures), [Cause::ReceiveWindow]);
    }

    #[test]
    fn autotuning_at_its_limit_is_a_finding() {
        let mut figures = half_bdp_window();
        figures.streams[0].receiver_socket.window_requested_bytes = None;
        assert_eq!(causes(&figures), [Cause::ReceiveWindow, Cause::KernelCap]);
        // Autotuning below its limit is not the cause.
        figures.receiver.kernel.as_mut().unwrap().tcp_rmem_bytes[2] = 64 << 20;
        assert_eq!(causes(&figures), [Cause::ReceiveWindow]);
        let mut figures = small_send_buffer();
        figures.streams[0].sender_socket.sndbuf_requested_bytes = None;
        let findings = rule_findings(&figures);
        assert_eq!(causes(&figures), [Cause::SendBuffer, Cause::KernelCap]);
        assert!(findings[1].remedy.command.starts_with("sysctl -w net.ipv4.tcp_wmem='4096 16384 "));
    }
}
