//! Storing entries: all of a batch in one transaction.

use std::time::Duration;

use rusqlite::{Connection, TransactionBehavior, params, params_from_iter};

use super::detail::{EntryTexts, encode_document};
use super::dictionary::Dictionary;
use super::row::{self, milliseconds};
use super::{Archive, ArchiveError};
use crate::entry::{Entry, Outcome};

/// Length of a day, milliseconds.
pub(super) const DAY_MILLISECONDS: i64 = 86_400_000;

/// Entries later than this after the present do not become the latest ones: the clock of their agent is wrong.
const MAX_AHEAD: Duration = Duration::from_secs(3600);

/// Numbers of entries of one batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InsertCount {
    /// Entries that are new.
    pub stored: usize,
    /// Entries whose key the archive had already.
    pub known: usize,
}

const RESULT: &str = "INSERT INTO result (pair, kind, time, test, duration, bytes, goodput, predicted, capacity, base_rtt, rtt, \
     max_rtt, one_way_delay, packets, lost, retransmits, hops, outcome, findings, conditions, marks) VALUES \
     ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21) \
     ON CONFLICT (pair, kind, time, test) DO NOTHING";

const LATEST: &str = "INSERT INTO latest (pair, kind, time, test, duration, bytes, goodput, predicted, capacity, base_rtt, rtt, \
     max_rtt, one_way_delay, packets, lost, retransmits, hops, outcome, findings, conditions, marks) VALUES \
     ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21) \
     ON CONFLICT (pair, kind) DO UPDATE SET time = excluded.time, test = excluded.test, duration = excluded.duration, \
     bytes = excluded.bytes, goodput = excluded.goodput, predicted = excluded.predicted, capacity = excluded.capacity, \
     base_rtt = excluded.base_rtt, rtt = excluded.rtt, max_rtt = excluded.max_rtt, \
     one_way_delay = excluded.one_way_delay, packets = excluded.packets, lost = excluded.lost, \
     retransmits = excluded.retransmits, hops = excluded.hops, outcome = excluded.outcome, findings = excluded.findings, \
     conditions = excluded.conditions, marks = excluded.marks WHERE excluded.time > latest.time \
     OR (excluded.time = latest.time AND excluded.test > latest.test)";

const DAY: &str = "INSERT INTO day (pair, kind, day, entries, failed, measured, goodput_min, goodput_sum, goodput_max, base_rtt, \
     packets, lost, bytes) VALUES ($1, $2, $3, 1, $4, $5, $6, $7, $8, $9, $10, $11, $12) \
     ON CONFLICT (pair, kind, day) DO UPDATE SET entries = day.entries + 1, failed = day.failed + excluded.failed, \
     measured = day.measured + excluded.measured, \
     goodput_min = CASE WHEN day.goodput_min < excluded.goodput_min THEN day.goodput_min \
     ELSE coalesce(excluded.goodput_min, day.goodput_min) END, \
     goodput_sum = day.goodput_sum + excluded.goodput_sum, \
     goodput_max = CASE WHEN day.goodput_max > excluded.goodput_max THEN day.goodput_max \
     ELSE coalesce(excluded.goodput_max, day.goodput_max) END, \
     base_rtt = CASE WHEN day.base_rtt < excluded.base_rtt THEN day.base_rtt \
     ELSE coalesce(excluded.base_rtt, day.base_rtt) END, \
     packets = day.packets + excluded.packets, lost = day.lost + excluded.lost, bytes = day.bytes + excluded.bytes";

const EXPLANATION: &str = "INSERT INTO explanation (pair, kind, time, test, body) VALUES ($1, $2, $3, $4, $5) \
     ON CONFLICT (pair, kind, time, test) DO NOTHING";

const DOCUMENT: &str = "INSERT INTO document (pair, kind, time, test, stored, body) VALUES ($1, $2, $3, $4, $5, $6) \
     ON CONFLICT (pair, kind, time, test) DO NOTHING";

impl Archive {
    /// Stores the entries that are new, all or none. Returns when they are on disk. `now` is the time since 1970.
    pub fn insert(&mut self, entries: &[Entry], now: Duration) -> Result<InsertCount, ArchiveError> {
        let counts = self.insert_batches([entries], now)?;
        Ok(counts.into_iter().next().unwrap_or_default())
    }

    /// Stores several batches in one transaction, all or none, and counts each of them. A batch is dropped before the next
    /// one is made.
    pub fn insert_batches<B: AsRef<[Entry]>>(
        &mut self,
        batches: impl IntoIterator<Item = B>,
        now: Duration,
    ) -> Result<Vec<InsertCount>, ArchiveError> {
        let result = insert_all(&mut self.connection, &mut self.dictionary, batches, now);
        result.map_err(|error| {
            self.dictionary.clear();
            self.failed(error)
        })
    }

    /// Deletes the details that were stored before `before`, at most `limit` of them. Returns how many were deleted. Verdicts,
    /// findings and errors stay.
    pub fn expire_details(&mut self, before: Duration, limit: usize) -> Result<usize, ArchiveError> {
        let deleted = self.connection.execute(
            "DELETE FROM document WHERE (pair, kind, time, test) IN \
             (SELECT pair, kind, time, test FROM document WHERE stored < $1 ORDER BY stored LIMIT $2)",
            params![milliseconds(before), i64::try_from(limit).unwrap_or(i64::MAX)],
        );
        deleted.map_err(|error| self.failed(error))
    }
}

fn insert_all<B: AsRef<[Entry]>>(
    connection: &mut Connection,
    dictionary: &mut Dictionary,
    batches: impl IntoIterator<Item = B>,
    now: Duration,
) -> rusqlite::Result<Vec<InsertCount>> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut counts = Vec::new();
    for batch in batches {
        let mut count = InsertCount::default();
        for entry in batch.as_ref() {
            match insert_one(&transaction, dictionary, entry, now)? {
                true => count.stored += 1,
                false => count.known += 1,
            }
        }
        counts.push(count);
    }
    transaction.commit()?;
    Ok(counts)
}

/// Returns whether the entry is new.
fn insert_one(sql: &Connection, dictionary: &mut Dictionary, entry: &Entry, now: Duration) -> rusqlite::Result<bool> {
    let values = row::values(dictionary, sql, entry)?;
    if sql.prepare_cached(RESULT)?.execute(params_from_iter(&values))? == 0 {
        return Ok(false);
    }
    if entry.time <= now.saturating_add(MAX_AHEAD) {
        sql.prepare_cached(LATEST)?.execute(params_from_iter(&values))?;
    }
    let [pair, kind, time, test, ..] = &values;
    let goodput = entry.goodput.map(|rate| i64::try_from(rate.0).unwrap_or(i64::MAX));
    let number = |value: Option<u64>| value.map_or(0, |value| i64::try_from(value).unwrap_or(i64::MAX));
    sql.prepare_cached(DAY)?.execute(params![
        pair,
        kind,
        milliseconds(entry.time) / DAY_MILLISECONDS,
        i64::from(entry.outcome == Outcome::Failed),
        i64::from(goodput.is_some()),
        goodput,
        goodput.unwrap_or(0),
        goodput,
        entry.base_rtt.map(|rtt| number(u64::try_from(rtt.as_micros()).ok())),
        number(entry.packets),
        number(entry.lost_packets),
        number(entry.bytes.map(|bytes| bytes.0)),
    ])?;
    if let Some(texts) = EntryTexts::of(entry) {
        sql.prepare_cached(EXPLANATION)?.execute(params![pair, kind, time, test, texts.encode()])?;
    }
    if let Some(document) = &entry.detail {
        let values = params![pair, kind, time, test, milliseconds(now), encode_document(document)];
        sql.prepare_cached(DOCUMENT)?.execute(values)?;
    }
    Ok(true)
}
