//! Axes: scales with labels at 1, 2 and 5 times powers of ten, and units with SI prefixes.

/// Unit of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Time: ns, µs, ms or s.
    Seconds,
    /// Bytes with prefixes of powers of ten.
    Bytes,
    /// Bits per second with prefixes of powers of ten.
    BitsPerSecond,
    Percent,
    /// A number, with the name of the counted things in the name of the axis.
    Count,
}

/// Values and name of an axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    pub name: String,
    pub unit: Unit,
    pub low: f64,
    pub high: f64,
    pub kind: AxisKind,
}

/// Spacing and ends of an axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AxisKind {
    /// The ends are labelled values that include the values.
    Rounded,
    /// The ends are exactly the values, as for a range of time.
    Exact,
    /// Logarithmic, between labelled values that include the values.
    Logarithmic,
    /// Names in columns of the same width: the value of the first column is 0, that of the next one 1.
    Categories(Vec<String>),
}

impl Axis {
    /// Returns an axis from zero that includes `high`.
    pub fn from_zero(name: &str, unit: Unit, high: f64) -> Self {
        Axis { name: name.to_owned(), unit, low: 0.0, high, kind: AxisKind::Rounded }
    }

    /// Returns an axis that includes both values and may begin above zero, for places and not for amounts.
    pub fn between(name: &str, unit: Unit, low: f64, high: f64) -> Self {
        Axis { name: name.to_owned(), unit, low, high, kind: AxisKind::Rounded }
    }

    /// Returns an axis exactly from the first to the last value.
    pub fn exact(name: &str, unit: Unit, low: f64, high: f64) -> Self {
        Axis { name: name.to_owned(), unit, low, high, kind: AxisKind::Exact }
    }

    /// Returns a logarithmic axis that includes both values, which must be above zero.
    pub fn logarithmic(name: &str, unit: Unit, low: f64, high: f64) -> Self {
        Axis { name: name.to_owned(), unit, low, high, kind: AxisKind::Logarithmic }
    }

    /// Returns an axis with a column for each name.
    pub fn categories(name: &str, names: Vec<String>) -> Self {
        let high = names.len() as f64;
        Axis { name: name.to_owned(), unit: Unit::Count, low: 0.0, high, kind: AxisKind::Categories(names) }
    }
}

/// A value of an axis with its label.
#[derive(Clone, Debug, PartialEq)]
pub struct Tick {
    pub value: f64,
    pub label: String,
}

/// An axis with its ends and its labels.
#[derive(Clone, Debug)]
pub struct Scale {
    low: f64,
    high: f64,
    is_logarithmic: bool,
    pub ticks: Vec<Tick>,
    /// Unit of the labels with its prefix, `Mb/s`; empty for a number.
    pub unit: String,
}

/// Largest number of a label without an exponent.
const MAX_NUMBER: f64 = 1e7;
/// Largest value of an axis; beyond it, differences of values are lost.
const MAX_VALUE: f64 = 1e30;
const PREFIXES: [(f64, &str); 7] =
    [(1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")];
const TIMES: [(f64, &str); 4] = [(1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")];

impl Scale {
    /// Returns the scale of an axis with at most `max_intervals` intervals between labels, at least one.
    pub fn new(axis: &Axis, max_intervals: usize) -> Self {
        let intervals = max_intervals.max(1) as f64;
        let bounded = |value: f64| if value.is_finite() { value.clamp(-MAX_VALUE, MAX_VALUE) } else { 0.0 };
        let (low, high) = (bounded(axis.low), bounded(axis.high));
        match &axis.kind {
            AxisKind::Logarithmic => Scale::logarithmic(axis.unit, low, high, intervals),
            AxisKind::Rounded => Scale::linear(axis.unit, low, high, intervals, true),
            AxisKind::Exact => Scale::linear(axis.unit, low, high, intervals, false),
            AxisKind::Categories(names) => Scale::categories(names),
        }
    }

    /// Returns a scale with a label in the middle of the column of each name.
    fn categories(names: &[String]) -> Self {
        let ticks = names.iter().enumerate().map(|(place, name)| Tick { value: place as f64, label: name.clone() });
        let high = names.len().max(1) as f64 - 0.5;
        Scale { low: -0.5, high, is_logarithmic: false, ticks: ticks.collect(), unit: String::new() }
    }

    fn linear(unit: Unit, low: f64, high: f64, intervals: f64, is_rounded: bool) -> Self {
        let smallest = low.abs().max(high.abs()) * 1e-9;
        let high = if high - low > smallest { high } else { low + smallest.max(smallest_span(unit)) };
        let (mut low, mut high) = (low, high);
        let mut step = round_up((high - low) / intervals);
        if is_rounded {
            (low, high) = ((low / step + 1e-9).floor() * step, (high / step - 1e-9).ceil() * step);
            // The rounded ends may need one interval more.
            while (high - low) / step > intervals + 0.5 && intervals >= 2.0 {
                step = round_up(step * 1.01);
                (low, high) = ((low / step + 1e-9).floor() * step, (high / step - 1e-9).ceil() * step);
            }
        }
        let (factor, name) = prefix(unit, low.abs().max(high.abs()));
        let first = (low / step - 1e-6).ceil();
        let count = ((high / step + 1e-6).floor() - first).clamp(0.0, 1000.0) as u32;
        let decimals = decimals(step / factor);
        let tick = |number: u32| {
            let value = (first + f64::from(number)) * step;
            Tick { value, label: number_label(value / factor, decimals) }
        };
        Scale { low, high, is_logarithmic: false, ticks: (0..=count).map(tick).collect(), unit: name }
    }

    fn logarithmic(unit: Unit, low: f64, high: f64, intervals: f64) -> Self {
        let high = if high > 0.0 { high } else { 1.0 };
        let low = if low > 0.0 { low.min(high) } else { high / 10.0 };
        // Dense labels first: 1, 2 and 5 in each decade, then one in each decade, then one in several decades.
        let dense: Vec<f64> = one_two_five(low, high);
        let (first, last) = (low.log10() + 1e-9, high.log10() - 1e-9);
        let values = if dense.len() as f64 <= intervals + 1.0 {
            dense
        } else {
            let decades = (last.ceil() - first.floor()).max(1.0);
            let stride = (decades / intervals).ceil().max(1.0);
            let count = (decades / stride).ceil() as i32;
            (0..=count).map(|number| 10_f64.powf(first.floor() + f64::from(number) * stride)).collect()
        };
        let (low, high) = (values.first().copied().unwrap_or(low), values.last().copied().unwrap_or(high));
        let ticks = values.into_iter().map(|value| Tick { value, label: prefixed_label(unit, value) }).collect();
        let name = if unit == Unit::Seconds { "s".to_owned() } else { prefix(unit, 1.0).1 };
        Scale { low, high, is_logarithmic: true, ticks, unit: name }
    }

    /// Returns the place of a value: 0 at the low end of the axis, and 1 at the high end.
    pub fn place(&self, value: f64) -> f64 {
        if self.is_logarithmic {
            let (low, high) = (self.low.log10(), self.high.log10());
            return (value.max(self.low / 1e6).log10() - low) / (high - low);
        }
        (value - self.low) / (self.high - self.low)
    }

    /// Returns the value at the high end.
    pub fn high(&self) -> f64 {
        self.high
    }

    /// Returns the value at a place from 0 to 1.
    pub fn value_at(&self, place: f64) -> f64 {
        if self.is_logarithmic {
            let (low, high) = (self.low.log10(), self.high.log10());
            return 10_f64.powf(low + place * (high - low));
        }
        self.low + place * (self.high - self.low)
    }
}

/// Returns the smallest span of an axis whose values are all zero.
fn smallest_span(unit: Unit) -> f64 {
    match unit {
        Unit::Seconds => 1e-3,
        Unit::Percent => 100.0,
        Unit::Bytes | Unit::BitsPerSecond | Unit::Count => 1.0,
    }
}

/// Returns the factor and the name of the unit for values up to `high`.
fn prefix(unit: Unit, high: f64) -> (f64, String) {
    let largest = |prefixes: &[(f64, &'static str)]| {
        let fits = prefixes.iter().find(|(factor, _)| high >= factor * 0.999_999);
        fits.or(prefixes.last()).copied().unwrap_or((1.0, ""))
    };
    match unit {
        Unit::Seconds => {
            // A time of up to 2 s is precise in ms.
            let (factor, name) = if (1.0..2.0).contains(&high) { (1e-3, "ms") } else { largest(&TIMES) };
            (factor, name.to_owned())
        }
        Unit::Percent => (1.0, "%".to_owned()),
        Unit::Count => {
            let (factor, name) = if high < 1e4 { (1.0, "") } else { largest(&PREFIXES) };
            let names = [("", ""), ("k", "thousands"), ("M", "millions"), ("G", "10⁹")];
            let name = names.iter().find(|(prefix, _)| *prefix == name);
            name.map_or((1.0, String::new()), |(_, name)| (factor, (*name).to_owned()))
        }
        Unit::Bytes | Unit::BitsPerSecond => {
            let (factor, name) = largest(&PREFIXES);
            (factor, format!("{name}{}", if unit == Unit::Bytes { "B" } else { "b/s" }))
        }
    }
}

/// Returns the label of a logarithmic axis, with its own prefix: `50 k`, `2 M`, `10 ms`.
fn prefixed_label(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Seconds => {
            let (factor, name) = TIMES.into_iter().find(|(factor, _)| value >= factor * 0.999).unwrap_or((1e-9, "ns"));
            format!("{} {name}", number_label(value / factor, decimals(value / factor)))
        }
        Unit::Percent => number_label(value, decimals(value)),
        Unit::Bytes | Unit::BitsPerSecond | Unit::Count => {
            let (factor, name) = PREFIXES.into_iter().find(|(factor, _)| value >= factor * 0.999).unwrap_or((1.0, ""));
            let number = number_label(value / factor, decimals(value / factor));
            if name.is_empty() { number } else { format!("{number} {name}") }
        }
    }
}

/// Returns a number without a sign of zero, with an exponent if it is long.
fn number_label(number: f64, decimals: usize) -> String {
    let number = number + 0.0;
    if number.abs() >= MAX_NUMBER {
        return format!("{number:.0e}");
    }
    let label = format!("{number:.decimals$}");
    if label.starts_with('-') && label.chars().all(|c| matches!(c, '-' | '0' | '.')) {
        return label[1..].to_owned();
    }
    label.replace('-', "−")
}

/// Returns the decimals that a step needs.
fn decimals(step: f64) -> usize {
    (-step.abs().max(1e-12).log10() - 1e-9).ceil().clamp(0.0, 9.0) as usize
}

/// Returns the smallest of 1, 2 or 5 times a power of ten that is not below `step`.
fn round_up(step: f64) -> f64 {
    let step = step.max(f64::MIN_POSITIVE);
    let power = 10_f64.powf(step.log10().floor());
    let candidates = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
    candidates.into_iter().find(|&round| round >= step * 0.999_999).unwrap_or(10.0 * power)
}

/// Returns 1, 2 and 5 times powers of ten that include both values.
fn one_two_five(low: f64, high: f64) -> Vec<f64> {
    let mut values = Vec::new();
    let first = low.log10().floor() as i32;
    let last = high.log10().ceil() as i32;
    for power in first..=last {
        values.extend([1.0, 2.0, 5.0].map(|factor| factor * 10_f64.powi(power)));
    }
    let start = values.iter().rposition(|value| *value <= low * 1.000_001).unwrap_or(0);
    let end = values.iter().position(|value| *value >= high * 0.999_999).unwrap_or(values.len().saturating_sub(1));
    let end = end.max(start + 1).min(values.len() - 1);
    values[start..=end].to_vec()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn labels(axis: &Axis, intervals: usize) -> (Vec<String>, String) {
        let scale = Scale::new(axis, intervals);
        (scale.ticks.iter().map(|tick| tick.label.clone()).collect(), scale.unit)
    }

    #[test]
    fn labels_are_round_and_have_prefixes() {
        let rate = labels(&Axis::from_zero("goodput", Unit::BitsPerSecond, 131.2e6), 8);
        assert_eq!(rate.0, ["0", "20", "40", "60", "80", "100", "120", "140"]);
        assert_eq!(rate.1, "Mb/s");
        let rtt = labels(&Axis::from_zero("RTT", Unit::Seconds, 0.0523), 4);
        assert_eq!((rtt.0.join(" "), rtt.1.as_str()), ("0 20 40 60".to_owned(), "ms"));
        let time = labels(&Axis::exact("time", Unit::Seconds, 0.13, 9.97), 5);
        assert_eq!((time.0.join(" "), time.1.as_str()), ("2 4 6 8".to_owned(), "s"));
        let small = labels(&Axis::from_zero("lateness", Unit::Seconds, 3.1e-6), 4);
        assert_eq!((small.0.join(" "), small.1.as_str()), ("0 1 2 3 4".to_owned(), "µs"));
    }

    #[test]
    fn logarithmic_labels_have_their_own_prefixes() {
        let few = labels(&Axis::logarithmic("window", Unit::Bytes, 500e3, 16e6), 8);
        assert_eq!(few.0, ["500 k", "1 M", "2 M", "5 M", "10 M", "20 M"]);
        assert_eq!(few.1, "B");
        let decades = labels(&Axis::logarithmic("lateness", Unit::Seconds, 1e-6, 1.0), 6);
        assert_eq!(decades.0, ["1 µs", "10 µs", "100 µs", "1 ms", "10 ms", "100 ms", "1 s"]);
    }

    #[test]
    fn names_are_in_the_middle_of_their_columns() {
        let names = ["cubic", "bbr"].map(str::to_owned).to_vec();
        let scale = Scale::new(&Axis::categories("congestion control", names), 5);
        let places: Vec<_> = scale.ticks.iter().map(|tick| (tick.label.as_str(), scale.place(tick.value))).collect();
        assert_eq!(places, [("cubic", 0.25), ("bbr", 0.75)]);
        assert!(Scale::new(&Axis::categories("empty", Vec::new()), 5).place(0.0).is_finite());
    }

    proptest! {
        #[test]
        fn scales_include_their_values(
            low in -1e15..1e15_f64, span in 0.0..1e15_f64, intervals in 1..20_usize, kind in 0..3_usize,
        ) {
            let kind = [AxisKind::Rounded, AxisKind::Exact, AxisKind::Logarithmic][kind].clone();
            let low = if kind == AxisKind::Logarithmic { low.abs() + 1e-6 } else { low };
            let high = low + span;
            let axis = Axis { name: String::new(), unit: Unit::Bytes, low, high, kind };
            let scale = Scale::new(&axis, intervals);
            for value in [low, high] {
                let place = scale.place(value);
                prop_assert!((-1e-6..=1.0 + 1e-6).contains(&place), "{place}");
                prop_assert!((scale.place(scale.value_at(place)) - place).abs() < 1e-3);
            }
            prop_assert!(scale.ticks.len() <= 2 * intervals + 3, "{}", scale.ticks.len());
            let mut labels: Vec<_> = scale.ticks.iter().map(|tick| &tick.label).collect();
            labels.dedup();
            prop_assert!(labels.len() == scale.ticks.len() || low.abs() > 1e6 * span || high > 1e13);
        }
    }

    #[test]
    fn hostile_values_give_a_scale() {
        for (low, high) in [(f64::NAN, f64::NAN), (0.0, f64::INFINITY), (5.0, 5.0), (7.0, -3.0), (0.0, 1e-300)] {
            for kind in [AxisKind::Rounded, AxisKind::Exact, AxisKind::Logarithmic] {
                let axis = Axis { name: String::new(), unit: Unit::Seconds, low, high, kind };
                let scale = Scale::new(&axis, 5);
                assert!(scale.high > scale.low && !scale.place(1.0).is_nan(), "{axis:?} {scale:?}");
                assert!(scale.ticks.len() < 30, "{scale:?}");
            }
        }
    }
}
