//! `lfn trace --live`: a capture in a namespace of its own names both ends and the bytes.

use std::io::IoSlice;
use std::process::Stdio;
use std::time::Duration;

use lfn_sys::netlink::Netlink;
use lfn_sys::packet::{LengthFilter, LiveCapture, LiveFilter, PacketSocket, VNET_HEADER};
use serde_json::Value;

use crate::support;
use crate::support::harness::{Needs, Test, Weight, tests_of};
use crate::support::server::{Server, assert_refused, text};
use crate::support::{run_scenario, sandbox};

/// Name of this module in the names of its tests and roles.
const MODULE: &str = "trace_live";

/// Runs this program as a part of a test.
pub fn act(role: &str) {
    match role {
        "loopback" => loopback(),
        "filter" => filter(),
        "any" => any(),
        other => panic!("no role '{other}'"),
    }
}

pub fn tests() -> Vec<Test> {
    tests_of(
        MODULE,
        Weight::Waiting,
        &[
            ("loopback_transfer_is_captured_once", Needs::Namespaces, || run_scenario(MODULE, "loopback")),
            ("other_hosts_are_filtered_by_the_kernel", Needs::Namespaces, || run_scenario(MODULE, "filter")),
            ("any_interface_shows_the_protocol", Needs::Namespaces, || run_scenario(MODULE, "any")),
        ],
    )
}

fn loopback() {
    sandbox::enter();
    sandbox::up("lo");
    let server = Server::start(&[]);
    let mut live = support::lfn();
    live.args(["trace", "--live", "lo", "--filter", "127.0.0.1", "--time", "4s", "--json"]);
    let live = live.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(1));
    server.json(&["--bytes", "3000000"]);
    let output = live.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&document["interface"], &document["capture"]["dropped"]), (&"lo".into(), &0.into()));
    let port: &str = server.ticket.rsplit_once('#').unwrap().0.rsplit_once(':').unwrap().1;
    let connections = document["connections"].as_array().unwrap();
    let ends = |end: &str| connections.iter().map(|one| one[end].as_str().unwrap()).collect::<Vec<_>>();
    assert!(ends("server").iter().all(|server| *server == format!("127.0.0.1:{port}")), "{document}");
    assert!(ends("client").iter().all(|client| client.starts_with("127.0.0.1:")), "{document}");
    // The load and its hello, without the two copies that the loopback interface passes.
    let payload = connections.iter().filter_map(|one| one["evidence"]["payload_bytes"].as_u64()).max();
    assert!(payload.is_some_and(|bytes| (3_000_000..3_001_000).contains(&bytes)), "{document}");
    let unknown = support::lfn().args(["trace", "--live", "no-such-if0", "--time", "1s"]).output().unwrap();
    assert_refused(&unknown, 1, "no such interface; this host has: lo");
}

/// Sends packets between two addresses of the loopback interface, and captures those of one host.
fn filter() {
    sandbox::enter();
    sandbox::up("lo");
    let open = |hosts: &[&str]| {
        let hosts = hosts.iter().map(|host| host.parse().unwrap()).collect();
        LiveCapture::open("lo", 96, &LiveFilter { hosts }).unwrap()
    };
    let (mut all, mut v4, mut v6) = (open(&[]), open(&["127.0.0.2", "192.0.2.1"]), open(&["::1"]));
    let send = |from: &str, to: &str, length: usize| {
        let socket = std::net::UdpSocket::bind((from, 0)).unwrap();
        socket.send_to(&vec![7; length], (to, 9)).unwrap();
    };
    send("127.0.0.1", "127.0.0.2", 500);
    send("127.0.0.3", "127.0.0.4", 600);
    send("::1", "::1", 700);
    let lengths = |capture: &mut LiveCapture| {
        let mut lengths = Vec::new();
        while capture.read(Duration::from_millis(200)).unwrap() {
            let frame = capture.frame().unwrap();
            assert!(frame.bytes.len() == 96.min(frame.original_length as usize) && frame.link_type == 1);
            // Datagrams without the answers of ICMP: Ethernet, IP and UDP headers are 42 or 62 bytes.
            let headers = if frame.bytes[12..14] == [0x86, 0xdd] { 62 } else { 42 };
            let protocol = frame.bytes[if headers == 62 { 20 } else { 23 }];
            if protocol == 17 {
                lengths.push(frame.original_length - headers);
            }
        }
        lengths
    };
    assert_eq!(lengths(&mut all), [500, 600, 700]);
    assert_eq!(lengths(&mut v4), [500], "the source or the destination matches");
    assert_eq!(lengths(&mut v6), [700]);
    assert_eq!(all.dropped().unwrap(), 0);
}

/// Sends an ARP request and a datagram through the loopback interface. Without its Ethernet header, the request is not
/// recognisable by its bytes.
fn any() {
    sandbox::enter();
    sandbox::up("lo");
    let mut live = LiveCapture::open("any", 96, &LiveFilter::default()).unwrap();
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.send_to(&[7; 500], socket.local_addr().unwrap()).unwrap();
    let mut arp = [0; 42];
    arp[..6].fill(0xff);
    arp[12..22].copy_from_slice(&[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    let index = Netlink::open().unwrap().index("lo").unwrap();
    let sender = PacketSocket::open(index, LengthFilter::UpTo(60)).unwrap();
    sender.send(&[IoSlice::new(&[0; VNET_HEADER]), IoSlice::new(&arp)]).unwrap();
    let mut frames = Vec::new();
    while live.read(Duration::from_millis(200)).unwrap() {
        let frame = live.frame().unwrap();
        frames.push((frame.link_type, u16::from_be_bytes([frame.bytes[0], frame.bytes[1]]), frame.original_length));
    }
    // The cooked header is 20 bytes.
    assert_eq!(frames[..2], [(276, 0x0800, 20 + 28 + 500), (276, 0x0806, 20 + 28)]);
}
