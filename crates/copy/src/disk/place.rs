//! The place of a measurement: a directory, which gets a file without a name, or an existing file, which is only read.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use lfn_base::units::Bytes;
use lfn_results::evidence::disk::{DiskRate, DiskReport};
use lfn_session::wire::copy::blocks::DEFAULT_BLOCK;
use rustix::fs::{
    AtFlags, Dir, FallocateFlags, FileType, Mode, OFlags, Stat, fallocate, fstat, openat, statat, unlinkat,
};
use rustix::io::Errno;

use super::file_system::{free_space, is_rotational, type_of};
use super::load::{DiskActivity, Limits, Load, LoadError, THREADS};
use crate::TransferError;
use crate::base_dir::{BaseDir, check_regular, file_error, open_error, or_current_dir, path_text};
use crate::client::random_seed;
use crate::error::system_error_text;
use crate::storage::local::partial_name;

/// Maximum size of the written file as a share of the free space: one tenth.
pub const MAX_SHARE_OF_FREE: u64 = 10;
/// Maximum size of the written file.
pub const MAX_FILE: Bytes = Bytes(4 << 30);
/// Minimum size of a file: a few blocks for each thread.
const MIN_FILE: Bytes = Bytes(16 << 20);
/// Maximum entries of a directory that are searched for a large file.
const MAX_ENTRIES: usize = 10_000;
/// Flags for opening without waiting for the writer of a FIFO.
const READ_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Measurements that the rights of a client permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Access {
    pub(super) read: bool,
    pub(super) write: bool,
    /// The result may have facts of the file system.
    pub(super) reveals: bool,
}

impl Access {
    /// Access of this host's own user.
    pub(super) const ALL: Access = Access { read: true, write: true, reveals: true };
}

/// Measures the disk of a path as far as the access permits.
pub(super) fn measure(
    base: &BaseDir,
    path: &Path,
    access: Access,
    limits: &mut Limits<'_>,
) -> Result<DiskReport, TransferError> {
    let shown = path_text(path);
    let path = or_current_dir(path);
    let opened = base.open(path, OFlags::PATH).map_err(|error| open_error("open", &shown, error))?;
    let stat = fstat(&opened).map_err(|error| file_error("open", &shown, error))?;
    let mut report = DiskReport { block: DEFAULT_BLOCK, threads: THREADS, ..DiskReport::default() };
    if access.reveals {
        report.file_system = type_of(&opened);
        report.rotational = is_rotational(&opened);
        report.free = free_space(&opened);
    }
    if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
        measure_directory(&opened, access, limits, &mut report)?;
        return Ok(report);
    }
    check_regular(&stat, &shown)?;
    let file = base.open(path, READ_FLAGS).map_err(|error| open_error("read", &shown, error))?;
    check_regular(&fstat(&file).map_err(|error| file_error("read", &shown, error))?, &shown)?;
    read_existing(&file.into(), limits, &mut report)?;
    Ok(report)
}

/// Writes a file without a name and reads it again. Without it, reads the largest file of the directory.
fn measure_directory(
    directory: &OwnedFd,
    access: Access,
    limits: &mut Limits<'_>,
    report: &mut DiskReport,
) -> Result<(), TransferError> {
    let written = if access.write {
        write_scratch(directory, access, limits, report)?
    } else {
        report.not_written = Some("this server or this ticket does not allow writing".to_owned());
        None
    };
    if !access.read {
        report.not_read = Some("this ticket does not allow reading".to_owned());
        return Ok(());
    }
    match written {
        Some(file) => {
            let size = report.write.map_or(0, |write| write.file_bytes.0);
            report.read = run(
                Load { file: &file, activity: DiskActivity::Read, size: Bytes(size) },
                limits,
                &mut report.not_read,
            )?;
        }
        None => match largest_file(directory) {
            Some(file) => read_existing(&file, limits, report)?,
            None => report.not_read = Some(format!("the directory has no readable file of {MIN_FILE} or more")),
        },
    }
    Ok(())
}

/// Writes a file without a name, and returns it.
fn write_scratch(
    directory: &OwnedFd,
    access: Access,
    limits: &mut Limits<'_>,
    report: &mut DiskReport,
) -> Result<Option<File>, TransferError> {
    let size = match file_size(free_space(directory), limits.max_bytes) {
        Ok(size) => size,
        Err(short) => {
            report.not_written = Some(if access.reveals { short } else { "too little free space".to_owned() });
            return Ok(None);
        }
    };
    let file = match create_scratch(directory) {
        Ok(file) => file,
        Err(error) => {
            report.not_written = Some(format!("cannot create a file in this directory: {}", reason(error)));
            return Ok(None);
        }
    };
    // As a copy does. A file system without fallocate(2) reports a full disk later.
    if let Err(error @ (Errno::NOSPC | Errno::DQUOT)) = fallocate(&file, FallocateFlags::empty(), 0, size.0) {
        report.not_written = Some(reason(error));
        return Ok(None);
    }
    report.write = run(Load { file: &file, activity: DiskActivity::Write, size }, limits, &mut report.not_written)?;
    Ok(report.write.is_some().then_some(file))
}

/// Reads an existing file.
fn read_existing(file: &File, limits: &mut Limits<'_>, report: &mut DiskReport) -> Result<(), TransferError> {
    let failed = |error: Errno| file_error("read", "the file", error);
    let stat = fstat(file).map_err(failed)?;
    let size = Bytes(whole_blocks(stat.st_size as u64));
    if size < MIN_FILE {
        report.not_read =
            Some(format!("the file has {} ({} needed)", Bytes(stat.st_size as u64).decimal(), MIN_FILE.decimal()));
    } else if is_sparse(&stat) {
        report.not_read =
            Some("the file has holes or is compressed, so the rate would not be that of the disk".to_owned());
    } else {
        report.read = run(Load { file, activity: DiskActivity::Read, size }, limits, &mut report.not_read)?;
    }
    Ok(())
}

/// Runs a load. An error of the file system is a reason, and every other error ends the measurement.
fn run(
    load: Load<'_>,
    limits: &mut Limits<'_>,
    reason_without: &mut Option<String>,
) -> Result<Option<DiskRate>, TransferError> {
    match load.run(random_seed()?, limits) {
        Ok(rate) => Ok(Some(rate)),
        Err(LoadError::File(error)) => {
            *reason_without = Some(reason(error));
            Ok(None)
        }
        Err(LoadError::Ended(error)) => Err(error),
    }
}

/// Returns the size of the written file, or the reason why there is none.
fn file_size(free: Option<Bytes>, max_bytes: Option<Bytes>) -> Result<Bytes, String> {
    let free = free.ok_or("the free space is unknown")?;
    let size = Bytes(whole_blocks(free.0 / MAX_SHARE_OF_FREE)).min(MAX_FILE);
    if size < MIN_FILE {
        let needed = Bytes(MIN_FILE.0 * MAX_SHARE_OF_FREE);
        return Err(format!("{} free, {} needed", free.decimal(), needed.decimal()));
    }
    match max_bytes {
        Some(max) if max < MIN_FILE => Err(format!(
            "the byte quota of this client permits a file of {} ({} needed)",
            max.decimal(),
            MIN_FILE.decimal()
        )),
        _ => Ok(size),
    }
}

fn whole_blocks(bytes: u64) -> u64 {
    bytes / DEFAULT_BLOCK.0 * DEFAULT_BLOCK.0
}

/// Returns true if the file has fewer blocks than its size (stat(2): units of 512 bytes).
fn is_sparse(stat: &Stat) -> bool {
    (stat.st_blocks as u64).saturating_mul(512) < stat.st_size as u64
}

/// Creates a file without a name, or with a private name that is removed at once.
fn create_scratch(directory: &OwnedFd) -> Result<File, Errno> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o600);
    match openat(directory, ".", flags | OFlags::TMPFILE, mode) {
        // Older kernels report that the name is a directory (open(2)).
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {}
        opened => return opened.map(File::from),
    }
    create_and_remove(directory)
}

/// Creates a file with a private name, and removes the name. A file system without `O_TMPFILE` needs a name.
fn create_and_remove(directory: &OwnedFd) -> Result<File, Errno> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o600);
    let number = getrandom::u64().map_err(|_| Errno::IO)?;
    // `lfn copy --clean` finds this name if the process ends between the next two calls.
    let name: OsString = partial_name(format!("lfn-disk-{number:016x}").as_ref());
    let file = openat(directory, &name, flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW, mode)?;
    unlinkat(directory, &name, AtFlags::empty())?;
    Ok(file.into())
}

/// Opens the largest regular file of a directory, if one is large enough and readable.
fn largest_file(directory: &OwnedFd) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let entries = openat(directory, ".", flags, Mode::empty()).and_then(Dir::new).ok()?;
    let sizes = entries.take(MAX_ENTRIES).filter_map(|entry| {
        let name = entry.ok()?.file_name().to_owned();
        let stat = statat(directory, &name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let is_useful = check_regular(&stat, "").is_ok() && stat.st_size as u64 >= MIN_FILE.0 && !is_sparse(&stat);
        is_useful.then_some((stat.st_size, name))
    });
    let (_, name) = sizes.max()?;
    let file = openat(directory, &name, READ_FLAGS | OFlags::NOFOLLOW, Mode::empty()).ok()?;
    check_regular(&fstat(&file).ok()?, "").ok()?;
    Some(file.into())
}

/// Converts an error of the system into a reason within a sentence.
fn reason(error: impl Into<io::Error>) -> String {
    let text = system_error_text(&error.into());
    let mut chars = text.chars();
    chars.next().map(|first| first.to_lowercase().chain(chars).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_takes_a_bounded_part_of_the_free_space() {
        let size = |free: u64, max: Option<u64>| file_size(Some(Bytes(free)), max.map(Bytes));
        assert_eq!(size(1 << 30, None), Ok(Bytes(102 << 20)));
        assert_eq!(size(1 << 50, None), Ok(MAX_FILE));
        assert_eq!(size(160 << 20, None), Ok(MIN_FILE));
        let short = size(100_000_000, None).unwrap_err();
        assert_eq!(short, "100 MB free, 167.8 MB needed");
        assert!(size(1 << 40, Some(1 << 20)).is_err() && file_size(None, None).is_err());
    }

    #[test]
    fn file_has_no_name() {
        let directory = tempfile::tempdir().unwrap();
        let opened = BaseDir::Local.open(directory.path(), OFlags::PATH).unwrap();
        // The second way is that of a file system without `O_TMPFILE`.
        for create in [create_scratch, create_and_remove] {
            let file = create(&opened).unwrap();
            assert_eq!(fstat(&file).unwrap().st_nlink, 0);
            std::fs::write(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file)), "x").unwrap();
            assert_eq!(fstat(&file).unwrap().st_size, 1);
            assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        }
    }

    #[test]
    fn largest_file_of_a_directory_is_regular() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name| directory.path().join(name);
        std::fs::write(path("middle"), vec![1; 16 << 20]).unwrap();
        std::fs::write(path("small"), "x").unwrap();
        std::fs::File::create(path("holes")).unwrap().set_len(1 << 30).unwrap();
        std::os::unix::fs::symlink("/bin/sh", path("link")).unwrap();
        let opened = BaseDir::Local.open(directory.path(), OFlags::PATH).unwrap();
        assert_eq!(largest_file(&opened).unwrap().metadata().unwrap().len(), 16 << 20);
        std::fs::remove_file(path("middle")).unwrap();
        assert!(largest_file(&opened).is_none());
    }
}
