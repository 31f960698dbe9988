//! Values of a factor as text: lists (`1,4,16`), geometric ranges (`1MB..16MB:x2`) and ranges with a step (`1..9:+2`).

use lfn_base::units::{BitRate, Bytes};

use crate::factor::{Factor, MAX_WINDOW_SCALE, Unit, Value};

/// Maximum points of a sweep, and so the maximum values of a factor.
pub const MAX_POINTS: usize = 10_000;

/// Reasons why a text has no values of a factor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ValuesError {
    #[error("a value is empty")]
    Empty,
    /// The text of the parser of the quantity.
    #[error("{0}")]
    Quantity(String),
    #[error("'{0}' is not an integer above zero")]
    NotANumber(String),
    #[error("'{0}' is not a window scale: 0 to {MAX_WINDOW_SCALE} are allowed")]
    WindowScale(String),
    #[error("'{0}' is not a direction: forward or reverse")]
    Direction(String),
    #[error("'{0}' is a range of names")]
    RangeOfNames(String),
    #[error("the range '{0}' has no step: add :x2 to multiply, or :+1 to add")]
    NoStep(String),
    /// A factor of at most 1, or a step of zero.
    #[error("the range '{0}' does not grow to another whole number: use a larger factor or step")]
    NoGrowth(String),
    #[error("the range '{0}' ends before its start")]
    Backwards(String),
    #[error("more than {MAX_POINTS} values")]
    TooMany,
    #[error("the value '{0}' occurs twice")]
    Duplicate(String),
}

/// Step of a range.
enum Step {
    Times(f64),
    Plus(u64),
}

/// Parses a list of values and ranges. The values keep their order.
pub fn parse_values(factor: Factor, text: &str) -> Result<Vec<Value>, ValuesError> {
    let mut values = Vec::new();
    for part in text.split(',').map(str::trim) {
        if part.is_empty() {
            return Err(ValuesError::Empty);
        }
        match part.split_once("..") {
            Some((start, rest)) => add_range(factor, part, [start, rest], &mut values)?,
            None => values.push(parse_value(factor, part)?),
        }
        if values.len() > MAX_POINTS {
            return Err(ValuesError::TooMany);
        }
    }
    check_duplicates(factor, &values)?;
    Ok(values)
}

/// Refuses a value that occurs twice.
pub fn check_duplicates(factor: Factor, values: &[Value]) -> Result<(), ValuesError> {
    let mut sorted: Vec<&Value> = values.iter().collect();
    sorted.sort();
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(ValuesError::Duplicate(factor.show(pair[0]))),
        None => Ok(()),
    }
}

fn add_range(factor: Factor, text: &str, ends: [&str; 2], values: &mut Vec<Value>) -> Result<(), ValuesError> {
    let whole = || text.to_owned();
    if factor.unit() == Unit::Name {
        return Err(ValuesError::RangeOfNames(whole()));
    }
    let [start, rest] = ends;
    let (end, step) = rest.split_once(':').ok_or_else(|| ValuesError::NoStep(whole()))?;
    let (start, end) = (parse_number(factor, start.trim())?, parse_number(factor, end.trim())?);
    let step = parse_step(factor, step.trim()).ok_or_else(|| ValuesError::NoStep(whole()))??;
    if end < start {
        return Err(ValuesError::Backwards(whole()));
    }
    let mut at = start;
    loop {
        values.push(Value::Number(at));
        if values.len() > MAX_POINTS {
            return Err(ValuesError::TooMany);
        }
        let next = match step {
            // A float above the range becomes the largest integer.
            Step::Times(times) => (at as f64 * times).round() as u64,
            Step::Plus(plus) => at.saturating_add(plus),
        };
        if next <= at {
            return Err(ValuesError::NoGrowth(whole()));
        }
        if next > end {
            return Ok(());
        }
        at = next;
    }
}

/// Parses `x2` or `+2`; `None` for another text.
fn parse_step(factor: Factor, text: &str) -> Option<Result<Step, ValuesError>> {
    if let Some(times) = text.strip_prefix(['x', '*']) {
        let times: f64 = times.trim().parse().ok()?;
        return times.is_finite().then_some(Ok(Step::Times(times)));
    }
    let plus = text.strip_prefix('+')?.trim();
    Some(match factor.unit() {
        Unit::Number => plus.parse().map(Step::Plus).map_err(|_| ValuesError::NotANumber(plus.to_owned())),
        _ => parse_number(factor, plus).map(Step::Plus),
    })
}

fn parse_value(factor: Factor, text: &str) -> Result<Value, ValuesError> {
    if factor == Factor::Direction && !matches!(text, "forward" | "reverse") {
        return Err(ValuesError::Direction(text.to_owned()));
    }
    if factor.unit() == Unit::Name {
        return Ok(Value::Name(text.to_owned()));
    }
    parse_number(factor, text).map(Value::Number)
}

fn parse_number(factor: Factor, text: &str) -> Result<u64, ValuesError> {
    let quantity = |error: &dyn std::fmt::Display| ValuesError::Quantity(error.to_string());
    match factor.unit() {
        Unit::Bytes => text.parse().map(|Bytes(bytes)| bytes).map_err(|error| quantity(&error)),
        Unit::Rate => text.parse().map(|BitRate(rate)| rate).map_err(|error| quantity(&error)),
        Unit::Number | Unit::Name if factor == Factor::WindowScale => text
            .parse()
            .ok()
            .filter(|scale| *scale <= MAX_WINDOW_SCALE)
            .ok_or_else(|| ValuesError::WindowScale(text.to_owned())),
        Unit::Number | Unit::Name => {
            text.parse().ok().filter(|number| *number > 0).ok_or_else(|| ValuesError::NotANumber(text.to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn numbers(factor: Factor, text: &str) -> Vec<u64> {
        let number = |value| if let Value::Number(number) = value { number } else { panic!("{value:?}") };
        parse_values(factor, text).unwrap().into_iter().map(number).collect()
    }

    #[test]
    fn lists_and_ranges_give_their_values() {
        assert_eq!(numbers(Factor::Window, "1MB..16MB:x2"), [1, 2, 4, 8, 16].map(|mb| mb * 1_000_000));
        assert_eq!(numbers(Factor::Streams, "1..16:x2"), [1, 2, 4, 8, 16]);
        assert_eq!(numbers(Factor::Count, "1..9:+2"), [1, 3, 5, 7, 9]);
        assert_eq!(numbers(Factor::Count, "1..10:+4, 20"), [1, 5, 9, 20]);
        assert_eq!(numbers(Factor::Window, "1MB..2MB:+500kB"), [1_000_000, 1_500_000, 2_000_000]);
        assert_eq!(numbers(Factor::Pacing, "50mbit,1gbit"), [50_000_000, 1_000_000_000]);
        assert_eq!(numbers(Factor::WindowScale, "0..2:+1"), [0, 1, 2]);
        assert_eq!(numbers(Factor::Streams, "1..20:x1.5"), [1, 2, 3, 5, 8, 12, 18]);
        let names = parse_values(Factor::Congestion, "cubic,bbr").unwrap();
        assert_eq!(names, ["cubic", "bbr"].map(|name| Value::Name(name.to_owned())));
    }

    #[test]
    fn bad_values_have_errors_that_name_them() {
        let cases = [
            (Factor::Window, "", "empty"),
            (Factor::Window, "1MB,,2MB", "empty"),
            (Factor::Window, "1MB..16MB", "no step"),
            (Factor::Window, "1MB..16MB:2", "no step"),
            (Factor::Window, "1MB..16MB:x1", "does not grow"),
            (Factor::Window, "1MB..16MB:xinf", "no step"),
            (Factor::Window, "0..16MB:x2", "does not grow"),
            (Factor::Count, "1..9:+0", "does not grow"),
            (Factor::Streams, "16..1:x2", "ends before"),
            (Factor::Streams, "0", "above zero"),
            (Factor::Streams, "four", "four"),
            (Factor::Count, "1..1000000000:+1", "more than 10000"),
            (Factor::Streams, "1,4,1", "occurs twice"),
            (Factor::Streams, "1..4:+1,2", "occurs twice"),
            (Factor::WindowScale, "15", "0 to 14"),
            (Factor::Direction, "up", "forward or reverse"),
            (Factor::Congestion, "a..b:x2", "range of names"),
            (Factor::Window, "9 bananas", "bananas"),
        ];
        for (factor, text, says) in cases {
            let error = parse_values(factor, text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_ends_in_values_or_an_error(text in "[0-9MBk.,:x+*a-z -]{0,40}", factor in 0usize..12) {
            if let Ok(values) = parse_values(Factor::ALL[factor], &text) {
                prop_assert!(!values.is_empty() && values.len() <= MAX_POINTS);
            }
        }

        #[test]
        fn ranges_grow_from_start_to_end(start in 1u64..1000, more in 0u64..100_000, step in 10u64..1000) {
            let end = start + more;
            let values = numbers(Factor::Count, &format!("{start}..{end}:+{step}"));
            prop_assert_eq!(values[0], start);
            prop_assert_eq!(values.len() as u64, more / step + 1);
            prop_assert!(values.iter().all(|value| *value <= end));
        }
    }
}
