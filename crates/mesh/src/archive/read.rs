//! Selection and reading of entries.

use std::ops::ControlFlow;
use std::time::Duration;

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};

use super::detail::{EntryTexts, decode_document};
use super::dictionary::Dictionary;
use super::row::{self, COLUMNS, kind_number, milliseconds};
use super::{Archive, ArchiveError};
use crate::entry::{Entry, EntryKind};

/// Selects entries. The default selects all of them, without complete documents.
#[derive(Debug, Clone, Copy, Default)]
pub struct EntryFilter<'a> {
    /// Host that sends the data.
    pub from: Option<&'a str>,
    /// Host that receives the data.
    pub to: Option<&'a str>,
    pub kind: Option<EntryKind>,
    /// First time since 1970.
    pub since: Option<Duration>,
    /// First time since 1970 that is not selected.
    pub until: Option<Duration>,
    /// Newest entries of the selection; `None` for all.
    pub limit: Option<usize>,
    /// With verdicts, explanations of findings and errors.
    pub texts: bool,
    /// With the complete documents too, as long as the archive keeps them.
    pub documents: bool,
}

impl Archive {
    /// Returns the newest entry of each pair and kind, with texts, in the order of pairs.
    pub fn latest(&mut self) -> Result<Vec<Entry>, ArchiveError> {
        let Archive { connection, dictionary, .. } = self;
        let sql = format!("SELECT {COLUMNS} FROM latest ORDER BY pair, kind");
        let filter = EntryFilter { texts: true, ..EntryFilter::default() };
        let mut entries = Vec::new();
        let read = each_row(connection, dictionary, &sql, &[], filter, &mut |entry| {
            entries.push(entry);
            ControlFlow::Continue(())
        });
        read.map(|()| entries).map_err(|error| self.failed(error))
    }

    /// Returns the selected entries in the order of their times.
    pub fn entries(&mut self, filter: EntryFilter<'_>) -> Result<Vec<Entry>, ArchiveError> {
        let mut entries = Vec::new();
        self.each_entry(filter, &mut |entry| {
            entries.push(entry);
            ControlFlow::Continue(())
        })?;
        entries.sort_by_key(|entry| entry.time);
        Ok(entries)
    }

    /// Calls `visit` with the selected entries, one after the other, until it breaks. The entries of one pair and kind come
    /// together, in the order of their times, or newest first with a limit.
    pub fn each_entry(
        &mut self,
        filter: EntryFilter<'_>,
        visit: &mut dyn FnMut(Entry) -> ControlFlow<()>,
    ) -> Result<(), ArchiveError> {
        let Archive { connection, dictionary, .. } = self;
        let result = select(connection, dictionary, filter).and_then(|selected| match selected {
            None => Ok(()),
            Some((sql, values)) => each_row(connection, dictionary, &sql, &values, filter, visit),
        });
        result.map_err(|error| self.failed(error))
    }

    /// Returns the names of all hosts with entries, sorted.
    pub fn hosts(&self) -> Result<Vec<String>, ArchiveError> {
        let read = || {
            let mut statement = self.connection.prepare_cached("SELECT name FROM host ORDER BY name")?;
            statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<Vec<String>>>()
        };
        read().map_err(|error| self.failed(error))
    }
}

/// A statement in parts: its conditions and their values.
#[derive(Debug, Default)]
struct Selection {
    conditions: Vec<String>,
    values: Vec<Value>,
}

impl Selection {
    /// Adds a condition. `{}` in its text stands for the value.
    fn add(&mut self, condition: &str, value: Value) {
        self.values.push(value);
        self.conditions.push(condition.replace("{}", &format!("${}", self.values.len())));
    }
}

/// Returns the statement of a selection; `None` if the archive has no such pair.
fn select(
    sql: &Connection,
    dictionary: &mut Dictionary,
    filter: EntryFilter<'_>,
) -> rusqlite::Result<Option<(String, Vec<Value>)>> {
    let mut selection = Selection::default();
    if let (Some(from), Some(to)) = (filter.from, filter.to) {
        let Some(pair) = dictionary.find_pair(sql, from, to)? else { return Ok(None) };
        selection.add("pair = {}", Value::Integer(pair));
    } else {
        for (column, host) in [("from_host", filter.from), ("to_host", filter.to)] {
            let Some(host) = host else { continue };
            let condition =
                format!("pair IN (SELECT p.id FROM pair p JOIN host h ON h.id = p.{column} WHERE h.name = {{}})");
            selection.add(&condition, Value::Text(host.to_owned()));
        }
    }
    if let Some(kind) = filter.kind {
        selection.add("kind = {}", Value::Integer(kind_number(kind)));
    }
    if let Some(since) = filter.since {
        selection.add("time >= {}", Value::Integer(milliseconds(since)));
    }
    if let Some(until) = filter.until {
        selection.add("time < {}", Value::Integer(milliseconds(until)));
    }
    let condition = match selection.conditions.is_empty() {
        true => String::new(),
        false => format!(" WHERE {}", selection.conditions.join(" AND ")),
    };
    let order = match filter.limit {
        Some(limit) => format!("ORDER BY time DESC LIMIT {limit}"),
        None => "ORDER BY pair, kind, time".to_owned(),
    };
    Ok(Some((format!("SELECT {COLUMNS} FROM result{condition} {order}"), selection.values)))
}

/// Calls `visit` with the entry of each row of a statement, until it breaks.
fn each_row(
    sql: &Connection,
    dictionary: &mut Dictionary,
    statement: &str,
    values: &[Value],
    filter: EntryFilter<'_>,
    visit: &mut dyn FnMut(Entry) -> ControlFlow<()>,
) -> rusqlite::Result<()> {
    let mut statement = sql.prepare_cached(statement)?;
    let mut rows = statement.query(params_from_iter(values))?;
    while let Some(row) = rows.next()? {
        let mut entry = row::entry(dictionary, sql, row)?;
        if filter.texts || filter.documents {
            add_detail(sql, row, &mut entry, filter.documents)?;
        }
        if visit(entry).is_break() {
            break;
        }
    }
    Ok(())
}

/// Adds the texts of an entry, and its document if requested, unless the document was deleted.
fn add_detail(sql: &Connection, row: &Row<'_>, entry: &mut Entry, with_document: bool) -> rusqlite::Result<()> {
    let key = [0, 1, 2, 3].map(|column| row.get::<_, i64>(column));
    let [pair, kind, time, test] = key;
    let (pair, kind, time, test) = (pair?, kind?, time?, test?);
    let body = |select: &str| {
        let mut statement = sql.prepare_cached(select)?;
        statement.query_row(params![pair, kind, time, test], |row| row.get::<_, Vec<u8>>(0)).optional()
    };
    let texts = body("SELECT body FROM explanation WHERE pair = $1 AND kind = $2 AND time = $3 AND test = $4")?;
    if let Some(texts) = texts.as_deref().and_then(EntryTexts::decode) {
        entry.verdict = texts.verdict;
        entry.error = texts.error;
        if !texts.findings.is_empty() {
            entry.findings = texts.findings;
        }
    }
    if with_document {
        let document = body("SELECT body FROM document WHERE pair = $1 AND kind = $2 AND time = $3 AND test = $4")?;
        entry.detail = document.as_deref().and_then(decode_document);
    }
    Ok(())
}
