//! The plan as text for a terminal.

use std::io;

use lfn_api::plan::{HostSource, NamedRoute, PlanReport, SAVED_VALUES, rounded};
use lfn_base::plan::advice::FAST_PATH;
use lfn_base::plan::reasons::per_cent;
use lfn_base::plan::settings::{HostSettings, Setting};
use lfn_base::plan::{Plan, PlanPrediction, minimal_window_scale};
use lfn_base::tcp_model::Congestion;
use lfn_base::units::{BitRate, Ratio, show_duration};

use super::label_columns::Page;
use crate::print;

/// Prints a page on stdout.
pub fn print(report: &PlanReport) -> io::Result<()> {
    print::result(&PlanPage { report }.page())
}

/// Page of a plan.
struct PlanPage<'a> {
    report: &'a PlanReport,
}

impl PlanPage<'_> {
    fn page(&self) -> String {
        let plan = &self.report.plan;
        let mut page = Page::default();
        self.path(&mut page);
        page.gap();
        prediction(&plan.predicted, &mut page);
        self.congestion(&mut page);
        self.loss_budget(&mut page);
        page.gap();
        self.sockets(&mut page);
        self.advice(&mut page);
        page.gap();
        page.list("why", &plan.reasons);
        self.settings(&mut page);
        page.gap();
        let commands = self.report.next_commands();
        page.lines("next", commands.iter().flat_map(|next| [format!("# {}", next.purpose), next.command.clone()]));
        page.text()
    }

    fn path(&self, page: &mut Page) {
        let plan = &self.report.plan;
        let framing = plan.path.framing;
        let link = self
            .report
            .link
            .as_ref()
            .filter(|_| !self.is_ethernet_link())
            .map(|name| format!("{name}: "))
            .unwrap_or_default();
        page.row("capacity", format!("{link}{}, counting {}", plan.capacity, framing.layer.describe()));
        let wire = framing.wire_bytes_full(plan.path.mtu);
        page.row(
            "",
            format!("{} of payload at MTU {}: {} of {wire} bytes", plan.payload_capacity, plan.path.mtu, plan.mss),
        );
        self.rtt(page);
        let fits = plan.bdp.0 < u64::from(plan.mss);
        let note = if fits { ": less than one segment" } else { " in flight fill the path" };
        let bdp = if plan.bdp.0 == 0 { "below 1 B".to_owned() } else { plan.bdp.decimal() };
        page.row("BDP", format!("{bdp}{note}"));
        self.queue(page);
    }

    fn rtt(&self, page: &mut Page) {
        let Some(NamedRoute { from, to, via, route, detour }) = &self.report.route else {
            page.row("RTT", show_duration(self.report.plan.rtt));
            return;
        };
        let is_minimum = matches!(via, lfn_base::geometry::Medium::Fibre) && *detour <= 1.0;
        let label = if is_minimum { " (minimum possible)" } else { "" };
        page.row("RTT", format!("{}{label}", show_duration(self.report.plan.rtt)));
        let elevation = route.elevation.map(|[from, to]| format!(", elevation {from:.1}° and {to:.1}°"));
        let kilometres = route.length.0 / 1e3;
        let detour_note = if *detour > 1.0 { format!(", {detour} times the great circle") } else { String::new() };
        page.row(
            "",
            format!("{from} to {to}, {via}: {kilometres:.0} km one way{detour_note}{}", elevation.unwrap_or_default()),
        );
        if is_minimum {
            let usual = [1.2, 2.0].map(|factor| show_duration(rounded(self.report.plan.rtt.mul_f64(factor))));
            let [low, high] = usual;
            page.row(
                "",
                format!("real cables are longer: {low} to {high} is usual; use --detour 1.5, or --rtt if known"),
            );
        }
    }

    fn queue(&self, page: &mut Page) {
        let (plan, Some(queue)) = (&self.report.plan, self.report.plan.path.queue) else { return };
        let share = queue.0 as f64 / plan.bdp.0.max(1) as f64;
        let delay = plan.capacity.time_for(queue);
        page.row("queue", format!("{queue}: {share:.2} BDP, {} at the capacity", show_duration(rounded(delay))));
        let name = plan.predicted.congestion;
        match self.report.advice.idle_after_loss.map(Ratio::get) {
            Some(0.0) => page.row("", format!("{name} keeps the path full after a loss")),
            Some(idle) => page.row(
                "",
                format!(
                    "after a loss, {name} leaves {:.0} % of the path empty at first: the queue is small",
                    idle * 100.0
                ),
            ),
            None => page.row("", format!("{name} does not need the queue to recover from a loss")),
        }
    }

    /// Compares the congestion controls, the best first, and names the change.
    fn congestion(&self, page: &mut Page) {
        let plan = &self.report.plan;
        let mut all = plan.congestion_controls.to_vec();
        all.sort_by_key(|one| (std::cmp::Reverse(one.goodput), one.congestion != plan.predicted.congestion));
        let mut text = String::new();
        for (at, one) in all.iter().enumerate() {
            let last_of_value = all.get(at + 1).is_none_or(|next| next.goodput != one.goodput);
            text += &one.congestion.to_string();
            text += &if last_of_value { format!(": {}; ", one.goodput) } else { ", ".to_owned() };
        }
        let window = if plan.streams > 1 { format!(" with {} streams", plan.streams) } else { String::new() };
        page.row("congestion", format!("{}{window}", text.trim_end_matches("; ")));
        let chosen = plan.predicted.congestion;
        let current = self.report.host.as_ref().and_then(HostSettings::congestion);
        let host = self.host_name();
        let text = match current {
            _ if self.report.requested_congestion => format!("planned with {chosen}, as requested"),
            Some(current) if current == chosen => format!("{host} uses {chosen}: keep it"),
            Some(current) => format!("{host} uses {current}: change to {chosen}"),
            None => format!("use {chosen}"),
        };
        let is_missing = self.report.host.as_ref().is_some_and(|host| !host.available_congestion().contains(&chosen));
        let missing = if is_missing { format!(" (load the module: modprobe tcp_{chosen})") } else { String::new() };
        page.row("", format!("{text}{missing}"));
    }

    /// Prints the loss budget of each congestion control, the planned one first.
    fn loss_budget(&self, page: &mut Page) {
        let plan = &self.report.plan;
        let chosen = plan.predicted.congestion;
        let each = if plan.streams > 1 { " of each stream" } else { "" };
        page.row("loss budget", format!("{chosen}: {}{each}", budget(plan.loss_budget)));
        let others: Vec<String> = plan
            .congestion_controls
            .iter()
            .filter(|one| one.congestion != chosen)
            .map(|one| format!("{}: {}", one.congestion, budget(one.loss_budget)))
            .collect();
        page.row("", others.join("; "));
        let (loss, limit) = (plan.path.loss.get(), plan.loss_budget.get());
        if loss > 0.0 {
            let verdict = if loss <= limit {
                format!("is within the budget of {chosen}")
            } else if loss <= PATHDIAG_MARGIN * limit && chosen == Congestion::Reno {
                format!("is above the budget of {chosen}, within the margin of its formula")
            } else {
                format!("is {} times the budget of {chosen}", short(loss / limit))
            };
            page.row("", format!("the loss of {} {verdict}", share(plan.path.loss)));
        }
    }

    fn sockets(&self, page: &mut Page) {
        let plan = &self.report.plan;
        let streams = match self.report.advice.streams {
            Some([min, max]) => format!(
                "{min} to {max}: {} could fill the path, but from {FAST_PATH} on one processor is often too slow for one stream",
                plan.streams
            ),
            None => plan.streams.to_string(),
        };
        page.row("streams", streams);
        let each = if plan.streams > 1 { ", for each stream" } else { "" };
        page.row("buffers", format!("send and receive buffer {} at both ends{each}", plan.buffer.exact()));
        let total =
            if plan.streams > 1 { format!(", {} for all streams", self.report.advice.memory) } else { String::new() };
        page.row("memory", format!("up to {} for each socket at each end{total}", plan.memory_per_socket));
        if let Some(limit) = self
            .report
            .host
            .as_ref()
            .and_then(HostSettings::tcp_memory)
            .filter(|limit| *limit < self.report.advice.memory)
        {
            page.row("", format!("{} allows {limit} for all TCP sockets: raise net.ipv4.tcp_mem", self.host_name()));
        }
        page.row("window scale", scale(plan));
    }

    fn advice(&self, page: &mut Page) {
        let (plan, interface) = (&self.report.plan, self.report.host.as_ref().and_then(|host| host.interface.as_ref()));
        if let Some(rate) = self.report.advice.disk_rate {
            page.row("disk", format!("read and write {}/s for the whole transfer", rate.decimal()));
        }
        self.pacing(page);
        // The networks of subscribers have no jumbo frames.
        let may_have_jumbo = self.report.link.is_none() || self.is_ethernet_link();
        if let Some(goodput) = self.report.advice.jumbo_goodput.filter(|_| may_have_jumbo) {
            let now = interface.map(|interface| format!("; {} has MTU {}", interface.name, interface.mtu));
            page.row(
                "jumbo frames",
                format!(
                    "with MTU 9000: {goodput}, if every device on the path has it{}. Set net.ipv4.tcp_mtu_probing = 1 too",
                    now.unwrap_or_default()
                ),
            );
        }
        if plan.capacity >= FAST_PATH {
            let name = interface.map_or("IFACE", |interface| interface.name.as_str());
            let rings = match interface.and_then(|interface| interface.rings) {
                Some(rings) if rings.receive < rings.max_receive || rings.send < rings.max_send => {
                    format!("raise the rings: ethtool -G {name} rx {} tx {}", rings.max_receive, rings.max_send)
                }
                Some(_) => format!("the rings of {name} are at their maximum"),
                None => format!("raise the rings to the maximum of `ethtool -g {name}` with `ethtool -G {name}`"),
            };
            page.row("NIC", format!("{rings}; set the CPU governor: cpupower frequency-set -g performance"));
        }
    }

    fn pacing(&self, page: &mut Page) {
        let interface = self.report.host.as_ref().and_then(|host| host.interface.as_ref());
        let name = interface.map_or("IFACE", |interface| interface.name.as_str());
        if interface.is_some_and(|interface| interface.qdisc.as_deref() == Some("fq")) {
            page.row("pacing", format!("{name} has fq: nothing to change"));
            return;
        }
        if self.report.plan.predicted.congestion == Congestion::Bbr {
            page.row("pacing", "bbr paces by itself");
            return;
        }
        // A sender with a faster interface than the path sends bursts that the bottleneck's queue must hold.
        let faster =
            interface.and_then(|interface| interface.rate).is_some_and(|rate| rate > self.report.plan.capacity);
        let limit = BitRate(self.report.plan.capacity.0 / 100 * 95 / u64::from(self.report.plan.streams.max(1)));
        let maxrate = if faster { format!(" maxrate {}", limit.to_argument()) } else { String::new() };
        page.row("pacing", format!("tc qdisc replace dev {name} root fq{maxrate}"));
        page.row(
            "",
            "sends evenly instead of in bursts (kernel module sch_fq); for all interfaces: net.core.default_qdisc = fq",
        );
    }

    /// Prints the settings as commands that create a file of `/etc/sysctl.d`, and their undo.
    fn settings(&self, page: &mut Page) {
        let host = self.host_name();
        if self.report.settings.is_empty() {
            page.row("settings", format!("all settings of {host} are large enough"));
            return;
        }
        let title = match self.report.source {
            HostSource::Unknown => "settings of each host, as root".to_owned(),
            _ => format!("too small on {host}, as root"),
        };
        page.lines(&title, std::iter::empty());
        let is_unknown = matches!(self.report.source, HostSource::Unknown);
        if is_unknown {
            let keys: Vec<&str> = self.report.settings.iter().map(|setting| setting.key).collect();
            let lines: Vec<String> = keys.chunks(2).map(|keys| keys.join(" ")).collect();
            page.commands([format!("sysctl {} > {SAVED_VALUES}", lines.join(" \\\n  "))]);
        }
        let file = &self.report.settings_file;
        page.commands([format!("cat > {file} <<'END'")]);
        page.commands(self.report.settings.iter().map(Setting::line));
        page.commands(["END".to_owned(), format!("sysctl -p {file}")]);
        page.lines("undo", std::iter::empty());
        page.commands(self.report.undo());
        if is_unknown {
            page.row(
                "",
                "to print only the settings that are too small: --sysctl with the output of `sysctl -a` of the host",
            );
        }
    }

    /// Returns true if the link's name only repeats its rate.
    fn is_ethernet_link(&self) -> bool {
        self.report.link.as_ref().is_some_and(|name| name.starts_with("ethernet"))
    }

    fn host_name(&self) -> String {
        match &self.report.source {
            HostSource::ThisHost => "this host".to_owned(),
            HostSource::File(file) if file == "-" => "the host".to_owned(),
            HostSource::File(file) => format!("the host of {file}"),
            HostSource::Unknown => "other host".to_owned(),
        }
    }
}

/// Factor between pathdiag's loss budget and the loss of Reno's formula: 1.5 / 0.7².
const PATHDIAG_MARGIN: f64 = 1.5 / (0.7 * 0.7);

/// Returns the window scale, and the scale that Linux uses by default.
fn scale(plan: &Plan) -> String {
    let (scale, autotuned) = (plan.window_scale, plan.linux_autotuned_window_scale);
    if minimal_window_scale(plan.buffer) != Some(scale) {
        return format!("{scale}, as requested");
    }
    if autotuned == scale {
        return scale.to_string();
    }
    format!("{scale} needed; Linux uses {autotuned} by default")
}

fn prediction(predicted: &PlanPrediction, page: &mut Page) {
    let steady = predicted.steady;
    page.row(
        "predicted",
        format!("{} goodput with {}, limited by {}", steady.goodput, predicted.congestion, steady.limit),
    );
    let slow_start = show_duration(predicted.slow_start);
    match (predicted.size, predicted.time, predicted.steady_time, predicted.average_goodput) {
        (Some(size), Some(time), Some(rest), Some(average)) => {
            page.row("", format!("{} in {}: average goodput {average}", size.decimal(), show_duration(time)));
            let handshake = show_duration(predicted.handshake);
            page.row(
                "",
                format!("handshake {handshake}, slow start {slow_start} or more, then {}", show_duration(rest)),
            );
        }
        _ if predicted.slow_start.is_zero() => page.row("", "reached at once: the initial window fills the path"),
        _ => page.row("", format!("reached after {slow_start} of slow start, or later")),
    }
}

/// Formats a loss budget as a share, and as the number of segments between two losses.
fn budget(budget: Ratio) -> String {
    match budget.get() {
        share if share >= 1.0 => "unlimited: one segment fills the path".to_owned(),
        share if share >= 1e-2 => per_cent(budget),
        _ => format!("{} (one segment in {})", share(budget), short(1.0 / budget.get())),
    }
}

/// Formats a share as the user types it: `2.6e-8`, or in per cent from 0.1 % on.
fn share(ratio: Ratio) -> String {
    let value = ratio.get();
    if value >= 1e-3 { per_cent(ratio) } else { format!("{value:.1e}") }
}

/// Formats a number with two significant digits and a word for millions and billions.
fn short(number: f64) -> String {
    let (value, word) = match number {
        n if n >= 1e15 => return format!("{n:.1e}"),
        n if n >= 1e12 => (n / 1e12, " trillion"),
        n if n >= 1e9 => (n / 1e9, " billion"),
        n if n >= 1e6 => (n / 1e6, " million"),
        n if n >= 1e3 => (n / 1e3, ",000"),
        n => (n, ""),
    };
    // Thousands have no decimals, because their word is a part of the number.
    if value >= 9.95 || word == ",000" { format!("{value:.0}{word}") } else { format!("{value:.1}{word}") }
}
