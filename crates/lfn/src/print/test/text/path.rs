//! Lines of the path: hops, path MTUs and the MTUs of the interfaces.

use std::time::Duration;

use lfn_base::units::show_duration;
use lfn_results::path_report::{
    End, Hop, MtuFound, MtuReport, Node, PathReport, RouteTrace, SearchEnd, TraceEnd, TraceProtocol,
};

use super::layout::wrapped;

/// Returns all lines about the path.
pub(super) fn path(report: &PathReport) -> String {
    let mut page: String = report.traces.iter().map(trace).collect();
    if report.mtu != MtuReport::default() {
        page += &wrapped("path MTU", &mtus(&report.mtu));
    }
    for (sender, found, end) in
        [("near to far", &report.mtu.forward, End::Near), ("far to near", &report.mtu.reverse, End::Far)]
    {
        if let Some(found) = found {
            page += &remarks(sender, found, &report.mtu, end);
        }
    }
    for trouble in &report.errors {
        page += &wrapped("", trouble);
    }
    page
}

fn trace(trace: &RouteTrace) -> String {
    let protocol = match trace.protocol {
        TraceProtocol::Tcp => "TCP",
        TraceProtocol::Udp => "UDP",
    };
    let hops = match trace.hops.len() {
        1 => "1 hop".into(),
        count => format!("{count} hops"),
    };
    let end = match trace.end {
        TraceEnd::Reached => hops,
        TraceEnd::Unreachable => format!("{hops}, then unreachable"),
        TraceEnd::Silent => "no more answers, also not from the destination".into(),
        TraceEnd::TooFar => format!("not reached in {hops}"),
        TraceEnd::OutOfTime => format!("timed out after {hops}"),
    };
    let flow = format!("port {} to {} port {}", trace.source_port, trace.destination, trace.destination_port);
    let mut page = wrapped(&format!("hops {protocol}"), &format!("{flow}: {end}"));
    trace.hops.iter().for_each(|hop| page += &hop_line(hop));
    page
}

fn hop_line(hop: &Hop) -> String {
    if hop.nodes.is_empty() {
        return format!("{:>11} no answer\n", hop.ttl);
    }
    let nodes: Vec<String> = hop.nodes.iter().map(node).collect();
    format!("{:>11} {}\n", hop.ttl, nodes.join("; "))
}

fn node(node: &Node) -> String {
    let name = node.name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
    let rtts: Vec<String> = node
        .rtt_seconds
        .iter()
        .map(|&rtt| show_duration(Duration::try_from_secs_f64(rtt.get()).unwrap_or_default()))
        .collect();
    let labels: String = node.mpls.iter().map(|label| format!(", MPLS label {}", label.label)).collect();
    format!("{}{name}  {}{labels}", node.address, rtts.join(", "))
}

fn mtus(mtu: &MtuReport) -> String {
    let found = |found: &Option<MtuFound>| match found {
        Some(found) if found.search == SearchEnd::OutOfTime => format!("at least {}", found.path_mtu_bytes),
        Some(found) => found.path_mtu_bytes.to_string(),
        None => "unknown".into(),
    };
    let known = |bytes: Option<u32>| bytes.map_or("unknown".into(), |bytes| bytes.to_string());
    let tcp = match (mtu.near_tcp_pmtu_bytes, mtu.far_tcp_pmtu_bytes) {
        (None, None) => String::new(),
        (near, far) => format!("; TCP uses {} near to far, {} far to near", known(near), known(far)),
    };
    format!(
        "{} near to far, {} far to near; interfaces: near {}, far {}{tcp}",
        found(&mtu.forward),
        found(&mtu.reverse),
        known(mtu.near_interface_mtu_bytes),
        known(mtu.far_interface_mtu_bytes),
    )
}

/// Returns the ICMP messages of one direction, or that there were none.
fn remarks(way: &str, found: &MtuFound, mtu: &MtuReport, end: End) -> String {
    if found.black_hole {
        let text = format!("black hole {way}: packets above {} B are lost without ICMP", found.path_mtu_bytes);
        return wrapped("", &text);
    }
    let messages: Vec<String> = mtu
        .icmp_too_big
        .iter()
        .filter(|message| message.to == end)
        .map(|message| match message.from {
            Some(from) => format!("{} by {from}", message.mtu_bytes),
            None => message.mtu_bytes.to_string(),
        })
        .collect();
    if messages.is_empty() {
        String::new()
    } else {
        wrapped("", &format!("{way}: ICMP reported {}", messages.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_figures_are_printed_as_unknown() {
        let hop = |ttl, nodes| Hop { ttl, probes: 3, nodes };
        let router = Node {
            address: [10, 0, 1, 1].into(),
            name: None,
            rtt_seconds: [1, 2].map(|ms| Duration::from_millis(ms).into()).to_vec(),
            mpls: vec![],
        };
        let trace = RouteTrace {
            protocol: TraceProtocol::Udp,
            source: [10, 0, 1, 2].into(),
            source_port: 40_000,
            destination: [10, 0, 9, 1].into(),
            destination_port: 33_434,
            hops: vec![hop(1, vec![router]), hop(2, vec![])],
            end: TraceEnd::Silent,
        };
        let found =
            MtuFound { path_mtu_bytes: 1400, black_hole: true, search: SearchEnd::Complete, ..MtuFound::default() };
        let mtu = MtuReport { near_interface_mtu_bytes: Some(1500), forward: Some(found), ..MtuReport::default() };
        let text = path(&PathReport { traces: vec![trace], mtu, errors: vec!["no bread".into()] });
        for line in [
            "          1 10.0.1.1  1 ms, 2 ms",
            "          2 no answer",
            "path MTU    1400 near to far, unknown far to near; interfaces: near 1500, far",
            "            black hole near to far: packets above 1400 B are lost without ICMP",
            "            no bread",
        ] {
            assert!(text.lines().any(|printed| printed == line), "'{line}' in {text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
}
