//! Jitter: what is added to the delay of each virtual packet, or taken from it.
//!
//! Every draw is a normal deviate, mapped to the distribution asked for through its quantiles, and neighbouring deviates
//! are correlated by an autoregression of the first order (a Gaussian copula). So a correlation changes the order in
//! which delays come and not how often each comes: netem's filter, a weighted mean of the last value and a new one,
//! narrows the spread the more the higher the correlation is. [`delay`](super::delay) puts the draws to use.

use std::f64::consts::{FRAC_1_SQRT_2, PI, TAU};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use rand::RngExt;
use rand_pcg::Pcg64;

use crate::link::config::MOST_DELAY;
use crate::link::random::generator;
use crate::link::setting::{Parts, SettingError};
use crate::link::{LinkConfig, LinkError};
use crate::units::{Ratio, parse_unit_duration, typed_duration};

/// How the delay of packets differs from the delay that is set, each virtual packet by a draw of its own.
///
/// Written `5ms`, `normal:5ms`, `pareto:5ms:corr=25%`, `uniform:5ms:reorder`. A range of virtual packets is cut where
/// their delays differ, so that jitter takes super-packets apart: it costs what single packets cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Jitter {
    /// How far: what it means depends on the distribution. Zero for none.
    pub spread: Duration,
    /// Which delays come how often. No delay is below zero: what would be is zero.
    pub distribution: Distribution,
    /// How alike the draws of neighbouring packets are; less than 1. For the normal distribution the correlation of
    /// their delays; for the others that of their ranks, which for the uniform one is the same thing.
    pub correlation: Ratio,
    /// Whether a packet may overtake. If not, none leaves before the one that came before it: packets closer together
    /// than the spread then wait for the slowest in front, and delays are longer than the draws alone would make them.
    pub reorder: bool,
}

/// How often each delay comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Distribution {
    /// Every delay from the set one less the spread to the set one and the spread equally often.
    #[default]
    Uniform,
    /// The bell curve: the spread is the standard deviation, and no draw lies further than 6 of them from the middle.
    Normal,
    /// A heavy tail: Pareto's of shape 3, moved and scaled so that the set delay is its mean and the spread its
    /// standard deviation, as netem's table of that name is meant to be. Delays are at least the set one less 0.64
    /// spreads, most are shorter than the set one, and 1 in 350 is more than 7 spreads above it. The tail ends
    /// at 23.7 spreads, so that the bytes in flight have a bound; netem's ends at 4.
    Pareto,
}

/// Draws what is added to the delay of each virtual packet.
pub(super) struct Draws {
    distribution: Distribution,
    /// Nanoseconds.
    spread: f64,
    /// Of neighbouring deviates.
    correlation: f64,
    /// The last one: standard normal whatever the correlation.
    deviate: f64,
    /// The other one of a pair drawn together.
    spare: Option<f64>,
    generator: Pcg64,
}

/// Further from the middle than this many standard deviations comes no normal draw: 2 in 10⁹ would.
const NORMAL_REACH: f64 = 6.0;
/// Pareto's distribution of shape 3 from 1 to this: 1 in 8,000 would lie beyond.
const PARETO_MOST: f64 = 20.0;
/// Of that distribution, by integration.
const PARETO_MEAN: f64 = 1.5 * (1.0 - 1.0 / (PARETO_MOST * PARETO_MOST)) / (1.0 - PARETO_BEYOND);
const PARETO_BEYOND: f64 = 1.0 / (PARETO_MOST * PARETO_MOST * PARETO_MOST);
const PARETO_SQUARE: f64 = 3.0 * (1.0 - 1.0 / PARETO_MOST) / (1.0 - PARETO_BEYOND);

impl Jitter {
    /// Refuses what no link can do.
    pub(in crate::link) fn check(&self) -> Result<(), LinkError> {
        if self.spread > MOST_DELAY {
            Err(LinkError::JitterTooLong(self.spread))
        } else if self.correlation.get() >= 1.0 {
            Err(LinkError::JitterConstant)
        } else {
            Ok(())
        }
    }

    /// How much shorter and how much longer than set a delay may be.
    pub fn reach(&self) -> (Duration, Duration) {
        let (low, high) = self.distribution.reach();
        // The last bit of a float must not make a packet earlier than the stage said: a nanosecond more.
        let spreads = |count: f64| Duration::from_nanos((count * self.spread.as_nanos() as f64).ceil() as u64 + 1);
        if self.spread.is_zero() { (Duration::ZERO, Duration::ZERO) } else { (spreads(low), spreads(high)) }
    }
}

impl Distribution {
    /// In spreads, below and above the middle.
    fn reach(self) -> (f64, f64) {
        match self {
            Distribution::Uniform => (1.0, 1.0),
            Distribution::Normal => (NORMAL_REACH, NORMAL_REACH),
            Distribution::Pareto => {
                let deviation = pareto_deviation();
                ((PARETO_MEAN - 1.0) / deviation, (PARETO_MOST - PARETO_MEAN) / deviation)
            }
        }
    }

    /// The draw that is as likely to be exceeded as `deviate` is by a standard normal one, in spreads.
    fn quantile(self, deviate: f64) -> f64 {
        let exceeded = || libm::erfc(deviate * FRAC_1_SQRT_2) / 2.0;
        match self {
            Distribution::Uniform => 1.0 - 2.0 * exceeded(),
            Distribution::Normal => deviate.clamp(-NORMAL_REACH, NORMAL_REACH),
            Distribution::Pareto => {
                let value = (PARETO_BEYOND + (1.0 - PARETO_BEYOND) * exceeded()).cbrt().recip();
                (value - PARETO_MEAN) / pareto_deviation()
            }
        }
    }

    /// What neighbouring deviates must be correlated by for the draws to be correlated by `wanted`: for ranks Pearson's
    /// formula of 1907.
    fn correlation(self, wanted: f64) -> f64 {
        match self {
            Distribution::Normal => wanted,
            Distribution::Uniform | Distribution::Pareto => 2.0 * (PI / 6.0 * wanted).sin(),
        }
    }

    fn word(self) -> &'static str {
        match self {
            Distribution::Uniform => "uniform",
            Distribution::Normal => "normal",
            Distribution::Pareto => "pareto",
        }
    }
}

fn pareto_deviation() -> f64 {
    (PARETO_SQUARE - PARETO_MEAN * PARETO_MEAN).sqrt()
}

impl FromStr for Jitter {
    type Err = SettingError;

    /// `[uniform|normal|pareto:]SPREAD[:corr=RATIO][:reorder]`.
    fn from_str(text: &str) -> Result<Self, SettingError> {
        const FORM: &str = "[uniform:|normal:|pareto:]TIME[:corr=RATIO][:reorder], such as 5ms or normal:5ms:corr=25%";
        use Distribution::{Normal, Pareto, Uniform};
        let named = |kind: Distribution| Some((kind, Parts::of(text, kind.word(), FORM)?));
        let (distribution, mut parts) =
            [Uniform, Normal, Pareto].into_iter().find_map(named).unwrap_or_else(|| (Uniform, Parts::all(text, FORM)));
        let spread = parts.next("how far delays differ", parse_unit_duration)?;
        let correlation = parts.key("corr", str::parse)?.unwrap_or_default();
        let reorder = parts.flag("reorder");
        parts.end()?;
        let jitter = Jitter { spread, distribution, correlation, reorder };
        jitter.check()?;
        Ok(jitter)
    }
}

impl fmt::Display for Jitter {
    /// As it would be typed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.distribution != Distribution::default() {
            write!(f, "{}:", self.distribution.word())?;
        }
        write!(f, "{}", typed_duration(self.spread))?;
        if self.correlation.get() > 0.0 {
            write!(f, ":corr={}", self.correlation.typed())?;
        }
        if self.reorder { write!(f, ":reorder") } else { Ok(()) }
    }
}

impl Draws {
    pub(super) fn new(config: &LinkConfig) -> Self {
        let mut draws = Draws {
            distribution: Distribution::Uniform,
            spread: 0.0,
            correlation: 0.0,
            deviate: 0.0,
            spare: None,
            generator: generator(config, "jitter"),
        };
        // The first packet is like any other.
        draws.deviate = draws.fresh();
        draws.set(&config.jitter);
        draws
    }

    /// The next draw goes by these settings; correlated with the last one all the same.
    pub(super) fn set(&mut self, jitter: &Jitter) {
        self.distribution = jitter.distribution;
        self.spread = jitter.spread.as_nanos() as f64;
        self.correlation = jitter.distribution.correlation(jitter.correlation.get());
    }

    /// `delay` of the next virtual packet, jitter added.
    pub(super) fn next(&mut self, delay: Duration) -> Duration {
        let innovation = (1.0 - self.correlation * self.correlation).max(0.0).sqrt();
        self.deviate = self.correlation * self.deviate + innovation * self.fresh();
        let nanos = (self.spread * self.distribution.quantile(self.deviate)).round() as i64;
        let change = Duration::from_nanos(nanos.unsigned_abs());
        if nanos < 0 { delay.saturating_sub(change) } else { delay.saturating_add(change) }
    }

    /// A standard normal deviate (Box and Muller, 1958: they come in pairs).
    fn fresh(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        // From (0, 1], so that the logarithm is finite.
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
    fn jitter_is_written_as_it_is_read() {
        let ms = Duration::from_millis;
        let base = Jitter { spread: ms(5), ..Jitter::default() };
        let quarter = Ratio::new(0.25).unwrap();
        for (text, jitter, shown) in [
            ("5ms", base, "5ms"),
            ("uniform:5ms", base, "5ms"),
            ("0", Jitter::default(), "0s"),
            (
                "normal:2.5ms",
                Jitter { spread: Duration::from_micros(2500), distribution: Distribution::Normal, ..base },
                "normal:2500us",
            ),
            (
                "pareto:5ms:reorder",
                Jitter { distribution: Distribution::Pareto, reorder: true, ..base },
                "pareto:5ms:reorder",
            ),
            ("5ms:corr=25%", Jitter { correlation: quarter, ..base }, "5ms:corr=0.25"),
            ("5ms:reorder:corr=0.25", Jitter { correlation: quarter, reorder: true, ..base }, "5ms:corr=0.25:reorder"),
        ] {
            assert_eq!(text.parse(), Ok(jitter), "{text}");
            assert_eq!(jitter.to_string(), shown);
            assert_eq!(shown.parse(), Ok(jitter), "{text}");
        }
        for (text, words) in [
            ("", "'' lacks how far delays differ: expected [uniform:"),
            ("gauss:5ms", "in 'gauss:5ms': 'gauss' is not a duration"),
            ("normal", "'normal' is not a duration"),
            ("normal:", "'normal:' lacks how far"),
            ("5ms:corr=2", "'2': too large for a ratio"),
            ("5ms:corr=1", "a correlation of 100 %"),
            ("5ms:corr", "do not know what to do with 'corr'"),
            ("5ms:", "do not know what to do with ''"),
            ("5ms:sorted", "do not know what to do with 'sorted'"),
            ("-5ms", "cannot be negative"),
            ("2h", "a jitter of 120 min 00 s is above"),
        ] {
            let error = text.parse::<Jitter>().unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
