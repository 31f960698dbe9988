//! Dry run: the simulation and the formulas side by side, with the reasons for their differences.

use std::io;
use std::time::Duration;

use lfn_api::documents::ModelledTransfer;
use lfn_api::dry_run::DryRunReport;
use lfn_base::path::PathProfile;
use lfn_base::plan::reasons::per_cent;
use lfn_base::tcp_model::{Congestion, GoodputLimit};
use lfn_base::units::{Ratio, show_duration};
use lfn_link::{DropCause, LinkStats, PacketCount};
use lfn_sim::transfer::{TransferLoad, TransferReport};

use crate::print;
use crate::print::label_columns::Page;

/// Text of a dry run.
struct DryRunPage<'a>(&'a DryRunReport);

/// Prints a dry run as a page on standard output.
pub fn print(report: &DryRunReport) -> io::Result<()> {
    print::result(&DryRunPage(report).text())
}

impl DryRunPage<'_> {
    fn text(&self) -> String {
        let mut page = Page::default();
        self.add_settings(&mut page);
        page.gap();
        self.add_comparison(&mut page);
        page.gap();
        self.add_counters(&mut page);
        page.gap();
        page.list("why", &self.reasons());
        let TransferLoad { settings, .. } = self.0.load;
        let grain = match settings.range_segments {
            1 => "each packet separately".to_owned(),
            grain => format!("up to {grain} packets together"),
        };
        page.row(
            "computed",
            format!("in {}, {} steps, {grain}", show_duration(self.0.computed_in), self.0.transfer.steps),
        );
        page.text()
    }

    fn add_settings(&self, page: &mut Page) {
        let PathProfile { capacity, base_rtt, mtu, queue, loss, .. } = self.0.path;
        let queue = queue.map(|queue| format!(", queue {queue}")).unwrap_or_default();
        let loss = if loss.get() > 0.0 { format!(", loss {}", per_cent(loss)) } else { String::new() };
        let (rtt, seed) = (show_duration(base_rtt), self.0.seed);
        page.row("dry run", format!("{rtt}, {capacity}{queue}{loss}, MTU {mtu}, seed {seed}"));
        let TransferLoad { size, streams, settings } = self.0.load;
        let each = if streams == 1 { "1 stream".to_owned() } else { format!("{streams} streams") };
        let ecn = if settings.ecn { ", ECN" } else { "" };
        page.row("transfer", format!("{size}, {each}, {}, window {}{ecn}", settings.congestion, settings.window));
    }

    fn add_comparison(&self, page: &mut Page) {
        let ModelledTransfer { time, goodput, utilisation, .. } = self.0.simulated();
        let row = |one: String, other: String| format!("{one:<18}{other}");
        page.row("", row("simulated".to_owned(), "predicted".to_owned()));
        let never = || "never".to_owned();
        let time = show_duration(time);
        let time = if self.0.is_complete() { time } else { format!("not in {time}") };
        let predicted_time = self.0.predicted_time.map(|time| show_duration(time.total()));
        page.row("time", row(time, predicted_time.unwrap_or_else(never)));
        let predicted = self.0.predicted_time.map(|time| self.0.load.size.per(time.total()).to_string());
        page.row("goodput", row(goodput.to_string(), predicted.unwrap_or_else(never)));
        if let Some((began, goodput)) = self.0.transfer.steady {
            let start = self.0.predicted_time.map_or(began, |time| time.handshake + time.slow_start);
            page.row("start-up", row(show_duration(began), show_duration(start)));
            page.row("steady part", row(goodput.to_string(), self.0.predicted.goodput.to_string()));
        }
        let used = format!("{:.1} %", utilisation.get() * 100.0);
        page.row("utilisation", row(used, format!("limited by {}", self.0.predicted.limit)));
    }

    fn add_counters(&self, page: &mut Page) {
        let TransferReport { senders, links, waiting, .. } = &self.0.transfer;
        let mut sent = vec![format!("{} segments", senders.retransmitted)];
        let counts = [
            (senders.loss_events, "reductions for loss"),
            (senders.ecn_events, "for marks"),
            (senders.timeouts, "timeouts"),
            (senders.undone_reductions, "undone"),
        ];
        sent.extend(counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")));
        page.row("retransmitted", sent.join(", "));
        for (label, link) in ["dropped", "dropped back"].into_iter().zip(links) {
            if label == "dropped" || link.dropped.total().packets > 0 {
                page.row(label, dropped(link));
            }
        }
        page.row("queue", format!("max {}", links[0].queue_peak));
        if waiting.max > Duration::ZERO {
            let [p50, p95, p99, max] = [waiting.p50, waiting.p95, waiting.p99, waiting.max].map(show_duration);
            page.row("queue delay", format!("p50 {p50}, p95 {p95}, p99 {p99}, max {max}"));
        }
    }

    /// Returns the events of the simulation that the formulas do not have, or that explain a figure.
    fn reasons(&self) -> Vec<String> {
        let TransferReport { senders, links: [forward, _], .. } = &self.0.transfer;
        let mut reasons = Vec::new();
        let overflowed = forward.dropped[DropCause::Queue].packets;
        if overflowed > 0 {
            reasons.push(format!(
                "The queue dropped {overflowed} packets. The formulas do not model the queue. Slow start fills it within \
                 one round trip, and the dropped packets are retransmitted."
            ));
        }
        if senders.timeouts > 0 {
            reasons.push(format!(
                "{} timeouts. Each one is a pause of at least one round trip and 200 ms, followed by slow start.",
                senders.timeouts
            ));
        }
        if self.0.predicted.limit == GoodputLimit::ReceiveWindow {
            let needed = self.0.path.bdp().0.div_ceil(self.0.load.settings.window.0.max(1));
            reasons.push(format!(
                "The receive window of {} is used up before the first acknowledgement returns. To fill the path, use \
                 {needed} streams or a window {needed} times as large.",
                self.0.load.settings.window
            ));
        }
        if self.0.predicted.limit == GoodputLimit::Loss && self.is_faster() {
            reasons.push(
                "Random losses allow a larger window than the formulas, which assume losses at equal distances: 7 % \
                 more for Reno, up to 25 % more for CUBIC."
                    .to_owned(),
            );
        }
        let trip = self.0.path.base_rtt.as_secs_f64();
        if self.0.load.settings.congestion == Congestion::Bbr && trip > 0.05 && self.0.transfer.time.as_secs() > 10 {
            // Draining to four segments, keeping them for one round trip and at least 200 ms, and filling again.
            let share = Ratio::new(((trip + trip.max(0.2)) / 10.0).min(1.0)).unwrap_or_default();
            reasons.push(format!(
                "Every ten seconds BBR drains the path to measure the base RTT again: about {} of the time here.",
                per_cent(share)
            ));
        }
        reasons
    }

    fn is_faster(&self) -> bool {
        self.0.transfer.steady.is_some_and(|(_, goodput)| goodput.as_f64() > 1.02 * self.0.predicted.goodput.as_f64())
    }
}

/// Returns the drops by cause, for example `12 loss, 3 queue`.
fn dropped(link: &LinkStats) -> String {
    let counts = DropCause::ALL.iter().map(|cause| (link.dropped[*cause], cause.name()));
    let texts: Vec<_> =
        counts.filter(|(count, _)| count.packets > 0).map(|(count, word)| dropped_by(count, word, link)).collect();
    if texts.is_empty() { "nothing".to_owned() } else { texts.join(", ") }
}

fn dropped_by(count: PacketCount, word: &str, link: &LinkStats) -> String {
    let share = Ratio::new(count.packets as f64 / link.offered.packets.max(1) as f64).unwrap_or_default();
    format!("{} packets by {word} ({})", count.packets, per_cent(share))
}
