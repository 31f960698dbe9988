//! Loss models as text: parsing and printing.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use lfn_base::units::{QuantityError, Ratio, duration_argument, parse_unit_duration};

use super::model::{Gilbert, LossExtent, LossModel, ScheduledLoss};
use crate::error::LinkError;
use crate::setting::{Parts, SettingError, parse_count};
use crate::timetable::Timetable;

const FORMS: &str = "a ratio such as 1e-4 or 0.01%, gilbert:p=1%:r=25%, gilbert:loss=1%:burst=4, nth:100, \
                     burst:1e-4:10, at:10s:3, at:10s:500ms or none";
const GILBERT: &str = "gilbert:p=RATIO:r=RATIO[:h=RATIO][:k=RATIO] or gilbert:loss=RATIO:burst=MEAN";
const SCHEDULE: &str = "at:TIME:PACKETS or at:TIME:DURATION, several joined with +, such as at:10s:3+20s:500ms";
const STEPS: &str = "steps:TIME=RATIO, several joined with +, optionally with :every=PERIOD, such as \
                     steps:0s=0+10s=1%:every=15s";

impl FromStr for LossModel {
    type Err = SettingError;

    /// Reads `none`, `1e-4`, `0.01%`, `gilbert:p=1%:r=25%:h=0:k=1`, `gilbert:loss=1%:burst=4`, `nth:100`,
    /// `burst:1e-4:10`, `at:10s:3+20s:500ms` or `steps:0s=0+10s=1%:every=15s`.
    fn from_str(text: &str) -> Result<Self, SettingError> {
        let model = if text == "none" {
            LossModel::None
        } else if let Some(parts) = Parts::after_name(text, "gilbert", GILBERT) {
            LossModel::Gilbert(parse_gilbert(parts)?)
        } else if let Some(mut parts) = Parts::after_name(text, "nth", "nth:COUNT, such as nth:100") {
            let nth = parts.next("the packet count", parse_count)?;
            parts.finish()?;
            LossModel::Nth(nth)
        } else if let Some(mut parts) = Parts::after_name(text, "burst", "burst:RATIO:LENGTH, such as burst:1e-4:10") {
            let probability = parts.next("the probability of a burst", str::parse)?;
            let length = parts.next("the length of a burst", parse_count)?;
            parts.finish()?;
            LossModel::Bursts { probability, length }
        } else if let Some(list) = text.strip_prefix("at:") {
            LossModel::Schedule(list.split('+').map(parse_scheduled_loss).collect::<Result<_, _>>()?)
        } else if let Some(parts) = Parts::after_name(text, "steps", STEPS) {
            LossModel::Independent(parse_steps(parts)?)
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

fn parse_gilbert(mut parts: Parts) -> Result<Gilbert, SettingError> {
    if let Some(loss) = parts.optional_key("loss", str::parse)? {
        let burst = parts.required_key("burst", parse_burst_length)?;
        parts.finish()?;
        return Ok(Gilbert::with_bursts(loss, burst)?);
    }
    let (to_bad, to_good) = (parts.required_key("p", str::parse)?, parts.required_key("r", str::parse)?);
    let (pass_bad, pass_good) = (parts.optional_key("h", str::parse)?, parts.optional_key("k", str::parse)?);
    parts.finish()?;
    let simple = Gilbert::simple(to_bad, to_good);
    Ok(Gilbert {
        pass_bad: pass_bad.unwrap_or(simple.pass_bad),
        pass_good: pass_good.unwrap_or(simple.pass_good),
        ..simple
    })
}

fn parse_scheduled_loss(text: &str) -> Result<ScheduledLoss, SettingError> {
    let mut parts = Parts::split(text, SCHEDULE);
    let start = parts.next("the start time", parse_unit_duration)?;
    let extent = parts.next("the number of packets or the time to lose", parse_extent)?;
    parts.finish()?;
    Ok(ScheduledLoss { start, extent })
}

/// Reads a whole number as packets and a number with a unit as a time.
fn parse_extent(text: &str) -> Result<LossExtent, QuantityError> {
    if text.ends_with(|last: char| last.is_alphabetic()) {
        return parse_unit_duration(text).map(LossExtent::Duration);
    }
    text.parse().map(LossExtent::Packets).map_err(|_| QuantityError::NotANumber {
        text: text.to_owned(),
        quantity: "count of packets or duration",
        example: "3 or 500ms",
    })
}

fn parse_steps(mut parts: Parts) -> Result<Timetable<Ratio>, SettingError> {
    let period = parts.optional_key("every", parse_unit_duration)?;
    let list = parts.next_text("the steps")?;
    parts.finish()?;
    let step = |text: &str| {
        let (at, ratio) = text.split_once('=').unwrap_or((text, ""));
        let quantity = |source| SettingError::Quantity { text: text.to_owned(), source };
        Ok((parse_unit_duration(at).map_err(quantity)?, ratio.parse().map_err(quantity)?))
    };
    let steps = list.split('+').map(step).collect::<Result<Vec<(Duration, Ratio)>, SettingError>>()?;
    Timetable::new(steps, period).map_err(|error| LinkError::Timetable(error).into())
}

fn parse_burst_length(text: &str) -> Result<f64, QuantityError> {
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
            LossModel::Independent(ratio) => write_timetable(f, ratio),
            LossModel::Gilbert(gilbert) => gilbert.fmt(f),
            LossModel::Nth(nth) => write!(f, "nth:{nth}"),
            LossModel::Bursts { probability, length } => write!(f, "burst:{}:{length}", probability.to_argument()),
            LossModel::Schedule(list) => {
                let each = |entry: &ScheduledLoss| match entry.extent {
                    LossExtent::Packets(packets) => format!("{}:{packets}", duration_argument(entry.start)),
                    LossExtent::Duration(time) => {
                        format!("{}:{}", duration_argument(entry.start), duration_argument(time))
                    }
                };
                write!(f, "at:{}", list.iter().map(each).collect::<Vec<_>>().join("+"))
            }
        }
    }
}

impl fmt::Display for Gilbert {
    /// Writes loss and burst length if that takes fewer digits than the probabilities.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (p, r) = (self.to_bad.to_argument(), self.to_good.to_argument());
        if let Some((loss, burst)) = self.as_bursts().map(|(loss, burst)| (loss.to_argument(), burst.to_string()))
            && loss.len() + burst.len() < p.len() + r.len()
        {
            return write!(f, "gilbert:loss={loss}:burst={burst}");
        }
        write!(f, "gilbert:p={p}:r={r}")?;
        if self.pass_bad.get() != 0.0 {
            write!(f, ":h={}", self.pass_bad.to_argument())?;
        }
        if self.pass_good.get() != 1.0 {
            write!(f, ":k={}", self.pass_good.to_argument())?;
        }
        Ok(())
    }
}

fn write_timetable(f: &mut fmt::Formatter<'_>, ratio: &Timetable<Ratio>) -> fmt::Result {
    if let Some(ratio) = ratio.as_constant() {
        return f.write_str(&ratio.to_argument());
    }
    let steps = ratio.steps().iter().map(|(at, ratio)| format!("{}={}", duration_argument(*at), ratio.to_argument()));
    write!(f, "steps:{}", steps.collect::<Vec<_>>().join("+"))?;
    match ratio.period() {
        Some(period) => write!(f, ":every={}", duration_argument(period)),
        None => Ok(()),
    }
}
