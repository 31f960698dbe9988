//! The design of a sweep: its parts, the points of each part, and the random order of a block.

use std::collections::HashMap;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;
use serde::{Deserialize, Serialize};

use crate::factor::{Factor, Level, Value};
use crate::values::{MAX_POINTS, ValuesError, check_duplicates};

/// The parts of a sweep. A sweep of flags has one part.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct Design {
    /// Grids of points, one picture each.
    pub parts: Vec<Part>,
}

/// A grid: every combination of the values of its factors.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct Part {
    /// Name of the grid, such as the figure that it repeats; empty for a grid of flags.
    #[serde(default)]
    pub name: String,
    /// Factors with their values, in the order of the columns.
    pub factors: Vec<FactorValues>,
}

/// A factor with all its values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct FactorValues {
    /// Setting of the test.
    pub factor: Factor,
    /// Values in the order in which they were given.
    pub values: Vec<Value>,
}

/// All points of a design. A point that several parts have is one point.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Points {
    /// Levels of each point.
    pub levels: Vec<Vec<Level>>,
    /// For each part, the numbers of its points in the order of its grid.
    pub parts: Vec<Vec<usize>>,
}

/// Reasons why a design is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DesignError {
    #[error("the sweep has no points: no setting varies")]
    NoPoints,
    #[error("the sweep has {}points: at most {MAX_POINTS} are allowed", .0.map(|count| format!("{count} ")).unwrap_or_else(|| "too many ".to_owned()))]
    TooManyPoints(Option<u64>),
    #[error("--{} is given twice", .0.name())]
    FactorTwice(Factor),
    #[error("--{}: {source}", .factor.name())]
    Values { factor: Factor, source: ValuesError },
    /// The second setting has no effect next to the first, or both set the same thing.
    #[error("--{} and --{} cannot be combined: both set the receive window", .0.name(), .1.name())]
    BothSetWindow(Factor, Factor),
    #[error("--far-window has no effect in the direction reverse, in which the client receives")]
    FarWindowInReverse,
}

impl DesignError {
    /// Returns one action that may fix the error.
    pub fn hint(&self) -> String {
        match self {
            DesignError::NoPoints => "give values of a setting: --window 1MB..16MB:x2".to_owned(),
            DesignError::TooManyPoints(_) => "use fewer values, or a larger step".to_owned(),
            DesignError::FactorTwice(factor) => {
                format!("use one list: --{} {}", factor.name(), factor.example())
            }
            DesignError::Values { factor, .. } => format!("--{} {}", factor.name(), factor.example()),
            DesignError::BothSetWindow(_, second) => format!("remove --{}", second.name()),
            DesignError::FarWindowInReverse => "use --window, which is the window of the receiving end".to_owned(),
        }
    }
}

impl Design {
    /// Checks the factors and the number of points, and returns the points.
    pub fn points(&self) -> Result<Points, DesignError> {
        let mut count = 0u64;
        for part in &self.parts {
            part.check()?;
            let mut sizes = part.factors.iter().map(|factor| factor.values.len() as u64);
            let product = sizes.try_fold(1u64, u64::checked_mul);
            let sum = product.and_then(|product| count.checked_add(product));
            count = sum.ok_or(DesignError::TooManyPoints(None))?;
        }
        match usize::try_from(count) {
            Ok(0) => Err(DesignError::NoPoints),
            Ok(fits) if fits <= MAX_POINTS => Ok(self.unique_points()),
            _ => Err(DesignError::TooManyPoints(Some(count))),
        }
    }

    fn unique_points(&self) -> Points {
        let mut known: HashMap<Vec<Level>, usize> = HashMap::new();
        let mut points = Points { levels: Vec::new(), parts: Vec::new() };
        for part in &self.parts {
            let numbers = part.grid().into_iter().map(|levels| {
                let mut key = levels.clone();
                key.sort();
                *known.entry(key).or_insert_with(|| {
                    points.levels.push(levels);
                    points.levels.len() - 1
                })
            });
            let numbers = numbers.collect();
            points.parts.push(numbers);
        }
        points
    }
}

impl Part {
    fn check(&self) -> Result<(), DesignError> {
        if self.factors.is_empty() {
            return Err(DesignError::NoPoints);
        }
        for (at, FactorValues { factor, values }) in self.factors.iter().enumerate() {
            if self.factors[..at].iter().any(|earlier| earlier.factor == *factor) {
                return Err(DesignError::FactorTwice(*factor));
            }
            check_duplicates(*factor, values).map_err(|source| DesignError::Values { factor: *factor, source })?;
        }
        let has = |factor: Factor| self.factors.iter().any(|given| given.factor == factor);
        let windows = [
            (Factor::Window, Factor::FarWindow),
            (Factor::Window, Factor::ReceiveBuffer),
            (Factor::FarWindow, Factor::ReceiveBuffer),
            (Factor::WindowScale, Factor::ReceiveBuffer),
        ];
        if let Some((first, second)) = windows.into_iter().find(|(first, second)| has(*first) && has(*second)) {
            return Err(DesignError::BothSetWindow(first, second));
        }
        let is_reverse = |value: &Value| matches!(value, Value::Name(name) if name == "reverse");
        let reverses = |given: &FactorValues| given.factor == Factor::Direction && given.values.iter().any(is_reverse);
        if has(Factor::FarWindow) && self.factors.iter().any(reverses) {
            return Err(DesignError::FarWindowInReverse);
        }
        Ok(())
    }

    /// Returns every combination of values. The last factor varies fastest.
    fn grid(&self) -> Vec<Vec<Level>> {
        self.factors.iter().fold(vec![Vec::new()], |points, FactorValues { factor, values }| {
            let with = |point: &Vec<Level>, value: &Value| {
                let level = Level { factor: *factor, value: value.clone() };
                point.iter().cloned().chain([level]).collect()
            };
            points.iter().flat_map(|point| values.iter().map(move |value| with(point, value))).collect()
        })
    }

    /// Returns the factors that have more than one value.
    pub fn varied(&self) -> Vec<Factor> {
        self.factors.iter().filter(|factor| factor.values.len() > 1).map(|factor| factor.factor).collect()
    }
}

/// Returns the order of the points in a block: random, and the same for the same seed and block.
pub fn block_order(points: usize, seed: u64, block: u32) -> Vec<usize> {
    let mut order: Vec<usize> = (0..points).collect();
    // Each block has a stream of its own, so that a resumed sweep needs no earlier random numbers.
    let mut random = Pcg64::seed_from_u64(seed ^ (u64::from(block) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    order.shuffle(&mut random);
    order
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::values::parse_values;

    fn part(factors: &[(Factor, &str)]) -> Part {
        let factors = factors
            .iter()
            .map(|(factor, text)| FactorValues { factor: *factor, values: parse_values(*factor, text).unwrap() });
        Part { name: String::new(), factors: factors.collect() }
    }

    fn design(factors: &[(Factor, &str)]) -> Design {
        Design { parts: vec![part(factors)] }
    }

    #[test]
    fn points_are_all_combinations() {
        let points = design(&[(Factor::Window, "1MB..4MB:x2"), (Factor::Streams, "1,4")]).points().unwrap();
        assert_eq!(points.levels.len(), 6);
        assert_eq!(points.parts, [[0, 1, 2, 3, 4, 5]]);
        assert_eq!(points.levels[1][1], Level { factor: Factor::Streams, value: Value::Number(4) });
    }

    #[test]
    fn a_point_of_two_parts_is_one_point() {
        let parts = vec![
            part(&[(Factor::Window, "1MB,2MB"), (Factor::WindowScale, "7,8")]),
            part(&[(Factor::WindowScale, "8"), (Factor::Window, "2MB,4MB")]),
        ];
        let points = Design { parts }.points().unwrap();
        assert_eq!(points.levels.len(), 5);
        assert_eq!(points.parts, [vec![0, 1, 2, 3], vec![3, 4]]);
    }

    #[test]
    fn zero_points_and_a_million_are_refused() {
        assert_eq!(Design::default().points(), Err(DesignError::NoPoints));
        assert_eq!(design(&[]).points(), Err(DesignError::NoPoints));
        let hundred = "1..100:+1";
        let million = design(&[(Factor::Streams, hundred), (Factor::Count, hundred), (Factor::Mss, "101..200:+1")]);
        let error = million.points().unwrap_err();
        assert_eq!(error, DesignError::TooManyPoints(Some(1_000_000)));
        assert_eq!(error.to_string(), "the sweep has 1000000 points: at most 10000 are allowed");
        let many = "1..10000:+1";
        let all = [Factor::Window, Factor::SendBuffer, Factor::Record, Factor::Count, Factor::Streams];
        let huge = all.map(|factor| (factor, many));
        assert_eq!(design(&huge).points(), Err(DesignError::TooManyPoints(None)));
    }

    #[test]
    fn contradictory_factors_are_refused() {
        let window = (Factor::Window, "1MB,2MB");
        for second in [Factor::FarWindow, Factor::ReceiveBuffer] {
            let refused = design(&[(second, "1MB"), window]).points();
            assert_eq!(refused, Err(DesignError::BothSetWindow(Factor::Window, second)));
        }
        assert_eq!(design(&[window, window]).points(), Err(DesignError::FactorTwice(Factor::Window)));
        let far = design(&[(Factor::FarWindow, "1MB"), (Factor::Direction, "forward,reverse")]);
        assert_eq!(far.points(), Err(DesignError::FarWindowInReverse));
    }

    proptest! {
        #[test]
        fn each_block_has_every_point_once(points in 0usize..200, seed: u64, block in 0u32..50) {
            let mut order = block_order(points, seed, block);
            prop_assert_eq!(&order, &block_order(points, seed, block));
            order.sort_unstable();
            prop_assert_eq!(order, (0..points).collect::<Vec<_>>());
        }
    }

    #[test]
    fn blocks_have_different_orders() {
        assert_ne!(block_order(20, 1, 0), block_order(20, 1, 1));
        assert_ne!(block_order(20, 1, 0), block_order(20, 2, 0));
    }
}
