//! How payload was moved and what was asked of the connections: lines only of tests that asked for something.

use lfn_core::report::Ended;
use lfn_core::units::{BitRate, Bytes, show_duration};
use lfn_core::wire::test::{Check, EndReport, Mode, SocketReport};

use super::layout::wrapped;
use crate::print::test::Run;

pub(super) fn load(run: &Run) -> String {
    let measurement = &run.measurement;
    let mut page = String::new();
    let mut line = |name: &str, text: Option<String>| {
        if let Some(text) = text {
            page += &wrapped(name, &text);
        }
    };
    line("ended", ended(measurement.ended));
    line("known", known(run));
    line("not copied", uncopied(measurement.sender(), measurement.receiver()));
    line("options", options(measurement.sender(), measurement.receiver()));
    line("check", check(measurement.receiver()));
    if let Some(caught) = &measurement.blocks {
        page += &super::blocks::blocks(measurement.sender(), caught);
    }
    page
}

/// Why, if that is not that all was done.
pub(super) fn ended(ended: Ended) -> Option<String> {
    match ended {
        Ended::Done => None,
        Ended::Narrow => Some("the goodput was known well enough".into()),
        Ended::Interrupted => Some("interrupted; what had arrived by then is counted".into()),
    }
}

/// Only where somebody wanted to know: otherwise intervals are few.
fn known(run: &Run) -> Option<String> {
    if run.measurement.request.parts < 2 {
        return None;
    }
    let Some(known) = run.measurement.estimate else {
        return Some("goodput not known to any width: too little of it past start-up".into());
    };
    Some(format!(
        "{} past start-up ({}) ±{:.2} % (95 %), of {} blocks of {}; correlation {}",
        known.goodput,
        show_duration(known.start),
        known.half_width.get() * 100.0,
        known.blocks,
        show_duration(known.block),
        show_duration(known.correlation),
    ))
}

fn uncopied(sender: &EndReport, receiver: &EndReport) -> Option<String> {
    use Mode::{Copying, NoCopy};
    let text = match (sender.mode, receiver.mode) {
        (Some(NoCopy), Some(NoCopy)) => "neither sent (sendfile) nor received (MSG_TRUNC)",
        (Some(NoCopy), Some(Copying)) => "sent (sendfile); received with copies",
        (Some(Copying), Some(NoCopy)) => "received (MSG_TRUNC); sent with copies",
        // An iperf3 server is asked and does not tell.
        (Some(NoCopy), None) => "sent (sendfile); whether the receiver copied is not known",
        (None, Some(NoCopy)) => "received (MSG_TRUNC); whether the sender copied is not known",
        _ => return None,
    };
    Some(text.into())
}

/// What was asked of the sender's connections, and granted; streams of one kind together.
fn options(sender: &EndReport, receiver: &EndReport) -> Option<String> {
    let mut kinds: Vec<(Vec<u16>, String)> = Vec::new();
    for stream in &sender.streams {
        // A segment size is asked for at the client's end, whichever sends: what that announces bounds the other.
        let other = receiver.streams.iter().find(|other| other.stream == stream.stream);
        let mss = other.and_then(|other| other.socket.as_ref()?.mss_asked_bytes);
        let text = stream.socket.as_ref().map(|socket| asked(socket, mss)).unwrap_or_default();
        match kinds.iter_mut().find(|(_, known)| *known == text) {
            Some((streams, _)) => streams.push(stream.stream),
            None => kinds.push((vec![stream.stream], text)),
        }
    }
    let alone = kinds.len() == 1;
    let told = kinds.into_iter().filter(|(_, text)| !text.is_empty()).map(|(streams, text)| {
        let numbers: Vec<_> = streams.iter().map(u16::to_string).collect();
        let streams = if numbers.len() == 1 { "stream" } else { "streams" };
        if alone { text } else { format!("{streams} {}: {text}", numbers.join(" ")) }
    });
    let told: Vec<_> = told.collect();
    (!told.is_empty()).then(|| told.join("; "))
}

fn asked(socket: &SocketReport, mss_of_receiver: Option<Bytes>) -> String {
    let mut parts = Vec::new();
    if let Some(pace) = socket.pacing_asked {
        parts.push(match socket.pacing_granted {
            Some(granted) if granted == pace => format!("paced at {pace}"),
            Some(granted) => {
                let [pace, granted] = BitRate::alike([pace, granted]);
                format!("pace {pace} asked, {granted} granted")
            }
            None => format!("pace {pace} asked, none granted"),
        });
    }
    if let Some(mss) = socket.mss_asked_bytes.or(mss_of_receiver) {
        let granted = socket.mss_granted_bytes.map_or("unknown".into(), |Bytes(bytes)| format!("{bytes} B"));
        parts.push(format!("MSS {} B asked, payload of a segment {granted}", mss.0));
    }
    if let Some(dscp) = socket.dscp_asked {
        parts.push(match socket.dscp_granted {
            Some(granted) if granted == dscp => format!("DSCP {dscp}"),
            granted => format!("DSCP {dscp} asked, {} granted", granted.map_or("none".into(), |d| d.to_string())),
        });
    }
    if socket.mptcp_asked {
        parts.push(match socket.mptcp_subflows {
            Some(more) => format!("Multipath TCP, {more} more subflows"),
            None => "Multipath TCP asked, fell back to plain TCP".into(),
        });
    }
    parts.join(", ")
}

fn check(receiver: &EndReport) -> Option<String> {
    let checks: Vec<(u16, Check)> =
        receiver.streams.iter().filter_map(|stream| Some((stream.stream, stream.check?))).collect();
    let first = checks.iter().find(|(_, check)| check.wrong_bytes > 0);
    let checked: u64 = checks.iter().map(|(_, check)| check.checked_bytes).sum();
    let wrong: u64 = checks.iter().map(|(_, check)| check.wrong_bytes).sum();
    match (checks.is_empty(), first) {
        (true, _) => None,
        (false, None) => Some(format!("all {checked} bytes were what was sent at their place")),
        (false, Some((stream, check))) => Some(format!(
            "{wrong} of {checked} bytes are not what was sent at their place, the first at {} of stream {stream}: \
             something on the way altered them, and TCP's checksum did not tell",
            check.first_wrong_offset.unwrap_or_default()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_an_end_that_does_not_tell_it_is_not_said_how_it_moved_bytes() {
        let end = |mode| EndReport { mode, ..EndReport::default() };
        let told = |sender, receiver| uncopied(&end(sender), &end(receiver)).unwrap_or_default();
        let (copying, not) = (Some(Mode::Copying), Some(Mode::NoCopy));
        assert_eq!(told(not, copying), "sent (sendfile); received with copies");
        assert_eq!(told(not, None), "sent (sendfile); whether the receiver copied is not known");
        assert_eq!(told(None, not), "received (MSG_TRUNC); whether the sender copied is not known");
        assert_eq!((told(copying, None), told(copying, copying), told(None, None)), Default::default());
    }
}
