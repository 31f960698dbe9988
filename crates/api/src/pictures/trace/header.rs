//! Header of the pictures: the ends of the connection, and the main figures in words.

use std::time::Duration;

use lfn_base::units::show_duration;
use lfn_plot::shorten;

use super::steps::idle_share;
use super::view::View;

/// Maximum characters of the name of a capture.
const MAX_NAME: usize = 200;

/// Returns the lines below the title.
pub(super) fn lines(view: &View<'_>) -> Vec<String> {
    let ends = format!("{} → {}", view.evidence.sender, view.evidence.receiver);
    vec![ends, shorten(view.name, MAX_NAME), facts(view)]
}

/// Returns the main figures of the shown time.
fn facts(view: &View<'_>) -> String {
    let span = Duration::from_secs_f64(view.to - view.from);
    let bytes = view.acknowledged();
    let mut facts = format!("{} acknowledged in {}, {}", bytes.decimal(), show_duration(span), bytes.per(span));
    if !view.evidence.rtt.base.is_zero() {
        facts += &format!(", base RTT {}", show_duration(view.evidence.rtt.base));
    }
    if let Some(idle) = idle_share(view) {
        facts += &format!(", nearly idle {:.0} % of the time", idle * 100.0);
    }
    facts
}
