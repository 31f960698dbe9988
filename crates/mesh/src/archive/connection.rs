//! Opening the file, and its settings: those that make a commit durable, and those that bound the memory.

use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::ArchiveError;
use super::schema;

/// Maximum wait for another writer.
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);

/// Pages that a connection keeps in memory, KiB.
const WRITER_CACHE_KIB: i64 = 32 << 10;
const READER_CACHE_KIB: i64 = 16 << 10;

/// Size of the write-ahead log above which it is cut after a checkpoint, bytes.
const JOURNAL_LIMIT: i64 = 64 << 20;

/// Opens or creates the file, and migrates its tables.
pub(super) fn open(path: &Path) -> Result<Connection, ArchiveError> {
    create_private(path).map_err(|source| ArchiveError::Io { path: path.to_owned(), source })?;
    let failed = |error| ArchiveError::of(path, error);
    let mut connection =
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)
            .map_err(failed)?;
    connection.busy_timeout(BUSY_TIMEOUT).map_err(failed)?;
    schema::check(&connection, path)?;
    let settings = [
        ("journal_mode", "WAL".to_owned()),
        // A commit returns when the log is on disk.
        ("synchronous", "FULL".to_owned()),
        ("cache_size", (-WRITER_CACHE_KIB).to_string()),
        ("journal_size_limit", JOURNAL_LIMIT.to_string()),
    ];
    for (name, value) in settings {
        connection.pragma_update(None, name, value).map_err(failed)?;
    }
    schema::migrate(&mut connection, path)?;
    Ok(connection)
}

/// Opens an existing file of the current version for reading.
pub(super) fn open_read_only(path: &Path) -> Result<Connection, ArchiveError> {
    if !path.exists() {
        return Err(ArchiveError::Missing(path.to_owned()));
    }
    let failed = |error| ArchiveError::of(path, error);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(failed)?;
    connection.busy_timeout(BUSY_TIMEOUT).map_err(failed)?;
    connection.pragma_update(None, "cache_size", -READER_CACHE_KIB).map_err(failed)?;
    if schema::check(&connection, path)? < schema::VERSION {
        // Only a writer can migrate.
        drop(open(path)?);
    }
    Ok(connection)
}

/// Copies the archive to a new file, as of one moment.
pub(super) fn back_up(connection: &Connection, from: &Path, to: &Path) -> Result<(), ArchiveError> {
    if to.exists() {
        return Err(ArchiveError::Exists(to.to_owned()));
    }
    create_private(to).map_err(|source| ArchiveError::Io { path: to.to_owned(), source })?;
    let target = to.to_string_lossy();
    let copied = connection.execute("VACUUM INTO $1", [&*target]);
    copied.map(drop).map_err(|error| {
        // An incomplete copy must not look like a backup.
        let _ = std::fs::remove_file(to);
        ArchiveError::of(
            if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull) { to } else { from },
            error,
        )
    })
}

/// Creates an empty file that only this user can read, and its directory, unless the file exists.
fn create_private(path: &Path) -> io::Result<()> {
    if let Some(directory) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}
