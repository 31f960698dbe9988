//! Plan as text and as JSON.

use std::io::{self, Write};

use lfn_core::geometry::{Medium, Route};
use lfn_core::plan::reasons::per_cent;
use lfn_core::plan::{Plan, PlanPrediction, minimal_window_scale};
use lfn_core::units::show_duration;
use serde::Serialize;

use super::label_columns::Page;
use crate::print;

/// A plan and the origin of its path.
pub struct PlanReport<'a> {
    pub plan: &'a Plan,
    /// Name of the link, if it was given.
    pub link: Option<String>,
    /// Route between two places, if the RTT is computed from it.
    pub route: Option<(Medium, Route)>,
}

/// JSON object with the keys of the plan and the origin of the path.
#[derive(Serialize)]
struct PlanJson<'a> {
    #[serde(flatten)]
    plan: &'a Plan,
    link: Option<&'a str>,
    via: Option<String>,
    route: Option<Route>,
}

impl PlanReport<'_> {
    /// Returns the document of the plan.
    pub fn document(&self) -> impl Serialize {
        let (via, route) = self.route.map(|(via, route)| (via.to_string(), route)).unzip();
        PlanJson { plan: self.plan, link: self.link.as_deref(), via, route }
    }

    /// Prints a page on stdout.
    pub fn text(&self) -> io::Result<()> {
        print::out().write_all(self.page().as_bytes())
    }

    fn page(&self) -> String {
        let plan = self.plan;
        let mut page = Page::default();
        self.path(&mut page);
        page.row("BDP", plan.bdp.exact());
        page.gap();
        page.row("streams", plan.streams);
        let each = if plan.streams > 1 { ", for each stream" } else { "" };
        page.row("buffers", format!("send and receive buffer {} at both ends{each}", plan.buffer.exact()));
        page.row("window scale", scale(plan));
        page.gap();
        prediction(&plan.predicted, &mut page);
        page.row("loss budget", budget(plan));
        page.gap();
        page.list("why", &plan.reasons);
        page.lines("on both hosts", plan.sysctl.iter().map(|line| line.command()));
        page.text()
    }

    fn path(&self, page: &mut Page) {
        let plan = self.plan;
        let framing = plan.path.framing;
        let link = self.link.as_ref().map(|name| format!("{name}: ")).unwrap_or_default();
        page.row("capacity", format!("{link}{}, counting {}", plan.capacity, framing.layer.describe()));
        let wire = framing.wire_bytes_full(plan.path.mtu);
        page.row(
            "",
            format!("{} of payload at MTU {}: {} of {wire} bytes", plan.payload_capacity, plan.path.mtu, plan.mss),
        );
        page.row("RTT", show_duration(plan.rtt));
        if let Some((via, route)) = self.route {
            let elevation = route.elevation.map(|[from, to]| format!(", elevation {from:.1}° and {to:.1}°"));
            let kilometres = route.length.0 / 1e3;
            page.row("", format!("{via}: {kilometres:.0} km one way{}", elevation.unwrap_or_default()));
        }
    }
}

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
    page.row("predicted", format!("{} goodput, limited by {}", predicted.steady.goodput, predicted.steady.limit));
    match (predicted.size, predicted.time, predicted.steady_time, predicted.average_goodput) {
        (Some(size), Some(time), Some(rest), Some(average)) => {
            page.row("", format!("{size} in {}: average goodput {average}", show_duration(time)));
            let (handshake, slow_start) = (show_duration(predicted.handshake), show_duration(predicted.slow_start));
            page.row("", format!("handshake {handshake}, slow start {slow_start}, then {}", show_duration(rest)));
        }
        _ => page.row("", format!("reached after {} of slow start", show_duration(predicted.slow_start))),
    }
}

fn budget(plan: &Plan) -> String {
    if plan.loss_budget.get() >= 1.0 {
        return "unlimited: one segment fills the path".to_owned();
    }
    let each = if plan.streams > 1 { " of each stream" } else { "" };
    let between = 1.0 / plan.loss_budget.get();
    format!("{}, one segment in {between:.1e}{each}", per_cent(plan.loss_budget))
}
