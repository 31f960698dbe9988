//! Positions in a picture, in its own units.

/// Formats a position with at most one decimal.
pub(super) fn position(value: f64) -> String {
    let rounded = (value * 10.0).round() / 10.0;
    if rounded == rounded.trunc() { format!("{rounded:.0}") } else { format!("{rounded:.1}") }
}
