//! Typed access to the tables of a TOML text. Every problem is recorded with its position, and reading continues.

use std::ops::Range;
use std::time::Duration;

use lfn_base::date;
use lfn_base::units::{BitRate, Bytes, parse_unit_bytes, parse_unit_duration};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{Problem, SitesError};
use super::limits::{MAX_NAME, MAX_PROBLEMS, MAX_TEXT};

/// Byte range in the text.
pub type Span = Range<usize>;

/// A value with its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located<T> {
    pub value: T,
    pub span: Span,
}

/// Problems found so far.
pub struct Problems<'t> {
    text: &'t str,
    /// Start of each line, bytes.
    lines: Vec<usize>,
    found: Vec<SitesError>,
}

impl<'t> Problems<'t> {
    /// Starts with a text without known problems.
    pub fn new(text: &'t str) -> Self {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let lines = std::iter::once(0).chain(ends.map(|(at, _)| at + 1)).collect();
        Problems { text, lines, found: Vec::new() }
    }

    /// Records a problem at the start of `span`.
    pub fn add(&mut self, span: &Span, problem: Problem) {
        if self.found.len() < MAX_PROBLEMS {
            let line = self.line(span);
            let start = self.lines.get(line - 1).copied().unwrap_or(0);
            let before = self.text.get(start..span.start).unwrap_or_default();
            self.found.push(SitesError { line, column: before.chars().count() + 1, problem });
        }
    }

    /// Returns the line of the start of `span`, from 1 on.
    pub fn line(&self, span: &Span) -> usize {
        self.lines.partition_point(|start| *start <= span.start).max(1)
    }

    /// Returns the problems in the order in which they were found.
    pub fn into_found(self) -> Vec<SitesError> {
        self.found
    }

    /// Reports whether no problem was found.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }
}

/// One table of the text. [`Table::finish`] reports the keys that no method has asked for.
pub struct Table<'a, 't> {
    /// Name for messages, such as `[[site]]`.
    pub name: &'static str,
    /// Position of the table.
    pub span: Span,
    table: &'a DeTable<'t>,
    known: Vec<&'static str>,
    /// Required keys that are missing.
    missing: Vec<&'static str>,
}

impl<'a, 't> Table<'a, 't> {
    /// Begins to read a table.
    pub fn new(name: &'static str, span: Span, table: &'a DeTable<'t>) -> Self {
        Table { name, span, table, known: Vec::new(), missing: Vec::new() }
    }

    /// Reports whether the table has this key. The key counts as known.
    pub fn has(&mut self, key: &'static str) -> bool {
        self.value(key).is_some()
    }

    /// Returns the position of a key, or of the table.
    pub fn span_of(&self, key: &str) -> Span {
        self.table.get_key_value(key).map_or_else(|| self.span.clone(), |(found, _)| found.span())
    }

    fn value(&mut self, key: &'static str) -> Option<&'a Spanned<DeValue<'t>>> {
        self.known.push(key);
        self.table.get(key)
    }

    /// Notes a missing key for [`Table::finish`].
    fn require<T>(&mut self, found: Option<T>, key: &'static str) -> Option<T> {
        if found.is_none() && !self.table.contains_key(key) {
            self.missing.push(key);
        }
        found
    }

    /// Notes a missing key that the table needs, for [`Table::finish`].
    pub fn note_missing(&mut self, key: &'static str) {
        self.missing.push(key);
    }

    /// Makes keys known that no method reads, because another key has a problem.
    pub fn permit(&mut self, keys: &[&'static str]) {
        self.known.extend(keys);
    }

    fn wrong_type<T>(&self, span: &Span, key: &str, expected: &'static str, problems: &mut Problems) -> Option<T> {
        problems.add(span, Problem::WrongType { table: self.name, key: key.to_owned(), expected });
        None
    }

    /// Returns a text in one line of at most 200 characters.
    pub fn text(&mut self, key: &'static str, problems: &mut Problems) -> Option<Located<String>> {
        let value = self.value(key)?;
        self.text_of(key, value, problems)
    }

    /// Does the same as [`Table::text`], and a missing key is a problem.
    pub fn required_text(&mut self, key: &'static str, problems: &mut Problems) -> Option<Located<String>> {
        let text = self.text(key, problems);
        self.require(text, key)
    }

    fn text_of(&self, key: &'static str, value: &Spanned<DeValue>, problems: &mut Problems) -> Option<Located<String>> {
        let Some(text) = value.get_ref().as_str() else {
            return self.wrong_type(&value.span(), key, "a text in quotes", problems);
        };
        let length = text.chars().count();
        if length > MAX_TEXT {
            let problem = Problem::LongText { table: self.name, key, length, max: MAX_TEXT };
            problems.add(&value.span(), problem);
            return None;
        }
        if text.chars().any(char::is_control) {
            return self.wrong_type(&value.span(), key, "a text without control characters", problems);
        }
        Some(Located { value: text.to_owned(), span: value.span() })
    }

    /// Returns a name: 1 to 63 letters, digits, dots, dashes and underscores.
    pub fn name(&mut self, key: &'static str, problems: &mut Problems) -> Option<Located<String>> {
        let value = self.value(key)?;
        self.name_of(key, value, problems)
    }

    /// Does the same as [`Table::name`], and a missing key is a problem.
    pub fn required_name(&mut self, key: &'static str, problems: &mut Problems) -> Option<Located<String>> {
        let name = self.name(key, problems);
        self.require(name, key)
    }

    fn name_of(&self, key: &'static str, value: &Spanned<DeValue>, problems: &mut Problems) -> Option<Located<String>> {
        let text = self.text_of(key, value, problems)?;
        if is_name(&text.value) {
            return Some(text);
        }
        problems.add(&text.span, Problem::Name { value: text.value });
        None
    }

    /// Returns a list of names; empty without the key.
    pub fn names(&mut self, key: &'static str, problems: &mut Problems) -> Vec<Located<String>> {
        self.list(key, "a list of names", problems, |table, value, problems| table.name_of(key, value, problems))
    }

    /// Returns a list of texts; empty without the key.
    pub fn texts(&mut self, key: &'static str, problems: &mut Problems) -> Vec<Located<String>> {
        self.list(key, "a list of texts", problems, |table, value, problems| table.text_of(key, value, problems))
    }

    /// Returns a list of pairs of names; empty without the key.
    pub fn pairs(&mut self, key: &'static str, problems: &mut Problems) -> Vec<[Located<String>; 2]> {
        self.list(key, "a list of pairs", problems, |table, value, problems| table.pair_of(key, value, problems))
    }

    /// Returns a pair of names.
    pub fn pair(&mut self, key: &'static str, problems: &mut Problems) -> Option<[Located<String>; 2]> {
        let value = self.value(key)?;
        self.pair_of(key, value, problems)
    }

    /// Does the same as [`Table::pair`], and a missing key is a problem.
    pub fn required_pair(&mut self, key: &'static str, problems: &mut Problems) -> Option<[Located<String>; 2]> {
        let pair = self.pair(key, problems);
        self.require(pair, key)
    }

    fn pair_of(
        &self,
        key: &'static str,
        value: &Spanned<DeValue>,
        problems: &mut Problems,
    ) -> Option<[Located<String>; 2]> {
        let Some([first, second]) = value.get_ref().as_array().map(|array| array.as_ref()) else {
            return self.wrong_type(&value.span(), key, "a pair of two names", problems);
        };
        let first = self.name_of(key, first, problems)?;
        let second = self.name_of(key, second, problems)?;
        if first.value == second.value {
            problems.add(&second.span, Problem::SelfPair { name: second.value });
            return None;
        }
        Some([first, second])
    }

    fn list<T>(
        &mut self,
        key: &'static str,
        expected: &'static str,
        problems: &mut Problems,
        mut item: impl FnMut(&Self, &Spanned<DeValue<'t>>, &mut Problems) -> Option<T>,
    ) -> Vec<T> {
        let Some(value) = self.value(key) else { return Vec::new() };
        let Some(array) = value.get_ref().as_array() else {
            self.wrong_type::<()>(&value.span(), key, expected, problems);
            return Vec::new();
        };
        array.iter().filter_map(|value| item(self, value, problems)).collect()
    }

    /// Returns the value of one of the choices.
    pub fn choice<T: Copy>(
        &mut self,
        key: &'static str,
        choices: &[(&'static str, T)],
        problems: &mut Problems,
    ) -> Option<T> {
        let text = self.text(key, problems)?;
        self.choice_of(key, &text, choices, problems)
    }

    /// Does the same as [`Table::choice`], and a missing key is a problem.
    pub fn required_choice<T: Copy>(
        &mut self,
        key: &'static str,
        choices: &[(&'static str, T)],
        problems: &mut Problems,
    ) -> Option<T> {
        let choice = self.choice(key, choices, problems);
        self.require(choice, key)
    }

    /// Returns the choice that `text` names.
    pub fn choice_of<T: Copy>(
        &self,
        key: &'static str,
        text: &Located<String>,
        choices: &[(&'static str, T)],
        problems: &mut Problems,
    ) -> Option<T> {
        let found = choices.iter().find(|(name, _)| *name == text.value).map(|(_, value)| *value);
        if found.is_none() {
            let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
            let (value, choices) = (text.value.clone(), names.join(", "));
            problems.add(&text.span, Problem::Choice { table: self.name, key, value, choices });
        }
        found
    }

    /// Returns a truth value.
    pub fn boolean(&mut self, key: &'static str, problems: &mut Problems) -> Option<bool> {
        let value = self.value(key)?;
        match value.get_ref().as_bool() {
            Some(flag) => Some(flag),
            None => self.wrong_type(&value.span(), key, "true or false", problems),
        }
    }

    /// Returns a whole number in the range.
    pub fn count(&mut self, key: &'static str, range: Range<u64>, problems: &mut Problems) -> Option<u64> {
        let value = self.value(key)?;
        let number = value.get_ref().as_integer();
        let Some(number) = number else {
            return self.wrong_type(&value.span(), key, "a whole number", problems);
        };
        let parsed = u64::from_str_radix(number.as_str(), number.radix()).ok().filter(|count| range.contains(count));
        if parsed.is_none() {
            let range = format!("{} to {}", range.start, range.end - 1);
            problems.add(&value.span(), Problem::Range { table: self.name, key, value: number.to_string(), range });
        }
        parsed
    }

    /// Returns a quantity that is written as a text with a unit.
    fn quantity<T>(
        &mut self,
        key: &'static str,
        problems: &mut Problems,
        parse: impl FnOnce(&str) -> Result<T, lfn_base::units::QuantityError>,
    ) -> Option<Located<T>> {
        let text = self.text(key, problems)?;
        match parse(&text.value) {
            Ok(value) => Some(Located { value, span: text.span }),
            Err(error) => {
                problems.add(&text.span, Problem::Quantity { table: self.name, key, error });
                None
            }
        }
    }

    /// Returns a duration with a unit.
    pub fn duration(&mut self, key: &'static str, problems: &mut Problems) -> Option<Located<Duration>> {
        self.quantity(key, problems, parse_unit_duration)
    }

    /// Returns a bit rate with a unit, more than zero.
    pub fn rate(&mut self, key: &'static str, problems: &mut Problems) -> Option<BitRate> {
        let rate = self.quantity(key, problems, |text| text.parse::<BitRate>())?;
        if rate.value == BitRate(0) {
            let range = "1bit and more".to_owned();
            problems.add(&rate.span, Problem::Range { table: self.name, key, value: "0".to_owned(), range });
            return None;
        }
        Some(rate.value)
    }

    /// Does the same as [`Table::rate`], and a missing key is a problem.
    pub fn required_rate(&mut self, key: &'static str, problems: &mut Problems) -> Option<BitRate> {
        let rate = self.rate(key, problems);
        self.require(rate, key)
    }

    /// Does the same as [`Table::duration`], and a missing key is a problem.
    pub fn required_duration(&mut self, key: &'static str, problems: &mut Problems) -> Option<Located<Duration>> {
        let duration = self.duration(key, problems);
        self.require(duration, key)
    }

    /// Returns a number of bytes with a unit.
    pub fn bytes(&mut self, key: &'static str, problems: &mut Problems) -> Option<Bytes> {
        self.quantity(key, problems, parse_unit_bytes).map(|bytes| bytes.value)
    }

    /// Returns a time since 1970: a date of TOML or a text, in UTC.
    pub fn time(&mut self, key: &'static str, problems: &mut Problems) -> Option<Located<Duration>> {
        let value = self.value(key)?;
        let text = match value.get_ref() {
            DeValue::Datetime(time) => time.to_string(),
            DeValue::String(text) => text.to_string(),
            _ => String::new(),
        };
        match date::parse(&text) {
            Some(time) => Some(Located { value: time, span: value.span() }),
            None => self.wrong_type(&value.span(), key, "a time in UTC, for example 2026-12-01T02:00:00Z", problems),
        }
    }

    /// Does the same as [`Table::time`], and a missing key is a problem.
    pub fn required_time(&mut self, key: &'static str, problems: &mut Problems) -> Option<Located<Duration>> {
        let time = self.time(key, problems);
        self.require(time, key)
    }

    /// Returns the tables of an array of tables; empty without the key.
    pub fn tables(&mut self, key: &'static str, name: &'static str, problems: &mut Problems) -> Vec<Table<'a, 't>> {
        let Some(value) = self.value(key) else { return Vec::new() };
        let Some(array) = value.get_ref().as_array() else {
            self.wrong_type::<()>(&value.span(), key, "a list of tables", problems);
            return Vec::new();
        };
        let mut tables = Vec::new();
        for item in array.iter() {
            match item.get_ref().as_table() {
                Some(table) => tables.push(Table::new(name, item.span(), table)),
                None => self.wrong_type(&item.span(), key, "a list of tables", problems).unwrap_or(()),
            }
        }
        tables
    }

    /// Returns a single table.
    pub fn table(&mut self, key: &'static str, name: &'static str, problems: &mut Problems) -> Option<Table<'a, 't>> {
        let value = self.value(key)?;
        match value.get_ref().as_table() {
            Some(table) => Some(Table::new(name, value.span(), table)),
            None => self.wrong_type(&value.span(), key, "a table", problems),
        }
    }

    /// Records the keys that are unknown, and the required keys that are missing. A key that is near an unknown one counts as
    /// written wrong, not as missing.
    pub fn finish(mut self, problems: &mut Problems) {
        self.known.sort_unstable();
        self.known.dedup();
        for key in self.table.keys() {
            if !self.known.contains(&key.get_ref().as_ref()) {
                let text: String = key.get_ref().chars().filter(|c| !c.is_control()).take(MAX_TEXT).collect();
                let absent = self.known.iter().filter(|known| !self.table.contains_key(**known));
                let similar = nearest(&text, absent);
                self.missing.retain(|missing| Some(*missing) != similar);
                let known = self.known.join(", ");
                problems.add(&key.span(), Problem::UnknownKey { table: self.name, key: text, known, similar });
            }
        }
        for key in self.missing {
            problems.add(&self.span, Problem::MissingKey { table: self.name, key });
        }
    }
}

/// Returns the known key with the fewest different characters: at most one of three.
fn nearest<'k>(text: &str, known: impl Iterator<Item = &'k &'static str>) -> Option<&'static str> {
    let distance = |known: &&'static str| (strsim::osa_distance(text, known), *known);
    let (distance, known) = known.map(distance).min()?;
    (distance * 3 <= known.len()).then_some(known)
}

/// Reports whether a text is a name.
fn is_name(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=MAX_NAME).contains(&text.len()) && text.bytes().all(fits)
}
