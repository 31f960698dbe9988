//! Values as they are typed, and written so that they can be typed again without loss.

use std::str::FromStr;
use std::time::Duration;

use crate::framing::Layer;
use crate::link::trace::Trace;
use crate::link::{Discipline, Jitter, LossModel, Outages, PathMtu, Policer, Reorder, Shaper};
use crate::path::QueueSize;
use crate::units::{BitRate, Ratio, parse_unit_duration, typed_duration};

/// A value of a setting.
pub(super) trait Value: Sized {
    /// Reads what was typed, or says what is wrong with it.
    fn read(text: &str) -> Result<Self, String>;
    /// Writes what [`read`](Value::read) reads as the same value: no comma, no space.
    fn write(&self) -> String;
}

/// Values that read and write themselves.
macro_rules! reads_itself {
    ($write:ident: $($value:ty),*) => {$(
        impl Value for $value {
            fn read(text: &str) -> Result<Self, String> {
                text.parse().map_err(|error: <Self as FromStr>::Err| error.to_string())
            }

            fn write(&self) -> String {
                self.$write()
            }
        }
    )*};
}

reads_itself!(to_string: Layer, LossModel, Outages, PathMtu, Policer, QueueSize, Shaper);
reads_itself!(typed: BitRate);

/// The same, and `none` for what does nothing, which is their default.
macro_rules! reads_none {
    ($write:ident: $($value:ty),*) => {$(
        impl Value for $value {
            fn read(text: &str) -> Result<Self, String> {
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

reads_none!(to_string: Discipline, Jitter, Reorder);
reads_none!(typed: Ratio);

impl Value for Duration {
    fn read(text: &str) -> Result<Self, String> {
        parse_unit_duration(text).map_err(|error| error.to_string())
    }

    fn write(&self) -> String {
        typed_duration(*self)
    }
}

impl Value for Trace {
    /// One that is built in, or the name of a file that is still to be read.
    fn read(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("a file or a name is missing".to_owned());
        }
        Ok(Trace::built_in(text).unwrap_or_else(|| Trace::named(text)))
    }

    fn write(&self) -> String {
        self.name.clone()
    }
}

impl Value for bool {
    fn read(text: &str) -> Result<Self, String> {
        match text {
            "on" => Ok(true),
            "off" | "none" => Ok(false),
            _ => Err(format!("'{text}' is neither on nor off")),
        }
    }

    fn write(&self) -> String {
        if *self { "on" } else { "off" }.to_owned()
    }
}

impl<T: Value> Value for Option<T> {
    /// `none` where a profile has some.
    fn read(text: &str) -> Result<Self, String> {
        if text == "none" { Ok(None) } else { T::read(text).map(Some) }
    }

    fn write(&self) -> String {
        self.as_ref().map_or_else(|| "none".to_owned(), Value::write)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_they_are_read() {
        for text in ["269500us", "0s", "539000001ns"] {
            assert_eq!(Duration::read(text).unwrap().write(), text);
        }
        for text in ["0.5bdp", "9095625B", "300ms", "64KiB"] {
            let queue = QueueSize::read(text).unwrap();
            assert_eq!(QueueSize::read(&queue.write()), Ok(queue), "{text}");
        }
        for text in ["none", "1400", "1400:black-hole"] {
            assert_eq!(Option::<PathMtu>::read(text).unwrap().write(), text);
        }
    }

    #[test]
    fn a_time_without_a_unit_is_not_guessed() {
        for text in ["539", "1.5", " 20 ", "1e3"] {
            assert!(Duration::read(text).unwrap_err().contains("unit"), "{text}");
        }
        assert_eq!(Duration::read("0"), Ok(Duration::ZERO));
    }
}
