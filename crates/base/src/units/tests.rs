//! Tests of parsers and formatters, and of values that pass through both.

use super::*;

#[test]
fn bytes_are_parsed() {
    let ok = [
        ("4547813", 4_547_813),
        ("64KiB", 65_536),
        ("64K", 65_536),
        ("10MB", 10_000_000),
        ("10 MB", 10_000_000),
        ("1.5GiB", 1_610_612_736),
        ("675k", 691_200),
        ("3e6", 3_000_000),
        ("1B", 1),
        ("0", 0),
    ];
    for (text, bytes) in ok {
        assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
    }
    for text in ["", "MB", "-1", "1e30", "10 parsecs", "nan", "inf", "1e400", "1..2", "0x10"] {
        assert!(text.parse::<Bytes>().is_err(), "{text}");
    }
}

#[test]
fn compared_values_share_a_unit() {
    assert_eq!(BitRate::in_common_unit([BitRate(1_000_000), BitRate(998_000)]), ["1 Mb/s", "0.998 Mb/s"]);
    assert_eq!(BitRate::in_common_unit([BitRate(2_000_000_000), BitRate(1_230_000)]), ["2 Gb/s", "1.23 Mb/s"]);
    assert_eq!(BitRate::in_common_unit([BitRate(5_000_000), BitRate(0)]), ["5 Mb/s", "0 Mb/s"]);
    assert_eq!(Bytes::in_common_unit([Bytes(4 << 20), Bytes(208 << 10)]), ["4 MiB", "208 KiB"]);
    assert_eq!(Bytes::in_common_unit([Bytes(4 << 20), Bytes(3_000_001)]), ["4.194 MB", "3 MB"]);
    assert_eq!(Bytes::in_common_unit([Bytes(4_000_000), Bytes(212_992)]), ["4 MB", "0.213 MB"]);
    assert_eq!((Bytes(6 << 20).to_string(), Bytes(6 << 20).decimal()), ("6 MiB".into(), "6.291 MB".into()));
}

#[test]
fn values_round_up_to_the_next_unit() {
    assert_eq!(
        [999, 1000, 999_949, 999_950].map(|rate| BitRate(rate).to_string()),
        ["999 b/s", "1 kb/s", "999.9 kb/s", "1 Mb/s"]
    );
    assert_eq!(Bytes(999_999_999).to_string(), "1 GB");
    assert_eq!(BitRate(2_000_000_000_000_000).to_string(), "2000 Tb/s", "there is no larger unit");
    assert_eq!([999_940, 999_960].map(|nanos| show_duration(Duration::from_nanos(nanos))), ["999.9 µs", "1 ms"]);
    assert_eq!(show_duration(Duration::from_micros(999_960)), "1 s");
}

#[test]
fn rates_are_bits_and_never_bytes() {
    let ok = [
        ("135mbit", 135_000_000),
        ("135Mb/s", 135_000_000),
        ("2.5Gbps", 2_500_000_000),
        ("10G", 10_000_000_000),
        ("155520000bit", 155_520_000),
        ("0", 0),
        ("155.52 Mbit/s", 155_520_000),
    ];
    for (text, rate) in ok {
        assert_eq!(text.parse(), Ok(BitRate(rate)), "{text}");
    }
    for text in ["135MB/s", "-1mbit", "", "fast", "1e40gbit", "155520000", "5"] {
        assert!(text.parse::<BitRate>().is_err(), "{text}");
    }
}

#[test]
fn a_missing_unit_is_suggested() {
    let error = "10000".parse::<BitRate>().unwrap_err();
    assert_eq!(error.to_string(), "'10000' has no unit: write 10gbit or 10000bit");
    assert_eq!(error.suggestion().as_deref(), Some("10gbit"));
    let error = parse_unit_bytes("100").unwrap_err();
    assert_eq!(
        (error.to_string().as_str(), error.suggestion().as_deref()),
        ("'100' has no unit: write 100GB or 100B", Some("100GB"))
    );
    assert_eq!(parse_unit_bytes("2TB"), Ok(Bytes(2_000_000_000_000)));
    assert_eq!(parse_unit_duration("150").unwrap_err().suggestion().as_deref(), Some("150ms"));
    assert_eq!("fast".parse::<BitRate>().unwrap_err().suggestion(), None);
}

#[test]
fn long_durations_have_two_units() {
    let show = |seconds| show_duration(Duration::from_secs(seconds));
    assert_eq!([59, 599, 1675, 25_795].map(show), ["59 s", "599 s", "27 min 55 s", "7 h 10 min"]);
    assert_eq!([3599, 3600, 172_799, 172_800].map(show), ["59 min 59 s", "1 h", "48 h", "2 d"]);
    assert_eq!(show(400 * 86_400), "400 d");
}

#[test]
fn durations_and_ratios() {
    assert_eq!(parse_duration("539ms"), Ok(Duration::from_millis(539)));
    assert_eq!(parse_duration("1.5s"), Ok(Duration::from_millis(1500)));
    assert_eq!(parse_duration("2min"), Ok(Duration::from_secs(120)));
    assert_eq!(parse_duration("10"), Ok(Duration::from_secs(10)));
    for (text, duration) in
        [("539ms", 539_000_000), ("1001us", 1_001_000), ("60s", 60_000_000_000), ("7ns", 7), ("0s", 0)]
    {
        assert_eq!(duration_argument(Duration::from_nanos(duration)), text);
        assert_eq!(parse_duration(text), Ok(Duration::from_nanos(duration)));
    }
    assert!(parse_duration("-1s").is_err() && parse_duration("5 lightyears").is_err());
    assert_eq!("1e-4".parse::<Ratio>().map(Ratio::get), Ok(1e-4));
    assert_eq!("1%".parse::<Ratio>().map(Ratio::get), Ok(0.01));
    // Values for which a division by 100, or a multiplication, misses the nearest float.
    for (per_cent, ratio) in [("0.7%", 0.007), ("7%", 0.07), ("0.57%", 0.0057), ("1e-3%", 1e-5), ("100%", 1.0)] {
        let read: Ratio = per_cent.parse().unwrap();
        assert_eq!((read.get(), read.to_string().parse()), (ratio, Ok(read)), "{per_cent}");
    }
    assert_eq!(Ratio(0.07).to_string(), "7 %");
    assert!("2".parse::<Ratio>().is_err() && "-0.1".parse::<Ratio>().is_err());
}

#[test]
fn rates_print_in_si_and_exact_powers_in_binary() {
    assert_eq!(BitRate(135_000_000).to_string(), "135 Mb/s");
    assert_eq!(BitRate(67_400_000).to_string(), "67.4 Mb/s");
    assert_eq!(Bytes(9_095_625).to_string(), "9.096 MB");
    assert_eq!((Bytes(0).exact(), Bytes(9_095_625).exact()), ("0 B".into(), "9,095,625 B".into()));
    assert_eq!(Bytes(65_536).to_string(), "64 KiB");
    assert_eq!(Bytes(1 << 30).to_string(), "1 GiB");
    assert_eq!(show_duration(Duration::from_millis(539)), "539 ms");
    assert_eq!(show_duration(Duration::from_micros(501_400)), "501.4 ms");
}

#[test]
fn arguments_are_read_back_exactly() {
    for bytes in [0, 1, 1000, 1024, 64_000, 65_536, 9_095_625, 1 << 40, 5 << 50] {
        assert_eq!(Bytes(bytes).to_argument().parse(), Ok(Bytes(bytes)));
        assert_eq!(BitRate(bytes).to_argument().parse(), Ok(BitRate(bytes)));
        let duration = Duration::from_nanos(bytes);
        assert_eq!(parse_duration(&duration_argument(duration)), Ok(duration));
    }
    for ratio in [0.0, 1.0, 1e-4, 1e-300, 1.0 / 3.0, 0.1 + 0.2] {
        assert_eq!(Ratio(ratio).to_argument().parse(), Ok(Ratio(ratio)));
    }
    let texts = [
        Bytes(65_536).to_argument(),
        BitRate(135_000_000).to_argument(),
        Ratio(1e-4).to_argument(),
        Ratio(1.0).to_argument(),
    ];
    assert_eq!(texts, ["64KiB", "135mbit", "0.0001", "1"]);
    assert_eq!(duration_argument(Duration::from_millis(1500)), "1500ms");
}

#[test]
fn the_bandwidth_delay_products_of_the_reports() {
    // 000, 002, 004: 135 Mb/s at 539, 541 and 550 ms.
    for (ms, bytes) in [(539, 9_095_625), (541, 9_129_375), (550, 9_281_250)] {
        assert_eq!(BitRate(135_000_000).times(Duration::from_millis(ms)), Bytes(bytes));
    }
}
