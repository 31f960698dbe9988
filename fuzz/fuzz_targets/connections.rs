//! Any segments of few connections, many with sequence numbers near each other, at times that also run backwards. They are
//! analysed, and compared as two captures of the same packets.

#![no_main]

mod soundness;

use std::time::Duration;

use arbitrary::Arbitrary;
use lfn_base::time::Instant;
use lfn_packet::{SackRange, TcpEndpoint, TcpFlags, TcpOptions, TcpSegment, Timestamps};
use lfn_trace::{Analysis, AnalysisOptions, CaptureSide, OffsetEstimate, PairMatcher};
use libfuzzer_sys::fuzz_target;

/// Maximum number of steps of an input.
const MAX_STEPS: usize = 2000;
/// Connections of an input.
const FLOWS: usize = 3;

#[derive(Arbitrary, Debug)]
struct Scenario {
    /// Time of the first segment since 1970, nanoseconds.
    start: u64,
    series_points: u8,
    max_open: u8,
    /// Time from the near to the far capture, microseconds.
    delay: u16,
    clock_offset: i64,
    isns: [u32; FLOWS],
    steps: Vec<Step>,
}

#[derive(Arbitrary, Debug)]
enum Step {
    /// Time until the next segment, microseconds.
    Wait(u16),
    /// The same in milliseconds.
    WaitLong(u16),
    /// Step of the clock, nanoseconds.
    ClockStep(i64),
    /// Several packets of new data, each acknowledged after a time in milliseconds.
    Round { flow: u8, packets: u8, length: u16, rtt: u8 },
    /// Data that begins so many bytes before the end of the sent data, or after it.
    Data { flow: u8, is_reverse: bool, from_end: i16, length: u16, is_lost: bool },
    /// Acknowledgement of all but the last bytes, with ranges before the end of the sent data.
    Ack { flow: u8, is_reverse: bool, missing: u16, window: u16, sack: [(u16, u8); 2], stamps: Option<(u16, u16)> },
    /// Segment with other flags and options.
    Control { flow: u8, is_reverse: bool, flags: u16, options: Options },
    /// Segment with any header fields.
    Any { flow: u8, is_reverse: bool, sequence: u32, acknowledgement: u32, flags: u16, payload: u32, options: Options },
    /// The segment before, captured once more.
    Again,
    /// ICMP message that a segment was too big for a link with this MTU.
    TooBig { flow: u8, mtu: u16 },
}

#[derive(Arbitrary, Debug)]
struct Options {
    mss: Option<u16>,
    window_scale: Option<u8>,
    sack_permitted: bool,
    stamps: Option<(u32, u32)>,
    window: u16,
    ip_id: Option<u16>,
    ttl: u8,
    ecn: u8,
    is_truncated: bool,
}

fuzz_target!(|scenario: Scenario| {
    let mut run = Run::new(&scenario);
    for step in scenario.steps.iter().take(MAX_STEPS) {
        run.step(step);
    }
    let Run { analysis, packets, .. } = run;
    soundness::assert_sound(&analysis.finish(), packets.len() as u64);
    compare(&scenario, &packets);
});

/// A captured segment. Lost ones are missing in the far capture.
struct Captured {
    at: u64,
    segment: TcpSegment,
    is_lost: bool,
}

/// Sequence numbers after the sent data of both directions.
#[derive(Clone, Copy)]
struct Flow {
    next: [u32; 2],
    ip_id: u16,
}

struct Run {
    at: u64,
    analysis: Analysis,
    flows: [Flow; FLOWS],
    packets: Vec<Captured>,
}

impl Run {
    fn new(scenario: &Scenario) -> Self {
        let options = AnalysisOptions {
            max_open: usize::from(scenario.max_open),
            max_finished: 50,
            series_points: usize::from(scenario.series_points).min(soundness::MAX_POINTS),
            ..AnalysisOptions::default()
        };
        let flows = scenario.isns.map(|isn| Flow { next: [isn, isn.rotate_left(7)], ip_id: 1 });
        Run { at: scenario.start, analysis: Analysis::new(options), flows, packets: Vec::new() }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Wait(micros) => self.at = self.at.saturating_add(u64::from(micros) * 1000),
            Step::WaitLong(millis) => self.at = self.at.saturating_add(u64::from(millis) * 1_000_000),
            Step::ClockStep(nanos) => self.at = self.at.saturating_add_signed(nanos),
            Step::Round { flow, packets, length, rtt } => self.round(flow, packets % 32, length, rtt),
            Step::Data { flow, is_reverse, from_end, length, is_lost } => {
                let mut segment = self.segment(flow, is_reverse);
                segment.sequence = segment.sequence.wrapping_add_signed(from_end.into());
                segment.payload = length.into();
                self.add(segment, is_lost);
            }
            Step::Ack { flow, is_reverse, missing, window, sack, stamps } => {
                let mut segment = self.segment(flow, is_reverse);
                let sent = segment.acknowledgement;
                segment.acknowledgement = sent.wrapping_sub(missing.into());
                segment.window = window;
                for (range, (before, length)) in segment.options.sack.iter_mut().zip(sack) {
                    let start = sent.wrapping_sub(before.into());
                    *range = SackRange { start, end: start.wrapping_add(u32::from(length) * 64) };
                }
                segment.options.sack_ranges = sack.iter().filter(|(before, _)| *before > 0).count() as u8;
                segment.options.timestamps =
                    stamps.map(|(value, echo)| Timestamps { value: value.into(), echo: echo.into() });
                self.add(segment, false);
            }
            Step::Control { flow, is_reverse, flags, ref options } => {
                let segment = options.apply(self.segment(flow, is_reverse));
                self.add(TcpSegment { flags: TcpFlags(flags), ..segment }, false);
            }
            Step::Any { flow, is_reverse, sequence, acknowledgement, flags, payload, ref options } => {
                let segment = options.apply(self.segment(flow, is_reverse));
                self.add(TcpSegment { sequence, acknowledgement, flags: TcpFlags(flags), payload, ..segment }, false);
            }
            Step::Again => {
                if let Some(before) = self.packets.last() {
                    self.add(before.segment, before.is_lost);
                }
            }
            Step::TooBig { flow, mtu } => {
                let segment = self.segment(flow, false);
                self.analysis.add_too_big(segment.source, segment.destination, mtu.into());
            }
        }
    }

    /// Adds packets of new data and their acknowledgements.
    fn round(&mut self, flow: u8, packets: u8, length: u16, rtt: u8) {
        for _ in 0..packets {
            let payload = length.into();
            let segment = TcpSegment { payload, ..self.segment(flow, false) };
            self.at = self.at.saturating_add(10_000);
            self.add(segment, false);
        }
        self.at = self.at.saturating_add(u64::from(rtt) * 1_000_000);
        let end = self.segment(flow, true).acknowledgement;
        for number in (0..u32::from(packets)).rev() {
            let acknowledgement = end.wrapping_sub(number * u32::from(length));
            let segment = TcpSegment { acknowledgement, ..self.segment(flow, true) };
            self.at = self.at.saturating_add(10_000);
            self.add(segment, false);
        }
    }

    /// Returns a segment without payload, after all data of its direction.
    fn segment(&self, flow: u8, is_reverse: bool) -> TcpSegment {
        let number = usize::from(flow) % FLOWS;
        let own = usize::from(is_reverse);
        let end = |host: usize| TcpEndpoint {
            address: core::net::Ipv4Addr::new(192, 0, 2, host as u8).into(),
            port: 5001 + (host * number) as u16,
        };
        let Flow { next, ip_id } = self.flows[number];
        TcpSegment {
            source: end(own),
            destination: end(1 - own),
            ip_id: Some(ip_id),
            ttl: 64,
            ecn: 0,
            sequence: next[own],
            acknowledgement: next[1 - own],
            flags: TcpFlags::ACK,
            window: 60_000,
            payload: 0,
            options: TcpOptions::default(),
        }
    }

    fn add(&mut self, segment: TcpSegment, is_lost: bool) {
        let number = usize::from(segment.source.port.max(segment.destination.port) - 5001) % FLOWS;
        let flow = &mut self.flows[number];
        flow.ip_id = flow.ip_id.wrapping_add(1);
        let next = &mut flow.next[usize::from(segment.source.port > segment.destination.port)];
        let end = segment.sequence.wrapping_add(segment.length());
        if end.wrapping_sub(*next) < 1 << 20 {
            *next = end;
        }
        let _ = self.analysis.add(Instant::from_nanos(self.at), &segment).iter().count();
        self.packets.push(Captured { at: self.at, segment, is_lost });
    }
}

impl Options {
    fn apply(&self, segment: TcpSegment) -> TcpSegment {
        let options = TcpOptions {
            mss: self.mss,
            window_scale: self.window_scale,
            sack_permitted: self.sack_permitted,
            timestamps: self.stamps.map(|(value, echo)| Timestamps { value, echo }),
            is_truncated: self.is_truncated,
            ..TcpOptions::default()
        };
        let (ip_id, ttl, ecn, window) = (self.ip_id, self.ttl, self.ecn % 4, self.window);
        TcpSegment { ip_id, ttl, ecn, window, options, ..segment }
    }
}

/// Compares the packets with a second capture, which has a delay, another clock and losses.
fn compare(scenario: &Scenario, packets: &[Captured]) {
    let mut estimate = OffsetEstimate::default();
    let far_at = |at: u64| {
        let delayed = at.saturating_add(u64::from(scenario.delay) * 1000);
        Instant::from_nanos(delayed.saturating_add_signed(scenario.clock_offset))
    };
    for Captured { at, segment, is_lost } in packets {
        estimate.add(CaptureSide::Near, Instant::from_nanos(*at), segment);
        if !is_lost {
            estimate.add(CaptureSide::Far, far_at(*at), segment);
        }
    }
    let mut matcher = PairMatcher::new(estimate.offset().unwrap_or_default());
    for Captured { at, segment, is_lost } in packets {
        matcher.add(CaptureSide::Near, Instant::from_nanos(*at), segment);
        if !is_lost {
            matcher.add(CaptureSide::Far, far_at(*at), segment);
        }
    }
    let evidence = matcher.finish();
    let arrived = packets.iter().filter(|packet| !packet.is_lost).count();
    assert_eq!((evidence.near_packets, evidence.far_packets), (packets.len() as u64, arrived as u64));
    for direction in [&evidence.forward, &evidence.reverse] {
        assert!((0.0..=1.0).contains(&direction.lost_share), "{direction:?}");
        if let Some(delay) = &direction.delay {
            let ordered = [Duration::ZERO, delay.median_queueing, delay.p95_queueing, delay.max_queueing];
            assert!(ordered.is_sorted(), "{delay:?}");
        }
    }
}
