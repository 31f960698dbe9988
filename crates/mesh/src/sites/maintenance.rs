//! Maintenance windows: planned work at a site, on a circuit or on the path of a pair.

use std::time::Duration;

/// Planned work, once or repeated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Maintenance {
    pub scope: MaintenanceScope,
    /// Start of the first window: time since 1970.
    pub start: Duration,
    /// Length of a window, more than zero.
    pub length: Duration,
    /// Time from the start of a window to the start of the next one; longer than the window.
    pub every: Option<Duration>,
    pub reason: Option<String>,
}

/// Part of the network that is maintained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MaintenanceScope {
    /// Every pair with a host of this site.
    Site(String),
    /// Every pair between the two sites of this circuit, and every pair that passes its bottleneck.
    Circuit(String),
    /// Pairs of hosts of these two sites or hosts, in both directions.
    Pair([String; 2]),
}

/// One window: times since 1970, without the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    pub start: Duration,
    pub end: Duration,
}

impl Maintenance {
    /// Returns the window that contains `time`, or else the first window after it; `None` after the last window.
    pub fn window(&self, time: Duration) -> Option<Window> {
        let at = |start: Duration| Some(Window { start, end: start.checked_add(self.length)? });
        let Some(every) = self.every.filter(|every| !every.is_zero()) else {
            return at(self.start).filter(|window| time < window.end);
        };
        let count = time.saturating_sub(self.start).as_nanos() / every.as_nanos();
        let every_seconds = u32::try_from(count).ok()?;
        let window = at(self.start.checked_add(every.checked_mul(every_seconds)?)?)?;
        if time < window.end { Some(window) } else { at(window.start.checked_add(every)?) }
    }

    /// Reports whether a window overlaps the time from `from` to `until`.
    pub fn overlaps(&self, from: Duration, until: Duration) -> bool {
        self.window(from).is_some_and(|window| window.start <= until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn maintenance(every: Option<u64>) -> Maintenance {
        Maintenance {
            scope: MaintenanceScope::Site("ncar".to_owned()),
            start: Duration::from_secs(100),
            length: Duration::from_secs(10),
            every: every.map(Duration::from_secs),
            reason: None,
        }
    }

    fn start_of_window(maintenance: &Maintenance, time: u64) -> Option<u64> {
        maintenance.window(Duration::from_secs(time)).map(|window| window.start.as_secs())
    }

    #[test]
    fn a_single_window_is_next_until_it_ends() {
        let once = maintenance(None);
        let starts = [0, 100, 109, 110].map(|time| start_of_window(&once, time));
        assert_eq!(starts, [Some(100), Some(100), Some(100), None]);
    }

    #[test]
    fn a_repeated_window_has_a_next_one() {
        let weekly = maintenance(Some(50));
        let starts = [0, 109, 110, 149, 159, 160].map(|time| start_of_window(&weekly, time));
        assert_eq!(starts, [Some(100), Some(100), Some(150), Some(150), Some(150), Some(200)]);
        assert!(weekly.overlaps(Duration::from_secs(140), Duration::from_secs(150)));
        assert!(!weekly.overlaps(Duration::from_secs(110), Duration::from_secs(149)));
    }
}
