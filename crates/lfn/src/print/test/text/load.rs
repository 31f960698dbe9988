//! Lines about the data path and the requested socket options, only for tests that requested something.

use lfn_base::units::{BitRate, Bytes, show_duration};
use lfn_results::block_timing::{BlockTimes, ReceivedBlocks};
use lfn_results::evidence::EndReason;
use lfn_results::measure::{EndReport, Mode, PayloadCheck, SocketReport};
use lfn_results::report::Run;

use super::layout::wrapped;

pub(super) fn load(run: &Run) -> String {
    let evidence = &run.evidence;
    let mut page = String::new();
    let mut line = |name: &str, text: Option<String>| {
        if let Some(text) = text {
            page += &wrapped(name, &text);
        }
    };
    line("ended", ended(evidence.ended));
    line("confidence", confidence(run));
    line("not copied", no_copy(evidence.sender(), evidence.receiver()));
    line("options", options(evidence.sender(), evidence.receiver()));
    line("check", check(evidence.receiver()));
    if let Some(received) = &evidence.blocks {
        page += &block_times(evidence.sender(), received);
    }
    page
}

/// Returns the reason for the end of the test, unless the load was completed.
pub(super) fn ended(ended: EndReason) -> Option<String> {
    match ended {
        EndReason::Completed => None,
        EndReason::Converged => Some("the goodput has the requested confidence interval (--precision)".into()),
        EndReason::Interrupted => Some("interrupted; the data received until then is counted".into()),
    }
}

/// Returns the confidence interval if it was requested; otherwise there are too few intervals.
fn confidence(run: &Run) -> Option<String> {
    if run.evidence.request.slices_per_interval < 2 {
        return None;
    }
    let Some(known) = run.estimate else {
        return Some("no confidence interval: the steady part is too short".into());
    };
    Some(format!(
        "{} after {} of start-up, ±{:.2} % (95 %), from {} blocks of {}; correlation {}",
        known.goodput,
        show_duration(known.start),
        known.half_width.get() * 100.0,
        known.blocks,
        show_duration(known.block),
        show_duration(known.correlation),
    ))
}

fn no_copy(sender: &EndReport, receiver: &EndReport) -> Option<String> {
    use Mode::{Copying, NoCopy};
    let text = match (sender.mode, receiver.mode) {
        (Some(NoCopy), Some(NoCopy)) => "sent (sendfile) and received (MSG_TRUNC)",
        (Some(NoCopy), Some(Copying)) => "sent (sendfile); received with copies",
        (Some(Copying), Some(NoCopy)) => "received (MSG_TRUNC); sent with copies",
        // An iperf3 server does not report its data path.
        (Some(NoCopy), None) => "sent (sendfile); unknown if the receiver copied",
        (None, Some(NoCopy)) => "received (MSG_TRUNC); unknown if the sender copied",
        _ => return None,
    };
    Some(text.into())
}

/// Returns the requested and the granted options of the sender's connections, with equal streams together.
fn options(sender: &EndReport, receiver: &EndReport) -> Option<String> {
    let mut kinds: Vec<(Vec<u16>, String)> = Vec::new();
    for stream in &sender.streams {
        // The MSS is requested at the client's end in both directions: its announcement limits the other end.
        let other = receiver.streams.iter().find(|other| other.stream == stream.stream);
        let mss = other.and_then(|other| other.socket.as_ref()?.mss_requested_bytes);
        let text = stream.socket.as_ref().map(|socket| requested_options(socket, mss)).unwrap_or_default();
        match kinds.iter_mut().find(|(_, known)| *known == text) {
            Some((streams, _)) => streams.push(stream.stream),
            None => kinds.push((vec![stream.stream], text)),
        }
    }
    let alone = kinds.len() == 1;
    let texts = kinds.into_iter().filter(|(_, text)| !text.is_empty()).map(|(streams, text)| {
        let numbers: Vec<_> = streams.iter().map(u16::to_string).collect();
        let streams = if numbers.len() == 1 { "stream" } else { "streams" };
        if alone { text } else { format!("{streams} {}: {text}", numbers.join(" ")) }
    });
    let texts: Vec<_> = texts.collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}

fn requested_options(socket: &SocketReport, mss_of_receiver: Option<Bytes>) -> String {
    let mut parts = Vec::new();
    if let Some(pace) = socket.pacing_requested {
        parts.push(match socket.pacing_granted {
            Some(granted) if granted == pace => format!("paced at {pace}"),
            Some(granted) => {
                let [pace, granted] = BitRate::in_common_unit([pace, granted]);
                format!("pacing {pace} requested, {granted} granted")
            }
            None => format!("pacing {pace} requested, none granted"),
        });
    }
    if let Some(mss) = socket.mss_requested_bytes.or(mss_of_receiver) {
        let granted = socket.mss_granted_bytes.map_or("unknown".into(), |Bytes(bytes)| format!("{bytes} B"));
        parts.push(format!("MSS {} B requested, payload of a segment {granted}", mss.0));
    }
    if let Some(dscp) = socket.dscp_requested {
        parts.push(match socket.dscp_granted {
            Some(granted) if granted == dscp => format!("DSCP {dscp}"),
            granted => format!("DSCP {dscp} requested, {} granted", granted.map_or("none".into(), |d| d.to_string())),
        });
    }
    if socket.mptcp_requested {
        parts.push(match socket.mptcp_subflows {
            Some(more) => format!("Multipath TCP, {more} more subflows"),
            None => "Multipath TCP requested, fell back to plain TCP".into(),
        });
    }
    parts.join(", ")
}

fn check(receiver: &EndReport) -> Option<String> {
    let checks: Vec<(u16, PayloadCheck)> =
        receiver.streams.iter().filter_map(|stream| Some((stream.stream, stream.check?))).collect();
    let first = checks.iter().find(|(_, check)| check.wrong_bytes > 0);
    let checked: u64 = checks.iter().map(|(_, check)| check.checked_bytes).sum();
    let wrong: u64 = checks.iter().map(|(_, check)| check.wrong_bytes).sum();
    match (checks.is_empty(), first) {
        (true, _) => None,
        (false, None) => Some(format!("all {checked} bytes are correct")),
        (false, Some((stream, check))) => Some(format!(
            "{wrong} of {checked} bytes are wrong, the first at offset {} of stream {stream}: a device on the path \
             altered them, and TCP's checksum did not detect it",
            check.first_wrong_offset.unwrap_or_default()
        )),
    }
}

/// Returns the write times of the sender and the arrival times of the receiver.
fn block_times(sender: &EndReport, received: &ReceivedBlocks) -> String {
    let sent: Vec<&BlockTimes> = sender.streams.iter().filter_map(|stream| stream.blocks.as_ref()).collect();
    let fastest = sent.iter().filter_map(|times| times.fastest).max();
    let slowest = sent.iter().filter_map(|times| times.slowest).min();
    let written: u64 = sent.iter().map(|times| times.blocks).sum();
    let write_times = format!("{written} blocks; fastest {}, slowest {}", rate(fastest), rate(slowest));
    let first = received
        .first_delay
        .map_or("at an unknown time".into(), |delay| format!("{} after the start", show_duration(delay)));
    let read_times = format!(
        "{} blocks, the first complete {first}; fastest {}, slowest {}; {} with this delay, {} without it",
        received.blocks,
        rate(received.fastest),
        rate(received.slowest),
        rate(received.with_delay),
        rate(received.without_delay),
    );
    wrapped("write times", &write_times) + &wrapped("read times", &read_times)
}

fn rate(rate: Option<BitRate>) -> String {
    rate.map_or("an unknown rate".into(), |rate| rate.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_data_path_is_not_printed_as_known() {
        let end = |mode| EndReport { mode, ..EndReport::default() };
        let printed = |sender, receiver| no_copy(&end(sender), &end(receiver)).unwrap_or_default();
        let (copying, not) = (Some(Mode::Copying), Some(Mode::NoCopy));
        assert_eq!(printed(not, copying), "sent (sendfile); received with copies");
        assert_eq!(printed(not, None), "sent (sendfile); unknown if the receiver copied");
        assert_eq!(printed(None, not), "received (MSG_TRUNC); unknown if the sender copied");
        assert_eq!((printed(copying, None), printed(copying, copying), printed(None, None)), Default::default());
    }
}
