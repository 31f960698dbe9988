//! The tables, and the migrations that create and change them. A migration is never changed after a release: a new one is
//! appended.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};

use super::ArchiveError;

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

/// The migrations in order. The version of an archive is the number of migrations applied.
const MIGRATIONS: &[&str] = &[concat!(
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
)];

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
fn apply(connection: &mut Connection, migrations: &[&str]) -> rusqlite::Result<()> {
    // Another process may migrate at the same time, so the version is read under the lock.
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let version: u32 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let current = u32::try_from(migrations.len()).unwrap_or(u32::MAX);
    for migration in migrations.iter().skip(version as usize) {
        transaction.execute_batch(migration)?;
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
        let mut connection = Connection::open_in_memory().unwrap();
        assert!(apply(&mut connection, &["CREATE TABLE a (x BIGINT); CREATE TABLE a (x BIGINT)"]).is_err());
        let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0)).unwrap();
        assert_eq!(tables, 0);
    }
}
