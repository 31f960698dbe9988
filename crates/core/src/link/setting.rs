//! Settings as text, the way a flag, a profile and a running link take them: `form:part:part`, where a part is a value
//! or `key=value`.
//!
//! Neither commas nor spaces occur, so that several settings fit on one line. What a stage is set to lives beside the
//! stage; here is only what the readers share, and their error.

use super::LinkError;
use crate::units::QuantityError;

/// Why the text of a setting could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// None of the forms this setting has.
    #[error("'{text}' is not {setting}: expected {forms}")]
    Unknown {
        /// What was typed.
        text: String,
        /// What was wanted, with its article.
        setting: &'static str,
        /// The forms that would be accepted.
        forms: &'static str,
    },
    /// A number in it is none, or has the wrong unit.
    #[error("in '{text}': {source}")]
    Quantity {
        /// What was typed, all of it.
        text: String,
        /// What is wrong with the part.
        source: QuantityError,
    },
    /// A part is wanted that is not there.
    #[error("'{text}' lacks {part}: expected {form}")]
    Missing {
        /// What was typed.
        text: String,
        /// What the missing part says.
        part: &'static str,
        /// The whole form.
        form: &'static str,
    },
    /// A part too many, one given twice, or one of another form.
    #[error("'{text}': do not know what to do with '{part}': expected {form}")]
    Unwanted {
        /// What was typed.
        text: String,
        /// The part that was not understood.
        part: String,
        /// The whole form.
        form: &'static str,
    },
    /// It can be read, but no link can do it.
    #[error(transparent)]
    Refused(#[from] LinkError),
}

/// The parts of a setting after its form, to be taken one after the other, or by key.
pub(super) struct Parts<'a> {
    text: &'a str,
    /// What is expected, for the messages.
    form: &'static str,
    rest: Vec<&'a str>,
}

impl<'a> Parts<'a> {
    /// Everything in `text` after `name` and a colon; none if it is of another form.
    pub(super) fn of(text: &'a str, name: &str, form: &'static str) -> Option<Self> {
        let rest = text.strip_prefix(name)?.strip_prefix(':')?;
        Some(Parts { text, form, rest: rest.split(':').collect() })
    }

    /// Everything in `text` after `name` and a colon, or nothing after `name` alone; none if it is of another form.
    pub(super) fn after(text: &'a str, name: &str, form: &'static str) -> Option<Self> {
        if text == name { Some(Parts { text, form, rest: Vec::new() }) } else { Parts::of(text, name, form) }
    }

    /// All of `text`, of a setting without a name for its form.
    pub(super) fn all(text: &'a str, form: &'static str) -> Self {
        Parts { text, form, rest: text.split(':').collect() }
    }

    /// The next part, which says `what`.
    pub(super) fn next<T>(
        &mut self,
        what: &'static str,
        read: impl Fn(&str) -> Result<T, QuantityError>,
    ) -> Result<T, SettingError> {
        let part = self.word(what)?;
        self.value(part, read)
    }

    /// The next part as it is.
    pub(super) fn word(&mut self, what: &'static str) -> Result<&'a str, SettingError> {
        let missing = || SettingError::Missing { text: self.text.to_owned(), part: what, form: self.form };
        let part = self.rest.first().copied().filter(|part| !part.is_empty()).ok_or_else(missing)?;
        self.rest.remove(0);
        Ok(part)
    }

    /// The next part, if there is one.
    pub(super) fn next_if_any<T>(
        &mut self,
        read: impl Fn(&str) -> Result<T, QuantityError>,
    ) -> Result<Option<T>, SettingError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let part = self.rest.remove(0);
        self.value(part, read).map(Some)
    }

    /// The value of `key`, if it is given.
    pub(super) fn key<T>(
        &mut self,
        key: &str,
        read: impl Fn(&str) -> Result<T, QuantityError>,
    ) -> Result<Option<T>, SettingError> {
        let value = |part: &&'a str| part.strip_prefix(key)?.strip_prefix('=');
        let Some(index) = self.rest.iter().position(|part| value(part).is_some()) else { return Ok(None) };
        let part = self.rest.remove(index);
        value(&part).map(|value| self.value(value, read)).transpose()
    }

    /// The value of `key`, which must be given.
    pub(super) fn wanted_key<T>(
        &mut self,
        key: &'static str,
        read: impl Fn(&str) -> Result<T, QuantityError>,
    ) -> Result<T, SettingError> {
        let missing = SettingError::Missing { text: self.text.to_owned(), part: key, form: self.form };
        self.key(key, read)?.ok_or(missing)
    }

    /// True if the next part is the word `flag`, which is then taken.
    pub(super) fn flag(&mut self, flag: &str) -> bool {
        let is_next = self.rest.first() == Some(&flag);
        if is_next {
            self.rest.remove(0);
        }
        is_next
    }

    /// Nothing may be left.
    pub(super) fn end(self) -> Result<(), SettingError> {
        match self.rest.first() {
            None => Ok(()),
            Some(part) => {
                Err(SettingError::Unwanted { text: self.text.to_owned(), part: (*part).to_owned(), form: self.form })
            }
        }
    }

    fn value<T>(&self, part: &str, read: impl Fn(&str) -> Result<T, QuantityError>) -> Result<T, SettingError> {
        read(part).map_err(|source| SettingError::Quantity { text: self.text.to_owned(), source })
    }
}

/// Reads a whole number.
pub(super) fn count(text: &str) -> Result<u64, QuantityError> {
    text.parse().map_err(|_| QuantityError::NotANumber {
        text: text.to_owned(),
        quantity: "count of packets",
        example: "100 (a whole number)",
    })
}
