//! The sweeps of Figures 16 to 21, and the goodput that the reports give.
//!
//! The curves of the figures have no printed numbers. The published points are the runs of the same tests in the text of
//! the reports.

use lfn_base::units::BitRate;

use super::windows::WINDOWS;
use crate::design::{Design, FactorValues, Part};
use crate::factor::{Factor, Level, Value};

/// Window of one BDP: 135 Mb/s · 539 ms (report 000).
const OPTIMAL_WINDOW: u64 = 9_095_625;

/// Record of the runs over the operations (report 000).
const RECORD: u64 = 3_000_000;

/// A published goodput of one setting.
#[derive(Debug, Clone, PartialEq)]
pub struct PublishedRun {
    /// Name of the part.
    pub part: &'static str,
    /// Settings of the run, as far as the part varies them.
    pub levels: Vec<Level>,
    /// Rate of the `write` line.
    pub goodput: BitRate,
}

/// Name of the part for Figure 16.
pub const FIGURE_16: &str = "Figure 16: window shift";
/// Name of the part for Figure 17.
pub const FIGURE_17: &str = "Figure 17: window size";
/// Name of the part for Figure 18.
pub const FIGURE_18: &str = "Figure 18: operations";
/// Name of the part for Figure 19.
pub const FIGURE_19: &str = "Figure 19: NCAR to OSC";
/// Name of the part for Figure 21.
pub const FIGURE_21: &str = "Figure 21: terrestrial segment";

/// RTT below which `--acts` repeats Figure 21, a terrestrial segment, and not the satellite path.
pub const MAX_TERRESTRIAL_RTT: std::time::Duration = std::time::Duration::from_millis(50);

fn part(name: &str, factors: &[(Factor, &[u64])]) -> Part {
    let values = |numbers: &[u64]| numbers.iter().map(|number| Value::Number(*number)).collect();
    let factors =
        factors.iter().map(|(factor, numbers)| FactorValues { factor: *factor, values: values(numbers) }).collect();
    Part { name: name.to_owned(), factors }
}

fn both_directions() -> FactorValues {
    let values = ["forward", "reverse"].map(|name| Value::Name(name.to_owned())).to_vec();
    FactorValues { factor: Factor::Direction, values }
}

/// Returns the sweeps of Figures 16 to 19.
pub fn satellite_design() -> Design {
    let windows = [1_136_953, 2_273_906, 4_547_813, 6_821_719, OPTIMAL_WINDOW, 11_369_531, 13_643_438, 16_776_960];
    let operations = [(Factor::Window, &[10_000_000u64][..]), (Factor::WindowScale, &[8]), (Factor::Record, &[RECORD])];
    let counted = |name, counts| part(name, &[operations[0], operations[1], operations[2], (Factor::Count, counts)]);
    let mut end_to_end = counted(FIGURE_19, &[30, 100]);
    end_to_end.factors.push(both_directions());
    Design {
        parts: vec![
            part(FIGURE_16, &[(Factor::Window, &[OPTIMAL_WINDOW]), (Factor::WindowScale, &[4, 5, 6, 7, 8])]),
            part(FIGURE_17, &[(Factor::Window, &windows), (Factor::WindowScale, &[8])]),
            counted(FIGURE_18, &[10, 30, 100, 300]),
            end_to_end,
        ],
    }
}

/// Returns the sweep of Figure 21.
pub fn terrestrial_design() -> Design {
    let mut figure = part(FIGURE_21, &[(Factor::Window, &[16_384, 37_500, 65_535, 131_072])]);
    figure.factors.push(both_directions());
    Design { parts: vec![figure] }
}

/// Returns the published runs.
pub fn published_runs() -> Vec<PublishedRun> {
    let number = |factor, number| Level { factor, value: Value::Number(number) };
    let direction = |name: &str| Level { factor: Factor::Direction, value: Value::Name(name.to_owned()) };
    let run = |part, levels: Vec<Level>, goodput| PublishedRun { part, levels, goodput: BitRate(goodput) };
    let scaled = |part, window, scale, goodput| {
        run(part, vec![number(Factor::Window, window), number(Factor::WindowScale, scale)], goodput)
    };
    let counted = |count, goodput| run(FIGURE_18, vec![number(Factor::Count, count)], goodput);
    let end_to_end =
        |count, way: &str, goodput| run(FIGURE_19, vec![number(Factor::Count, count), direction(way)], goodput);
    let segment =
        |window, way: &str, goodput| run(FIGURE_21, vec![number(Factor::Window, window), direction(way)], goodput);
    // Report 000, "Batteries of nettest/nettestd suites". Shift 7 can announce the smallest of these windows too.
    let windows = WINDOWS.iter().map(|window| scaled(FIGURE_17, window.bytes.0, 8, window.goodput.0));
    let optimal = WINDOWS.iter().filter(|window| window.bytes.0 == OPTIMAL_WINDOW);
    let shifts = optimal.map(|window| scaled(FIGURE_16, OPTIMAL_WINDOW, window.scale.into(), window.goodput.0));
    let others = [
        // Report 000, aztec to echo in loopback over the satellite: 100 and 1000 records of 3,000,000 bytes.
        counted(100, 82_921_000),
        counted(1000, 121_634_000),
        // Report 000, NCAR (aztec) to OSC, and OSC to NCAR.
        end_to_end(100, "forward", 83_317_000),
        end_to_end(1000, "forward", 117_009_000),
        end_to_end(1000, "reverse", 115_559_000),
        // Report 000, SGI Onyx (magic) and Cray J-916 (aztec).
        segment(37_500, "forward", 50_314_000),
        segment(65_535, "forward", 71_429_000),
        segment(37_500, "reverse", 44_444_000),
        segment(65_535, "reverse", 64_431_000),
    ];
    windows.chain(shifts).chain(others).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::summarize_parts;

    #[test]
    fn designs_of_the_figures_are_valid() {
        let points = satellite_design().points().unwrap();
        assert_eq!(points.parts.iter().map(Vec::len).collect::<Vec<_>>(), [5, 8, 4, 4]);
        // The optimum is in Figures 16 and 17, and two points of Figure 18 are the forward points of Figure 19.
        assert_eq!(points.levels.len(), 5 + 8 - 1 + 4 + 4);
        assert_eq!(terrestrial_design().points().unwrap().levels.len(), 8);
    }

    #[test]
    fn every_published_run_belongs_to_a_figure() {
        let mut shown = 0;
        for design in [satellite_design(), terrestrial_design()] {
            let points = design.points().unwrap();
            for part in summarize_parts(&design, &points, &[]) {
                let repeated = part.published.iter().filter(|run| run.point.is_some()).count();
                assert!(repeated > 0, "{}", part.grid.name);
                shown += part.published.len();
            }
        }
        assert_eq!(shown, published_runs().len());
    }
}
