//! Values of settings as text. Writing and reading a value loses nothing.

use std::str::FromStr;
use std::time::Duration;

use crate::framing::Layer;
use crate::link::trace::LinkTrace;
use crate::link::{Discipline, LinkJitter, LossModel, Outages, PathMtu, Policer, Reorder, Shaper};
use crate::path::QueueSize;
use crate::units::{BitRate, Ratio, duration_argument, parse_unit_duration};

/// Value of a setting.
pub(super) trait Value: Sized {
    /// Reads text, or returns the error message.
    fn parse(text: &str) -> Result<Self, String>;
    /// Writes text that [`parse`](Value::parse) reads as the same value, without commas and spaces.
    fn write(&self) -> String;
}

/// Implements [`Value`] with `FromStr` and a method that writes the value.
macro_rules! impl_value {
    ($write:ident: $($value:ty),*) => {$(
        impl Value for $value {
            fn parse(text: &str) -> Result<Self, String> {
                text.parse().map_err(|error: <Self as FromStr>::Err| error.to_string())
            }

            fn write(&self) -> String {
                self.$write()
            }
        }
    )*};
}

impl_value!(to_string: Layer, LossModel, Outages, PathMtu, Policer, QueueSize, Shaper);
impl_value!(to_argument: BitRate);

/// Implements [`Value`] in the same way, with `none` for the default, which has no effect.
macro_rules! impl_value_or_none {
    ($write:ident: $($value:ty),*) => {$(
        impl Value for $value {
            fn parse(text: &str) -> Result<Self, String> {
                match text {
                    "none" => Ok(Self::default()),
                    _ => text.parse().map_err(|error: <Self as FromStr>::Err| error.to_string()),
                }
            }

            fn write(&self) -> String {
                self.$write()
            }
        }
    )*};
}

impl_value_or_none!(to_string: Discipline, LinkJitter, Reorder);
impl_value_or_none!(to_argument: Ratio);

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

#[cfg(test)]
mod tests {
    use super::*;

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
