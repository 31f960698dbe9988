//! The page of a finished copy (`--report FILE.html`): the summary, the ranks and the stripes, and the pictures.

use lfn_api::documents::{FinishedCopy, RanksReport, StripeFigures, StripeState};
use lfn_api::pictures::Album;
use lfn_base::units::show_duration;
use lfn_session::wire::copy::ranks::{RankState, RankStatus};

use crate::print::html::{HtmlPage, HtmlTable};

/// Returns the page of a copy with this summary.
pub fn page(document: &FinishedCopy, summary: String, album: Album) -> HtmlPage {
    let mut tables = Vec::new();
    tables.extend(document.ranks.as_ref().map(ranks_table));
    if !document.stripes.is_empty() {
        tables.push(stripes_table(&document.stripes));
    }
    HtmlPage {
        title: format!("Copy {} → {}", document.sources.join(" "), document.destination),
        summary,
        tables,
        album,
        json: serde_json::to_string_pretty(document).unwrap_or_default(),
    }
}

fn ranks_table(report: &RanksReport) -> HtmlTable {
    let all = report.bytes.0.max(1) as f64;
    let row = |status: &RankStatus| {
        let RankStatus { rank, state, address, bytes, goodput, reconnects, .. } = status;
        let state = match state {
            RankState::Absent => "absent",
            RankState::Connected => "connected",
            RankState::Lost => "lost",
        };
        vec![
            format!("rank {rank}"),
            address.clone().unwrap_or_default(),
            bytes.decimal(),
            format!("{:.1} %", 100.0 * bytes.0 as f64 / all),
            goodput.to_string(),
            reconnects.to_string(),
            state.to_owned(),
        ]
    };
    let mut rows: Vec<_> = report.ranks.iter().map(row).collect();
    let sum = [report.bytes.decimal(), "100 %".into(), report.goodput.to_string()];
    rows.push(["all".to_owned(), String::new()].into_iter().chain(sum).chain([String::new(), String::new()]).collect());
    let head = vec!["", "address", "payload", "share", "goodput", "reconnects", "state at the end"];
    HtmlTable { name: "Ranks".into(), head, rows }
}

fn stripes_table(stripes: &[StripeFigures]) -> HtmlTable {
    let row = |stripe: &StripeFigures| {
        let state = match stripe.state {
            StripeState::Connecting => "not connected",
            StripeState::Up => "up",
            StripeState::Down => "down",
        };
        vec![
            stripe.stripe.clone(),
            stripe.bytes.decimal(),
            stripe.throughput.to_string(),
            stripe.streams.to_string(),
            stripe.outages.to_string(),
            show_duration(stripe.down),
            stripe.retransmitted_segments.map(|segments| segments.to_string()).unwrap_or_default(),
            state.to_owned(),
        ]
    };
    let head =
        vec!["stripe", "bytes", "throughput", "streams", "outages", "time down", "retransmitted segments", "state"];
    HtmlTable { name: "Stripes".into(), head, rows: stripes.iter().map(row).collect() }
}
