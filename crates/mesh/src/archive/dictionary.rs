//! Numbers for hosts, pairs and repeated texts, with a bounded memory of the numbers used last.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension, params};

/// Numbers that are remembered of each table; the memory starts again when it is full.
const MAX_REMEMBERED: usize = 20_000;

/// Numbers of hosts, pairs and texts.
#[derive(Debug, Default)]
pub(super) struct Dictionary {
    pairs: HashMap<(String, String), i64>,
    names: HashMap<i64, (String, String)>,
    texts: HashMap<String, i64>,
    bodies: HashMap<i64, String>,
}

impl Dictionary {
    /// Forgets all numbers. A transaction that was rolled back may have created some of them.
    pub(super) fn clear(&mut self) {
        *self = Dictionary::default();
    }

    /// Returns the number of a pair, if the archive has entries of the pair.
    pub(super) fn find_pair(&mut self, sql: &Connection, from: &str, to: &str) -> rusqlite::Result<Option<i64>> {
        let key = (from.to_owned(), to.to_owned());
        if let Some(&id) = self.pairs.get(&key) {
            return Ok(Some(id));
        }
        let found = sql
            .prepare_cached(
                "SELECT p.id FROM pair p JOIN host a ON a.id = p.from_host JOIN host b ON b.id = p.to_host \
                 WHERE a.name = $1 AND b.name = $2",
            )?
            .query_row([from, to], |row| row.get(0))
            .optional()?;
        if let Some(id) = found {
            bound(&mut self.pairs);
            self.pairs.insert(key, id);
        }
        Ok(found)
    }

    /// Returns the number of a pair, and creates the pair if needed.
    pub(super) fn pair(&mut self, sql: &Connection, from: &str, to: &str) -> rusqlite::Result<i64> {
        if let Some(id) = self.find_pair(sql, from, to)? {
            return Ok(id);
        }
        let (from_id, to_id) = (host(sql, from)?, host(sql, to)?);
        let id = sql
            .prepare_cached(
                "INSERT INTO pair (id, from_host, to_host) SELECT coalesce(max(id), 0) + 1, $1, $2 FROM pair RETURNING id",
            )?
            .query_row([from_id, to_id], |row| row.get(0))?;
        bound(&mut self.pairs);
        self.pairs.insert((from.to_owned(), to.to_owned()), id);
        Ok(id)
    }

    /// Returns the names of the hosts of a pair.
    pub(super) fn names(&mut self, sql: &Connection, pair: i64) -> rusqlite::Result<(String, String)> {
        if let Some(names) = self.names.get(&pair) {
            return Ok(names.clone());
        }
        let names: (String, String) = sql
            .prepare_cached(
                "SELECT a.name, b.name FROM pair p JOIN host a ON a.id = p.from_host JOIN host b ON b.id = p.to_host \
                 WHERE p.id = $1",
            )?
            .query_row([pair], |row| Ok((row.get(0)?, row.get(1)?)))?;
        bound(&mut self.names);
        self.names.insert(pair, names.clone());
        Ok(names)
    }

    /// Returns the number of a text, and stores the text if it is new.
    pub(super) fn text(&mut self, sql: &Connection, body: &str) -> rusqlite::Result<i64> {
        if let Some(&id) = self.texts.get(body) {
            return Ok(id);
        }
        let found = sql
            .prepare_cached("SELECT id FROM text WHERE body = $1")?
            .query_row([body], |row| row.get(0))
            .optional()?;
        let id = match found {
            Some(id) => id,
            None => sql
                .prepare_cached(
                    "INSERT INTO text (id, body) SELECT coalesce(max(id), 0) + 1, $1 FROM text RETURNING id",
                )?
                .query_row(params![body], |row| row.get(0))?,
        };
        bound(&mut self.texts);
        self.texts.insert(body.to_owned(), id);
        Ok(id)
    }

    /// Returns the text of a number.
    pub(super) fn body(&mut self, sql: &Connection, id: i64) -> rusqlite::Result<String> {
        if let Some(body) = self.bodies.get(&id) {
            return Ok(body.clone());
        }
        let body: String =
            sql.prepare_cached("SELECT body FROM text WHERE id = $1")?.query_row([id], |row| row.get(0))?;
        bound(&mut self.bodies);
        self.bodies.insert(id, body.clone());
        Ok(body)
    }
}

/// Returns the number of a host, and creates the host if needed.
fn host(sql: &Connection, name: &str) -> rusqlite::Result<i64> {
    let found =
        sql.prepare_cached("SELECT id FROM host WHERE name = $1")?.query_row([name], |row| row.get(0)).optional()?;
    match found {
        Some(id) => Ok(id),
        None => sql
            .prepare_cached("INSERT INTO host (id, name) SELECT coalesce(max(id), 0) + 1, $1 FROM host RETURNING id")?
            .query_row([name], |row| row.get(0)),
    }
}

fn bound<K, V>(map: &mut HashMap<K, V>) {
    if map.len() >= MAX_REMEMBERED {
        map.clear();
    }
}
