//! The lines of the two ends: processor time and buffers.

use lfn_core::units::Bytes;
use lfn_core::wire::test::{EndReport, Kernel, SocketReport};

/// One end: processor time, and the buffers with what was asked and granted.
pub(super) fn end(name: &str, report: &EndReport, sends: bool) -> String {
    let socket = report.streams.first().and_then(|stream| stream.socket.as_ref());
    let buffer = socket.map(|socket| buffer(socket, report.kernel.as_ref(), sends)).unwrap_or("buffers unknown".into());
    format!("{name}: {buffer}; CPU {}", busy(report))
}

/// What serves, and what it holds a test to; nothing of another program.
pub(super) fn server(far: &EndReport) -> Option<String> {
    let version = far.lfn_version.as_ref()?;
    let limit = far.rate_limit.map(|limit| format!(", which holds the test to {limit}")).unwrap_or_default();
    Some(format!("lfn {version}{limit}"))
}

/// Processor time as a share of one processor.
fn busy(report: &EndReport) -> String {
    match report.cpu {
        None => "unknown".into(),
        Some(_) if report.elapsed.is_zero() => "0 %".into(),
        Some(cpu) => format!("{:.0} %", (cpu.user + cpu.system).as_secs_f64() / report.elapsed.as_secs_f64() * 100.0),
    }
}

fn buffer(socket: &SocketReport, kernel: Option<&Kernel>, sends: bool) -> String {
    let (which, asked, granted, sysctl, cap) = if sends {
        (
            "send",
            socket.sndbuf_asked_bytes,
            socket.sndbuf_granted_bytes,
            "wmem_max",
            kernel.map(|kernel| kernel.wmem_max_bytes),
        )
    } else {
        (
            "receive",
            socket.rcvbuf_asked_bytes,
            socket.rcvbuf_granted_bytes,
            "rmem_max",
            kernel.map(|kernel| kernel.rmem_max_bytes),
        )
    };
    let buffer = match asked {
        None => format!("{which} buffer autotuned to {}", granted.decimal()),
        Some(asked) if granted < asked => {
            let [asked, granted] = Bytes::alike([asked, granted]);
            let cap = cap.map(|cap| format!(" (net.core.{sysctl} is {cap})")).unwrap_or_default();
            format!("{which} buffer {asked} asked, {granted} granted{cap}")
        }
        // No socket has less than the kernel's own minimum.
        Some(asked) if granted > asked => {
            let [asked, granted] = Bytes::alike([asked, granted]);
            format!("{which} buffer {asked} asked, {granted} granted")
        }
        Some(asked) => format!("{which} buffer {asked} asked and granted"),
    };
    let window = match (socket.window_asked_bytes, socket.window_bound_bytes) {
        (Some(window), _) if !sends => format!("window held at {} B, ", window.0),
        (None, Some(bound)) if !sends => format!("window bounded at {} by the plan, ", bound.decimal()),
        _ => String::new(),
    };
    let congestion = match &socket.congestion_asked {
        Some(asked) if *asked != socket.congestion => format!(", {} ({asked} asked)", socket.congestion),
        None if socket.congestion_planned.as_ref() == Some(&socket.congestion) => {
            format!(", {} by the plan", socket.congestion)
        }
        _ => format!(", {}", socket.congestion),
    };
    format!("{window}{buffer}{}", if sends { congestion } else { String::new() })
}
