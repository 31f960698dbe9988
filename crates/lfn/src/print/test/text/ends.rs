//! Lines of the two ends: CPU time and buffers.

use lfn_base::units::Bytes;
use lfn_results::measure::{EndReport, Kernel, SocketReport};

/// Returns the line of one end: its buffers, requested and granted, and its CPU time.
pub(super) fn end(name: &str, report: &EndReport, sends: bool) -> String {
    let socket = report.streams.first().and_then(|stream| stream.socket.as_ref());
    let buffer = socket.map(|socket| buffer(socket, report.kernel.as_ref(), sends)).unwrap_or("buffers unknown".into());
    format!("{name}: {buffer}; CPU {}", busy(report))
}

/// Returns the version and the rate limit of the server; none for another program.
pub(super) fn server(far: &EndReport) -> Option<String> {
    let version = far.lfn_version.as_ref()?;
    let limit = far.rate_limit.map(|limit| format!(", limits the test to {limit}")).unwrap_or_default();
    Some(format!("lfn {version}{limit}"))
}

/// Returns the CPU time as a share of one CPU.
fn busy(report: &EndReport) -> String {
    match report.cpu {
        None => "unknown".into(),
        Some(_) if report.elapsed.is_zero() => "0 %".into(),
        Some(cpu) => format!("{:.0} %", (cpu.user + cpu.system).as_secs_f64() / report.elapsed.as_secs_f64() * 100.0),
    }
}

fn buffer(socket: &SocketReport, kernel: Option<&Kernel>, sends: bool) -> String {
    let (which, requested, granted, sysctl, cap) = if sends {
        (
            "send",
            socket.sndbuf_requested_bytes,
            socket.sndbuf_granted_bytes,
            "wmem_max",
            kernel.map(|kernel| kernel.wmem_max_bytes),
        )
    } else {
        (
            "receive",
            socket.rcvbuf_requested_bytes,
            socket.rcvbuf_granted_bytes,
            "rmem_max",
            kernel.map(|kernel| kernel.rmem_max_bytes),
        )
    };
    let buffer = match requested {
        None => format!("{which} buffer autotuned to {}", granted.decimal()),
        Some(requested) if granted < requested => {
            let [requested, granted] = Bytes::in_common_unit([requested, granted]);
            let cap = cap.map(|cap| format!(" (net.core.{sysctl} is {cap})")).unwrap_or_default();
            format!("{which} buffer {requested} requested, {granted} granted{cap}")
        }
        // The kernel has a minimum size for a buffer.
        Some(requested) if granted > requested => {
            let [requested, granted] = Bytes::in_common_unit([requested, granted]);
            format!("{which} buffer {requested} requested, {granted} granted")
        }
        Some(requested) => format!("{which} buffer {requested} requested and granted"),
    };
    let window = match (socket.window_requested_bytes, socket.window_limit_bytes) {
        (Some(window), _) if !sends => format!("fixed receive window of {} B, ", window.0),
        (None, Some(bound)) if !sends => format!("window limited to {} by --tuned, ", bound.decimal()),
        _ => String::new(),
    };
    let congestion = match &socket.congestion_requested {
        Some(requested) if *requested != socket.congestion => {
            format!(", {} ({requested} requested)", socket.congestion)
        }
        None if socket.congestion_planned.as_ref() == Some(&socket.congestion) => {
            let own = kernel.map(|kernel| kernel.congestion.as_str()).filter(|own| !own.is_empty());
            match own.filter(|own| *own != socket.congestion) {
                Some(own) => format!(", congestion control changed from {own} to {} by --tuned", socket.congestion),
                None => format!(", {}", socket.congestion),
            }
        }
        _ => format!(", {}", socket.congestion),
    };
    format!("{window}{buffer}{}", if sends { congestion } else { String::new() })
}
