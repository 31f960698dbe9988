//! Options of TCP: whole, unknown, broken and cut off.

use lfn_packet::decode::{Decoded, decode};
use lfn_packet::{LinkLayer, MptcpOption, SackRange, TcpOptions, Timestamps};

use crate::packets::{IPV4, TCP, ethernet, ipv4, tcp_with};

/// Decodes a segment with options of a multiple of four bytes, of which the capture has `captured`.
fn captured_options(options: &[u8], captured: usize) -> TcpOptions {
    let frame = ethernet(IPV4, &ipv4(TCP, &tcp_with(options, 0x10, 1_000)));
    let Decoded::Tcp(segment) = decode(LinkLayer::Ethernet, &frame[..54 + captured], frame.len() as u32).packet else {
        panic!("no segment")
    };
    assert_eq!(segment.payload, 1_000);
    segment.options
}

fn options(options: &[u8]) -> TcpOptions {
    captured_options(options, options.len())
}

const TIMESTAMPS: Timestamps = Timestamps { value: 0x0102_0304, echo: 0x0506_0708 };
const TIMESTAMPS_BYTES: [u8; 12] = [1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8];

fn only_timestamps() -> TcpOptions {
    TcpOptions { timestamps: Some(TIMESTAMPS), ..TcpOptions::default() }
}

#[test]
fn options_of_a_syn_are_read() {
    let syn = options(&[2, 4, 5, 0xb4, 4, 2, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8, 1, 3, 3, 7]);
    let expected = TcpOptions { mss: Some(1460), window_scale: Some(7), sack_permitted: true, ..only_timestamps() };
    assert_eq!(syn, expected);
    assert_eq!(options(&[]), TcpOptions::default());
}

#[test]
fn timestamps_are_read_in_any_form() {
    assert_eq!(options(&TIMESTAMPS_BYTES), only_timestamps());
    assert_eq!(options(&[8, 10, 1, 2, 3, 4, 5, 6, 7, 8, 1, 1]), only_timestamps());
    assert_eq!(options(&[8, 10, 1, 2, 3, 4, 5, 6, 7, 8, 0, 9]), only_timestamps());
}

#[test]
fn up_to_four_sack_ranges_are_read() {
    for count in 1..=4_u8 {
        let mut bytes = vec![1, 1, 5, 2 + 8 * count];
        for range in 0..count {
            bytes.extend([0, 0, 0, range, 0, 0, 1, range]);
        }
        let ranges: Vec<_> = (0..u32::from(count)).map(|n| SackRange { start: n, end: 256 + n }).collect();
        assert_eq!(options(&bytes).sack(), ranges);
    }
    let mut two = vec![5, 34];
    two.resize(34, 1);
    two.extend([5, 3, 9, 1, 1, 1]);
    assert_eq!(options(&two).sack().len(), 4);
}

#[test]
fn mptcp_options_have_the_key_and_the_token() {
    let capable = |version, key, receiver_key| Some(MptcpOption::Capable { version, key, receiver_key });
    assert_eq!(options(&[30, 4, 0x01, 0x81]).mptcp, capable(1, None, None));
    let key = [1, 2, 3, 4, 5, 6, 7, 8];
    let syn_ack = [&[30, 12, 0x01, 0x81][..], &key].concat();
    assert_eq!(options(&syn_ack).mptcp, capable(1, Some(u64::from_be_bytes(key)), None));
    let ack = [&[30, 20, 0x00, 0x81][..], &key, &[9; 8]].concat();
    let both = (Some(u64::from_be_bytes(key)), Some(u64::from_be_bytes([9; 8])));
    assert_eq!(options(&ack).mptcp, capable(0, both.0, both.1));
    // Two bytes of padding follow.
    let with_data = [&[30, 22, 0x01, 0x81][..], &key, &[9; 8], &[5, 0xdc, 1, 1]].concat();
    assert_eq!(options(&with_data).mptcp, capable(1, both.0, both.1));
    let join = [30, 12, 0x10, 2, 0xde, 0xad, 0xbe, 0xef, 1, 2, 3, 4];
    assert_eq!(options(&join).mptcp, Some(MptcpOption::Join { token: 0xdead_beef }));
    let join_syn_ack = [30, 16, 0x10, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    assert_eq!(options(&join_syn_ack).mptcp, Some(MptcpOption::Other));
    let data = [30, 8, 0x20, 1, 0, 0, 0, 5, 30, 3, 0x60, 1];
    assert_eq!(options(&data).mptcp, Some(MptcpOption::Other));
}

#[test]
fn acc_ecn_options_are_noticed() {
    for kind in [172, 174] {
        assert!(options(&[kind, 11, 0, 0, 1, 0, 0, 2, 0, 0, 3, 1]).acc_ecn);
        assert!(options(&[kind, 2, 1, 1]).acc_ecn);
    }
    assert!(!options(&[173, 2, 1, 1]).acc_ecn);
}

#[test]
fn unknown_options_and_wrong_lengths_are_skipped() {
    let bytes =
        [&[2, 3, 5, 3, 4, 7, 7, 4, 3, 9, 253, 6, 1, 2, 3, 4, 8, 8, 0, 0, 0, 0, 0, 0][..], &TIMESTAMPS_BYTES].concat();
    assert_eq!(options(&bytes), only_timestamps());
}

#[test]
fn broken_options_end_the_options() {
    for broken in [[9, 0, 1, 1], [9, 1, 1, 1], [9, 17, 1, 1], [9, 255, 1, 1], [0, 3, 3, 9], [1, 1, 1, 9]] {
        let bytes = [&[2, 4, 5, 0xb4][..], &broken, &TIMESTAMPS_BYTES[..8]].concat();
        let read = options(&bytes);
        assert_eq!((read.mss, read.is_truncated), (Some(1460), false), "{broken:?}");
    }
    assert_eq!(options(&[2, 4, 5, 0xb4, 1, 1, 1, 8]), TcpOptions { mss: Some(1460), ..TcpOptions::default() });
}

#[test]
fn options_before_the_end_of_the_capture_are_read() {
    let bytes = [&[2, 4, 5, 0xb4, 1, 3, 3, 7][..], &TIMESTAMPS_BYTES].concat();
    for captured in 0..=bytes.len() {
        let read = captured_options(&bytes, captured);
        assert_eq!(read.mss.is_some(), captured >= 4, "{captured}");
        assert_eq!(read.window_scale.is_some(), captured >= 8, "{captured}");
        assert_eq!(read.timestamps.is_some(), captured >= 20, "{captured}");
        assert_eq!(read.is_truncated, captured < bytes.len(), "{captured}");
    }
    let ended = captured_options(&[2, 4, 5, 0xb4, 0, 0, 0, 0], 5);
    assert!(!ended.is_truncated, "nothing follows the end of the options");
}

#[test]
fn snap_length_68_keeps_the_timestamps() {
    let bytes = [&TIMESTAMPS_BYTES[..], &[1, 1, 5, 18, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4]].concat();
    let read = captured_options(&bytes, 68 - 54);
    assert_eq!((read.timestamps, read.is_truncated, read.sack().len()), (Some(TIMESTAMPS), true, 0));
}
