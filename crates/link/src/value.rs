//! Values of settings as text. Writing and reading a value loses nothing.

use std::time::Duration;

use lfn_base::framing::Layer;
use lfn_base::path::QueueSize;
use lfn_base::units::{BitRate, Ratio, duration_argument, parse_unit_duration};

use super::error::LinkError;
use super::trace::LinkTrace;

/// Value of a setting.
pub(super) trait Value: Sized {
    /// Reads text, or returns the error message.
    fn parse(text: &str) -> Result<Self, String>;
    /// Writes text that [`parse`](Value::parse) reads as the same value, without commas and spaces.
    fn write(&self) -> String;
}

/// Effects of an impairment that concern the whole link.
pub(super) trait Effects {
    /// Refuses a value that no link can have.
    fn check(&self) -> Result<(), LinkError> {
        Ok(())
    }

    /// Reports whether the effect depends on the time since the epoch of the link.
    fn is_timed(&self) -> bool {
        false
    }

    /// Returns the maximum time that the impairment adds to the delay of a packet.
    fn max_delay(&self) -> Duration {
        Duration::ZERO
    }

    /// Returns how often the impairment splits a super-packet, per packet: once at a lost packet, twice at a changed
    /// packet.
    fn splits_per_packet(&self) -> f64 {
        0.0
    }
}

/// Implements [`Value`] with `FromStr` and a method that writes the value.
macro_rules! impl_value {
    ($value:ty, $write:ident) => {
        impl $crate::value::Value for $value {
            fn parse(text: &str) -> Result<Self, String> {
                text.parse().map_err(|error: <Self as std::str::FromStr>::Err| error.to_string())
            }

            fn write(&self) -> String {
                self.$write()
            }
        }
    };
}

/// Implements [`Value`] in the same way, with `none` for the default, which has no effect.
macro_rules! impl_value_or_none {
    ($value:ty, $write:ident) => {
        impl $crate::value::Value for $value {
            fn parse(text: &str) -> Result<Self, String> {
                match text {
                    "none" => Ok(Self::default()),
                    _ => text.parse().map_err(|error: <Self as std::str::FromStr>::Err| error.to_string()),
                }
            }

            fn write(&self) -> String {
                self.$write()
            }
        }
    };
}

pub(super) use {impl_value, impl_value_or_none};

impl_value!(Layer, to_string);
impl_value!(QueueSize, to_string);
impl_value!(BitRate, to_argument);
impl_value_or_none!(Ratio, to_argument);

impl Effects for Ratio {
    /// Counts a changed packet for each packet of this share.
    fn splits_per_packet(&self) -> f64 {
        2.0 * self.get()
    }
}

impl Value for Duration {
    fn parse(text: &str) -> Result<Self, String> {
        parse_unit_duration(text).map_err(|error| error.to_string())
    }

    fn write(&self) -> String {
        duration_argument(*self)
    }
}

impl Value for LinkTrace {
    /// Reads the name of a built-in trace, or the name of a file that is read later.
    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("the name of a file or of a built-in trace is missing".to_owned());
        }
        Ok(LinkTrace::built_in(text).unwrap_or_else(|| LinkTrace::unloaded(text)))
    }

    fn write(&self) -> String {
        self.name.clone()
    }
}

impl Value for bool {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "on" => Ok(true),
            "off" | "none" => Ok(false),
            _ => Err(format!("'{text}' is not on or off")),
        }
    }

    fn write(&self) -> String {
        if *self { "on" } else { "off" }.to_owned()
    }
}

impl<T: Value> Value for Option<T> {
    /// Reads `none`, which removes the setting of a profile.
    fn parse(text: &str) -> Result<Self, String> {
        if text == "none" { Ok(None) } else { T::parse(text).map(Some) }
    }

    fn write(&self) -> String {
        self.as_ref().map_or_else(|| "none".to_owned(), Value::write)
    }
}

impl<T: Effects> Effects for Option<T> {
    fn check(&self) -> Result<(), LinkError> {
        self.as_ref().map_or(Ok(()), Effects::check)
    }

    fn is_timed(&self) -> bool {
        self.as_ref().is_some_and(Effects::is_timed)
    }

    fn max_delay(&self) -> Duration {
        self.as_ref().map_or(Duration::ZERO, Effects::max_delay)
    }

    fn splits_per_packet(&self) -> f64 {
        self.as_ref().map_or(0.0, Effects::splits_per_packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PathMtu;

    #[test]
    fn value_text_round_trips() {
        for text in ["269500us", "0s", "539000001ns"] {
            assert_eq!(Duration::parse(text).unwrap().write(), text);
        }
        for text in ["0.5bdp", "9095625B", "300ms", "64KiB"] {
            let queue = QueueSize::parse(text).unwrap();
            assert_eq!(QueueSize::parse(&queue.write()), Ok(queue), "{text}");
        }
        for text in ["none", "1400", "1400:black-hole"] {
            assert_eq!(Option::<PathMtu>::parse(text).unwrap().write(), text);
        }
    }

    #[test]
    fn time_without_unit_is_refused() {
        for text in ["539", "1.5", " 20 ", "1e3"] {
            assert!(Duration::parse(text).unwrap_err().contains("unit"), "{text}");
        }
        assert_eq!(Duration::parse("0"), Ok(Duration::ZERO));
    }
}
