//! The settings of a sweep as a TOML file: the keys are the names of the flags.

use serde::Deserialize;

use crate::design::{Design, FactorValues, Part};
use crate::factor::Factor;
use crate::values::{ValuesError, parse_values};

/// Maximum length of a settings file, bytes.
pub const MAX_SETTINGS_BYTES: u64 = 1 << 20;

/// Maximum parts of a settings file.
const MAX_PARTS: usize = 100;

/// Settings of a file. Goals and times are texts, which the flags of the same names parse.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SettingsFile {
    /// Factors with all their values.
    pub design: Design,
    /// Values of flags that are not factors, by the name of the flag.
    pub flags: Vec<(&'static str, String)>,
}

/// Flags that a file may have next to its factors.
const FLAGS: [&str; 6] = ["time", "until", "repeat", "budget", "seed", "rate"];

/// Reasons why a text is no settings file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    #[error("not TOML: {0}")]
    Toml(String),
    #[error("unknown key '{0}'")]
    UnknownKey(String),
    #[error("'{0}' is not a number, a text, or a list of numbers and texts")]
    NotAValue(String),
    #[error("{}: {source}", .factor.name())]
    Values { factor: Factor, source: ValuesError },
    #[error("{0} parts: at most {MAX_PARTS} are allowed")]
    TooManyParts(usize),
    /// A key that is for the whole sweep.
    #[error("'{0}' is not for one [[part]]")]
    NotForAPart(&'static str),
    #[error("factors outside of a [[part]] cannot be combined with parts")]
    FactorsBesideParts,
}

impl SettingsError {
    /// Returns one action that may fix the error.
    pub fn hint(&self) -> String {
        match self {
            SettingsError::Values { factor, .. } => format!("{} = \"{}\"", factor.name(), factor.example()),
            SettingsError::UnknownKey(_) => {
                let factors = Factor::ALL.map(Factor::name).join(", ");
                format!("the keys are {factors}, {}, and [[part]]", FLAGS.join(", "))
            }
            SettingsError::NotForAPart(key) => format!("move {key} above the first [[part]]"),
            SettingsError::FactorsBesideParts => "move the factors into a [[part]]".to_owned(),
            _ => "write KEY = \"VALUES\" in each line: window = \"1MB..16MB:x2\"".to_owned(),
        }
    }
}

/// A value of a key, in any form that a user may expect.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Scalar {
    Integer(i64),
    Float(f64),
    Text(String),
}

impl Scalar {
    fn text(&self) -> String {
        match self {
            Scalar::Integer(number) => number.to_string(),
            Scalar::Float(number) => number.to_string(),
            Scalar::Text(text) => text.clone(),
        }
    }
}

/// Parses a settings file.
pub fn parse_settings(text: &str) -> Result<SettingsFile, SettingsError> {
    let table: toml::Table =
        toml::from_str(text).map_err(|error: toml::de::Error| SettingsError::Toml(one_line(error.message())))?;
    let mut file = SettingsFile::default();
    let mut own = Part::default();
    for (key, value) in table {
        if key == "part" {
            file.design.parts = parse_parts(value)?;
        } else if let Some(flag) = FLAGS.into_iter().find(|flag| *flag == key) {
            let scalar: Scalar = value.try_into().map_err(|_| SettingsError::NotAValue(key))?;
            file.flags.push((flag, scalar.text()));
        } else {
            own.factors.push(parse_factor(&key, value)?);
        }
    }
    if !own.factors.is_empty() {
        if !file.design.parts.is_empty() {
            return Err(SettingsError::FactorsBesideParts);
        }
        sort(&mut own);
        file.design.parts.push(own);
    }
    Ok(file)
}

fn parse_parts(value: toml::Value) -> Result<Vec<Part>, SettingsError> {
    let tables: Vec<toml::Table> = value.try_into().map_err(|_| SettingsError::NotAValue("part".to_owned()))?;
    if tables.len() > MAX_PARTS {
        return Err(SettingsError::TooManyParts(tables.len()));
    }
    tables.into_iter().map(parse_part).collect()
}

fn parse_part(table: toml::Table) -> Result<Part, SettingsError> {
    let mut part = Part::default();
    for (key, value) in table {
        match (key.as_str(), value) {
            ("name", toml::Value::String(name)) => part.name = one_line(&name),
            ("name", _) => return Err(SettingsError::NotAValue(key)),
            (_, value) => match FLAGS.into_iter().find(|flag| *flag == key) {
                Some(flag) => return Err(SettingsError::NotForAPart(flag)),
                None => part.factors.push(parse_factor(&key, value)?),
            },
        }
    }
    sort(&mut part);
    Ok(part)
}

/// Puts the factors into the order of columns, which does not depend on the order of the keys.
fn sort(part: &mut Part) {
    part.factors.sort_by_key(|factor| factor.factor);
}

fn parse_factor(key: &str, value: toml::Value) -> Result<FactorValues, SettingsError> {
    let factor = Factor::of_name(key).ok_or_else(|| SettingsError::UnknownKey(one_line(key)))?;
    let texts: Vec<String> = match value {
        toml::Value::Array(values) => values
            .into_iter()
            .map(|value| value.try_into().map(|scalar: Scalar| scalar.text()))
            .collect::<Result<_, _>>()
            .map_err(|_| SettingsError::NotAValue(key.to_owned()))?,
        value => {
            let scalar: Scalar = value.try_into().map_err(|_| SettingsError::NotAValue(key.to_owned()))?;
            vec![scalar.text()]
        }
    };
    let failed = |source| SettingsError::Values { factor, source };
    if texts.is_empty() {
        return Err(failed(ValuesError::Empty));
    }
    Ok(FactorValues { factor, values: parse_values(factor, &texts.join(",")).map_err(failed)? })
}

/// Returns a text without control characters.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(200).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::factor::Value;

    #[test]
    fn a_file_has_factors_and_flags() {
        let file = parse_settings(
            "streams = [1, 4]\nwindow = \"1MB..4MB:x2\"\ncongestion = [\"cubic\", \"bbr\"]\ntime = \"20s\"\nrepeat = 5",
        )
        .unwrap();
        let part = &file.design.parts[0];
        let factors: Vec<_> = part.factors.iter().map(|factor| (factor.factor, factor.values.len())).collect();
        assert_eq!(factors, [(Factor::Window, 3), (Factor::Streams, 2), (Factor::Congestion, 2)]);
        let mut flags = file.flags;
        flags.sort();
        assert_eq!(flags, [("repeat", "5".to_owned()), ("time", "20s".to_owned())]);
    }

    #[test]
    fn a_file_may_have_several_parts() {
        let text =
            "[[part]]\nname = \"shift\"\nwindow = 9095625\nwindow-scale = \"4..8:+1\"\n[[part]]\nstreams = [1,2]";
        let file = parse_settings(text).unwrap();
        assert_eq!((file.design.parts.len(), file.design.parts[0].name.as_str()), (2, "shift"));
        assert_eq!(file.design.parts[0].factors[0].values, [Value::Number(9_095_625)]);
    }

    #[test]
    fn bad_files_have_errors_that_name_the_key() {
        let cases = [
            ("window = ", "not TOML"),
            ("windows = 1", "unknown key 'windows'"),
            ("window = []", "window: a value is empty"),
            ("window = [[1]]", "'window'"),
            ("window = { a = 1 }", "'window'"),
            ("streams = [1, 1]", "occurs twice"),
            ("streams = -1", "streams"),
            ("part = 3", "'part'"),
            ("[[part]]\ntime = \"3s\"", "'time' is not for one"),
            ("[[part]]\nname = 1", "'name' is not"),
            ("streams = 1\n[[part]]\nstreams = 2", "outside of a [[part]]"),
        ];
        for (text, says) in cases {
            let error = parse_settings(text).unwrap_err();
            assert!(error.to_string().contains(says) && !error.hint().is_empty(), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_ends_in_settings_or_an_error(text in "[a-z0-9\\[\\]=\",.:x+ \n-]{0,100}") {
            if let Ok(settings) = parse_settings(&text) {
                let factors = settings.design.parts.iter().flat_map(|part| &part.factors);
                prop_assert!(factors.into_iter().all(|given| !given.values.is_empty()));
            }
        }
    }
}
