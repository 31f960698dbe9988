//! Tests with recorded results.

use lfn_results::report::read_result;

use super::*;

const HEALTHY: &[u8] = include_bytes!("../../../results/tests/recorded/test-healthy.json");
const WINDOW: &[u8] = include_bytes!("../../../results/tests/recorded/test-window.json");

const IPERF3: &[u8] = br#"{"start":{"version":"iperf 3.12","system_info":"Linux near1 6.1.0-18-amd64 #1 SMP x86_64",
 "timestamp":{"timesecs":1700000000},"connecting_to":{"host":"far1.example.org","port":5201},"tcp_mss_default":1448,
 "sock_bufsize":262144,"test_start":{"protocol":"TCP","num_streams":2,"blksize":131072,"reverse":1,"target_bitrate":0}},
 "intervals":[],"end":{"streams":[],"sum_sent":{"start":0,"end":10,"seconds":10,"bytes":125000000,
 "bits_per_second":100000000,"retransmits":3},"sum_received":{"start":0,"end":10,"seconds":10,"bytes":125000000,
 "bits_per_second":100000000},"sender_tcp_congestion":"cubic"}}"#;

const HOSTS: ResultHosts<'static> = ResultHosts { near: Some("near"), far: Some("far") };

fn entries(bytes: &[u8], hosts: ResultHosts<'_>) -> Result<Vec<Entry>, ResultError> {
    entries_of(&read_result(bytes).unwrap(), bytes, hosts)
}

#[test]
fn healthy_path_is_a_good_outcome_without_a_finding() {
    let all = entries(HEALTHY, HOSTS).unwrap();
    let load = &all[0];
    assert_eq!((load.kind, load.outcome), (EntryKind::Load, Outcome::Good), "{load:?}");
    assert!(load.findings.is_empty() && !load.verdict.is_empty());
    assert!(load.goodput.is_some() && load.base_rtt.is_some());
    for name in ["tool", "congestion", "streams", "window_scale", "kernel.from", "kernel.to"] {
        assert!(load.conditions.contains_key(name), "{name} in {:?}", load.conditions);
    }
    assert!(all.iter().all(|entry| entry.check().is_ok()));
}

#[test]
fn finding_of_a_window_is_a_limited_outcome() {
    let all = entries(WINDOW, HOSTS).unwrap();
    assert_eq!(all[0].outcome, Outcome::Limited);
    assert!(!all[0].findings.is_empty());
}

#[test]
fn repeated_run_has_the_same_conditions() {
    let stored = read_result(HEALTHY).unwrap();
    let StoredResult::Test(document) = stored else { panic!("another kind") };
    let mut later = document.clone();
    for stream in &mut later.runs[0].evidence.near.streams {
        if let Some(info) = &mut stream.tcp_info {
            info.cwnd_segments += 7;
        }
        if let Some(socket) = &mut stream.socket {
            socket.local_address = Some("192.0.2.1:9".into());
        }
    }
    assert_eq!(conditions_of(&document.runs[0]), conditions_of(&later.runs[0]));
}

#[test]
fn iperf3_names_both_hosts_and_its_conditions() {
    let all = entries(IPERF3, ResultHosts::default()).unwrap();
    let load = &all[0];
    assert_eq!((load.from.as_str(), load.to.as_str()), ("far1.example.org", "near1"));
    assert_eq!(load.goodput.unwrap().0, 100_000_000);
    assert_eq!(load.conditions["receive_buffer"], "262144");
    assert_eq!(load.conditions["kernel.to"], "6.1.0-18-amd64");
    assert_eq!(load.check(), Ok(()));
}

#[test]
fn names_of_the_user_win() {
    let all = entries(IPERF3, HOSTS).unwrap();
    assert_eq!((all[0].from.as_str(), all[0].to.as_str()), ("far", "near"));
}

#[test]
fn address_is_no_name() {
    let text = String::from_utf8_lossy(IPERF3).replace("far1.example.org", "2001:db8::1");
    assert_eq!(entries(text.as_bytes(), ResultHosts::default()), Err(ResultError::NoFarName));
}
