//! A dry run: what the simulation says beside what the formulas say, and why they differ; as text and as JSON, schema
//! `lfn.dry-run/1`.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use lfn_core::link::{Count, DropCause, LinkStats};
use lfn_core::path::PathProfile;
use lfn_core::plan::reasons::per_cent;
use lfn_core::sim::transfer::{Load, Outcome, Report, Waiting};
use lfn_core::tcp_model::{Congestion, Limit, Prediction, TransferTime};
use lfn_core::units::{BitRate, Bytes, Ratio, show_duration};
use serde::Serialize;

use crate::print;
use crate::print::page::Page;

/// A modelled transfer, and what was predicted of it.
pub struct DryRunReport {
    /// The path, its MTU as senders know it.
    pub path: PathProfile,
    /// Seed of the random draws.
    pub seed: u64,
    /// What was moved, and how.
    pub load: Load,
    /// By the formulas, once past start-up.
    pub predicted: Prediction,
    /// By the formulas; none if it never ends.
    pub predicted_time: Option<TransferTime>,
    /// By the simulation.
    pub transfer: Report,
    /// Time that passed outside.
    pub computed_in: Duration,
}

const SCHEMA: &str = "lfn.dry-run/1";

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    path: &'a PathProfile,
    seed: u64,
    size_bytes: Bytes,
    streams: u32,
    congestion: Congestion,
    window_bytes: Bytes,
    /// Bytes of payload in a full segment.
    mss_bytes: u32,
    /// Most segments treated as one.
    grain_segments: u32,
    complete: bool,
    simulated: Simulated,
    predicted: Predicted,
    senders: Senders,
    forward: Way,
    back: Way,
    /// In the queues on the way to the far side.
    queueing_delay: Delays,
    steps: u64,
}

#[derive(Serialize)]
struct Simulated {
    /// From the first SYN to the arrival of the last byte.
    seconds: f64,
    arrived_bytes: Bytes,
    goodput_bits_per_second: BitRate,
    /// Past start-up; null of a transfer too short to have such a part.
    steady_goodput_bits_per_second: Option<BitRate>,
    start_up_seconds: Option<f64>,
    /// Of the busiest line on the way to the far side.
    utilisation: f64,
}

#[derive(Serialize)]
struct Predicted {
    /// Null if it never ends.
    seconds: Option<f64>,
    goodput_bits_per_second: Option<BitRate>,
    steady_goodput_bits_per_second: BitRate,
    limited_by: Limit,
    start_up_seconds: Option<f64>,
}

#[derive(Serialize)]
struct Senders {
    retransmitted_segments: u64,
    timeouts: u64,
    loss_events: u64,
    ecn_events: u64,
    undone: u64,
    duplicate_segments: u64,
    most_window_segments: f64,
}

#[derive(Serialize)]
struct Way {
    offered_packets: u64,
    forwarded_packets: u64,
    dropped_packets: BTreeMap<DropCause, u64>,
    marked_packets: u64,
    queue_peak_bytes: Bytes,
}

#[derive(Serialize)]
struct Delays {
    mean_seconds: f64,
    p50_seconds: f64,
    p95_seconds: f64,
    p99_seconds: f64,
    max_seconds: f64,
}

impl DryRunReport {
    /// One JSON object on stdout. Nothing in it depends on the machine or the time of day.
    pub fn json(&self) -> io::Result<()> {
        let mut out = print::json();
        serde_json::to_writer_pretty(&mut out, &self.document())?;
        writeln!(out)
    }

    /// A page on stdout.
    pub fn text(&self) -> io::Result<()> {
        print::out().write_all(self.page().as_bytes())
    }

    fn document(&self) -> Document<'_> {
        let Report { senders, links: [forward, back], duplicates, waiting, steps, .. } = &self.transfer;
        Document {
            schema: SCHEMA,
            path: &self.path,
            seed: self.seed,
            size_bytes: self.load.size,
            streams: self.load.streams,
            congestion: self.load.settings.congestion,
            window_bytes: self.load.settings.window,
            mss_bytes: self.load.settings.mss,
            grain_segments: self.load.settings.grain,
            complete: self.is_complete(),
            simulated: self.simulated(),
            predicted: Predicted {
                seconds: self.predicted_seconds(),
                goodput_bits_per_second: self.predicted_time.map(|time| self.load.size.per(time.total())),
                steady_goodput_bits_per_second: self.predicted.goodput,
                limited_by: self.predicted.limit,
                start_up_seconds: self.predicted_time.map(|time| (time.handshake + time.slow_start).as_secs_f64()),
            },
            senders: Senders {
                retransmitted_segments: senders.retransmitted,
                timeouts: senders.timeouts,
                loss_events: senders.loss_events,
                ecn_events: senders.ecn_events,
                undone: senders.undone,
                duplicate_segments: *duplicates,
                most_window_segments: senders.most_window,
            },
            forward: way(forward),
            back: way(back),
            queueing_delay: delays(waiting),
            steps: *steps,
        }
    }

    fn simulated(&self) -> Simulated {
        let Report { time, arrived, steady, .. } = self.transfer;
        Simulated {
            seconds: time.as_secs_f64(),
            arrived_bytes: arrived,
            goodput_bits_per_second: arrived.per(time),
            steady_goodput_bits_per_second: steady.map(|(_, goodput)| goodput),
            start_up_seconds: steady.map(|(began, _)| began.as_secs_f64()),
            utilisation: self.utilisation(),
        }
    }

    fn page(&self) -> String {
        let mut page = Page::default();
        self.describe(&mut page);
        page.gap();
        self.compare(&mut page);
        page.gap();
        self.account(&mut page);
        page.gap();
        page.list("why", &self.reasons());
        let Load { settings, .. } = self.load;
        let grain = match settings.grain {
            1 => "every packet alone".to_owned(),
            grain => format!("up to {grain} packets as one"),
        };
        page.row("computed", format!("in {}, {} steps, {grain}", show_duration(self.computed_in), self.transfer.steps));
        page.text()
    }

    fn describe(&self, page: &mut Page) {
        let PathProfile { capacity, base_rtt, mtu, queue, loss, .. } = self.path;
        let queue = queue.map(|queue| format!(", queue {queue}")).unwrap_or_default();
        let loss = if loss.get() > 0.0 { format!(", loss {}", per_cent(loss)) } else { String::new() };
        let (rtt, seed) = (show_duration(base_rtt), self.seed);
        page.row("dry run", format!("{rtt}, {capacity}{queue}{loss}, MTU {mtu}, seed {seed}"));
        let Load { size, streams, settings } = self.load;
        let each = if streams == 1 { "1 stream".to_owned() } else { format!("{streams} streams") };
        let ecn = if settings.ecn { ", ECN" } else { "" };
        page.row("transfer", format!("{size}, {each}, {}, window {}{ecn}", settings.congestion, settings.window));
    }

    fn compare(&self, page: &mut Page) {
        let Simulated { seconds, goodput_bits_per_second, utilisation, .. } = self.simulated();
        let row = |one: String, other: String| format!("{one:<18}{other}");
        page.row("", row("simulated".to_owned(), "predicted".to_owned()));
        let shown = |seconds: f64| show_duration(Duration::from_secs_f64(seconds));
        let never = || "never".to_owned();
        let time = if self.is_complete() { shown(seconds) } else { format!("not in {}", shown(seconds)) };
        page.row("time", row(time, self.predicted_seconds().map_or_else(never, shown)));
        let predicted = self.predicted_time.map(|time| self.load.size.per(time.total()).to_string());
        page.row("goodput", row(goodput_bits_per_second.to_string(), predicted.unwrap_or_else(never)));
        if let Some((began, goodput)) = self.transfer.steady {
            let start = self.predicted_time.map_or(began, |time| time.handshake + time.slow_start);
            page.row("start-up", row(show_duration(began), show_duration(start)));
            page.row("after it", row(goodput.to_string(), self.predicted.goodput.to_string()));
        }
        let used = format!("{:.1} %", utilisation * 100.0);
        page.row("utilisation", row(used, format!("limited by {}", self.predicted.limit)));
    }

    fn account(&self, page: &mut Page) {
        let Report { senders, links, waiting, .. } = &self.transfer;
        let mut sent = vec![format!("{} segments", senders.retransmitted)];
        let counts = [
            (senders.loss_events, "reductions for loss"),
            (senders.ecn_events, "for marks"),
            (senders.timeouts, "timeouts"),
            (senders.undone, "taken back"),
        ];
        sent.extend(counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")));
        page.row("sent again", sent.join(", "));
        for (label, link) in ["dropped", "dropped back"].into_iter().zip(links) {
            if label == "dropped" || link.dropped.total().packets > 0 {
                page.row(label, dropped(link));
            }
        }
        page.row("queue", format!("most {}", links[0].queue_peak));
        if waiting.max > Duration::ZERO {
            let [p50, p95, p99, max] = [waiting.p50, waiting.p95, waiting.p99, waiting.max].map(show_duration);
            page.row("delay in it", format!("p50 {p50}, p95 {p95}, p99 {p99}, most {max}"));
        }
    }

    /// What the simulation met that the formulas leave out, or that explains a figure.
    fn reasons(&self) -> Vec<String> {
        let Report { senders, links: [forward, _], .. } = &self.transfer;
        let mut reasons = Vec::new();
        let overflowed = forward.dropped[DropCause::Queue].packets;
        if overflowed > 0 {
            reasons.push(format!(
                "The queue overflowed: {overflowed} packets. The formulas know no queue; slow start fills it within a \
                 round trip, and what is dropped has to be sent again."
            ));
        }
        if senders.timeouts > 0 {
            reasons.push(format!(
                "{} timeouts, each a silence of a round trip and 200 ms at least, and slow start after it.",
                senders.timeouts
            ));
        }
        if self.predicted.limit == Limit::ReceiveWindow {
            let needed = self.path.bdp().0.div_ceil(self.load.settings.window.0.max(1));
            reasons.push(format!(
                "The receive window of {} is spent before the first acknowledgement returns; {needed} streams or \
                 windows of it fill the path.",
                self.load.settings.window
            ));
        }
        if self.predicted.limit == Limit::Loss && self.faster() {
            reasons.push(
                "Losses by chance leave a larger window than the formulas', which are for losses at equal distances: \
                 7 % for Reno, up to 25 % for CUBIC."
                    .to_owned(),
            );
        }
        let trip = self.path.base_rtt.as_secs_f64();
        if self.load.settings.congestion == Congestion::Bbr && trip > 0.05 && self.transfer.time.as_secs() > 10 {
            // Draining to four segments, holding them for a round trip and 200 ms at least, and filling again.
            let share = Ratio::new(((trip + trip.max(0.2)) / 10.0).min(1.0)).unwrap_or_default();
            reasons.push(format!(
                "Every ten seconds BBR lets the path run empty to see its round trip anew: about {} of the time here.",
                per_cent(share)
            ));
        }
        reasons
    }

    fn faster(&self) -> bool {
        self.transfer.steady.is_some_and(|(_, goodput)| goodput.as_f64() > 1.02 * self.predicted.goodput.as_f64())
    }

    fn predicted_seconds(&self) -> Option<f64> {
        self.predicted_time.map(|time| time.total().as_secs_f64())
    }

    fn is_complete(&self) -> bool {
        self.transfer.outcome == Some(Outcome::Complete)
    }

    fn utilisation(&self) -> f64 {
        let busy = self.transfer.links[0].busy.as_secs_f64();
        (busy / self.transfer.time.as_secs_f64().max(1e-9)).min(1.0)
    }
}

/// `12 loss, 3 queue`.
fn dropped(link: &LinkStats) -> String {
    let counts = DropCause::ALL.iter().map(|cause| (link.dropped[*cause], cause.word()));
    let said: Vec<_> =
        counts.filter(|(count, _)| count.packets > 0).map(|(count, word)| said(count, word, link)).collect();
    if said.is_empty() { "nothing".to_owned() } else { said.join(", ") }
}

fn said(count: Count, word: &str, link: &LinkStats) -> String {
    let share = Ratio::new(count.packets as f64 / link.offered.packets.max(1) as f64).unwrap_or_default();
    format!("{} packets by {word} ({})", count.packets, per_cent(share))
}

fn way(link: &LinkStats) -> Way {
    let dropped = DropCause::ALL.iter().map(|cause| (*cause, link.dropped[*cause].packets));
    Way {
        offered_packets: link.offered.packets,
        forwarded_packets: link.forwarded.packets,
        dropped_packets: dropped.filter(|(_, packets)| *packets > 0).collect(),
        marked_packets: link.marked.packets,
        queue_peak_bytes: link.queue_peak,
    }
}

fn delays(waiting: &Waiting) -> Delays {
    let Waiting { mean, p50, p95, p99, max } = waiting;
    let [mean_seconds, p50_seconds, p95_seconds, p99_seconds, max_seconds] =
        [mean, p50, p95, p99, max].map(Duration::as_secs_f64);
    Delays { mean_seconds, p50_seconds, p95_seconds, p99_seconds, max_seconds }
}
