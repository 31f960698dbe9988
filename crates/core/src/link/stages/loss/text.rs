//! Loss models as text, read and written.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::{Gilbert, LossModel, Lost, Scheduled};
use crate::link::setting::{Parts, SettingError, count};
use crate::link::{LinkError, Varying};
use crate::units::{QuantityError, Ratio, parse_unit_duration, typed_duration};

const FORMS: &str = "a ratio such as 1e-4 or 0.01%, gilbert:p=1%:r=25%, gilbert:loss=1%:burst=4, nth:100, \
                     burst:1e-4:10, at:10s:3, at:10s:500ms or none";
const GILBERT: &str = "gilbert:p=RATIO:r=RATIO[:h=RATIO][:k=RATIO] or gilbert:loss=RATIO:burst=MEAN";
const SCHEDULE: &str = "at:TIME:PACKETS or at:TIME:DURATION, several joined with +, such as at:10s:3+20s:500ms";
const STEPS: &str = "steps:TIME=RATIO, several joined with +, and perhaps :every=PERIOD, such as \
                     steps:0s=0+10s=1%:every=15s";

impl FromStr for LossModel {
    type Err = SettingError;

    /// `none`, `1e-4`, `0.01%`, `gilbert:p=1%:r=25%:h=0:k=1`, `gilbert:loss=1%:burst=4`, `nth:100`, `burst:1e-4:10`,
    /// `at:10s:3+20s:500ms`, `steps:0s=0+10s=1%:every=15s`.
    fn from_str(text: &str) -> Result<Self, SettingError> {
        let model = if text == "none" {
            LossModel::None
        } else if let Some(parts) = Parts::of(text, "gilbert", GILBERT) {
            LossModel::Gilbert(gilbert(parts)?)
        } else if let Some(mut parts) = Parts::of(text, "nth", "nth:COUNT, such as nth:100") {
            let nth = parts.next("which packet", count)?;
            parts.end()?;
            LossModel::Nth(nth)
        } else if let Some(mut parts) = Parts::of(text, "burst", "burst:RATIO:LENGTH, such as burst:1e-4:10") {
            let probability = parts.next("the probability of a burst", str::parse)?;
            let length = parts.next("the length of a burst", count)?;
            parts.end()?;
            LossModel::Bursts { probability, length }
        } else if let Some(list) = text.strip_prefix("at:") {
            LossModel::Schedule(list.split('+').map(scheduled).collect::<Result<_, _>>()?)
        } else if let Some(parts) = Parts::of(text, "steps", STEPS) {
            LossModel::Independent(steps(parts)?)
        } else if text.starts_with(|first: char| first.is_ascii_digit() || "+-.".contains(first)) {
            let ratio = text.parse::<Ratio>();
            ratio.map_err(|source| SettingError::Quantity { text: text.to_owned(), source })?.into()
        } else {
            return Err(SettingError::Unknown { text: text.to_owned(), setting: "a loss model", forms: FORMS });
        };
        model.check()?;
        Ok(model)
    }
}

fn gilbert(mut parts: Parts) -> Result<Gilbert, SettingError> {
    if let Some(loss) = parts.key("loss", str::parse)? {
        let burst = parts.wanted_key("burst", number)?;
        parts.end()?;
        return Ok(Gilbert::with_bursts(loss, burst)?);
    }
    let (to_bad, to_good) = (parts.wanted_key("p", str::parse)?, parts.wanted_key("r", str::parse)?);
    let (pass_bad, pass_good) = (parts.key("h", str::parse)?, parts.key("k", str::parse)?);
    parts.end()?;
    let simple = Gilbert::simple(to_bad, to_good);
    Ok(Gilbert {
        pass_bad: pass_bad.unwrap_or(simple.pass_bad),
        pass_good: pass_good.unwrap_or(simple.pass_good),
        ..simple
    })
}

fn scheduled(text: &str) -> Result<Scheduled, SettingError> {
    let mut parts = Parts::all(text, SCHEDULE);
    let at = parts.next("when it begins", parse_unit_duration)?;
    let what = parts.next("what is lost", lost)?;
    parts.end()?;
    Ok(Scheduled { at, what })
}

/// A whole number is one of packets; a time has a unit.
fn lost(text: &str) -> Result<Lost, QuantityError> {
    if text.ends_with(|last: char| last.is_alphabetic()) {
        return parse_unit_duration(text).map(Lost::Within);
    }
    text.parse().map(Lost::Packets).map_err(|_| QuantityError::NotANumber {
        text: text.to_owned(),
        quantity: "count of packets or duration",
        example: "3 or 500ms",
    })
}

fn steps(mut parts: Parts) -> Result<Varying<Ratio>, SettingError> {
    let period = parts.key("every", parse_unit_duration)?;
    let list = parts.word("the steps")?;
    parts.end()?;
    let step = |text: &str| {
        let (at, ratio) = text.split_once('=').unwrap_or((text, ""));
        let quantity = |source| SettingError::Quantity { text: text.to_owned(), source };
        Ok((parse_unit_duration(at).map_err(quantity)?, ratio.parse().map_err(quantity)?))
    };
    let steps = list.split('+').map(step).collect::<Result<Vec<(Duration, Ratio)>, SettingError>>()?;
    Varying::new(steps, period).map_err(|error| LinkError::Timetable(error).into())
}

fn number(text: &str) -> Result<f64, QuantityError> {
    text.parse().map_err(|_| QuantityError::NotANumber {
        text: text.to_owned(),
        quantity: "mean length of a burst",
        example: "4 or 2.5",
    })
}

impl fmt::Display for LossModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LossModel::None => f.write_str("none"),
            LossModel::Independent(ratio) => write_varying(f, ratio),
            LossModel::Gilbert(gilbert) => gilbert.fmt(f),
            LossModel::Nth(nth) => write!(f, "nth:{nth}"),
            LossModel::Bursts { probability, length } => write!(f, "burst:{}:{length}", probability.typed()),
            LossModel::Schedule(list) => {
                let each = |entry: &Scheduled| match entry.what {
                    Lost::Packets(packets) => format!("{}:{packets}", typed_duration(entry.at)),
                    Lost::Within(time) => format!("{}:{}", typed_duration(entry.at), typed_duration(time)),
                };
                write!(f, "at:{}", list.iter().map(each).collect::<Vec<_>>().join("+"))
            }
        }
    }
}

impl fmt::Display for Gilbert {
    /// By the share and the length of bursts, where that takes fewer digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (p, r) = (self.to_bad.typed(), self.to_good.typed());
        if let Some((loss, burst)) = self.as_bursts().map(|(loss, burst)| (loss.typed(), burst.to_string()))
            && loss.len() + burst.len() < p.len() + r.len()
        {
            return write!(f, "gilbert:loss={loss}:burst={burst}");
        }
        write!(f, "gilbert:p={p}:r={r}")?;
        if self.pass_bad.get() != 0.0 {
            write!(f, ":h={}", self.pass_bad.typed())?;
        }
        if self.pass_good.get() != 1.0 {
            write!(f, ":k={}", self.pass_good.typed())?;
        }
        Ok(())
    }
}

fn write_varying(f: &mut fmt::Formatter<'_>, ratio: &Varying<Ratio>) -> fmt::Result {
    if let Some(ratio) = ratio.as_constant() {
        return f.write_str(&ratio.typed());
    }
    let steps = ratio.steps().iter().map(|(at, ratio)| format!("{}={}", typed_duration(*at), ratio.typed()));
    write!(f, "steps:{}", steps.collect::<Vec<_>>().join("+"))?;
    match ratio.period() {
        Some(period) => write!(f, ":every={}", typed_duration(period)),
        None => Ok(()),
    }
}
