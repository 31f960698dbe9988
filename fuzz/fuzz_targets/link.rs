//! Any traffic over a chain of one or two hops with any valid settings, which change during the run. The statistics
//! count every packet, time does not run backwards, and the link becomes empty.

#![no_main]

use std::time::Duration;

use arbitrary::Arbitrary;
use lfn_base::time::Instant;
use lfn_link::settings::{EmulatedPath, HopSettings};
use lfn_link::{Link, LinkEvent, Packet};
use lfn_packet::Ecn;
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Scenario {
    hops: [Vec<Setting>; 2],
    two: bool,
    /// Delay between the timestamp and the report of an arrival, nanoseconds.
    late: u16,
    events: Vec<Step>,
}

/// Source of the text of a setting. Most of the texts are well formed.
#[derive(Arbitrary, Debug)]
struct Setting {
    kind: u8,
    a: u16,
    b: u16,
}

#[derive(Arbitrary, Debug)]
enum Step {
    /// Wait of this many microseconds.
    Wait(u16),
    /// Arrival of a packet.
    Come { count: u8, wire: u16, last: u16, flow: u8, ecn: bool, has_payload: bool },
    /// Change of a setting of one hop.
    Set { hop: bool, setting: Setting },
    /// Poll of the link.
    Poll,
}

impl Setting {
    fn text(&self) -> String {
        let Setting { kind, a, b } = *self;
        // Ratios of several sizes: 0, tiny, half, all.
        let ratio = |a: u16| f64::from(a) / 65_535.0 * [1e-3, 0.1, 1.0][usize::from(a % 3)];
        match kind % 24 {
            0 => format!("rate={}kbit", 1 + u64::from(a) * u64::from(b % 64 + 1)),
            1 => format!("queue={a}B"),
            2 => format!("queue={}ms", a % 100),
            3 => format!("queue={}p", a % 100),
            4 => format!("delay={a}us"),
            5 => format!("jitter={a}us"),
            6 => format!("jitter=normal:{a}us:corr={}:reorder", ratio(b)),
            7 => format!("jitter=pareto:{a}us:corr={}", ratio(b)),
            8 => format!("reorder={}:{}:hold={a}us", ratio(b), 1 + a % 50),
            9 => format!("duplicate={}", ratio(a)),
            10 => format!("corrupt={}", ratio(a)),
            11 => format!("corrupt-hidden={}", ratio(a)),
            12 => format!("loss={}", ratio(a)),
            13 => format!("loss=gilbert:p={}:r={}", ratio(a), ratio(b)),
            14 => format!("loss=burst:{}:{}", ratio(a), 1 + b % 20),
            15 => format!("loss=at:{a}us:{}+1s:{b}us", 1 + b % 9),
            16 => format!("path-mtu={}{}", 68 + a % 3000, if b % 2 == 0 { ":black-hole" } else { "" }),
            17 => format!("policer={}kbit:{b}B", 1 + u32::from(a)),
            18 => format!("shaper={}kbit:{b}B", 1 + u32::from(a)),
            19 => format!("outage=every:{}us:{}us", u32::from(a) + u32::from(b), b),
            20 => format!("outage=flap:up={}ms:down={}ms", 1 + a % 100, 1 + b % 100),
            21 => format!("aqm=codel:target={}us:interval={}us", 1 + a / 8, 10 + u32::from(a) + u32::from(b)),
            22 => format!("aqm=fq-codel:flows={}:quantum={}", 1 + a % 1024, 256 + u32::from(b)),
            _ => format!("aqm=red:min={a}B:max={}B:p={}", u32::from(a) + u32::from(b), ratio(b)),
        }
    }
}

fuzz_target!(|scenario: Scenario| {
    let hops = scenario.hops.each_ref().map(|settings| hop(settings));
    let hops = if scenario.two { &hops[..] } else { &hops[..1] };
    let Ok(mut path) = EmulatedPath::new(hops, 1500) else { return };
    let mut run = Run::new(&path, Duration::from_nanos(scenario.late.into()));
    for step in scenario.events.iter().take(300) {
        match step {
            Step::Wait(micros) => run.at += Duration::from_micros((*micros).into()),
            Step::Poll => run.poll(),
            Step::Come { count, wire, last, flow, ecn, has_payload } => {
                let wire = u32::from(*wire % 9014) + 1;
                let super_packet =
                    Packet::super_packet(0, u32::from(count % 64) + 1, wire, u32::from(*last) % wire + 1);
                let ecn = if *ecn { Ecn::Capable } else { Ecn::NotCapable };
                run.push(Packet { flow: (*flow).into(), ecn, has_payload: *has_payload, ..super_packet });
            }
            Step::Set { hop, setting } => {
                let index = usize::from(*hop && hops.len() > 1);
                let mut change = HopSettings::default();
                if change.set_pair(&setting.text()).is_ok()
                    && let Ok(changed) = path.with_change(Some(index), &change)
                {
                    run.polled = run.polled.max(run.at);
                    run.link.set(index, &changed.forward[index], run.at).expect("it was checked");
                    path = changed;
                }
            }
        }
    }
    run.finish();
});

fn hop(settings: &[Setting]) -> HopSettings {
    let mut hop = HopSettings::default();
    let usual = ["rate=10mbit", "delay=1ms"].map(str::to_owned);
    // Settings that are not valid alone are skipped.
    for text in usual.into_iter().chain(settings.iter().take(12).map(Setting::text)) {
        let mut one = HopSettings::default();
        if one.set_pair(&text).is_ok() {
            hop.overlay(&one);
        }
    }
    hop
}

struct Run {
    link: Link,
    at: Instant,
    late: Duration,
    ids: u64,
    /// Virtual packets in the link, counted from the events.
    inside: u64,
    /// Time at which the last packet left.
    left: Instant,
    /// Maximum time of a push or poll of the link.
    polled: Instant,
}

impl Run {
    fn new(path: &EmulatedPath, late: Duration) -> Self {
        let link = Link::chain(&path.forward).expect("it was checked");
        Run { link, at: Instant::ZERO, late, ids: 0, inside: 0, left: Instant::ZERO, polled: Instant::ZERO }
    }

    fn push(&mut self, packet: Packet) {
        self.ids += 1;
        // Polls are never earlier than the last arrival or change.
        self.polled = self.polled.max(self.at);
        self.inside += u64::from(packet.count);
        self.link.push(Packet { id: self.ids, ..packet }, self.at);
    }

    fn poll(&mut self) {
        self.polled = self.polled.max(self.at + self.late);
        self.take_until(self.polled);
    }

    fn take_until(&mut self, now: Instant) {
        while let Some(event) = self.link.poll(now) {
            assert!(event.at() <= now);
            match event {
                LinkEvent::Duplicate { packet, .. } => {
                    assert_eq!(packet.count, 1);
                    self.inside += 1;
                }
                LinkEvent::Drop { packet, .. } => self.inside -= u64::from(packet.count),
                LinkEvent::Forward { packet, due } => {
                    assert!(due >= self.left, "{due:?} after {:?}", self.left);
                    assert!(packet.changes.corruption.is_none() || packet.count == 1);
                    self.left = due;
                    self.inside -= u64::from(packet.count);
                }
            }
        }
        assert!(self.link.next_event_at().is_none_or(|next| next > now), "it can be polled for ever");
    }

    fn finish(mut self) {
        for _ in 0..1_000_000 {
            let Some(next) = self.link.next_event_at() else { break };
            self.take_until(next.max(self.polled));
        }
        assert_eq!((self.link.next_event_at(), self.inside), (None, 0));
        let stats = self.link.stats();
        let (made, gone) = (stats.offered.packets + stats.duplicated.packets, stats.dropped.total().packets);
        assert_eq!(made, stats.forwarded.packets + gone);
        assert_eq!(stats.queued.0, 0);
    }
}
