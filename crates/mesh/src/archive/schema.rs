//! The tables, and the migrations that create and change them. A migration is never changed after a release: a new one is
//! appended.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior, params};

use super::ArchiveError;
use super::detail::divide;

/// Marks the file as an archive of lfn (`PRAGMA application_id`): "lfnM".
const APPLICATION_ID: i64 = 0x6c66_6e4d;

/// Columns of a measurement, which `result` and `latest` share.
///
/// Times are milliseconds, delays are microseconds, rates are bit/s.
macro_rules! figures {
    () => {
        "pair BIGINT NOT NULL, kind BIGINT NOT NULL, time BIGINT NOT NULL, test BIGINT, duration BIGINT, bytes BIGINT, \
         goodput BIGINT, predicted BIGINT, capacity BIGINT, base_rtt BIGINT, rtt BIGINT, max_rtt BIGINT, \
         one_way_delay BIGINT, packets BIGINT, lost BIGINT, retransmits BIGINT, hops BIGINT, outcome BIGINT NOT NULL, \
         findings BIGINT, conditions BIGINT, marks BIGINT NOT NULL"
    };
}

/// One step from a version of the tables to the next one.
struct Migration {
    sql: &'static str,
    /// Changes of rows that SQL does not express, after `sql`.
    then: Option<fn(&Connection) -> rusqlite::Result<()>>,
}

/// The migrations in order. The version of an archive is the number of migrations applied.
const MIGRATIONS: &[Migration] =
    &[Migration { sql: FIRST, then: None }, Migration { sql: SECOND, then: Some(divide_details) }];

const FIRST: &str = concat!(
    "CREATE TABLE host (id BIGINT NOT NULL PRIMARY KEY, name TEXT NOT NULL UNIQUE);",
    "CREATE TABLE pair (id BIGINT NOT NULL PRIMARY KEY, from_host BIGINT NOT NULL, to_host BIGINT NOT NULL, ",
    "UNIQUE (from_host, to_host));",
    "CREATE TABLE text (id BIGINT NOT NULL PRIMARY KEY, body TEXT NOT NULL UNIQUE);",
    "CREATE TABLE result (",
    figures!(),
    ", PRIMARY KEY (pair, kind, time)) WITHOUT ROWID;",
    "CREATE TABLE latest (",
    figures!(),
    ", PRIMARY KEY (pair, kind)) WITHOUT ROWID;",
    "CREATE TABLE day (pair BIGINT NOT NULL, kind BIGINT NOT NULL, day BIGINT NOT NULL, entries BIGINT NOT NULL, ",
    "failed BIGINT NOT NULL, measured BIGINT NOT NULL, goodput_min BIGINT, goodput_sum BIGINT NOT NULL, ",
    "goodput_max BIGINT, base_rtt BIGINT, packets BIGINT NOT NULL, lost BIGINT NOT NULL, bytes BIGINT NOT NULL, ",
    "PRIMARY KEY (pair, kind, day)) WITHOUT ROWID;",
    "CREATE TABLE detail (pair BIGINT NOT NULL, kind BIGINT NOT NULL, time BIGINT NOT NULL, body BLOB NOT NULL, ",
    "PRIMARY KEY (pair, kind, time)) WITHOUT ROWID;",
    "CREATE INDEX detail_time ON detail (time);",
);

/// The test is a part of the key, so that two tests of a pair may start together; 0 is no test. Texts and documents have
/// tables of their own, because only documents expire.
const SECOND: &str = concat!(
    "CREATE TABLE new_result (",
    figures!(),
    ", PRIMARY KEY (pair, kind, time, test)) WITHOUT ROWID;",
    "INSERT INTO new_result SELECT pair, kind, time, coalesce(test, 0), duration, bytes, goodput, predicted, capacity, ",
    "base_rtt, rtt, max_rtt, one_way_delay, packets, lost, retransmits, hops, outcome, findings, conditions, marks ",
    "FROM result;",
    "DROP TABLE result;",
    "ALTER TABLE new_result RENAME TO result;",
    "UPDATE latest SET test = 0 WHERE test IS NULL;",
    "CREATE TABLE explanation (pair BIGINT NOT NULL, kind BIGINT NOT NULL, time BIGINT NOT NULL, test BIGINT NOT NULL, ",
    "body BLOB NOT NULL, PRIMARY KEY (pair, kind, time, test)) WITHOUT ROWID;",
    "CREATE TABLE document (pair BIGINT NOT NULL, kind BIGINT NOT NULL, time BIGINT NOT NULL, test BIGINT NOT NULL, ",
    "stored BIGINT NOT NULL, body BLOB NOT NULL, PRIMARY KEY (pair, kind, time, test)) WITHOUT ROWID;",
    "CREATE INDEX document_stored ON document (stored);",
);

/// Moves the details of version 1 to their new tables. Their time of storing is unknown, so it is the time of the entry.
fn divide_details(sql: &Connection) -> rusqlite::Result<()> {
    let mut details = sql.prepare(
        "SELECT r.pair, r.kind, r.time, r.test, d.body FROM detail d \
         JOIN result r ON r.pair = d.pair AND r.kind = d.kind AND r.time = d.time",
    )?;
    let mut rows = details.query([])?;
    while let Some(row) = rows.next()? {
        let key = |column| row.get::<_, i64>(column);
        let (pair, kind, time, test) = (key(0)?, key(1)?, key(2)?, key(3)?);
        let (texts, document) = divide(&row.get::<_, Vec<u8>>(4)?);
        if let Some(body) = texts {
            sql.prepare_cached("INSERT INTO explanation (pair, kind, time, test, body) VALUES ($1, $2, $3, $4, $5)")?
                .execute(params![pair, kind, time, test, body])?;
        }
        if let Some(body) = document {
            sql.prepare_cached(
                "INSERT INTO document (pair, kind, time, test, stored, body) VALUES ($1, $2, $3, $4, $3, $5)",
            )?
            .execute(params![pair, kind, time, test, body])?;
        }
    }
    drop(rows);
    drop(details);
    sql.execute_batch("DROP TABLE detail")
}

/// Version of the tables that this build reads and writes.
pub(super) const VERSION: i64 = MIGRATIONS.len() as i64;

/// Returns the version of the tables; 0 for an empty file. Refuses files of other programs and of later versions.
pub(super) fn check(connection: &Connection, path: &Path) -> Result<i64, ArchiveError> {
    let number = |name| {
        connection
            .pragma_query_value(None, name, |row| row.get::<_, i64>(0))
            .map_err(|error| ArchiveError::of(path, error))
    };
    let (id, version) = (number("application_id")?, number("user_version")?);
    let tables: i64 = connection
        .query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0))
        .map_err(|error| ArchiveError::of(path, error))?;
    if id != APPLICATION_ID && (id != 0 || tables > 0) {
        return Err(ArchiveError::Foreign(path.to_owned()));
    }
    if version > VERSION {
        return Err(ArchiveError::Newer { path: path.to_owned(), found: version, known: VERSION });
    }
    Ok(version)
}

/// Applies the missing migrations.
pub(super) fn migrate(connection: &mut Connection, path: &Path) -> Result<(), ArchiveError> {
    apply(connection, MIGRATIONS).map_err(|error| ArchiveError::of(path, error))
}

/// Applies the migrations above the version of the file, all or none.
fn apply(connection: &mut Connection, migrations: &[Migration]) -> rusqlite::Result<()> {
    // Another process may migrate at the same time, so the version is read under the lock.
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let version: u32 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let current = u32::try_from(migrations.len()).unwrap_or(u32::MAX);
    for migration in migrations.iter().skip(version as usize) {
        transaction.execute_batch(migration.sql)?;
        if let Some(then) = migration.then {
            then(&transaction)?;
        }
    }
    if version < current {
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", current)?;
    }
    transaction.commit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn migrations_go_forward_and_keep_rows() {
        let mut connection = Connection::open_in_memory().unwrap();
        let steps = ["CREATE TABLE a (x BIGINT)", "ALTER TABLE a ADD COLUMN y BIGINT"];
        let steps = steps.map(|sql| Migration { sql, then: None });
        apply(&mut connection, &steps[..1]).unwrap();
        connection.execute("INSERT INTO a VALUES (7)", []).unwrap();
        apply(&mut connection, &steps).unwrap();
        apply(&mut connection, &steps).unwrap();
        let row: (i64, Option<i64>) =
            connection.query_row("SELECT x, y FROM a", [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        assert_eq!(row, (7, None));
    }

    #[test]
    fn a_failed_migration_changes_nothing() {
        let step = Migration { sql: "CREATE TABLE a (x BIGINT); CREATE TABLE a (x BIGINT)", then: None };
        let mut connection = Connection::open_in_memory().unwrap();
        assert!(apply(&mut connection, &[step]).is_err());
        let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0)).unwrap();
        assert_eq!(tables, 0);
    }

    #[test]
    fn results_and_details_of_version_1_are_kept() {
        use crate::archive::{Archive, EntryFilter};

        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("old.sqlite");
        let mut connection = Connection::open(&path).unwrap();
        apply(&mut connection, &MIGRATIONS[..1]).unwrap();
        let json = br#"{"verdict":"limited by the path","error":"cut","document":{"runs":[1,2]}}"#;
        let body = crate::archive::detail::compress(json);
        connection
            .execute_batch(
                "INSERT INTO host VALUES (1, 'a'), (2, 'b'); INSERT INTO pair VALUES (1, 1, 2); \
                 INSERT INTO text VALUES (1, 'goodput');",
            )
            .unwrap();
        for table in ["result", "latest"] {
            let sql = format!(
                "INSERT INTO {table} (pair, kind, time, test, goodput, outcome, marks) VALUES (1, 0, 5000, 1, 7, 0, 0), \
                 (1, 1, 6000, NULL, NULL, 0, 8)"
            );
            connection.execute(&sql, []).unwrap();
        }
        connection.execute("INSERT INTO detail VALUES (1, 0, 5000, $1)", [body]).unwrap();
        drop(connection);
        let mut archive = Archive::open(&path).unwrap();
        let filter = EntryFilter { texts: true, documents: true, ..EntryFilter::default() };
        let entries = archive.entries(filter).unwrap();
        assert_eq!(entries.iter().map(|entry| entry.test.as_str()).collect::<Vec<_>>(), ["goodput", ""]);
        assert_eq!((entries[0].verdict.as_str(), entries[0].error.as_deref()), ("limited by the path", Some("cut")));
        assert_eq!(entries[0].detail.as_ref().unwrap().text(), r#"{"runs":[1,2]}"#);
        assert_eq!(archive.latest().unwrap().len(), 2);
        assert_eq!(archive.expire_details(std::time::Duration::from_secs(6), 9).unwrap(), 1);
    }
}
