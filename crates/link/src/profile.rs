//! Profiles: named links. A profile is a TOML file of settings with the source of its figures.
//!
//! The keys are those of [`KEYS`](super::settings::KEYS), with `forward-` or `return-` for one direction, and `title`,
//! `source`, `notes` and `mtu`. Built-in profiles are files next to the source of this crate, so each one is an example
//! to copy. For another file the caller provides the text.

use toml::{Table, Value};

use super::settings::{HopSettings, SettingsError};

/// Named link with its settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    pub name: String,
    /// Description of the link in one line.
    pub title: String,
    /// Source of the figures.
    pub source: String,
    pub notes: String,
    /// MTU of the interfaces, bytes; `None` for the default.
    pub mtu: Option<u32>,
    /// Settings of the link.
    pub settings: HopSettings,
}

/// Reason why text is not a profile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// The text is not TOML.
    #[error("line {line}: {reason}")]
    Toml {
        /// Number of the line, counted from 1.
        line: usize,
        /// Message of the parser.
        reason: String,
    },
    /// A setting is unknown, or its value is refused.
    #[error(transparent)]
    Setting(#[from] SettingsError),
    /// A list, a table or a date instead of one value.
    #[error("{0} is {1}, but must be a text, a number, true or false")]
    ValueType(String, &'static str),
    /// Remedy: set a whole number of bytes.
    #[error("mtu: '{0}' is not a number of bytes")]
    Mtu(String),
    /// Lists show the title.
    #[error("title is missing")]
    MissingTitle,
}

macro_rules! built_in {
    ($($name:literal),*) => {
        &[$(($name, include_str!(concat!("../profiles/", $name, ".toml")))),*]
    };
}

/// Built-in profiles as TOML, by name: first those of the reports, then common links.
pub const BUILT_IN: &[(&str, &str)] = built_in!(
    "acts",
    "vbns",
    "sc2000",
    "geo",
    "starlink",
    "leo-ka",
    "transatlantic",
    "transpacific",
    "dsl",
    "lte",
    "lossy-wifi"
);

impl Profile {
    /// Reads a profile from TOML.
    ///
    /// ```
    /// # use lfn_link::profile::Profile;
    /// let profile = Profile::parse("mine", "title = 'Ours'\nrtt = '90ms'\nrate = '1gbit'\nreturn-loss = 1e-4")?;
    /// assert_eq!(profile.settings.to_string(), "rate=1gbit,rtt=90ms,return-loss=0.0001");
    /// # Ok::<(), lfn_link::profile::ProfileError>(())
    /// ```
    pub fn parse(name: &str, text: &str) -> Result<Self, ProfileError> {
        let table: Table = text.parse().map_err(|error| not_toml(text, &error))?;
        let mut profile = Profile {
            name: name.to_owned(),
            title: String::new(),
            source: String::new(),
            notes: String::new(),
            mtu: None,
            settings: HopSettings::default(),
        };
        for (key, value) in &table {
            let value = plain(key, value)?;
            match key.as_str() {
                "title" => profile.title = value,
                "source" => profile.source = value,
                "notes" => profile.notes = value,
                "mtu" => profile.mtu = Some(value.parse().map_err(|_| ProfileError::Mtu(value))?),
                _ => profile.settings.set(key, &value)?,
            }
        }
        if profile.title.is_empty() { Err(ProfileError::MissingTitle) } else { Ok(profile) }
    }

    /// Returns a built-in profile.
    pub fn built_in(name: &str) -> Option<Result<Self, ProfileError>> {
        let (name, text) = BUILT_IN.iter().find(|(known, _)| *known == name)?;
        Some(Profile::parse(name, text))
    }
}

/// Converts a value to the text of a setting.
fn plain(key: &str, value: &Value) -> Result<String, ProfileError> {
    let kind = match value {
        Value::String(text) => return Ok(text.trim().to_owned()),
        Value::Integer(number) => return Ok(number.to_string()),
        Value::Float(number) => return Ok(number.to_string()),
        Value::Boolean(is) => return Ok(if *is { "on" } else { "off" }.to_owned()),
        Value::Datetime(_) => "a date",
        Value::Array(_) => "a list",
        Value::Table(_) => "a table",
    };
    Err(ProfileError::ValueType(key.to_owned(), kind))
}

fn not_toml(text: &str, error: &toml::de::Error) -> ProfileError {
    let at = error.span().map_or(0, |span| span.start.min(text.len()));
    let line = 1 + text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count();
    ProfileError::Toml { line, reason: error.message().lines().collect::<Vec<_>>().join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_profile_is_refused_by_name_or_line() {
        let cases = [
            ("title = 'x'\nspeed = '10mbit'", "unknown setting 'speed'"),
            ("title = 'x'\nreturn-lost = 1", "unknown setting 'return-lost'"),
            ("title = 'x'\nrtt = 539", "has no unit"),
            ("title = 'x'\nloss = 2", "loss"),
            ("title = 'x'\nloss = [1]", "loss is a list"),
            ("title = 'x'\n[forward]\nloss = 1", "forward is a table"),
            ("title = 'x'\nmtu = 'big'", "mtu: 'big'"),
            ("title = 'x'\nmtu = -1", "mtu: '-1'"),
            ("title = 'x'\nrate = \n", "line 2: "),
            ("rate = '1mbit'", "title is missing"),
            ("", "title is missing"),
            ("title = 'x'\nrate = '1mbit'\nrate = '2mbit'", "line 3: duplicate key"),
        ];
        for (text, said) in cases {
            let error = Profile::parse("mine", text).unwrap_err().to_string();
            assert!(error.contains(said), "{text:?}: {error}");
            assert!(!error.contains('\n'), "{text:?}: {error}");
        }
    }
}
