//! Settings as text for flags, profiles and the control of a running link: `form:part:part`, where a part is a value or
//! `key=value`.
//!
//! The text has no commas or spaces, so several settings fit on one line. Each setting is parsed next to its stage.
//! This module has the shared parser and its error.

use lfn_base::units::QuantityError;

use super::error::LinkError;

/// Reason why the text of a setting cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// The text matches none of the forms of this setting.
    #[error("'{text}' is not {setting}: expected {forms}")]
    Unknown {
        /// Complete text of the setting.
        text: String,
        /// Name of the setting, with its article.
        setting: &'static str,
        forms: &'static str,
    },
    /// A number is not a number, or has the wrong unit.
    #[error("in '{text}': {source}")]
    Quantity {
        /// Complete text of the setting.
        text: String,
        /// Error in one part.
        source: QuantityError,
    },
    /// A required part is missing.
    #[error("'{text}' lacks {part}: expected {form}")]
    Missing {
        /// Complete text of the setting.
        text: String,
        /// Meaning of the missing part.
        part: &'static str,
        form: &'static str,
    },
    /// An extra part, a repeated part, or a part of another form.
    #[error("'{text}': unexpected '{part}': expected {form}")]
    Unexpected {
        /// Complete text of the setting.
        text: String,
        part: String,
        form: &'static str,
    },
    /// The text is readable, but no link can have this setting.
    #[error(transparent)]
    Refused(#[from] LinkError),
}

/// Parts of a setting after its form. Each part is taken in order or by its key.
pub(super) struct Parts<'a> {
    text: &'a str,
    /// Expected form, for error messages.
    form: &'static str,
    rest: Vec<&'a str>,
}

impl<'a> Parts<'a> {
    /// Returns the parts after `name` and a colon; `None` if the text has another form.
    pub(super) fn after_name(text: &'a str, name: &str, form: &'static str) -> Option<Self> {
        let rest = text.strip_prefix(name)?.strip_prefix(':')?;
        Some(Parts { text, form, rest: rest.split(':').collect() })
    }

    /// Returns the parts after `name` and a colon, or no parts if the text is `name` alone; `None` if the text has
    /// another form.
    pub(super) fn after_optional_name(text: &'a str, name: &str, form: &'static str) -> Option<Self> {
        if text == name { Some(Parts { text, form, rest: Vec::new() }) } else { Parts::after_name(text, name, form) }
    }

    /// Splits the whole text of a setting without a form name.
    pub(super) fn split(text: &'a str, form: &'static str) -> Self {
        Parts { text, form, rest: text.split(':').collect() }
    }

    /// Takes and reads the next part; `name` describes the part in the error.
    pub(super) fn next<T>(
        &mut self,
        name: &'static str,
        read: impl Fn(&str) -> Result<T, QuantityError>,
    ) -> Result<T, SettingError> {
        let part = self.next_text(name)?;
        self.parse_value(part, read)
    }

    /// Takes the next part unchanged.
    pub(super) fn next_text(&mut self, name: &'static str) -> Result<&'a str, SettingError> {
        let missing = || SettingError::Missing { text: self.text.to_owned(), part: name, form: self.form };
        let part = self.rest.first().copied().filter(|part| !part.is_empty()).ok_or_else(missing)?;
        self.rest.remove(0);
        Ok(part)
    }

    /// Takes and reads the next part if one is left.
    pub(super) fn next_optional<T>(
        &mut self,
        read: impl Fn(&str) -> Result<T, QuantityError>,
    ) -> Result<Option<T>, SettingError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let part = self.rest.remove(0);
        self.parse_value(part, read).map(Some)
    }

    /// Takes and reads the value of `key` if the key is present.
    pub(super) fn optional_key<T>(
        &mut self,
        key: &str,
        read: impl Fn(&str) -> Result<T, QuantityError>,
    ) -> Result<Option<T>, SettingError> {
        let value = |part: &&'a str| part.strip_prefix(key)?.strip_prefix('=');
        let Some(index) = self.rest.iter().position(|part| value(part).is_some()) else { return Ok(None) };
        let part = self.rest.remove(index);
        value(&part).map(|value| self.parse_value(value, read)).transpose()
    }

    /// Takes and reads the value of `key`, which is required.
    pub(super) fn required_key<T>(
        &mut self,
        key: &'static str,
        read: impl Fn(&str) -> Result<T, QuantityError>,
    ) -> Result<T, SettingError> {
        let missing = SettingError::Missing { text: self.text.to_owned(), part: key, form: self.form };
        self.optional_key(key, read)?.ok_or(missing)
    }

    /// Takes the word `flag` if it is the next part, and reports whether it was.
    pub(super) fn take_flag(&mut self, flag: &str) -> bool {
        let is_next = self.rest.first() == Some(&flag);
        if is_next {
            self.rest.remove(0);
        }
        is_next
    }

    /// Fails if parts are left.
    pub(super) fn finish(self) -> Result<(), SettingError> {
        match self.rest.first() {
            None => Ok(()),
            Some(part) => {
                Err(SettingError::Unexpected { text: self.text.to_owned(), part: (*part).to_owned(), form: self.form })
            }
        }
    }

    fn parse_value<T>(&self, part: &str, read: impl Fn(&str) -> Result<T, QuantityError>) -> Result<T, SettingError> {
        read(part).map_err(|source| SettingError::Quantity { text: self.text.to_owned(), source })
    }
}

/// Reads a whole number.
pub(super) fn parse_count(text: &str) -> Result<u64, QuantityError> {
    text.parse().map_err(|_| QuantityError::NotANumber {
        text: text.to_owned(),
        quantity: "count of packets",
        example: "100 (a whole number)",
    })
}
