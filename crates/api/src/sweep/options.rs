//! Options of a sweep, and the options of the test of each point.

use std::path::PathBuf;
use std::time::Duration;

use lfn_base::congestion_request::CongestionRequest;
use lfn_base::units::{BitRate, Bytes};
use lfn_campaign::design::Design;
use lfn_campaign::factor::{Factor, Level, Value};
use lfn_campaign::schedule::Goals;
use lfn_results::measure::{MAX_STREAMS, TestDirection, TestLoad};

use crate::test::TestOptions;

/// Maximum time without a finished run before a sweep ends, if the options give no other.
pub const RETRY_FOR: Duration = Duration::from_secs(600);

/// Options of a sweep.
#[derive(Debug, Clone)]
pub struct SweepOptions {
    /// Server, load and other options of all tests. The factors override them.
    pub test: TestOptions,
    /// Factors with all their values.
    pub design: Design,
    /// Goals that end the sweep.
    pub goals: Goals,
    /// Seed of the random order; `None` chooses one.
    pub seed: Option<u64>,
    /// File from which the sweep resumes; `None` for `lfn-sweep-ID.ndjson` in the current directory.
    pub state: Option<PathBuf>,
    /// Plan the sweep only.
    pub dry_run: bool,
    /// Maximum time without a finished run, in which failed runs are repeated.
    pub retry_for: Duration,
}

/// Returns the options of the test of one point.
pub(super) fn point_options(test: &TestOptions, levels: &[Level]) -> TestOptions {
    let mut options = test.clone();
    let mut window: Option<Bytes> = None;
    let mut far_window: Option<Bytes> = None;
    for Level { factor, value } in levels {
        match (factor, value) {
            (Factor::Congestion, Value::Name(name)) => {
                let congestion = vec![CongestionRequest::Requested(name.clone())];
                options.near_socket.congestion.clone_from(&congestion);
                options.request.socket.congestion = congestion;
            }
            (Factor::Direction, Value::Name(name)) => {
                let is_reverse = name == "reverse";
                options.directions = vec![if is_reverse { TestDirection::Reverse } else { TestDirection::Forward }];
            }
            (Factor::Window, Value::Number(bytes)) => window = Some(Bytes(*bytes)),
            (Factor::FarWindow, Value::Number(bytes)) => far_window = Some(Bytes(*bytes)),
            (factor, Value::Number(number)) => set_number(&mut options, *factor, *number),
            (_, Value::Name(_)) => {}
        }
    }
    // A scale limits the window that is announced. The kernel uses the smallest scale that fits the window.
    let most = levels.iter().find(|level| level.factor == Factor::WindowScale).and_then(scale_limit);
    let limited = |window: Option<Bytes>| match (window, most) {
        (Some(window), Some(most)) => Some(window.min(most)),
        (window, None) => window,
        (None, most) => most,
    };
    if far_window.is_some() {
        options.request.socket.window = limited(far_window);
    } else if window.is_some() || most.is_some() {
        options.near_socket.window = limited(window);
        options.request.socket.window = limited(window);
    }
    options
}

/// Returns the largest window that a scale can announce (RFC 7323, section 2.2).
fn scale_limit(level: &Level) -> Option<Bytes> {
    match level.value {
        Value::Number(scale) => Some(Bytes(65_535u64.checked_shl(u32::try_from(scale).ok()?)?)),
        Value::Name(_) => None,
    }
}

fn set_number(options: &mut TestOptions, factor: Factor, number: u64) {
    let bytes = Some(Bytes(number));
    let ends = [&mut options.near_socket, &mut options.request.socket];
    match factor {
        Factor::SendBuffer => ends.into_iter().for_each(|end| end.sndbuf = bytes),
        Factor::ReceiveBuffer => ends.into_iter().for_each(|end| end.rcvbuf = bytes),
        Factor::Pacing => ends.into_iter().for_each(|end| end.pacing = vec![BitRate(number)]),
        Factor::Mss => options.near_socket.mss = bytes,
        Factor::Record => options.request.record = Bytes(number),
        Factor::Count => options.request.load = TestLoad::Records(number),
        // A number above the maximum stays above, so that the check of the request refuses it.
        Factor::Streams => options.request.streams = u16::try_from(number).unwrap_or(MAX_STREAMS + 1),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(factor: Factor, number: u64) -> Level {
        Level { factor, value: Value::Number(number) }
    }

    #[test]
    fn a_scale_limits_the_window() {
        let test = TestOptions::new("far");
        let window = |levels: &[Level]| point_options(&test, levels).request.socket.window;
        let optimal = level(Factor::Window, 9_095_625);
        assert_eq!(window(std::slice::from_ref(&optimal)), Some(Bytes(9_095_625)));
        assert_eq!(window(&[optimal.clone(), level(Factor::WindowScale, 8)]), Some(Bytes(9_095_625)));
        assert_eq!(window(&[optimal, level(Factor::WindowScale, 7)]), Some(Bytes(65_535 << 7)));
        assert_eq!(window(&[level(Factor::WindowScale, 0)]), Some(Bytes(65_535)));
        assert_eq!(window(&[]), None);
    }

    #[test]
    fn levels_set_the_options_of_the_test() {
        let direction = Level { factor: Factor::Direction, value: Value::Name("reverse".to_owned()) };
        let levels = [level(Factor::Streams, 4), level(Factor::Count, 100), level(Factor::FarWindow, 5000), direction];
        let options = point_options(&TestOptions::new("far"), &levels);
        assert_eq!((options.request.streams, options.request.load), (4, TestLoad::Records(100)));
        assert_eq!((options.request.socket.window, options.near_socket.window), (Some(Bytes(5000)), None));
        assert_eq!(options.directions, [TestDirection::Reverse]);
    }
}
