//! Opening the file, and its settings: those that make a commit durable, and those that bound the memory.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::types::{ToSqlOutput, ValueRef};
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
    match create_private(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(ArchiveError::Io { path: path.to_owned(), source: error });
        }
        _ => {}
    }
    refuse_foreign_log(path)?;
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
    refuse_foreign_log(path)?;
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

/// Refuses a restored backup next to the write-ahead log of the archive that was there before: SQLite would write this log into
/// the backup. An archive with a log is marked for a log in its header (bytes 18 and 19 are 2), and a backup is not.
fn refuse_foreign_log(path: &Path) -> Result<(), ArchiveError> {
    let log = with_suffix(path, "-wal");
    if fs::metadata(&log).map_or(0, |file| file.len()) == 0 {
        return Ok(());
    }
    let mut header = [0; 20];
    let is_read = File::open(path).and_then(|mut file| file.read_exact(&mut header)).is_ok();
    if is_read && header[18..] == [1, 1] {
        return Err(ArchiveError::OldLog { path: path.to_owned(), log, shared: with_suffix(path, "-shm") });
    }
    Ok(())
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// Copies the archive to a new file, as of one moment. Returns when the copy is on disk.
pub(super) fn back_up(connection: &Connection, from: &Path, to: &Path) -> Result<(), ArchiveError> {
    let io_failed = |source: io::Error| match source.kind() {
        io::ErrorKind::AlreadyExists => ArchiveError::Exists(to.to_owned()),
        _ => ArchiveError::Io { path: to.to_owned(), source },
    };
    create_private(to).map_err(io_failed)?;
    // The bytes of the path may be no UTF-8.
    let target = ToSqlOutput::Borrowed(ValueRef::Text(to.as_os_str().as_bytes()));
    let copied = connection.execute("VACUUM INTO $1", [target]).map_err(|error| {
        let is_full = error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull);
        ArchiveError::of(if is_full { to } else { from }, error)
    });
    let synced = copied.and_then(|_| File::open(to).and_then(|file| file.sync_all()).map_err(io_failed));
    if synced.is_err() {
        // An incomplete copy must not look like a backup.
        let _ = fs::remove_file(to);
    }
    synced
}

/// Creates an empty file that only this user can read, and its directory. Fails if the file exists, also as a symbolic link to
/// a missing file.
fn create_private(path: &Path) -> io::Result<()> {
    if let Some(directory) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map(drop)
}
