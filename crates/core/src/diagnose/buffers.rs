//! Socket buffers: a send buffer below what the path holds, and kernels that grant less than that.

use std::collections::BTreeMap;

use serde_json::json;

use super::window::{autotuning, held};
use super::{Cause, Remedy, Evidence, Finding, finding};
use crate::units::{Bytes, show_duration};

/// Share of the busy time stopped by the send buffer that makes it a limit (`bench/findings`).
const STOPPED: f64 = 0.2;
/// Below this RTT the kernel never waits for the send buffer long enough to count it.
const SEEN_FROM_SECONDS: f64 = 0.001;
/// The kernel lets twice what it calls granted into a buffer, its own bookkeeping among it: a buffer that holds a
/// sender has this many times the granted in flight or more (measured: 1.3 to 1.9).
const HELD: f64 = 1.1;
/// cwnd and receive window this many times what is in flight hold nothing: a loss-based cwnd grows only when filled.
const ROOM: f64 = 1.5;
/// An autotuned window this close to the most that autotuning gives has come to its end.
const AT_ITS_END: f64 = 0.7;

/// The sender stood still because its buffer was full of unacknowledged data.
pub(super) fn send_buffer(evidence: &Evidence) -> Option<Finding> {
    let stopped = stopped(evidence)?;
    let flow = evidence.flows.first()?;
    let granted = flow.sending.sndbuf_granted_bytes;
    let rtt = show_duration(evidence.base_rtt);
    let how = match stopped {
        Stopped::Told(share) => {
            format!("was full for {:.0} % of the time it had data to send, over {rtt} RTT", share * 100.0)
        }
        Stopped::Unfilled { in_flight, room } => {
            let [in_flight, room] = Bytes::alike([in_flight, room]);
            format!("lets {in_flight} into flight per {rtt} RTT, where cwnd and receive window left room for {room}")
        }
    };
    let summary = format!("{granted} on {} {how}", evidence.sender.name);
    let needed = evidence.needed().unwrap_or(Bytes(granted.0.saturating_mul(2)));
    let cure = match flow.sending.sndbuf_asked_bytes {
        Some(asked) if asked > granted => {
            on(&evidence.sender.name, format!("sysctl -w net.core.wmem_max={}", needed.0))
        }
        Some(_) => evidence.again(&format!("--sndbuf {}", needed.0)),
        None => {
            let limits = evidence.sender.kernel.as_ref().map(|kernel| kernel.tcp_wmem_bytes).unwrap_or_default();
            on(&evidence.sender.name, autotuning("net.ipv4.tcp_wmem", limits, needed))
        }
    };
    let mut finding = finding(evidence, Cause::SendBuffer, summary, cure, evidence.possible());
    finding.evidence = BTreeMap::from([
        ("sndbuf_granted_bytes", json!(granted.0)),
        ("base_rtt_seconds", json!(evidence.base_rtt.as_secs_f64())),
    ]);
    finding.evidence.extend(match stopped {
        Stopped::Told(share) => vec![("sndbuf_limited_share", json!(share))],
        Stopped::Unfilled { in_flight, room } => {
            vec![("in_flight_bytes", json!(in_flight.0)), ("room_bytes", json!(room.0))]
        }
    });
    Some(finding)
}

/// A buffer was asked for, and a sysctl cut it down without a word.
pub(super) fn kernel_cap_asked(evidence: &Evidence) -> Option<Finding> {
    let flow = evidence.flows.first()?;
    let (sent, got) = (&flow.sending, &flow.receiving);
    let receiving = (got.rcvbuf_asked_bytes, got.rcvbuf_granted_bytes, &evidence.receiver, "receive", "rmem_max");
    let sending = (sent.sndbuf_asked_bytes, sent.sndbuf_granted_bytes, &evidence.sender, "send", "wmem_max");
    let cut = |side: &(Option<Bytes>, Bytes, _, _, _)| side.0.is_some_and(|asked| asked > side.1);
    // The side that also limits comes first.
    let sides = if stopped(evidence).is_some() { [sending, receiving] } else { [receiving, sending] };
    let (asked, granted, host, which, sysctl) = sides.into_iter().find(cut)?;
    let asked = asked?;
    let binds = !evidence.is_full() && (stopped(evidence).is_some() || held(evidence).is_some());
    let [shown, wanted] = Bytes::alike([granted, asked]);
    let summary = format!(
        "{which} buffer capped at {shown} on {}, {wanted} asked for: net.core.{sysctl} is {}",
        host.name, granted.0
    );
    let cure = on(&host.name, format!("sysctl -w net.core.{sysctl}={}", asked.0));
    // Where the cap does not bind there is nothing to gain now.
    let predicted = if binds { evidence.possible() } else { Some(evidence.judged_goodput()) };
    let mut finding = finding(evidence, Cause::KernelCap, summary, cure, predicted);
    finding.evidence = BTreeMap::from([("asked_bytes", json!(asked.0)), ("granted_bytes", json!(granted.0))]);
    Some(finding)
}

/// Nothing was asked for, and autotuning came to its end below what the path needs.
pub(super) fn kernel_cap_autotuned(evidence: &Evidence) -> Option<Finding> {
    let flow = evidence.flows.first()?;
    let (sender, receiver) = (&evidence.sender, &evidence.receiver);
    let (sending, receiving) = (sender.kernel.as_ref()?, receiver.kernel.as_ref()?);
    let most = receiving.tcp_rmem_bytes[2] / 2;
    let window = held(evidence).and(flow.snd_wnd).map_or(0, |window| window.median);
    let autotuned = flow.receiving.rcvbuf_asked_bytes.is_none() && flow.receiving.window_asked_bytes.is_none();
    let (host, key, limits, cap) = if autotuned && receiving.moderate_rcvbuf && window as f64 > AT_ITS_END * most as f64
    {
        (receiver, "net.ipv4.tcp_rmem", receiving.tcp_rmem_bytes, Bytes(window))
    } else if flow.sending.sndbuf_asked_bytes.is_none() && stopped(evidence).is_some() {
        (sender, "net.ipv4.tcp_wmem", sending.tcp_wmem_bytes, flow.sending.sndbuf_granted_bytes)
    } else {
        return None;
    };
    let needed = evidence.needed().unwrap_or(Bytes(cap.0.saturating_mul(2)));
    let summary = format!("{key} on {} ends at {}: autotuning stops at {cap} in flight", host.name, limits[2]);
    let cure = on(&host.name, autotuning(key, limits, needed));
    let mut finding = finding(evidence, Cause::KernelCap, summary, cure, evidence.possible());
    finding.evidence = BTreeMap::from([("most_bytes", json!(limits[2])), ("in_flight_bytes", json!(cap.0))]);
    Some(finding)
}

/// How it is known that the send buffer is the limit.
#[derive(Clone, Copy)]
enum Stopped {
    /// The share of its busy time the kernel says it stood still for want of buffer.
    Told(f64),
    /// A buffer's worth was in flight, and more would have been allowed.
    Unfilled { in_flight: Bytes, room: Bytes },
}

/// Whether the sender stood still for want of buffer.
///
/// The kernel's own count is not enough: it starts when the write queue is empty at the moment an acknowledgement is
/// worked on, and a buffer of a few super-packets can stay at zero for a whole test.
fn stopped(evidence: &Evidence) -> Option<Stopped> {
    if evidence.base_rtt.as_secs_f64() < SEEN_FROM_SECONDS || evidence.is_full() {
        return None;
    }
    let busy: f64 = evidence.flows.iter().map(|flow| flow.busy.as_secs_f64()).sum();
    let stopped: f64 = evidence.flows.iter().map(|flow| flow.sndbuf_limited.as_secs_f64()).sum();
    let share = if busy > 0.0 { stopped / busy } else { 0.0 };
    if share > STOPPED { Some(Stopped::Told(share.min(1.0))) } else { unfilled(evidence) }
}

/// All streams together: what was in flight, and what cwnd and receive window allowed.
fn unfilled(evidence: &Evidence) -> Option<Stopped> {
    let (mut in_flight, mut room) = (0, 0);
    for flow in &evidence.flows {
        let (flying, granted) = (flow.goodput.times(evidence.base_rtt).0, flow.sending.sndbuf_granted_bytes.0);
        let allowed = flow.snd_wnd?.least.min(flow.cwnd.0);
        // BBR paces itself below a cwnd of twice the BDP.
        let loss_based = !flow.sending.congestion.starts_with("bbr");
        let held = granted > 0 && flying as f64 > HELD * granted as f64 && allowed as f64 > ROOM * flying as f64;
        if !(held && loss_based) {
            return None;
        }
        in_flight += flying;
        room += allowed;
    }
    (in_flight > 0).then_some(Stopped::Unfilled { in_flight: Bytes(in_flight), room: Bytes(room) })
}

fn on(host: &str, command: String) -> Remedy {
    Remedy { command, host: Some(host.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::super::{Cause, diagnose};
    use super::*;
    use crate::diagnose::window::tests::half_window;
    use std::time::Duration;

    fn causes(evidence: &Evidence) -> Vec<Cause> {
        diagnose(evidence).iter().map(|finding| finding.cause).collect()
    }

    /// The same path, with room at the receiver and little at the sender.
    fn small_send_buffer() -> Evidence {
        let mut evidence = half_window();
        let flow = &mut evidence.flows[0];
        flow.snd_wnd = flow.snd_wnd.map(|_| crate::diagnose::Spread { least: 9 << 20, median: 9 << 20, most: 9 << 20 });
        flow.receiving.window_asked_bytes = None;
        flow.sndbuf_limited = Duration::from_secs(20);
        flow.sending.sndbuf_asked_bytes = Some(Bytes(4 << 20));
        flow.sending.sndbuf_granted_bytes = Bytes(4 << 20);
        evidence
    }

    #[test]
    fn a_full_send_buffer_is_named() {
        let evidence = small_send_buffer();
        let findings = diagnose(&evidence);
        assert_eq!(causes(&evidence), [Cause::SendBuffer]);
        assert_eq!(findings[0].cure.to_string(), "lfn test far.example --sndbuf 9095625");
        assert!(findings[0].summary.starts_with("4 MiB on near.example was full for 67 %"), "{}", findings[0].summary);
    }

    /// 128 KiB over 50 ms and 200 Mb/s as it was measured: the kernel counted nothing.
    fn uncounted_send_buffer() -> Evidence {
        let mut evidence = small_send_buffer();
        evidence.base_rtt = Duration::from_millis(50);
        let flow = &mut evidence.flows[0];
        flow.sndbuf_limited = Duration::ZERO;
        flow.sending.sndbuf_asked_bytes = Some(Bytes(128 << 10));
        flow.sending.sndbuf_granted_bytes = Bytes(128 << 10);
        flow.goodput.0 = 38_860_000;
        flow.cwnd = Bytes(867_400);
        flow.rtt = Duration::from_millis(51);
        flow.snd_wnd = Some(crate::diagnose::Spread { least: 1_876_000, median: 1_876_000, most: 1_876_000 });
        evidence.steady = evidence.steady.map(|steady| super::super::Steady { goodput: flow.goodput, ..steady });
        evidence
    }

    #[test]
    fn a_send_buffer_is_named_that_the_kernel_did_not_count() {
        let findings = diagnose(&uncounted_send_buffer());
        assert_eq!(findings.iter().map(|finding| finding.cause).collect::<Vec<_>>(), [Cause::SendBuffer]);
        let expected = "128 KiB on near.example lets 242.9 kB into flight per 50 ms RTT, \
                        where cwnd and receive window left room for 867.4 kB";
        assert_eq!(findings[0].summary, expected);
    }

    #[test]
    fn a_sender_held_by_something_else_is_not_held_by_its_buffer() {
        let cases: [fn(&mut Evidence); 4] = [
            |e| e.flows[0].cwnd = Bytes(300_000),
            |e| e.flows[0].sending.sndbuf_granted_bytes = Bytes(1 << 20),
            |e| e.flows[0].sending.congestion = "bbr".into(),
            |e| (e.base_rtt, e.flows[0].rtt) = (Duration::from_micros(20), Duration::from_micros(20)),
        ];
        for (number, change) in cases.iter().enumerate() {
            let mut evidence = uncounted_send_buffer();
            change(&mut evidence);
            assert_eq!(causes(&evidence), [], "case {number}");
        }
    }

    #[test]
    fn near_misses_are_no_send_buffer() {
        let cases: [fn(&mut Evidence); 3] = [
            |e| e.flows[0].sndbuf_limited = Duration::from_secs(5),
            |e| (e.base_rtt, e.flows[0].rtt) = (Duration::from_micros(20), Duration::from_micros(20)),
            |e| e.path.as_mut().unwrap().capacity.0 = 70_000_000,
        ];
        for (number, change) in cases.iter().enumerate() {
            let mut evidence = small_send_buffer();
            change(&mut evidence);
            assert_eq!(causes(&evidence), [], "case {number}");
        }
    }

    #[test]
    fn a_buffer_cut_down_names_the_sysctl_and_the_host() {
        let mut evidence = half_window();
        let socket = &mut evidence.flows[0].receiving;
        socket.window_asked_bytes = None;
        socket.rcvbuf_asked_bytes = Some(Bytes(62 << 20));
        socket.rcvbuf_granted_bytes = Bytes(4 << 20);
        let findings = diagnose(&evidence);
        assert_eq!(causes(&evidence), [Cause::KernelCap, Cause::ReceiveWindow]);
        let expected = "receive buffer capped at 4 MiB on far.example, 62 MiB asked for: net.core.rmem_max is 4194304";
        assert_eq!(findings[0].summary, expected);
        assert_eq!(findings[0].cure.to_string(), "sysctl -w net.core.rmem_max=65011712   (on far.example)");
        // What was granted in full is no finding.
        evidence.flows[0].receiving.rcvbuf_asked_bytes = Some(Bytes(4 << 20));
        assert_eq!(causes(&evidence), [Cause::ReceiveWindow]);
    }

    #[test]
    fn autotuning_at_its_end_is_a_kernel_cap() {
        let mut evidence = half_window();
        evidence.flows[0].receiving.window_asked_bytes = None;
        assert_eq!(causes(&evidence), [Cause::ReceiveWindow, Cause::KernelCap]);
        // Autotuning that could have gone on is not the cause.
        evidence.receiver.kernel.as_mut().unwrap().tcp_rmem_bytes[2] = 64 << 20;
        assert_eq!(causes(&evidence), [Cause::ReceiveWindow]);
        let mut evidence = small_send_buffer();
        evidence.flows[0].sending.sndbuf_asked_bytes = None;
        let findings = diagnose(&evidence);
        assert_eq!(causes(&evidence), [Cause::SendBuffer, Cause::KernelCap]);
        assert!(findings[1].cure.command.starts_with("sysctl -w net.ipv4.tcp_wmem='4096 16384 "));
    }
}
