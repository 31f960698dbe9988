//! Jitter: a random change of the delay of each virtual packet.
//!
//! Every draw is a normal deviate, mapped to the configured distribution through its quantiles. Neighbouring deviates
//! are correlated by a first-order autoregression (a Gaussian copula). A correlation therefore changes the order of the
//! delays, but not their distribution. netem instead uses a weighted mean of the last value and a new one, which
//! narrows the spread as the correlation rises. [`delay`](super::delay) applies the draws.

use std::f64::consts::{FRAC_1_SQRT_2, PI, TAU};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use lfn_base::units::{Ratio, duration_argument, parse_unit_duration};
use rand::RngExt;
use rand_pcg::Pcg64;

use crate::error::{LinkError, MAX_DELAY};
use crate::hop_context::HopContext;
use crate::key::{Key, key};
use crate::random::generator;
use crate::setting::{Parts, SettingError};
use crate::value::{Effects, impl_value_or_none};

pub(super) const KEY: Key = Key {
    words: &["uniform", "normal", "pareto", "reorder", "none"],
    ..key!(
        Delay,
        "jitter",
        "JITTER",
        "5ms",
        "Vary the delay: 5ms (uniform), normal:5ms or pareto:5ms, optionally with :corr=25% or :reorder",
        "Variation of the delay between packets: `5ms` (uniform, ± 5 ms), `normal:5ms` (standard deviation), \
         `pareto:5ms` (heavy tail, same scale). `:corr=25%` correlates successive delays and keeps their spread. \
         Packets keep their order unless you add `:reorder`."
    )
};

/// Variation of the delay, with one draw per virtual packet.
///
/// Written `5ms`, `normal:5ms`, `pareto:5ms:corr=25%`, `uniform:5ms:reorder`. A range of virtual packets is cut where
/// their delays differ, so super-packets with jitter cost as much CPU time as single packets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkJitter {
    /// Width; its meaning depends on the distribution. Zero means no jitter.
    pub spread: Duration,
    /// Distribution of the delays. A negative delay becomes zero.
    pub distribution: JitterDistribution,
    /// Correlation of the draws of neighbouring packets; less than 1. With the normal distribution this is the
    /// correlation of their delays. With the others it is the correlation of their ranks, which equals the correlation
    /// of the delays for the uniform distribution.
    pub correlation: Ratio,
    /// Whether a packet may overtake. If not, a packet never leaves before an earlier packet. Packets closer together
    /// than the spread then wait for the slowest packet ahead, and delays are longer than the draws.
    pub reorder: bool,
}

/// Distribution of the delays around the configured delay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum JitterDistribution {
    /// All delays between the configured delay minus the spread and plus the spread are equally likely.
    #[default]
    Uniform,
    /// Normal distribution: the spread is the standard deviation. Draws are limited to 6 standard deviations from the
    /// mean.
    Normal,
    /// Heavy tail: a Pareto distribution of shape 3, shifted and scaled so that the configured delay is its mean and
    /// the spread its standard deviation. netem's table of this name has the same purpose. The minimum is the mean
    /// minus 0.64 spreads, most delays are below the mean, and 1 in 350 is more than 7 spreads above it. The tail ends
    /// at 23.7 spreads to bound the bytes in flight; netem's ends at 4.
    Pareto,
}

/// Draws the change of the delay of each virtual packet.
pub(super) struct JitterDraws {
    distribution: JitterDistribution,
    spread: f64,
    /// Correlation of neighbouring deviates.
    correlation: f64,
    /// Last deviate, standard normal for every correlation.
    deviate: f64,
    /// Second deviate of the last pair.
    spare: Option<f64>,
    generator: Pcg64,
}

/// Limit of normal draws in standard deviations: 2 in 10⁹ draws would exceed it.
const NORMAL_MAX: f64 = 6.0;
/// Limit of the Pareto distribution of shape 3 that starts at 1: 1 in 8,000 draws would exceed it.
const PARETO_MAX: f64 = 20.0;
/// Mean of the limited distribution, by integration.
const PARETO_MEAN: f64 = 1.5 * (1.0 - 1.0 / (PARETO_MAX * PARETO_MAX)) / (1.0 - PARETO_BEYOND);
const PARETO_BEYOND: f64 = 1.0 / (PARETO_MAX * PARETO_MAX * PARETO_MAX);
const PARETO_SQUARE: f64 = 3.0 * (1.0 - 1.0 / PARETO_MAX) / (1.0 - PARETO_BEYOND);

impl LinkJitter {
    /// Returns how much shorter and how much longer than configured a delay may be.
    pub fn max_change(&self) -> (Duration, Duration) {
        let (low, high) = self.distribution.range();
        // The last bit of a float must not make a packet earlier than the stage reported, so a nanosecond is added.
        let spreads = |count: f64| Duration::from_nanos((count * self.spread.as_nanos() as f64).ceil() as u64 + 1);
        if self.spread.is_zero() { (Duration::ZERO, Duration::ZERO) } else { (spreads(low), spreads(high)) }
    }
}

impl_value_or_none!(LinkJitter, to_string);

impl Effects for LinkJitter {
    fn check(&self) -> Result<(), LinkError> {
        if self.spread > MAX_DELAY {
            Err(LinkError::JitterTooLong(self.spread))
        } else if self.correlation.get() >= 1.0 {
            Err(LinkError::JitterConstant)
        } else {
            Ok(())
        }
    }

    fn max_delay(&self) -> Duration {
        let (_, longer) = self.max_change();
        longer
    }
}

impl JitterDistribution {
    /// Returns the limits below and above the mean, in spreads.
    fn range(self) -> (f64, f64) {
        match self {
            JitterDistribution::Uniform => (1.0, 1.0),
            JitterDistribution::Normal => (NORMAL_MAX, NORMAL_MAX),
            JitterDistribution::Pareto => {
                let deviation = pareto_deviation();
                ((PARETO_MEAN - 1.0) / deviation, (PARETO_MAX - PARETO_MEAN) / deviation)
            }
        }
    }

    /// Returns the draw, in spreads, with the same probability of being exceeded as the standard normal `deviate`.
    fn quantile(self, deviate: f64) -> f64 {
        let exceeded = || libm::erfc(deviate * FRAC_1_SQRT_2) / 2.0;
        match self {
            JitterDistribution::Uniform => 1.0 - 2.0 * exceeded(),
            JitterDistribution::Normal => deviate.clamp(-NORMAL_MAX, NORMAL_MAX),
            JitterDistribution::Pareto => {
                let value = (PARETO_BEYOND + (1.0 - PARETO_BEYOND) * exceeded()).cbrt().recip();
                (value - PARETO_MEAN) / pareto_deviation()
            }
        }
    }

    /// Returns the correlation that neighbouring deviates need so that the draws have the correlation `wanted`. For
    /// ranks this is Pearson's formula of 1907.
    fn deviate_correlation(self, wanted: f64) -> f64 {
        match self {
            JitterDistribution::Normal => wanted,
            JitterDistribution::Uniform | JitterDistribution::Pareto => 2.0 * (PI / 6.0 * wanted).sin(),
        }
    }

    fn name(self) -> &'static str {
        match self {
            JitterDistribution::Uniform => "uniform",
            JitterDistribution::Normal => "normal",
            JitterDistribution::Pareto => "pareto",
        }
    }
}

fn pareto_deviation() -> f64 {
    (PARETO_SQUARE - PARETO_MEAN * PARETO_MEAN).sqrt()
}

impl FromStr for LinkJitter {
    type Err = SettingError;

    /// Reads the form `[uniform|normal|pareto:]SPREAD[:corr=RATIO][:reorder]`.
    fn from_str(text: &str) -> Result<Self, SettingError> {
        const FORM: &str = "[uniform:|normal:|pareto:]TIME[:corr=RATIO][:reorder], such as 5ms or normal:5ms:corr=25%";
        use JitterDistribution::{Normal, Pareto, Uniform};
        let named = |kind: JitterDistribution| Some((kind, Parts::after_name(text, kind.name(), FORM)?));
        let (distribution, mut parts) = [Uniform, Normal, Pareto]
            .into_iter()
            .find_map(named)
            .unwrap_or_else(|| (Uniform, Parts::split(text, FORM)));
        let spread = parts.next("the spread of the delay", parse_unit_duration)?;
        let correlation = parts.optional_key("corr", str::parse)?.unwrap_or_default();
        let reorder = parts.take_flag("reorder");
        parts.finish()?;
        let jitter = LinkJitter { spread, distribution, correlation, reorder };
        jitter.check()?;
        Ok(jitter)
    }
}

impl fmt::Display for LinkJitter {
    /// Writes the jitter so that it can be parsed again.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.distribution != JitterDistribution::default() {
            write!(f, "{}:", self.distribution.name())?;
        }
        write!(f, "{}", duration_argument(self.spread))?;
        if self.correlation.get() > 0.0 {
            write!(f, ":corr={}", self.correlation.to_argument())?;
        }
        if self.reorder { write!(f, ":reorder") } else { Ok(()) }
    }
}

impl JitterDraws {
    pub(super) fn new(jitter: &LinkJitter, context: &HopContext) -> Self {
        let mut draws = JitterDraws {
            distribution: JitterDistribution::Uniform,
            spread: 0.0,
            correlation: 0.0,
            deviate: 0.0,
            spare: None,
            generator: generator(context, "jitter"),
        };
        // The first packet has the same distribution as the others.
        draws.deviate = draws.draw_normal();
        draws.set(jitter);
        draws
    }

    /// Applies new settings from the next draw on. The correlation with the last draw remains.
    pub(super) fn set(&mut self, jitter: &LinkJitter) {
        self.distribution = jitter.distribution;
        self.spread = jitter.spread.as_nanos() as f64;
        self.correlation = jitter.distribution.deviate_correlation(jitter.correlation.get());
    }

    /// Returns `delay` plus the jitter of the next virtual packet.
    pub(super) fn add_jitter(&mut self, delay: Duration) -> Duration {
        let innovation = (1.0 - self.correlation * self.correlation).max(0.0).sqrt();
        self.deviate = self.correlation * self.deviate + innovation * self.draw_normal();
        let nanos = (self.spread * self.distribution.quantile(self.deviate)).round() as i64;
        let change = Duration::from_nanos(nanos.unsigned_abs());
        if nanos < 0 { delay.saturating_sub(change) } else { delay.saturating_add(change) }
    }

    /// Draws a standard normal deviate (Box and Muller, 1958, which gives pairs).
    fn draw_normal(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        // The range (0, 1] keeps the logarithm finite.
        let radius = (-2.0 * (1.0 - self.generator.random::<f64>()).ln()).sqrt();
        let (sine, cosine) = (TAU * self.generator.random::<f64>()).sin_cos();
        self.spare = Some(radius * sine);
        radius * cosine
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_text_round_trips() {
        let ms = Duration::from_millis;
        let base = LinkJitter { spread: ms(5), ..LinkJitter::default() };
        let quarter = Ratio::new(0.25).unwrap();
        for (text, jitter, shown) in [
            ("5ms", base, "5ms"),
            ("uniform:5ms", base, "5ms"),
            ("0", LinkJitter::default(), "0s"),
            (
                "normal:2.5ms",
                LinkJitter { spread: Duration::from_micros(2500), distribution: JitterDistribution::Normal, ..base },
                "normal:2500us",
            ),
            (
                "pareto:5ms:reorder",
                LinkJitter { distribution: JitterDistribution::Pareto, reorder: true, ..base },
                "pareto:5ms:reorder",
            ),
            ("5ms:corr=25%", LinkJitter { correlation: quarter, ..base }, "5ms:corr=0.25"),
            (
                "5ms:reorder:corr=0.25",
                LinkJitter { correlation: quarter, reorder: true, ..base },
                "5ms:corr=0.25:reorder",
            ),
        ] {
            assert_eq!(text.parse(), Ok(jitter), "{text}");
            assert_eq!(jitter.to_string(), shown);
            assert_eq!(shown.parse(), Ok(jitter), "{text}");
        }
        for (text, words) in [
            ("", "'' lacks the spread of the delay: expected [uniform:"),
            ("gauss:5ms", "in 'gauss:5ms': 'gauss' is not a duration"),
            ("normal", "'normal' is not a duration"),
            ("normal:", "'normal:' lacks the spread"),
            ("5ms:corr=2", "'2': too large for a ratio"),
            ("5ms:corr=1", "a jitter correlation of 100 %"),
            ("5ms:corr", "unexpected 'corr'"),
            ("5ms:", "unexpected ''"),
            ("5ms:sorted", "unexpected 'sorted'"),
            ("-5ms", "cannot be negative"),
            ("2h", "a jitter of 2 h is above"),
        ] {
            let error = text.parse::<LinkJitter>().unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
